"""From a row of the table to a model and its objective."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from torch import nn
from torchvision.transforms.v2 import Normalize

from cgp.attention import CGPAttention, KernelAttention, SoftmaxAttention, SparseCGPAttention
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
            attention=partial(ATTENTION[method.attention], **method.options),
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
