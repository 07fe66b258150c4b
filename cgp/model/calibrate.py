"""The width of a converted model's posterior, chosen on held-out data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.functional.noise import noise

from .inputs import Batch, batches, call_model, logits_of, model_device, to_device
from .predict import draw_noises, logit_temperature, set_logit_temperature
from .twin import SharedPrefix, uncompiled

__all__ = ["Calibration", "calibrate"]

CRITERIA = ("widest", "likelihood")

_COARSE = tuple(2.0**k for k in (-15, -10, *range(-5, 8)))
_FINE = tuple(2.0 ** (k / 4) for k in range(1, 4))
_TEMPERATURES = tuple(2.0 ** (k / 8) for k in range(-16, 41))  # 0.25 to 32
_FINER = tuple(2.0 ** (k / 64) for k in range(-6, 7))


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

    .. math:: \max\Big\{c : \min_T \mathrm{NLL}(c, T) \le \mathrm{NLL}^* + \mathrm{SE}(\mathrm{NLL}^*)\Big\}, \qquad
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
        ValueError: if the model has no amplitudes, there are no labels, or an argument is off.

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
    kept = _labelled(data, model_device(model))
    given = logit_temperature(model)
    search = _Search(model, num_samples, sampling, seed, output, _TEMPERATURES if temperature else (given,))
    ticks = _Ticks(progress, len(kept) * num_samples * (len(_COARSE) + len(_FINE) + 1))
    tried = search.tried(kept, (0.0,), ticks)
    search = replace(search, temperatures=[t for t in search.temperatures if t >= min(tried[0.0].temperature, 1.0)])
    tried |= search.tried(kept, _COARSE, ticks)
    edge = _chosen(tried, criterion)
    near = [edge.factor * step for step in _FINE]
    near = near if criterion == "widest" else [*(f / 2 for f in near[1:]), *near[:2]]
    tried |= search.tried(kept, near, ticks)
    best, chosen = min(tried.values(), key=lambda trial: trial.nll), _chosen(tried, criterion)
    if temperature:
        finer = [max(chosen.temperature * step, min(search.temperatures)) for step in _FINER]
        chosen = search.tried(kept, (chosen.factor,), ticks, finer)[chosen.factor]
    as_it_was = search.tried(kept, (0.0,), ticks, (given,))[0.0]
    for parameter in amplitudes.values():
        parameter.add_(torch.tensor(chosen.factor).log().to(parameter))
    set_logit_temperature(model, chosen.temperature)
    return Calibration(
        criterion,
        chosen.factor,
        {name: parameter.detach().exp() for name, parameter in amplitudes.items()},
        chosen.temperature,
        as_it_was.nll,
        tried[0.0].nll,
        best.nll,
        chosen.nll,
        best.standard_error,
        as_it_was.accuracy,
        chosen.accuracy,
        chosen.disagreement,
        len(chosen.losses),
        time.perf_counter() - start,
    )


class _Trial(NamedTuple):
    """An amplitude at its best temperature."""

    factor: float
    temperature: float
    losses: Tensor  # (N,)
    accuracy: float
    disagreement: float

    @property
    def nll(self) -> float:
        return float(self.losses.mean())

    @property
    def standard_error(self) -> float:
        return float(self.losses.std() / len(self.losses) ** 0.5) if len(self.losses) > 1 else 0.0


def _chosen(tried: dict[float, _Trial], criterion: str) -> _Trial:
    """The amplitude of choice; never zero."""
    best = min(tried.values(), key=lambda trial: trial.nll)
    positive = sorted((trial for trial in tried.values() if trial.factor), key=lambda trial: trial.factor)
    if criterion == "likelihood":
        return min(positive, key=lambda trial: trial.nll)
    allowed = best.nll + best.standard_error
    chosen = best if best.factor else positive[0]
    for trial in positive[positive.index(chosen) :]:
        if trial.nll > allowed:
            break
        chosen = trial
    return chosen


class _Ticks:
    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


@dataclass(frozen=True)
class _Search:
    """Draws of a model at several amplitudes."""

    model: nn.Module
    num_samples: int
    mode: str
    seed: int
    output: Callable[[Any], Tensor]
    temperatures: Sequence[float]

    def tried(
        self, data: list[Batch], factors: Sequence[float], ticks: _Ticks, temperatures: Sequence[float] = ()
    ) -> dict[float, _Trial]:
        """Trials of some amplitudes, by their factor."""
        temperatures = temperatures or self.temperatures
        found: dict[float, list[_Labels]] = {factor: [] for factor in factors}
        for index, batch in enumerate(data):
            runs = _Runs(self.model, batch.inputs, self.mode, self.output)
            for factor in factors:
                logits = runs.draws(factor, self._noises(index)) if factor else runs.mean[None]
                assert batch.labels is not None
                found[factor].append(_Labels.of(logits, batch.labels, temperatures))
                ticks(len(logits) if factor else 0)
        return {factor: _trial(factor, parts, temperatures) for factor, parts in found.items()}

    def _noises(self, index: int) -> list[tuple[int, float]]:
        generator = torch.Generator().manual_seed(self.seed + 7919 * index)
        return list(draw_noises(self.num_samples, lambda: int(torch.randint(2**62, (), generator=generator))))


class _Runs:
    """Runs of one batch that share what lies below the first stochastic layer."""

    def __init__(self, model: nn.Module, inputs: Any, mode: str, output: Callable[[Any], Tensor]) -> None:
        self.inputs, self.output = inputs, output
        self.prefix = SharedPrefix(model)
        self.prefix.set_sampling("mean")
        self.mean = self.prefix.record(self._logits)
        self.prefix.set_sampling(mode)
        self.posterior = self.prefix.keep_posterior()
        # The twin's own parameters: those of the model are shared.
        first = set() if self.posterior is None else {id(m) for m in self.prefix.first.modules()}
        owners = [m for m in self.prefix.model.modules() if _has_amplitude(m) and id(m) not in first]
        self.given: dict[nn.Module, Any] = {owner: owner.log_amplitude for owner in owners}

    def draws(self, factor: float, noises: list[tuple[int, float]]) -> Tensor:
        """Logits ``(S, ..., C)`` at amplitudes multiplied by a factor."""
        if self.posterior is not None:
            self.posterior.factor = factor
        for owner, given in self.given.items():
            owner._parameters["log_amplitude"] = nn.Parameter(given + torch.tensor(factor).log().to(given))
        found = []
        for seed, sign in noises:
            with noise(seed, sign):
                found.append(self.prefix.again(self._logits))
        return torch.stack(found)

    def _logits(self, model: nn.Module) -> Tensor:
        return self.output(call_model(model, self.inputs)).float()


class _Labels(NamedTuple):
    """What draws say of the labels of a batch."""

    log_probabilities: Tensor  # (T, N)
    right: Tensor  # (T, N)
    disagreement: Tensor  # (T, N)

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, temperatures: Sequence[float]) -> _Labels:
        if labels.shape != logits.shape[1:-1]:
            raise ValueError(f"data: expected labels of shape {tuple(logits.shape[1:-1])}, got {tuple(labels.shape)}")
        real = labels.flatten() != -100
        logits, labels = logits.flatten(1, -2)[:, real], labels.flatten()[real].long()
        rows = []
        for temperature in temperatures:
            draws = (logits / temperature).log_softmax(-1)
            of_labels = draws.gather(-1, labels.expand(draws.shape[:-1])[..., None])[..., 0]
            average = draws.exp().mean(0)
            apart = 0.5 * (draws.exp() - average).abs().sum(-1).mean(0)
            rows.append((of_labels.logsumexp(0) - math.log(len(draws)), average.argmax(-1) == labels, apart))
        return cls(*(torch.stack(column) for column in zip(*rows, strict=True)))


def _trial(factor: float, parts: list[_Labels], temperatures: Sequence[float]) -> _Trial:
    losses, right, apart = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    if not losses.shape[1]:
        raise ValueError("data: expected labels, got none")
    index = int((-losses).mean(1).argmin())
    found = -losses[index], float(right[index].float().mean()), float(apart[index].mean())
    return _Trial(factor, temperatures[index], *found)


def _labelled(data: Iterable[Any], device: torch.device) -> list[Batch]:
    found = list(batches(iter(data) if isinstance(data, list) else data))
    if not found:
        raise ValueError("data: expected at least one batch, got none")
    if any(batch.labels is None for batch in found):
        raise ValueError("data: expected batches (inputs, labels) or dicts with 'labels', got some without")
    return [Batch(*to_device(tuple(batch), device)) for batch in found]


def _has_amplitude(module: nn.Module) -> bool:
    return isinstance(module._parameters.get("log_amplitude"), nn.Parameter)


def _amplitudes(model: nn.Module) -> dict[str, Any]:
    found = {name: module.log_amplitude for name, module in model.named_modules() if _has_amplitude(module)}
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
