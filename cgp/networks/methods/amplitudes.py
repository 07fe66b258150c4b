"""Draws of a model at several amplitudes of its posterior, scored on labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention.kernel import PriorAmplitude
from cgp.functional.noise import noise
from cgp.networks.model.blocks import used_modules
from cgp.networks.model.inputs import Batch, call_model
from cgp.networks.model.shared_prefix import SharedPrefix
from cgp.networks.model.structural_copy import structural_copy
from cgp.networks.predict.drawing import draw_noises, seeds_from
from cgp.networks.tasks import Task

from .rows import COARSE_STEP, STEP, SURE, TEMPERATURES, LabelScores, Trial
from .temperature_scaling import minimise_over_temperature, precision_slopes, with_labels

__all__ = ["COARSE", "AmplitudeSearch", "amplitudes_of", "has_amplitude", "with_amplitudes"]

COARSE = tuple(2.0**k for k in (-15, -10, *range(-5, 8)))
"""Factors of the amplitudes."""

_CALLER = 4  # frames from a check of the data to the caller of calibrate


@dataclass(frozen=True)
class AmplitudeSearch:
    """Draws of a model, which is not changed, at several amplitudes with the same noise."""

    model: nn.Module
    num_samples: int
    mode: str
    seed: int
    task: Task
    tick: Callable[[int], None] = lambda count: None

    def check(
        self, data: Iterable[Batch], name: str = "data", take: Callable[[Batch, Tensor], None] | None = None
    ) -> tuple[int, ...]:
        """The shape of a batch's logits, all of which ``take`` gets; raises for those that labels do not fit."""
        first = 0
        for batch in data:
            assert batch.labels is not None
            runs = _Runs(self.model, batch.inputs, self.mode, self.task)
            if not first:
                runs.prefix.warn(runs.mean, partial(self._mean, batch), _CALLER)
            self.task.check_rows(runs.mean, batch.labels, name=name, first=first)
            if take is not None:
                take(batch, runs.plain)
            first += len(batch.labels)
        return tuple(runs.mean.shape)

    def draws(
        self, data: Iterable[Batch], factors: Sequence[float], *, first: int = 0
    ) -> Iterator[tuple[float, Batch, Tensor]]:
        """Each factor, batch and its logits ``(S, B, ..., C)``, at 0 without draws; a batch has its number's noise."""
        for index, batch in enumerate(data, first):
            runs = _Runs(self.model, batch.inputs, self.mode, self.task)
            for factor in factors:
                logits = _wide(runs.draws(factor, self._noises(index))) if factor else runs.plain
                self.tick(len(logits) if factor else 0)
                yield factor, batch, logits

    def scores(
        self, data: list[Batch], factors: Sequence[float], temperatures: Sequence[float] = TEMPERATURES
    ) -> dict[float, LabelScores]:
        """Scores of the draws at every factor on the labels."""
        by_factor: dict[float, list[LabelScores]] = {factor: [] for factor in factors}
        for factor, batch, logits in self.draws(data, factors):
            assert batch.labels is not None
            by_factor[factor].append(LabelScores.of(logits, batch.labels, temperatures))
        return {factor: parts[0].together(parts[1:]) for factor, parts in by_factor.items()}

    def fit_temperature(self, data: list[Batch], trial: Trial, *, least: float = 0.0) -> Trial:
        """A trial at the best temperature near its own, of at least ``least``: its draws are repeated for each step."""

        def slopes(precision: float) -> Tensor:
            parts = (
                precision_slopes(*with_labels(logits, batch.labels), precision)
                for _, batch, logits in self.draws(data, (trial.factor,))
                if batch.labels is not None
            )
            return torch.stack(list(parts)).sum(0) / len(trial.losses)

        step = STEP if trial.parameter >= SURE else COARSE_STEP
        near = max(trial.parameter / step, least), trial.parameter * step
        at = minimise_over_temperature(slopes, trial.parameter, *near, tolerance=1e-3)
        return self.scores(data, (trial.factor,), (at,))[trial.factor].best(trial.factor)

    def _mean(self, batch: Batch) -> Tensor:
        return _Runs(self.model, batch.inputs, self.mode, self.task).mean

    def _noises(self, index: int) -> list[tuple[int, float]]:
        return list(draw_noises(self.num_samples, seeds_from(self.seed + 7919 * index)))


