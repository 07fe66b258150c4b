"""Draws: their noise, their sums over a batch, so that large outputs need not be kept, and the variances of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention.inputs import full_precision
from cgp.functional.noise import noise as noise_source
from cgp.networks.model.inputs import call_model, model_device
from cgp.networks.model.shared_prefix import SharedPrefix
from cgp.networks.model.tempering import probabilities
from cgp.networks.tasks.metrics import decomposed, entropy
from cgp.networks.tasks.regression import check_variance
from cgp.networks.tasks.task import Task

from .method import settings_of
from .readout import ReadoutPrediction

__all__ = ["DrawVariance", "Draws", "check_samples", "checked_labels", "draw_noises", "seeds_from"]


def check_samples(num_samples: object, least: int) -> None:
    """Raise for what is no number of draws, such as labels in its place."""
    if not isinstance(num_samples, Integral) or int(num_samples) < least:
        got = num_samples if isinstance(num_samples, Real) else f"a {type(num_samples).__name__}"
        raise ValueError(f"num_samples: expected at least {least}, a whole number, got {got}")


def draw_noises(num_samples: int, seeds: Callable[[], int], *, antithetic: bool = True) -> Iterator[tuple[int, float]]:
    """Seed and sign of the noise of each of S draws; antithetic ones use a seed twice, the second time reflected."""
    for index in range(num_samples):
        if not antithetic or index % 2 == 0:
            seed = seeds()
        yield seed, -1.0 if antithetic and index % 2 else 1.0


def seeds_from(seed: int | None) -> Callable[[], int]:
    """Seeds of one draw after another, from a generator of their own; None takes its seed from torch's global one."""
    generator = torch.Generator()
    generator.manual_seed(int(torch.randint(2**62, ())) if seed is None else seed)
    return lambda: int(torch.randint(2**62, (), generator=generator, device="cpu"))


class DrawVariance:
    r"""Variance of a function of the noise, without bias, from draws that come one after the other.

    A pair of opposite noise gives the even part of the function, :math:`m = (f(z) + f(-z)) / 2`, and the odd one,
    :math:`o = (f(z) - f(-z)) / 2`, which are uncorrelated, and E[o] = 0: of P pairs

    .. math:: \operatorname{Var} f \approx \tfrac1P\textstyle\sum_p o_p^2 + \tfrac1{P - 1}\sum_p (m_p - \bar m)^2

    The sample variance of the 2P draws is too large by 2P / (2P − 1) where the function is linear. A single pair tells
    nothing of the even part, which is left out. A last draw that stands alone has the weight of one draw.

    Args:
        antithetic: whether the draws come in pairs of opposite noise, 0 with 1, 2 with 3.

    Example:
        >>> variance = DrawVariance()
        >>> for draw in (3.0, -3.0, 1.0, -1.0):
        ...     variance.add(torch.tensor(draw))
        >>> variance.value()
        tensor(5.)
    """

    def __init__(self, *, antithetic: bool = True) -> None:
        self.antithetic = antithetic
        self.waiting: Tensor | None = None  # the first of a pair
        self.count = 0  # of means
        self.mean: Tensor = torch.zeros(())  # of the pairs, or of the draws
        self.even: Tensor = torch.zeros(())  # squares of their deviations from it
        self.odd: Tensor = torch.zeros(())  # squares of the pairs' odd parts

    def add(self, draw: Tensor) -> None:
        """Add a draw, of the shape of the others."""
        if not self.antithetic:
            self._add(draw)
        elif self.waiting is None:
            self.waiting = draw
        else:
            self._add((self.waiting + draw) / 2)
            self.odd = self.odd + ((self.waiting - draw) / 2).square()
            self.waiting = None

    def value(self) -> Tensor | None:
        """The variance, None of less than two draws."""
        if not self.antithetic:
            return self.even / (self.count - 1) if self.count > 1 else None
        pairs = self.count
        if not pairs:
            return None
        odd, even = self.odd / pairs, self.even / max(pairs - 1, 1)
        if self.waiting is None:
            return odd + even
        alone = (self.waiting - self.mean).square()  # on average (1 + 1/P) of the even part's variance and the odd's
        weight = 0.5 if pairs == 1 else 1.0 / (2 * pairs + 1)
        return (1.0 - weight) * odd + (1.0 - weight * (1.0 + 1.0 / pairs)) * even + weight * alone

    def _add(self, value: Tensor) -> None:
        self.count += 1
        step = value - self.mean
        self.mean = self.mean + step / self.count
        self.even = self.even + step * (value - self.mean)


def _zero() -> Tensor:
    return torch.zeros(())


