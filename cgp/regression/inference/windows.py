"""Learning from windows: the parameters of a long series by the evidence of pieces of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel
from numpy.typing import NDArray
from scipy.stats import chi2
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from cgp.functional.factor_models import factor_log_evidence
from cgp.functional.threads import one_thread
from cgp.kernels.base_kernels import base_gram
from cgp.kernels.canonical_kernel import noise_of_rows
from cgp.regression.covariances.multiscale import ABSENT
from cgp.regression.covariances.rows import grid_covariances
from cgp.regression.covariances.structure import Structure, count
from cgp.regression.covariances.wide import WIDE
from cgp.regression.observations import Grid, Observations
from cgp.regression.solvers.choice import Cost, Problem, Solver
from cgp.regression.solvers.exact import mixed_log_evidence, mixed_places
from cgp.regression.solvers.model import RegressionModel
from cgp.regression.solvers.series import SeriesCorrelatedGPRegression, num_states
from cgp.regression.solvers.summed import SummedSeriesRegression
from cgp.regression.solvers.uncertain_loadings import UncertainLoadingsRegression

from .descent import Descent
from .fitting import Fit, Progress, learned_parameters, seeded
from .setting import Fits, Inference, Setting, measured_seconds
from .silent import fit_silent

__all__ = ["Window", "WindowSampler", "Windows", "fit_windows", "window_evidence", "window_shape"]

_OBSERVATIONS = 600  # of a window: with fewer, overheads dominate; with more, the cubic cost
_WIDE_ROWS, _WIDE_OUTPUTS = 60, 64  # of a window of more outputs than one can have in whole
_WIDE_WINDOW = 6.5e-2  # seconds
_ALONE = 3.5  # times as long as a pass without uncertain loadings, for which every output is smoothed by itself
_SUMMED = 2.2  # times as long where sums are known: 1.8 to 2.6 in six tables of 1,500 to 17,520 rows
_ROWS = 150  # of a window; twice as many took twice the time for the same likelihood
_LEARNING_RATE = 0.05
_LARGEST_STEP = 5.0  # norm that gradients are clipped to
_STRIDES = (1, 3, 6, 12, 24, 48, 96, 192)
_CONSECUTIVE = 0.35  # smallest share of windows with stride 1: no others show the shortest time scales
_NEGLIGIBLE = 0.05  # of the noise: the variance of a process that is counted as noise
_LEAST_SHARE = 0.3  # smallest observed share of a window's entries
_TRIES = 50
_LEAST_NOISE = 1e-3  # variance that a fit starts from: from less it may not find its way back up
_DIFFERENCES = 20  # that show how large the noise is
_ROWS_PER_FACTOR = 100  # with more, the uncertainty of loadings adds less than a hundredth to a variance


@dataclass(frozen=True, kw_only=True)
class Windows(Inference):
    """Parameters of a series of many time scales from windows of it, and predictions in linear time.

    For series of few rows, what the observations do not say of the loadings is added to the variances.

    Args:
        num_steps: number of windows for learning.
    """

    name = "windows"
    num_steps: int = count(500)

    def num_windows(self, setting: Setting) -> int:
        """The number of windows for learning."""
        return self.num_steps

    def expected_steps(self, setting: Setting) -> int:
        """As many as there are windows, of each variant of the structure."""
        return self.num_windows(setting) * len(setting.candidates)

    def cost(self, setting: Setting) -> Cost:
        """The cost of the windows, and of a filter over all rows, of each variant of the structure."""
        problems, outputs = _problems(setting), setting.observations.num_outputs
        seconds = self.num_windows(setting) * sum(_window_seconds(each, outputs) for each in problems)
        seconds = (seconds + sum(map(_pass_seconds, problems))) * (_SUMMED if problems[0].num_sums else 1.0)
        states = sum(_expected_states(each.covariance) for each in problems)
        return Cost(seconds, problems[0].num_inputs * (2000.0 * len(problems) + 16.0 * states * outputs))

    def pass_seconds(self, setting: Setting) -> float:
        """The chains smoothed to their end."""
        return sum(_pass_seconds(problem) for problem in _problems(setting))

    @one_thread()
    def pace(self, setting: Setting) -> float:
        """By one window."""
        given = setting.observations
        if given.sums is not None:
            return 1.0
        with seeded(0):
            problem = setting.problem(next(iter(setting.candidates.values())))
            model = setting.built(SeriesCorrelatedGPRegression, problem.covariance).eval()
        numbers = given.grid.numbers(given.num_outputs)
        windows = WindowSampler(numbers >= 0, 0)
        drawn = [windows.draw() for _ in range(3)]

        def step() -> None:
            evidence, count = window_evidence(model, given.grid.inputs, numbers, drawn[0])
            (evidence / count).backward()
            drawn.append(drawn.pop(0))

        return measured_seconds(step) / _window_seconds(problem, given.num_outputs)

    def fit(self, setting: Setting, seed: int, progress: Progress | None = None) -> Fits:
        """Learn from windows, and return models in linear time, one of each variant of the structure."""
        structures = list(setting.candidates.values())
        models, fits = zip(*(self._fitted(setting, each, seed, progress) for each in structures), strict=True)
        return Fits(list(models), structures, fits[0], {}, {})

    def _fitted(
        self, setting: Setting, structure: Structure, seed: int, progress: Progress | None
    ) -> tuple[RegressionModel, Fit]:
        problem = setting.problem(structure)
        is_uncertain = _has_uncertain_loadings(problem)
        solver: Solver = UncertainLoadingsRegression if is_uncertain else SeriesCorrelatedGPRegression
        solver = SummedSeriesRegression if problem.num_sums else solver
        model = setting.model(structure, solver)
        if model.num_processes <= WIDE:  # others start with noises of their own
            model.likelihood.noise = starting_noise(setting.observations, model.likelihood.noise)
        fit = fit_windows(model, num_steps=self.num_windows(setting), seed=seed, progress=progress)
        if model.num_processes > WIDE:
            _leave_out(model)
        if isinstance(model, UncertainLoadingsRegression):
            model.learn_uncertainty()
        if setting.observations.bins:
            fit_silent(model, setting.observations.bins, float(setting.observations.grid.inputs[:, 0].diff().median()))
        return model, fit


def _problems(setting: Setting) -> list[Problem]:
    return [setting.problem(structure) for structure in setting.candidates.values()]


def _pass_seconds(problem: Problem) -> float:
    outputs, states = problem.covariance.kernels[0].num_processes, _expected_states(problem.covariance)
    outputs_alone = _ALONE if _has_uncertain_loadings(problem) else 1.0
    return outputs_alone * problem.num_inputs * (5e-5 + 2e-6 * states + (1e-7 if outputs > WIDE else 1e-8) * states**2)


def _has_uncertain_loadings(problem: Problem) -> bool:
    """Whether what observations do not say of loadings is more than a hundredth of a variance, or of relations."""
    components = problem.covariance.kernels
    factors = sum(each.loadings().shape[-1] - each.num_processes for each in components)
    return components[0].loadings.relations is not None or problem.num_inputs < _ROWS_PER_FACTOR * factors


def _window_seconds(problem: Problem, outputs: int) -> float:
    """Those of a step: the figures are measured (docs/notes/regression.md, "What is expected of a fit")."""
    rows, some = window_shape(problem.num_inputs, outputs)
    observed = rows * some * problem.num_observations / (outputs * problem.num_inputs)
    return _WIDE_WINDOW if outputs > WIDE else 9e-3 + 1.5e-2 * (observed / _OBSERVATIONS) ** 2 + 1.5e-4 * some


def starting_noise(observations: Observations, largest: Tensor) -> Tensor:
    r"""Noise variances from the second differences of successive values: those of noise have six times its variance.

    .. math:: \sigma_p^2 = \min\Big(\frac{\operatorname{median}(y_{i-1} - 2 y_i + y_{i+1})^2}{6\, q_{1/2}}, v\Big)

    A variance of a tenth is not learned down to that of a smooth series in 500 windows.

    Args:
        observations: standardised, over one input.
        largest: v, ``(P,)``, also of outputs whose differences are few, or mostly 0.

    Returns:
        ``(P,)``.
    """
    values = observations.values[np.argsort(observations.inputs[:, 0], kind="stable")]
    squares = np.square(values[:-2] - 2.0 * values[1:-1] + values[2:])
    known = [each[~np.isnan(each)] for each in squares.T]
    median = [np.median(each) if len(each) >= _DIFFERENCES else 0.0 for each in known]
    variance = torch.as_tensor(np.array(median) / (6.0 * chi2.median(1))).to(largest)
    return torch.where(variance > 0.0, variance.clamp(min=_LEAST_NOISE).minimum(largest), largest)


def _expected_states(covariance: AdditiveKernel) -> float:
    """Those of the chain of a fit, in which an output of many has a process of its own in two components at most."""
    first, states = covariance.kernels[0], float(num_states(covariance))
    copies = sum(component.loadings().shape[-1] for component in covariance.kernels)
    unused = max(len(covariance.kernels) - 2, 0) * first.num_processes if first.num_processes > WIDE else 0
    return states * (1.0 - unused / copies)


@torch.no_grad()
def _leave_out(model: RegressionModel) -> None:
    """Count processes of single outputs that are far below the noise as noise, so that there are fewer states."""
    noise = model.likelihood.noise.clone()
    for component in model.covar_module.kernels:
        scales = component.loadings.log_scales
        small = (2.0 * scales).exp() < _NEGLIGIBLE * noise
        noise += torch.where(small, (2.0 * scales).exp(), 0.0)
        scales[small] = ABSENT
    model.likelihood.noise = noise


class Window(NamedTuple):
    """Some rows and outputs of a table.

    Attributes:
        rows: ``(T,)``.
        outputs: ``(Q,)``.
    """

    rows: NDArray[np.int64]
    outputs: NDArray[np.int64]


class WindowSampler:
    """Random windows of a table: consecutive rows, or every third, sixth, ... of a longer stretch, of some outputs.

    A window is a part of the observations, so that its evidence is that of the same model; short strides cover the
    short time scales, long strides the long ones. A third has consecutive rows, the others have all strides equally.

    Args:
        observed: whether each output was observed at each of T inputs in order, ``(T, P)``.
        seed: seed of the choice.
    """

    def __init__(self, observed: NDArray[np.bool_], seed: int) -> None:
        self.observed = observed
        count, outputs = self.observed.shape
        self.length, self.num_outputs = window_shape(count, outputs)
        self.strides = [stride for stride in _STRIDES if stride == 1 or 4 * stride * self.length <= count]
        consecutive, others = max(_CONSECUTIVE, 1.0 / len(self.strides)), len(self.strides) - 1
        self._shares = np.array([consecutive] + [(1.0 - consecutive) / max(others, 1)] * others)
        self._generator = np.random.default_rng(seed)

    def draw(self) -> Window:
        """A window with observations, preferably with many."""
        best, share = None, 0.0
        for _ in range(_TRIES):
            window = self._any()
            seen = self.observed[np.ix_(*window)].mean()
            if seen > share:
                best, share = window, seen
            if share > _LEAST_SHARE:
                break
        return self._around_an_observation() if best is None else best

    def _any(self) -> Window:
        stride = int(self._generator.choice(self.strides, p=self._shares))
        first = self._generator.integers(len(self.observed) - stride * (self.length - 1))
        return Window(first + stride * np.arange(self.length), self._outputs())

    def _around_an_observation(self) -> Window:
        row, output = self._generator.choice(np.argwhere(self.observed))
        first = min(row, len(self.observed) - self.length)
        return Window(first + np.arange(self.length), np.union1d(self._outputs(), [output]))

    def _outputs(self) -> NDArray[np.int64]:
        return np.sort(self._generator.permutation(self.observed.shape[1])[: self.num_outputs])


def window_shape(num_rows: int, num_outputs: int) -> tuple[int, int]:
    """Numbers of rows and of outputs of a window of a table."""
    if num_outputs > WIDE:
        return min(_WIDE_ROWS, num_rows), min(_WIDE_OUTPUTS, num_outputs)
    return min(_OBSERVATIONS // num_outputs, _ROWS, num_rows), num_outputs


@one_thread()
def fit_windows(
    model: RegressionModel, *, num_steps: int = 500, seed: int = 0, progress: Progress | None = None
) -> Fit:
    r"""Maximise the evidence of random windows of a series, by Adam.

    .. math:: \max_\theta\; \mathbb E_w\Big[\frac{\log p(y_w \mid \theta)}{|w|}\Big] + \frac{\log p(\theta)}{n}

    The parameters are learned from the whole series, at a cost that does not grow with its length. Each window is the
    exact process of its observations; its covariance is assembled as a sum of Kronecker products of times and outputs.

    Args:
        model: over one input, its outputs with one lengthscale per component; left in eval mode.
        num_steps: number of steps, each with one window.
        seed: seed of the windows.
        progress: called with the number of the step and the loss.

    Returns:
        The result of the fit; its loss is the mean over the last fifth of the windows.

    Source:
        Stein, Chi & Welty (2004), Approximating likelihoods for large spatial data sets, on evidences of parts.
    """
    model.eval()
    grid = Grid.of(model.train_inputs[0])
    numbers = grid.numbers(model.num_processes)
    windows, parameters = WindowSampler(numbers >= 0, seed), learned_parameters(model)
    descent = Descent(parameters, _LEARNING_RATE, num_steps)
    names = dict(model.covar_module.named_parameters())
    absent = [(each, each <= ABSENT) for name, each in names.items() if name.endswith("loadings.log_scales")]
    losses = []
    for step in range(num_steps):
        evidence, count = window_evidence(model, grid.inputs, numbers, windows.draw())
        loss = -evidence / count - model.log_prior() / len(model.train_targets)
        descent.zero_grad()
        loss.backward()
        for scales, which in absent:
            scales.grad[which] = 0.0
        clip_grad_norm_(parameters, _LARGEST_STEP)
        descent.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, losses[-1])
    last = float(np.mean(losses[-max(num_steps // 5, 1) :]))
    return Fit(last, num_steps, True, f"{num_steps} windows of the series")


def window_evidence(
    model: RegressionModel, inputs: Tensor, numbers: NDArray[np.int64], window: Window
) -> tuple[Tensor, int]:
    """Log-density in nats of the observations of a window, and their number.

    Args:
        model: of the observations.
        inputs: in order, ``(T, 1)``.
        numbers: of the observation in each cell, ``(T, P)``.
        window: some of the cells.

    Returns:
        Both.
    """
    cells, chosen = torch.as_tensor(numbers[np.ix_(*window)]), torch.as_tensor(window.outputs)
    places, outputs = (cells >= 0).nonzero(as_tuple=True)
    if model.num_processes > WIDE:
        return _wide_evidence(model, inputs[window.rows], cells, chosen), len(places)
    grams, mixing = grid_covariances(model.covar_module, inputs[window.rows])
    mixing = mixing[:, chosen][:, :, chosen]
    rows = model.train_inputs[0][cells[places, outputs]]
    residual = model.train_targets[cells[places, outputs]] - model.mean_module(rows)
    noise = noise_of_rows(model.likelihood, rows)
    if model.further_noise is not None:
        noise = noise + model.further_noise[cells[places, outputs]]
    among = mixed_places(places, outputs, (len(chosen), len(window.rows)))
    return mixed_log_evidence(grams, mixing, noise, residual, among), len(places)


def _wide_evidence(model: RegressionModel, inputs: Tensor, cells: Tensor, outputs: Tensor) -> Tensor:
    """That of a window of numbers of observations ``(T, Q)``, by the factors and the columns' own processes."""
    grams, factors, own, count = [], [], [], model.num_processes
    for component in model.covar_module.kernels:
        points, loadings = inputs * component.input_maps.scales, component.loadings()[outputs]
        grams.append(base_gram(component.base_kernel, points, points))
        factors.append(loadings[:, :-count])
        own.append(loadings[:, -count:].gather(-1, outputs[:, None])[:, 0].square())
    kinds = torch.arange(len(grams)).repeat_interleave(torch.tensor([each.shape[-1] for each in factors]))
    rows = torch.cartesian_prod(inputs[:, 0], outputs.to(inputs))
    mean, noise = model.mean_module(rows).reshape(cells.shape), noise_of_rows(model.likelihood, rows[: len(outputs)])
    values = torch.where(cells >= 0, model.train_targets[cells.clamp(min=0)] - mean, torch.nan)
    both = torch.cat(factors, dim=-1), kinds
    return factor_log_evidence(torch.stack(grams), both, torch.stack(own), noise, values)
