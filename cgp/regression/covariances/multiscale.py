"""Many time scales: series as components with a few processes that outputs share, and a separate one for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, CosineKernel, Kernel, MaternKernel, ProductKernel
from numpy.typing import NDArray
from scipy.ndimage import median_filter
from scipy.signal import find_peaks, periodogram
from scipy.stats import norm, rankdata
from torch import Tensor

from cgp.kernels.base_kernels import BASE_KERNELS
from cgp.kernels.markov_forms import markov_obstacle

from .completion import RIDGES, Ridge, completed, ridge_by_hidden_stretches
from .rows import FactorLoadings, Relations, RowKernel, principal_components
from .structure import Structure, check_count, count
from .wide import WIDE, factor_start, factors_by_scale

if TYPE_CHECKING:
    from cgp.regression.observations import Observations

__all__ = ["ABSENT", "MultiScale", "cycle_of", "stands_out", "start_at_factors", "strongest_periods"]

Array = NDArray[np.float64]

_SHORTEST = 2.0  # lengthscale of the first component, in median lags
_LONGEST = 0.05  # lengthscale of the last component, in units of the whole span

_FACTORS = 3  # of each component
ABSENT = -12.0  # logarithm of the loading of an output's process that it starts without
_FACTOR_SPREAD = 0.05  # between components, which would otherwise start with equal loadings
_LONG_GAP = 0.1  # of the rows, from which on outputs are related if the others leave less than their variance
_TOLD = 0.02  # of the variance; outputs of which the others leave less are related whatever the gaps
_ALONE = 0.1  # of the variance; where the others leave less, outputs share no factors besides
_LONGEST_GAP = 0.5  # of the rows, from which on values do not tell on which factors an output depends besides
_TRIED = 1e-4  # ridge by which that is found; a choice among all takes seven times as long
_RIDGE = 0.01  # of the covariance that relations start from, where none is better than means
_NOISE, _SMALLEST_NOISE = 0.1, 1e-4  # initial, of what relations leave of a variance, and of a variance
_LEAST_SHARE = 0.05  # smallest initial share of an output's separate process in its variance
_PERIODS = 10.0  # initial lengthscale of the drift of a cycle, in periods

_NEIGHBOURS = 101  # frequencies whose median is the background
_HEIGHT = 20.0  # backgrounds; of white noise, one frequency in e^14 reaches this above its median
_BESIDE, _LOBE = 8, 2  # frequencies on either side, and those between that a line leaks into
_ABOVE = 14.0  # backgrounds, between which ranks have a line
_LEAST_CYCLES = 10  # in the whole series
_LEAST_ROWS = 4  # of a cycle
_SMALLEST, _LARGEST = 2.0 * _NEIGHBOURS, 2.0e6  # length of the series in steps


@dataclass(frozen=True)
class MultiScale(Structure):
    """A series as a sum of components on many time scales, each with R processes that all outputs share, and cycles.

    The initial lengthscales of the components range from two median lags to a twentieth of the whole span; the initial
    factors are the principal components of the outputs' correlation.

    Args:
        num_scales: number of components, without the cycles.
        num_factors: R, none for a single output, or the number of each component, without the cycles; None is 3, and
            chosen by hidden values for more than fifty outputs (:func:`.factors_by_scale`). Where outputs are related
            None is none, averaged with 3 if others leave a tenth of a variance or more and no gap is half of the rows.
        periods: periods of the cycles, in units of the input; "auto" detects up to three.
        related: whether outputs depend on each other by :class:`.Relations`, alike on all time scales, besides by
            factors; None is, for at most fifty outputs, by hidden stretches of them, and what is left of their
            variance there by what the others are in these rows: yes if that is less than .02, as it is on all time
            scales; and yes if one has a gap of a tenth of the rows or more, and less than all is left: an output's
            own values do not show how it depends on the others on time scales that long.
        ridge: of the covariance that relations start from, in units of the variances; None is by hidden stretches.
    """

    name = "multiscale"
    kernel = "matern32"
    inference = "windows"
    num_scales: int = count(5)
    num_factors: int | Sequence[int] | None = None
    periods: str | Sequence[float | str] = "auto"
    related: bool | None = None
    ridge: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.num_factors, Sequence):
            object.__setattr__(self, "num_factors", tuple(self.num_factors))
        if len(self._shared) != self.num_scales + 1:
            raise ValueError(f"num_factors: expected {self.num_scales} numbers, got {self.num_factors}")
        for each in self._shared:
            check_count("num_factors", each, 0)
        if self.ridge is not None and not 0.0 < self.ridge < math.inf:
            raise ValueError(f"ridge: expected a positive number or None, got {self.ridge!r}")
        self._check_periods()

    def _check_periods(self) -> None:
        if isinstance(self.periods, str) and self.periods != "auto":
            raise ValueError(f"periods: expected 'auto' or numbers, got {self.periods!r}")
        if not isinstance(self.periods, str):
            object.__setattr__(self, "periods", tuple(self.periods))
            for period in self.periods:
                if not isinstance(period, str) and not 0.0 < period < math.inf:
                    raise ValueError(f"periods: expected positive numbers, got {period:g}")

    @property
    def _shared(self) -> list[int]:
        """The number of factors of each component, and of a cycle."""
        if isinstance(self.num_factors, Sequence):
            return [*self.num_factors, _FACTORS]
        return [_FACTORS if self.num_factors is None else self.num_factors] * (self.num_scales + 1)

    def resolved(self, observations: Observations) -> MultiScale:
        """The same with what was found in the observations: periods, number of factors, whether outputs are related."""
        if self.num_factors is None and observations.num_outputs > WIDE:
            unit = _component(1, 0, self.kernel, 1.0).base_kernel
            counts = factors_by_scale(observations.standardised().table, self.num_scales, unit)
            return replace(self, num_factors=counts).resolved(observations)
        if self.related is None:
            several = any(self._shared) and 1 < observations.num_outputs <= WIDE
            long = several and _has_gap(observations, _LONG_GAP)
            told = several and not long and _hidden(observations, [_TRIED]).left < _TOLD
            found = _hidden(observations) if long or told else Ridge(_RIDGE, 1.0)
            return self._decided(found, found.left < 1.0, observations)
        if self.related and self.ridge is None and observations.num_outputs > 1:
            return self._decided(_hidden(observations), True, observations)
        if isinstance(self.periods, str):
            order = np.argsort(observations.inputs[:, 0], kind="stable")
            seen = observations.observed.any(axis=0)
            periods = strongest_periods(observations.inputs[order, 0], observations.values[order][:, seen])
            return replace(self, periods=tuple(periods))
        return replace(self, periods=tuple(float(period) for period in self.periods))

    def _decided(self, found: Ridge, related: bool, observations: Observations) -> MultiScale:
        """The same with relations or not, and with no factors besides where relations stand alone."""
        ridge = (found.value if found.left < 1.0 else _RIDGE) if related else None
        alone = related and (found.left < _ALONE or _has_gap(observations, _LONGEST_GAP))
        factors = 0 if alone and self.num_factors is None else self.num_factors
        return replace(self, related=related, ridge=self.ridge or ridge, num_factors=factors).resolved(observations)

    def variants(self, observations: Observations) -> Mapping[str, Structure]:
        """Relations alone, and besides factors, where both are averaged."""
        if not self.related or self.num_factors is not None or observations.num_outputs == 1:
            return {self.name: self}
        both = replace(self, num_factors=0), replace(self, num_factors=_FACTORS)
        return dict(zip((self.name, f"{self.name} with factors"), both, strict=True))

    def covariance(self, observations: Observations, kernel: str | Kernel) -> AdditiveKernel:
        """The covariance of rows, its time scales between the lags and the span of the observations."""
        inputs, units = observations.grid.inputs[:, 0], observations.units
        lag, span = float(inputs.diff().median()), float(inputs[-1] - inputs[0])
        unit = 1.0 if units is None else units.inputs.unit[0]
        periods = tuple(float(period) / unit for period in self.periods)
        longest = max(_LONGEST * span, _SHORTEST * lag)
        outputs = observations.num_outputs
        relations = Relations(outputs) if self.related and outputs > 1 else None
        return replace(self, periods=periods).between(outputs, _SHORTEST * lag, longest, kernel, relations)

    def between(
        self,
        num_processes: int,
        shortest: float,
        longest: float,
        kernel: str | Kernel = "matern32",
        relations: Relations | None = None,
    ) -> AdditiveKernel:
        r"""The covariance of outputs whose components start at lengthscales from the shortest to the longest one.

        .. math:: k\big((t, p), (t', r)\big) =
            \sum_c \Big(\lambda_p^{(c)\top}\lambda_r^{(c)} + \delta_{pr}\omega_p^{(c)2}\Big) \kappa_c(t - t')

        They are evenly spaced in their logarithm. A cycle is a component with
        :math:`\kappa_c = e^{-|\tau|/\ell}\cos(2\pi\tau/T)`, which may drift; the loadings of a cycle that is absent
        from the data tend to zero.

        Args:
            num_processes: number P of outputs.
            shortest: initial lengthscale of the first component.
            longest: of the last one.
            kernel: the canonical covariance, a Matérn one for linear time.
            relations: between outputs, the same in all components; None are none.

        Returns:
            A sum of kernels, one per component, of rows whose last column is the output.

        Raises:
            ValueError: if a length is out of range.

        Example:
            >>> kernel = MultiScale(3, 2, periods=[1.0]).between(2, 0.1, 10.0)
            >>> len(kernel.kernels), kernel.kernels[0].loadings().shape
            (4, torch.Size([2, 4]))
        """
        if not 0.0 < shortest <= longest < math.inf:
            raise ValueError(f"shortest, longest: expected 0 < shortest <= longest, got {shortest:g} and {longest:g}")
        *counts, of_cycles = self._shared if num_processes > 1 else [0] * (self.num_scales + 1)
        lengthscales = torch.logspace(math.log10(shortest), math.log10(longest), self.num_scales, dtype=torch.float64)
        scales = zip(counts, lengthscales.tolist(), strict=True)
        kernels = [_component(num_processes, shared, kernel, length, relations) for shared, length in scales]
        kernels += [_cycle(num_processes, of_cycles, float(period), relations) for period in self.periods]
        return AdditiveKernel(*kernels)

    def start(self, covariance: AdditiveKernel, observations: Observations) -> Tensor | None:
        """Let outputs start as related, or with their correlation's principal components, many by factor analysis."""
        if observations.num_outputs > WIDE:
            return _start_at_analysis(covariance, observations, self.num_scales)
        if observations.bins or covariance.kernels[0].loadings.relations is None:
            start_at_factors(covariance, observations.correlation())
        else:
            left = _start_at_relations(covariance, completed(observations.table, self.ridge or _RIDGE).covariance)
            return (_NOISE * left).clamp(min=_SMALLEST_NOISE)
        return None

    def obstacle(self, observations: Observations, kernel: str | Kernel | None, num_inducing: int | None) -> str | None:
        """Refuse several columns of inputs, a single input, kernels that are no Markov process, and inducing inputs."""
        if observations.input_dim != 1:
            return f"X: expected one column, got {observations.input_dim}"
        if len(np.unique(observations.inputs)) < 2:
            return "X: expected two distinct inputs or more, got one"
        known = (None, *(name for name, make in BASE_KERNELS.items() if markov_obstacle(make()) is None))
        if not isinstance(kernel, str | None) or kernel not in known:
            return f"kernel: expected one of {known}, got {kernel!r}"
        durations = [period for period in self.periods if isinstance(period, str)] if self.periods != "auto" else []
        if durations:
            return f"periods: expected numbers in units of the input, got {durations[0]!r}"
        if self.related and observations.num_outputs > WIDE:
            return f"related: expected None or False for more than {WIDE} outputs, got {self.related}"
        return None if num_inducing is None else f"num_inducing: expected None, got {num_inducing!r}"


def _hidden(observations: Observations, ridges: Sequence[float] = RIDGES) -> Ridge:
    return ridge_by_hidden_stretches(observations.standardised().table, ridges)


def _has_gap(observations: Observations, share: float) -> bool:
    """Whether an output that has values lacks a share of the rows where any was observed, in one piece."""
    _, places = np.unique(observations.inputs[:, 0], return_inverse=True)
    known = [np.unique(places[seen]) for seen in observations.observed.T if seen.any()]
    rows = np.unique(np.concatenate(known))
    gaps = [np.diff(np.searchsorted(rows, each), prepend=-1, append=len(rows)).max() - 1 for each in known]
    return bool(max(gaps) >= max(int(share * len(rows)), 1))


def start_at_factors(covariance: AdditiveKernel, correlation: Tensor) -> None:
    """Initialise all components with the principal components of a correlation matrix ``(P, P)``."""
    generator = torch.Generator().manual_seed(0)
    components, share = principal_components(correlation), 1.0 / len(covariance.kernels)
    for component in covariance.kernels:
        loadings = component.loadings
        count = 0 if loadings.factors is None else loadings.factors.shape[-1]
        common = components[:, :count]
        specific = (1.0 - common.square().sum(-1)).clamp(min=_LEAST_SHARE)
        loadings.initialize(log_scales=0.5 * (share * specific).log())
        if count:
            spread = _FACTOR_SPREAD * torch.randn(common.shape, generator=generator, dtype=torch.float64)
            loadings.initialize(factors=math.sqrt(share) * common + spread)


@torch.no_grad()
def _start_at_relations(covariance: AdditiveKernel, between: Tensor) -> Tensor:
    """Initialise the relations of outputs from a covariance ``(P, P)``, and all components with what these leave.

    Returns:
        What they leave of each output's variance, ``(P,)``.
    """
    left = covariance.kernels[0].loadings.relations.set_covariance(between)
    generator, share = torch.Generator().manual_seed(0), 1.0 / len(covariance.kernels)
    for component in covariance.kernels:
        loadings = component.loadings
        loadings.initialize(log_scales=0.5 * (share * left).log())
        if loadings.factors is not None:
            loadings.factors.copy_(_FACTOR_SPREAD * torch.randn(loadings.factors.shape, generator=generator).double())
    return left


@torch.no_grad()
def _start_at_analysis(covariance: AdditiveKernel, observations: Observations, num_scales: int) -> Tensor:
    """Initialise a covariance of many outputs by :func:`.factor_start`, cycles without processes of the outputs."""
    components, lag = list(covariance.kernels), float(observations.grid.inputs[:, 0].diff().median())
    counts = [each.loadings().shape[-1] - observations.num_outputs for each in components[:num_scales]]
    start = factor_start(observations.table, counts, num_scales, components[0].base_kernel)
    for number, component in enumerate(components):
        loadings = component.loadings
        loadings.log_scales.fill_(ABSENT)
        if number < num_scales:
            component.input_maps.log_scales.fill_(-math.log(lag * float(start.lengthscales[number])))
            loadings.log_scales.copy_(0.5 * start.own[number].log().clamp(min=2.0 * ABSENT))
            if counts[number]:
                loadings.factors.copy_(start.factors[number])
    return start.noise


def _component(
    num_processes: int,
    num_factors: int,
    kernel: str | Kernel,
    lengthscale: float,
    relations: Relations | None = None,
) -> RowKernel:
    loadings = FactorLoadings(num_processes, min(num_factors, num_processes), relations=relations)
    component = RowKernel(kernel, num_processes, 1, loadings=loadings).double()
    with torch.no_grad():
        component.input_maps.log_scales.fill_(-math.log(lengthscale))
    return component


def cycle_of(component: RowKernel) -> tuple[float, float] | None:
    """The period of a cycle and the lengthscale of its drift, in units of the input; None for other components."""
    if not isinstance(component.covar_module, ProductKernel):
        return None
    drift, cosine = component.covar_module.kernels
    return 2.0 * float(cosine.period_length), float(drift.lengthscale)


def _cycle(num_processes: int, num_factors: int, period: float, relations: Relations | None) -> RowKernel:
    """A cycle that drifts. Its period and the scale of its input are fixed."""
    drift, cosine = MaternKernel(nu=0.5).double(), CosineKernel().double()
    length = torch.tensor(period, dtype=torch.float64)  # GPyTorch rounds numbers to float32
    drift.lengthscale = _PERIODS * length
    cosine.period_length = 0.5 * length  # its covariance is cos(pi tau / period_length)
    cosine.requires_grad_(False)
    component = _component(num_processes, num_factors, drift * cosine, 1.0, relations)
    component.input_maps.requires_grad_(False)
    return component


def strongest_periods(inputs: Array, outputs: Array, count: int = 3) -> list[float]:
    r"""Periods of the strongest lines in the mean periodogram of all outputs, or else in that of any of them.

    A line is a frequency with at least twenty times the median power S of the hundred frequencies around it; a random
    walk has none. One output alone is held against the larger of two backgrounds, of flat and of red noise, and its
    line is as much higher as there are more of them:

    .. math:: S(f) \ge (20 + \log_2 P) \max\Big(\operatorname{med} S,\; f^{-2} \operatorname{med} f^2 S\Big)

    Gaps are interpolated linearly, and irregular inputs are interpolated to a grid of their median step.

    Args:
        inputs: inputs in increasing order, ``(N,)``.
        outputs: outputs, NaN where missing, ``(N, P)``.
        count: largest number of periods to return.

    Returns:
        In units of the inputs, the strongest first; between four steps and a tenth of the series.

    Example:
        >>> t = np.arange(600.0)
        >>> y = np.random.default_rng(0).normal(size=600).cumsum() / 30 + np.sin(2 * np.pi * t / 24)
        >>> [round(period, 1) for period in strongest_periods(t, y[:, None])]
        [24.0]
    """
    powers, span = _periodograms(inputs, outputs)
    if not len(powers):
        return []
    mean, squares = powers.mean(0, keepdims=True), np.arange(1.0, powers.shape[1] + 1.0) ** 2
    lines = _lines(mean, _background(mean), _HEIGHT)
    if not lines and len(powers) > 1:
        backgrounds = np.maximum(_background(powers), _background(powers * squares) / squares)
        lines = _lines(powers, backgrounds, _HEIGHT + math.log2(len(powers)))
    return [span / line for line in lines[:count]]


def stands_out(inputs: Array, outputs: Array, period: float) -> bool:
    r"""Whether a line stands out of the frequencies beside it, in the ranks of all outputs or of any of them.

    The background is what is between the mean power L of frequencies below it and R of those above it, on a logarithmic
    scale, so that a slope, of noise of any colour, is no line; and ranks have no tails:

    .. math:: S(f) \ge (h + 2\log_2 P) \sqrt{L R}

    Args:
        inputs: inputs in increasing order, ``(N,)``.
        outputs: outputs, NaN where missing, ``(N, P)``.
        period: of the line.

    Returns:
        Whether it does.

    Example:
        >>> t = np.arange(600.0)
        >>> y = np.random.default_rng(0).normal(size=600).cumsum() / 30 + np.sin(2 * np.pi * t / 24)
        >>> stands_out(t, y[:, None], 24.0), stands_out(t, y[:, None], 17.0)
        (True, False)
    """
    powers, span = _periodograms(inputs, _normal_scores(outputs))
    if not len(powers):
        return False
    every = np.concatenate([powers.mean(0, keepdims=True), powers])
    line = round(span / period)
    line += int(every[0, line - 1 : line + 2].argmax()) - 1
    below = every[:, max(line - _LOBE - _BESIDE, 1) : line - _LOBE].mean(1)
    above = every[:, line + _LOBE + 1 : line + _LOBE + _BESIDE + 1].mean(1)
    least = _ABOVE + 2.0 * math.log2(len(powers))
    return bool((every[:, line] >= least * np.sqrt(below * above)).any())


def _normal_scores(outputs: Array) -> Array:
    """Ranks of each column as quantiles of the normal distribution."""
    ranks = rankdata(outputs, axis=0, nan_policy="omit")
    return np.asarray(norm.ppf(ranks / (1.0 + (~np.isnan(outputs)).sum(0))))


def _periodograms(inputs: Array, outputs: Array) -> tuple[Array, float]:
    """Of each output, ``(P, F)``, and the span; none of a series too short or too long."""
    steps = np.diff(inputs)
    step = float(np.median(steps[steps > 0.0])) if (steps > 0.0).any() else 0.0
    if not _SMALLEST * step < inputs[-1] - inputs[0] < _LARGEST * step:
        return np.zeros((0, 1)), 0.0
    grid = np.arange(inputs[0], inputs[-1], step)
    return np.stack([_power(grid, inputs, column) for column in outputs.T]), len(grid) * step


def _lines(powers: Array, backgrounds: Array, least: float) -> list[float]:
    """The frequencies of cycles so high above the background in one of several periodograms, the strongest first."""
    heights = powers / backgrounds
    peaks, _ = find_peaks(heights.max(axis=0), height=least)
    peaks = peaks[(peaks >= _LEAST_CYCLES) & (2 * (powers.shape[1] - 1) >= _LEAST_ROWS * peaks)]
    highest = powers[heights.argmax(axis=0)[peaks]]
    found = zip(highest[range(len(peaks)), peaks], map(_refined, highest, peaks), strict=True)
    return [line for _, line in sorted(found, key=lambda each: -each[0])]


def _background(powers: Array) -> Array:
    return np.asarray(median_filter(powers, size=(1, _NEIGHBOURS), mode="reflect"))


def _power(grid: Array, inputs: Array, column: Array) -> Array:
    seen = ~np.isnan(column)
    values = np.interp(grid, inputs[seen], column[seen])
    spread = values.std()
    _, power = periodogram(values / spread if spread > 0.0 else values, window="hann", detrend="linear")
    return np.asarray(power)


def _refined(power: Array, peak: int) -> float:
    """The location of a maximum between frequencies, by a parabola through three logarithms."""
    before, at, after = np.log(power[peak - 1 : peak + 2])
    return float(peak + 0.5 * (before - after) / (before - 2.0 * at + after))
