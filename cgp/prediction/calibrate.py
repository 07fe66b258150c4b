"""The width of a converted model's posterior, chosen on held-out data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cgp.model.blocks import used_modules
from cgp.model.inputs import logits_of, model_device
from cgp.model.temperature import logit_temperature, set_logit_temperature
from cgp.model.twin import uncompiled

from .amplitudes import COARSE, TEMPERATURES, AmplitudeSearch, chosen, has_amplitude, tune
from .labels import labelled_batches

__all__ = ["Calibration", "calibrate"]

CRITERIA = ("widest", "likelihood")

_FINE = tuple(2.0 ** (k / 4) for k in range(1, 4))


@dataclass(frozen=True)
class Calibration:
    """What :func:`calibrate` did.

    Attributes:
        criterion: by which the amplitude was chosen.
        factor: by which the amplitudes were multiplied.
        amplitudes: for each layer, by its name, the amplitude of each head as it is now.
        temperature: by which :func:`cgp.predict` divides the logits from now on.
        nll_mean: negative log-likelihood of the model as it was, without draws, in nats per label.
        nll_temperature: without draws, at its best temperature.
        nll_best: of the draws at the amplitude that is best for it, each amplitude at its best temperature.
        nll: of the draws at the amplitude chosen.
        standard_error: of ``nll_best`` over the labels.
        accuracy_mean: share of right answers without draws.
        accuracy: of the averaged draws.
        disagreement: how much draws differ from their average: total variation distance in [0, 1], mean over labels.
        num_labels: labels that were used.
        seconds: in all.
    """

    criterion: str
    factor: float
    amplitudes: dict[str, Tensor]
    temperature: float
    nll_mean: float
    nll_temperature: float
    nll_best: float
    nll: float
    standard_error: float
    accuracy_mean: float
    accuracy: float
    disagreement: float
    num_labels: int
    seconds: float

    @property
    def price(self) -> float:
        """What the amplitude costs in nats per label, beside the amplitude that is best."""
        return max(self.nll - self.nll_best, 0.0)  # below zero by the finer temperatures only

    def __str__(self) -> str:
        """A summary, and one line per layer."""
        moved = "differ from their average by" if self.disagreement >= 1e-3 else "hardly differ from their average:"
        lines = [
            f"amplitude × {self.factor:.3g} ({self.criterion}), temperature {self.temperature:.3f}",
            f"on {self.num_labels} labels in {self.seconds:.1f} s",
            f"NLL {self.nll:.4f}, {self.price:.4f} above the best (standard error {self.standard_error:.4f})",
            f"NLL without draws {self.nll_mean:.4f}, with a temperature {self.nll_temperature:.4f}",
            f"accuracy {self.accuracy:.4f}, without draws {self.accuracy_mean:.4f}",
            f"draws {moved} {self.disagreement:.2g} (total variation)",
        ]
        for name, amplitude in self.amplitudes.items():
            lines.append(f"{name}: amplitude {float(amplitude.min()):.3g} to {float(amplitude.max()):.3g}")
        return "\n".join(lines)


@torch.no_grad()
def calibrate(
    model: nn.Module,
    data: Iterable[Any],
    *,
    criterion: str = "widest",
    temperature: bool = True,
    num_samples: int = 8,
    sampling: str = "marginal",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    output: Callable[[Any], Tensor] = logits_of,
) -> Calibration:
    r"""Choose how wide a converted model's posterior is: one factor for all of its amplitudes, and a temperature.

    Held-out data of the kind that the model was trained on say how wide its posterior may be, not how wide it has to
    be: their likelihood is often largest without any variance, and a posterior fitted by it tells nothing about other
    inputs. "widest" therefore takes the largest amplitude that the data do not speak against,

    .. math:: \max\{c : \min_T \mathrm{NLL}(c, T) \le \mathrm{NLL}^* + \mathrm{SE}(\mathrm{NLL}^*)\}, \qquad
        \mathrm{NLL}(c, T) = -\tfrac1N\textstyle\sum_i
        \log\tfrac1S\sum_s \operatorname{softmax}\big(f_{c,s}(x_i) / T\big)_{y_i}

    with :math:`\mathrm{NLL}^*` the smallest of all amplitudes, zero included, and T at least 1, or the best without
    draws if that is smaller: sharpened draws would make up for any amplitude. "likelihood" takes the best one. The
    amplitudes c are tried on a grid, with the same noise for each; what lies below the first stochastic layer, and
    that layer's posterior, is computed once. The mean does not depend on the amplitude: predictions without draws stay
    as they are.

    The result lies in the model: its amplitudes are multiplied in place when all is done, and :func:`cgp.predict`
    divides by the temperature. Until then the model is not changed; it may be used meanwhile.

    Args:
        model: converted by :func:`cgp.convert` with softmax's mean ("cgp" or "sparse_cgp").
        data: batches ``(inputs, labels)``, or dicts with "labels", or a data set of such examples; labels −100 are left
            out. A few hundred labels do. It is read once, and kept.
        criterion: "widest" or "likelihood".
        temperature: whether the temperature is fitted; otherwise it stays what it was.
        num_samples: S draws.
        sampling: "marginal" or "joint", as the predictions will be drawn.
        seed: of the draws; the global generators are left as they were.
        progress: called with the number of runs of the layers above done, and of all, such as a progress bar's.
        output: takes the logits from what the model returns.

    Returns:
        What was done.

    Raises:
        ValueError: if the model has no amplitudes, labels are missing or no class indices, logits are not finite or not
            logits, or an argument is off. The model is left as it was.

    Note:
        The one-standard-error rule: Breiman et al., Classification and Regression Trees (1984), section 3.4.3.

    Example:
        >>> from cgp import convert
        >>> host = nn.Sequential(nn.TransformerEncoderLayer(8, 2, batch_first=True), nn.Flatten(), nn.Linear(32, 3))
        >>> model = convert(host.eval())
        >>> report = calibrate(model, [(torch.randn(20, 4, 8), torch.arange(20) % 3)])
        >>> report.nll <= report.nll_best + report.standard_error
        True
    """
    start = time.perf_counter()
    _check(criterion, num_samples, sampling)
    model = uncompiled(model)
    amplitudes = _amplitudes(model)
    kept = labelled_batches(data, model_device(model))
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
    for name, parameter in amplitudes.items():  # only now, when nothing can fail any more
        parameter.copy_(scaled[name])
    set_logit_temperature(model, taken.temperature)
    return report


class _Ticks:
    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    def finish(self) -> None:
        """Report whatever steps Newton's method did not need."""
        self(max(self.total - self.done, 0))


def _amplitudes(model: nn.Module) -> dict[str, Any]:
    owners: dict[str, Any] = {name: module for name, module in used_modules(model).items() if has_amplitude(module)}
    found = {name: owner.log_amplitude for name, owner in owners.items()}
    is_adapted = any(hasattr(module, "peft_config") for module in model.modules())
    if is_adapted and any(f".{name}".endswith(".gp") for name in found):
        raise ValueError(
            "model: expected an adapter that saves the posterior's scales with its weights, got one that leaves them "
            "out: convert the model first, and give peft's configuration modules_to_save=['gp']"
        )
    if not found:
        raise ValueError("model: expected layers with softmax's mean (convert by 'cgp' or 'sparse_cgp'), got none")
    return found


def _check(criterion: str, num_samples: int, mode: str) -> None:
    if criterion not in CRITERIA:
        raise ValueError(f"criterion: expected one of {CRITERIA}, got {criterion!r}")
    if num_samples < 2:
        raise ValueError(f"num_samples: expected at least 2, got {num_samples}")
    if mode not in ("marginal", "joint"):
        raise ValueError(f"sampling: expected 'marginal' or 'joint', got {mode!r}")
