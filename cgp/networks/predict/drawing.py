"""The draws of one batch, with the variances of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention.inputs import full_precision
from cgp.functional.noise import noise as noise_source
from cgp.networks.model.inputs import call_model, model_device
from cgp.networks.model.runs import warn_of_randomness, warn_of_silence
from cgp.networks.model.shared_prefix import SharedPrefix

from .moments import Moments
from .settings import settings_of

__all__ = ["draw_batch"]


def draw_batch(
    model: nn.Module,
    inputs: Any,
    noises: list[tuple[int, float]],
    mode: str,
    moments: Moments,
    *,
    warns: int | None = None,
) -> None:
    """Run the draws of one batch.

    Args:
        model: any module.
        inputs: of the batch.
        noises: seed and sign of the noise of each draw.
        mode: "marginal" or "joint".
        moments: sums over the draws, which are added to.
        warns: frames from here to the caller who is warned of layers that did not run and of a model that is random by
            itself; None does not look.
    """
    settings = settings_of(model)
    read = None if settings.method is None else settings.method.read(model, inputs)
    if read is not None:
        moments.set_read(read, torch.ones(()) if settings.scale is None else settings.scale)
        return
    prefix = SharedPrefix(model)

    def call(model: nn.Module) -> Any:
        return call_model(model, inputs)

    moments.is_stochastic = bool(prefix.blocks)
    if moments.keep_variance and len(prefix.blocks) > 1:
        moments.variances = _variances(prefix, call)
    for index, (seed, sign) in enumerate(noises if prefix.blocks else noises[:1]):
        prefix.set_sampling(mode)
        with noise_source(seed, sign):
            returned = prefix.run(call)
        moments.add(returned)
        if warns is not None and not index:
            _warn(model, prefix, call, (moments, returned), (seed, sign, mode), warns + 1)
    if moments.keep_variance and prefix.blocks and not moments.variances:
        moments.variances = _variances(prefix, call)


def _warn(
    model: nn.Module,
    first: SharedPrefix,
    call: Callable[[nn.Module], Any],
    output: tuple[Moments, Any],
    draw: tuple[int, float, str],
    stacklevel: int,
) -> None:
    """Warn of layers that did not run, and of a model whose second run of the first draw differs."""
    moments, returned = output
    seed, sign, mode = draw

    def again() -> Tensor:
        prefix = SharedPrefix(model)
        prefix.set_sampling(mode)
        with noise_source(seed, sign):
            return moments.task.outputs(prefix.run(call))

    warn_of_silence(first, stacklevel + 1)
    if first.is_random:
        warn_of_randomness(moments.task.outputs(returned), again, stacklevel + 1)


def _variances(prefix: SharedPrefix, call: Callable[[nn.Module], Any]) -> dict[str, Tensor]:
    """Variance of each token in each stochastic block, given the mean of the layers below."""
    kept = prefix.posterior
    if kept is not None and kept.posterior is not None and len(prefix.blocks) == 1:  # no random layer below
        with full_precision(model_device(prefix.model)):
            return dict.fromkeys(prefix.blocks, kept.posterior.variance)
    measured = {name: _Measured(block) for name, block in prefix.blocks.items() if hasattr(block, "gaussian")}
    if not measured:  # dropout alone
        return {}
    prefix.set_sampling("mean")
    for attend in measured.values():
        vars(attend.block)["attend"] = attend
    prefix.run(call)
    for attend in measured.values():
        vars(attend.block).pop("attend")
    return {name: entry.variance for name, entry in measured.items() if entry.variance is not None}


class _Measured:
    """A block's ``attend`` that returns the mean and records the variance."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self.variance: Tensor | None = None  # of the last call

    def __call__(self, tokens: Any) -> Tensor:
        with full_precision(next(self.block.parameters()).device):
            posterior = self.block.gaussian(tokens)
            self.variance = posterior.variance
            return posterior.mean.to(tokens.q.dtype)