class _Runs:
    """Runs of one batch that share the layers below the first stochastic one."""

    def __init__(self, model: nn.Module, inputs: Any, mode: str, task: Task) -> None:
        self.inputs, self.task = inputs, task
        self.prefix = SharedPrefix(model)
        self.prefix.set_sampling("mean")
        self.mean = self.prefix.run(self._logits)
        self.prefix.set_sampling(mode)
        self.posterior = self.prefix.posterior
        # New parameters of the copy: those of the model are shared.
        first = set() if self.posterior is None else {id(m) for m in self.prefix.first.modules()}
        modules = used_modules(self.prefix.model).values()
        owners = [module for module in modules if has_amplitude(module) and id(module) not in first]
        self.given: dict[nn.Module, Any] = {owner: owner.log_amplitude for owner in owners}

    @property
    def plain(self) -> Tensor:
        """Logits without draws, ``(1, ..., C)``, in single precision at least."""
        return _wide(self.mean[None])

    def draws(self, factor: float, noises: list[tuple[int, float]]) -> Tensor:
        """Logits ``(S, ..., C)`` at amplitudes multiplied by a factor."""
        if self.posterior is not None:
            self.posterior.factor = factor
        for owner, given in self.given.items():
            owner._parameters["log_amplitude"] = nn.Parameter(given + torch.tensor(factor).log().to(given))
        logits = []
        for seed, sign in noises:
            with noise(seed, sign):
                logits.append(self.prefix.run(self._logits))
        return torch.stack(logits)

    def _logits(self, model: nn.Module) -> Tensor:
        return self.task.rows(call_model(model, self.inputs))


def _wide(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype.itemsize < 4 else logits


def has_amplitude(module: nn.Module) -> bool:
    """Whether a module holds the amplitude of a posterior, which its mean does not change with."""
    moves_mean = isinstance(module, PriorAmplitude) and not module.regresses
    own = dict(module.named_parameters(recurse=False))  # a wrapper of peft's has attributes of what is inside
    return "log_amplitude" in own and not moves_mean


def with_amplitudes(model: nn.Module, factor: float) -> nn.Module:
    """A copy of a model, which shares its other tensors, with amplitudes multiplied by a factor."""
    changed = structural_copy(model)
    for module in used_modules(changed).values():
        if has_amplitude(module):
            parameters: Any = module._parameters
            parameters["log_amplitude"] = nn.Parameter(parameters["log_amplitude"] + math.log(factor))
    return changed


def amplitudes_of(model: nn.Module) -> dict[str, Any]:
    """The amplitudes of a converted model by the names of their layers; raises ValueError where there are none."""
    owners: dict[str, Any] = {name: module for name, module in used_modules(model).items() if has_amplitude(module)}
    amplitudes = {name: owner.log_amplitude for name, owner in owners.items()}
    is_adapted = any(hasattr(module, "peft_config") for module in model.modules())
    if is_adapted and any(f".{name}".endswith(".gp") for name in amplitudes):
        raise ValueError(
            "model: expected an adapter that saves the posterior's scales with its weights, got one that leaves them "
            "out: convert the model first, and give peft's configuration modules_to_save=['gp']"
        )
    if not amplitudes:
        raise ValueError(
            "model: expected layers whose mean is softmax's (convert by 'cgp' or 'sparse_cgp') or a regression, got "
            "none (method='temperature' takes any classifier, 'scale' any regression)"
        )
    return amplitudes
