"""Calibration of the width of a classifier's posterior."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from torch import nn

from cgp.networks.model.blocks import used_modules
from cgp.networks.model.inputs import Batch
from cgp.networks.model.temperature import logit_temperature, set_logit_temperature
from cgp.networks.predict.settings import forget_held_out

from .amplitudes import COARSE, TEMPERATURES, AmplitudeSearch, chosen, has_amplitude, tune
from .calibration import Calibration
from .scaling import Draws

__all__ = ["amplitudes_of", "calibrate_posterior"]

_FINE = tuple(2.0 ** (k / 4) for k in range(1, 4))


def calibrate_posterior(
    model: nn.Module,
    kept: list[Batch],
    criterion: str,
    draws: Draws,
    progress: Callable[[int, int], None] | None,
    *,
    temperature: bool,
) -> Calibration:
    """Fit the width of a converted model's posterior, and a temperature: as :func:`cgp.calibrate`.

    Args:
        model: converted model, whose amplitudes are multiplied in place at the end.
        kept: labelled batches.
        criterion: "widest" or "likelihood".
        draws: number and kind of draws, their seed, and what takes the logits.
        progress: called with the number of runs done, and of all.
        temperature: whether it is fitted.

    Returns:
        The result.

    Raises:
        ValueError: if no amplitude gives the labels a probability.
    """
    start = time.perf_counter()
    num_samples, sampling, seed, output = draws
    amplitudes = amplitudes_of(model)
    given = logit_temperature(model)
    ticks = _Ticks(progress, len(kept) * num_samples * (len(COARSE) + len(_FINE) + 3 * temperature))
    search = AmplitudeSearch(model, num_samples, sampling, seed, output, ticks)
    search.check(kept)

    temperatures = TEMPERATURES if temperature else (given,)
    scores = search.scores(kept, (0.0, *COARSE), temperatures)
    edge = chosen(tune(scores), criterion).factor
    near = [edge * step for step in _FINE]
    near = near if criterion == "widest" else [*(f / 2 for f in near[1:]), *near[:2]]
    tried = tune(scores | search.scores(kept, near, temperatures))
    best, taken, plain = min(tried.values(), key=lambda trial: trial.nll), chosen(tried, criterion), tried[0.0]
    if temperature:
        taken = search.fit_temperature(kept, taken, least=min(plain.temperature, 1.0))
        plain = search.fit_temperature(kept, plain)
    as_it_was = search.scores(kept, (0.0,), (given,))[0.0].best(0.0)
    if not math.isfinite(taken.nll):
        raise ValueError("data: expected labels of classes that the model allows, got some whose logit is -inf")
    scaled = {name: owner + math.log(taken.factor) for name, owner in amplitudes.items()}
    report = Calibration(
        model,
        "posterior",
        criterion,
        taken.factor,
        {name: logarithm.exp() for name, logarithm in scaled.items()},
        taken.temperature,
        as_it_was.nll,
        plain.nll,
        best.nll,
        taken.nll,
        best.standard_error,
        as_it_was.accuracy,
        taken.accuracy,
        taken.disagreement,
        len(taken.losses),
        time.perf_counter() - start,
    )
    ticks.finish()
    for name, parameter in amplitudes.items():  # only now, after everything that can fail
        parameter.copy_(scaled[name])
    set_logit_temperature(model, taken.temperature)
    forget_held_out(model)
    return report


class _Ticks:
    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    def finish(self) -> None:
        """Report the steps that Newton's method did not need."""
        self(max(self.total - self.done, 0))


def amplitudes_of(model: nn.Module) -> dict[str, Any]:
    """The amplitudes of a converted model by the names of their layers.

    Args:
        model: the model.

    Returns:
        Its parameters.

    Raises:
        ValueError: if it has none, or an adapter that would leave them out.
    """
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
            "model: expected layers with softmax's mean (convert by 'cgp' or 'sparse_cgp'), got none "
            "(method='temperature' takes any classifier, 'scale' any regression)"
        )
    return amplitudes