@dataclass
class Draws:
    """Sums over the draws of one batch.

    Args:
        task: takes outputs from what the model returns.
        temperature: divides logits.
        labels: of the batch, or None.
        scale: of a regression, its noise variance, or the factor of the one that ``noise_of`` takes.
        noise_of: takes a variance from what the model returns, or None.
        keep_draws: whether the draws themselves are kept.
        keep_variance: whether the variances of tokens are.
        antithetic: whether the draws come in pairs of opposite noise.
    """

    task: Task
    temperature: float
    labels: Tensor | None
    scale: Tensor
    noise_of: Callable[[Any], Tensor] | None
    keep_draws: bool
    keep_variance: bool
    antithetic: bool
    noise: Tensor = field(default_factory=_zero)
    function_variance: Tensor | None = None  # of a read-out
    variances: dict[str, Tensor] = field(default_factory=dict)  # of tokens, by layer
    is_stochastic: bool = False
    count: int = 0
    mean: Tensor = field(default_factory=_zero)
    probabilities: Tensor = field(default_factory=_zero)
    entropy: Tensor = field(default_factory=_zero)
    kept: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.variance = DrawVariance(antithetic=self.antithetic)  # of the outputs

    def run(
        self, model: nn.Module, inputs: Any, noises: list[tuple[int, float]], mode: str, *, warns: int | None = None
    ) -> None:
        """Draw in mode "marginal" or "joint", by the seed and sign of each draw's noise, or take a read-out's moments.

        With ``warns``, the frames from here to the caller who is warned, the first draw is looked at for layers that
        did not run and for a model that is random by itself.
        """
        settings = settings_of(model)
        read = None if settings.method is None else settings.method.read(model, inputs)
        if read is not None:
            self._set_read(read, torch.ones(()) if settings.scale is None else settings.scale)
            return

        def call(model: nn.Module) -> Any:
            return call_model(model, inputs)

        def draw(prefix: SharedPrefix, seed: int, sign: float) -> Any:
            prefix.set_sampling(mode)
            with noise_source(seed, sign):
                return prefix.run(call)

        prefix = SharedPrefix(model)
        self.is_stochastic = bool(prefix.blocks)
        if self.keep_variance and len(prefix.blocks) > 1:
            self.variances = _variances(prefix, call)
        first, *others = noises if prefix.blocks else noises[:1]
        self._add(returned := draw(prefix, *first))
        if warns is not None:
            outputs = self.task.outputs
            prefix.warn(outputs(returned), lambda: outputs(draw(SharedPrefix(model), *first)), warns)
        for noise in others:
            self._add(draw(prefix, *noise))
        if self.keep_variance and prefix.blocks and not self.variances:
            self.variances = _variances(prefix, call)

    def results(self) -> dict[str, Tensor | None]:
        """Attributes of :class:`Prediction` for this batch, by name."""
        several, parts = self.count > 1, dict[str, Tensor | None](mean=self.mean)
        parts["draws"] = torch.stack(self.kept) if self.kept else None
        if self.task.has_classes:
            p, binary = self.probabilities / self.count, self.task.is_binary
            total, aleatoric, epistemic = decomposed(p, self.entropy / self.count, binary=binary)
            parts |= {"probabilities": p, "total": total}
            return parts | {"aleatoric": aleatoric if several else None, "epistemic": epistemic if several else None}
        spread = self.variance.value() if several else self.function_variance
        if self.task.kind is None:
            return parts | {"epistemic": spread}
        aleatoric = self.noise / self.count if several and self.noise_of is not None else self.noise
        total = aleatoric if spread is None else aleatoric + spread
        return parts | {"aleatoric": aleatoric, "total": total, "epistemic": spread}

    def _set_read(self, read: ReadoutPrediction, scale: Tensor) -> None:
        """Take a read-out's prediction of a regression, without draws."""
        noise = (read.noise * scale).expand_as(read.mean)
        self.mean, self.function_variance, self.noise = (part.float() for part in (read.mean, read.variance, noise))
        self.count = 1

    def _add(self, returned: Any) -> None:
        """Add what the model returned in one draw."""
        outputs = self.task.outputs(returned)
        if self.count == 0:
            self.task.check(outputs)
            checked_labels(self.task, self.labels, tuple(outputs.shape))
        outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
        self.count += 1
        scaled = outputs if self.temperature == 1.0 else outputs / self.temperature
        self.mean = self.mean + (scaled - self.mean) / self.count
        if self.task.has_classes:
            p = probabilities(outputs, self.temperature, binary=self.task.is_binary)
            self.probabilities = self.probabilities + p
            self.entropy = self.entropy + entropy(p, binary=self.task.is_binary)
        else:
            p = outputs
            self.variance.add(outputs)
            if self.noise_of is None:  # the noise variance is given, or else averaged over the draws
                self.noise = self.scale.to(outputs).expand_as(outputs)
            else:
                self.noise = self.noise + self.scale.to(outputs) * check_variance(self.noise_of(returned), outputs)
        if self.keep_draws:
            self.kept.append(p)


def checked_labels(task: Task, labels: Tensor | None, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """Class indices given with the inputs, or None; other labels as they are."""
    if labels is None or task.kind != "classification":
        return labels
    try:
        return task.labels(labels, shape)
    except ValueError as error:
        raise ValueError(f"{error}; or leave out the labels: pass the inputs by themselves") from error


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
