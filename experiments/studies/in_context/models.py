"""The compared models, and how long each is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from cgp.attention import CGPAttention
from experiments.studies.in_context.attentive import NeuralProcess
from experiments.studies.in_context.convolutional import ConvCNP
from experiments.studies.in_context.kernels import DeepKernel, FeatureKernels, FixedKernels, WrittenKernels
from experiments.studies.in_context.tasks import Tasks

__all__ = [
    "LABELS",
    "MODELS",
    "TRUTH",
    "Entry",
    "both_densities",
    "marginal_density",
    "trained_for",
]

_SIZE: Mapping[str, Any] = {"width": 32, "depth": 2}


class Entry(NamedTuple):
    """A model and its training.

    Attributes:
        build: makes it.
        steps: of 16 functions each, for equal processor time (docs/notes/in-context.md).
        rate: learning rate.
        loss: of a model and a batch, nats a target.
        label: its name in tables.
    """

    build: Callable[[], nn.Module]
    steps: int
    rate: float
    loss: Callable[[nn.Module, Tasks], Tensor]
    label: str


def marginal_density(model: nn.Module, tasks: Tasks) -> Tensor:
    """Negative log-density of the targets, one by one."""
    return -model(tasks).marginal(tasks.y_targets).mean()


def both_densities(model: nn.Module, tasks: Tasks) -> Tensor:
    """Mean of the negative log-densities of the targets one by one and together."""
    predictive, y = model(tasks), tasks.y_targets
    return -0.5 * (predictive.marginal(y).mean() + predictive.joint(y.to(predictive.mean)).mean() / y.shape[-1])


def _evidence(model: nn.Module, tasks: Tasks) -> Tensor:
    assert isinstance(model, DeepKernel)
    return model.loss(tasks)


MODELS: Mapping[str, Entry] = {
    "tnp": Entry(partial(NeuralProcess, **_SIZE), 5600, 1e-3, marginal_density, "TNP-D"),
    "tnp-equivariant": Entry(
        partial(NeuralProcess, **_SIZE, equivariant=True), 3600, 1e-3, marginal_density, "TNP-D, equivariant"
    ),
    "tnp-gp": Entry(
        partial(NeuralProcess, **_SIZE, attention=partial(CGPAttention, mean="kernel")),
        2600,
        1e-3,
        marginal_density,
        "TNP-D, all layers by GP attention",
    ),
    "convcnp": Entry(ConvCNP, 3100, 1e-3, marginal_density, "ConvCNP"),
    "deep-kernel": Entry(DeepKernel, 7500, 1e-3, _evidence, "deep kernel transfer"),
    "fixed-1": Entry(partial(FixedKernels, 1), 4000, 1e-2, both_densities, "one fixed kernel"),
    "fixed-8": Entry(partial(FixedKernels, 8), 1120, 1e-2, both_densities, "eight fixed kernels"),
    "fixed-8-marginal": Entry(
        partial(FixedKernels, 8), 1120, 1e-2, marginal_density, "eight fixed kernels, without joint training"
    ),
    "fixed-32": Entry(partial(FixedKernels, 32), 280, 1e-2, both_densities, "32 fixed kernels"),
    "written-1": Entry(partial(WrittenKernels, 1, **_SIZE), 2500, 1e-3, both_densities, "a kernel from a transformer"),
    "written-8": Entry(
        partial(WrittenKernels, 8, **_SIZE), 1080, 1e-3, both_densities, "eight kernels from a transformer"
    ),
    "features-8": Entry(
        partial(FeatureKernels, 8, **_SIZE), 720, 1e-3, both_densities, "eight from a transformer, token features"
    ),
}
"""By name, in the order of the tables."""

_SMALL_RATE = 3e-3
_SMALL_STEPS = {
    "tnp": 4000,
    "tnp-equivariant": 3300,
    "tnp-gp": 2700,
    "convcnp": 2200,
    "deep-kernel": 2400,
    "fixed-1": 4000,
    "fixed-8": 1000,
    "fixed-8-marginal": 1000,
    "fixed-32": 500,
    "written-1": 2400,
    "written-8": 850,
    "features-8": 650,
}


def trained_for(family: str, name: str) -> Entry:
    """A model with the steps and the rate of a family: the small ones have larger batches and their own pilot."""
    entry = MODELS[name]
    if not family.startswith("small"):
        return entry
    return entry._replace(steps=_SMALL_STEPS[name], rate=max(entry.rate, _SMALL_RATE))


TRUTH = "truth"

LABELS: Mapping[str, str] = {
    TRUTH: "the process itself",
    **{name: entry.label for name, entry in MODELS.items()},
}
"""Names in tables, in their order."""
