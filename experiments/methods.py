"""From a row of the table to a model and its objective."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from torch import nn
from torchvision.transforms.v2 import Normalize

from cgp.attention import (
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    PrimalAttention,
    SGPAttention,
    SoftmaxAttention,
    SparseCGPAttention,
)
from cgp.likelihoods import CategoricalLikelihood
from cgp.objectives import Objective
from experiments.configuration import MethodConfig, ModelConfig, TrainingConfig
from experiments.training import ClassificationModule
from models import VisionTransformer

__all__ = ["ATTENTION", "build"]

ATTENTION: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {
        "softmax": SoftmaxAttention,
        "kernel": KernelAttention,
        "cgp": CGPAttention,
        "sparse_cgp": SparseCGPAttention,
        "sgpa": SGPAttention,
        "kep_svgp": KEPSVGPAttention,
        "primal": PrimalAttention,
    }
)


def build(
    method: MethodConfig,
    *,
    model: ModelConfig,
    training: TrainingConfig,
    image_shape: tuple[int, int, int],
    normalisation: tuple[float, float],
    num_classes: int,
    num_data: int,
) -> ClassificationModule:
    """Build what Lightning trains.

    Args:
        method: attention and what was selected for it.
        model: sizes.
        training: the budget.
        image_shape: (C, H, W), H = W.
        normalisation: mean and standard deviation of the pixels.
        num_classes: number of classes.
        num_data: number of training images.

    Raises:
        ValueError: if the attention does not know one of the options.
    """
    try:
        transformer = VisionTransformer(
            image_size=image_shape[-1],
            channels=image_shape[0],
            num_classes=num_classes,
            attention=_attention_of_layers(method, model.depth),
            patch_size=model.patch_size,
            depth=model.depth,
            embed_dim=model.embed_dim,
            mlp_dim=model.mlp_dim,
            num_heads=model.num_heads,
            pooling=model.pooling,
            dropout=model.dropout,
        )
    except TypeError as error:
        raise ValueError(f"options of {method.label}: {error}") from error
    mean, deviation = ([value] * image_shape[0] for value in normalisation)
    network = nn.Sequential(Normalize(mean, deviation), transformer)
    objective = Objective(network, CategoricalLikelihood(num_classes), num_data)
    return ClassificationModule(model=network, objective=objective, method=method, training=training)


def _attention_of_layers(method: MethodConfig, depth: int) -> list[Callable[..., nn.Module]]:
    """Return a factory for each layer."""
    chosen = partial(ATTENTION[method.attention], **method.options)
    return [SoftmaxAttention if method.layers == "last" and layer < depth - 1 else chosen for layer in range(depth)]
