"""From a row of the table to a model and its objective."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn
from torchvision.transforms.v2 import Normalize

from cgp.attention import SharedInducingPoints, SoftmaxAttention
from cgp.networks.model.objective import CategoricalLikelihood, Objective
from experiments.configuration import MethodConfig, RunConfig
from experiments.data.examples import DataDescription
from experiments.methods import mean_field, sngp
from experiments.methods.authors import AuthorsCGPAttention, AuthorsSparseCGPAttention
from experiments.registry import block_class
from experiments.training import ClassificationModule
from experiments.training.augmentation import CropAndFlip
from models import TextTransformer, VisionTransformer

__all__ = ["build", "network"]

_AUTHORS: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {"cgp": AuthorsCGPAttention, "sparse_cgp": AuthorsSparseCGPAttention}
)
"""The blocks with the loss of the authors' code, selected in a row by `objective: authors`."""

_CHANGES: Mapping[str, Callable[..., nn.Module]] = MappingProxyType({"mfvi": mean_field, "sngp": sngp})
"""Functions that turn the softmax transformer into a Bayesian network."""

_PADDING = 4  # pixels around an image before it is cropped


def build(config: RunConfig, description: DataDescription, num_data: int) -> ClassificationModule:
    """Build the Lightning module: a network and its objective over `num_data` training examples."""
    model = network(config, description)
    objective = Objective(model, CategoricalLikelihood(description.num_classes), num_data)
    return ClassificationModule(model=model, objective=objective, method=config.method, training=config.training)


def network(config: RunConfig, description: DataDescription) -> nn.Module:
    """Build a network: from images, or from `tokens` and `padding_mask`, to logits; augmentation is part of it."""
    whole, transformer = _transformer(config, description)
    method = config.method
    change = _CHANGES.get(method.kind)
    if change is not None:
        return change(whole, **_checked(method, change, method.options))
    return _with_travelling_points(whole, transformer, method)


def _transformer(
    config: RunConfig, description: DataDescription
) -> tuple[nn.Module, TextTransformer | VisionTransformer]:
    """The network with augmentation and normalisation, and the transformer in it."""
    model = config.model
    sizes: dict[str, Any] = {
        "num_classes": description.num_classes,
        "attention": _attention_of_layers(config.method, model.depth),
        "depth": model.depth,
        "embed_dim": model.embed_dim,
        "mlp_dim": model.mlp_dim,
        "num_heads": model.num_heads,
        "dropout": model.dropout,
    }
    if description.kind == "text":
        text = TextTransformer(
            vocabulary_size=description.vocabulary_size,
            input_dim=description.input_dim,
            max_length=_present(description.max_length, "max_length of the data"),
            **sizes,
        )
        return text, text
    channels, _, side = _present(description.image_shape, "image_shape of the data")
    transformer = VisionTransformer(
        image_size=side,
        channels=channels,
        patch_size=_present(model.patch_size, "model.patch_size"),
        pooling=model.pooling,
        **sizes,
    )
    augmentation = [CropAndFlip(_PADDING)] if config.training.augmentation == "crop_and_flip" else []
    normalisation = Normalize(list(description.mean or ()), list(description.deviation or ()))
    return nn.Sequential(*augmentation, normalisation, transformer), transformer


def _attention_of_layers(method: MethodConfig, depth: int) -> list[Callable[..., nn.Module]]:
    """Return a factory for each layer."""
    if method.kind in _CHANGES:
        return [SoftmaxAttention] * depth
    block, options = _block(method)
    chosen = partial(block, **_checked(method, block, options))
    return [SoftmaxAttention if method.layers == "last" and layer < depth - 1 else chosen for layer in range(depth)]


def _block(method: MethodConfig) -> tuple[Callable[..., nn.Module], dict[str, Any]]:
    """The block of a row and its options; the regulariser of the authors' code needs other blocks."""
    options = dict(method.options)
    if options.get("objective") != "authors":
        return block_class(method.attention), options
    del options["objective"]
    options.pop("mean", None)
    if method.attention not in _AUTHORS or options.pop("coupling", None) != "latent":
        raise ValueError(f"options of {method.label}: objective 'authors' needs latent attention of cgp or sparse_cgp")
    return _AUTHORS[method.attention], options


def _with_travelling_points(
    whole: nn.Module, transformer: TextTransformer | VisionTransformer, method: MethodConfig
) -> nn.Module:
    """Pass SGPA's global keys through the layers if the row specifies it."""
    if method.attention != "sgpa" or method.options.get("inducing") != "travel":
        return whole
    return SharedInducingPoints(whole, transformer.layers)


def _checked(method: MethodConfig, make: Callable[..., Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options if the method takes them all; otherwise raise with the nearest option that it takes."""
    parameters = inspect.signature(make).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; known are {sorted(known)}"
            kind = method.attention if method.kind == "attention" else method.kind
            raise ValueError(f"options of {method.label}: {kind} does not take {name!r}{hint}")
    return options


def _present(value: Any, name: str) -> Any:
    if value is None:
        raise ValueError(f"{name}: expected a value, got None")
    return value
