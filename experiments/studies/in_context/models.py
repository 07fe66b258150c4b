"""The compared models, and how long each is trained."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from cgp.attention import CGPAttention
from experiments.studies.in_context.kernels import DeepKernel, FeatureKernels, FixedKernels, WrittenKernels
from experiments.studies.in_context.neural_processes import ConvCNP, NeuralProcess
from experiments.studies.in_context.tasks import Tasks

__all__ = ["LABELS", "MODELS", "TRUTH", "Entry", "both_densities", "marginal_density", "trained_for"]


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


class Entry(NamedTuple):
    """A model and its training.

    Attributes:
        label: its name in tables.
        build: makes it.
        steps: of 16 functions each, for equal processor time (docs/notes/in-context.md).
        small_steps: those of the small families, whose batches are larger, by a pilot of their own.
        rate: learning rate.
        loss: of a model and a batch, nats a target.
    """

    label: str
    build: Callable[[], nn.Module]
    steps: int
    small_steps: int
    rate: float = 1e-3
    loss: Callable[[nn.Module, Tasks], Tensor] = both_densities


_SIZE: Mapping[str, Any] = {"width": 32, "depth": 2}
_process = partial(NeuralProcess, **_SIZE)
_equivariant = partial(_process, equivariant=True)
_by_gp = partial(_process, attention=partial(CGPAttention, mean="kernel"))

MODELS: Mapping[str, Entry] = {
    "tnp": Entry("TNP-D", _process, 5600, 4000, loss=marginal_density),
    "tnp-equivariant": Entry("TNP-D, equivariant", _equivariant, 3600, 3300, loss=marginal_density),
    "tnp-gp": Entry("TNP-D, all layers by GP attention", _by_gp, 2600, 2700, loss=marginal_density),
    "convcnp": Entry("ConvCNP", ConvCNP, 3100, 2200, loss=marginal_density),
    "deep-kernel": Entry("deep kernel transfer", DeepKernel, 7500, 2400, loss=_evidence),
    "fixed-1": Entry("one fixed kernel", partial(FixedKernels, 1), 4000, 4000, 1e-2),
    "fixed-8": Entry("eight fixed kernels", partial(FixedKernels, 8), 1120, 1000, 1e-2),
    "fixed-8-marginal": Entry(
        "eight fixed kernels, without joint training", partial(FixedKernels, 8), 1120, 1000, 1e-2, marginal_density
    ),
    "fixed-32": Entry("32 fixed kernels", partial(FixedKernels, 32), 280, 500, 1e-2),
    "written-1": Entry("a kernel from a transformer", partial(WrittenKernels, 1, **_SIZE), 2500, 2400),
    "written-8": Entry("eight kernels from a transformer", partial(WrittenKernels, 8, **_SIZE), 1080, 850),
    "features-8": Entry("eight from a transformer, token features", partial(FeatureKernels, 8, **_SIZE), 720, 650),
}
"""By name, in the order of the tables."""

TRUTH = "truth"

LABELS: Mapping[str, str] = {TRUTH: "the process itself", **{name: entry.label for name, entry in MODELS.items()}}
"""Names in tables, in their order."""

_SMALL_RATE = 3e-3


def trained_for(family: str, name: str) -> Entry:
    """A model with the steps and the rate of a family."""
    entry = MODELS[name]
    if not family.startswith("small"):
        return entry
    return entry._replace(steps=entry.small_steps, rate=max(entry.rate, _SMALL_RATE))
