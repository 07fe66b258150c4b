"""Learning from windows: the parameters of a long series by the evidence of pieces of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from cgp.kernels.process_rows import noise_of_rows
from cgp.regression.covariances.rows import grid_covariances
from cgp.regression.solvers.evidence import mixed_log_evidence, mixed_places
from cgp.regression.solvers.model import RegressionModel

from .fitting import Fit, Progress, learned_parameters

__all__ = [
    "WINDOW_OBSERVATIONS",
    "WINDOW_OUTPUTS",
    "Table",
    "Window",
    "Windows",
    "fit_windows",
    "pairwise_correlation",
    "table_of",
    "window_shape",
]

WINDOW_OBSERVATIONS = 600  # of a window: with fewer, overheads dominate; with more, the cubic cost
WINDOW_OUTPUTS = 50  # of a window: with fewer than shared processes, their shares and the noise cannot be told apart
_ROWS = 150  # of a window; twice as many took twice the time for the same likelihood
_LEARNING_RATE = 0.05
_LARGEST_STEP = 5.0  # norm that gradients are clipped to
_STRIDES = (1, 3, 6, 12, 24, 48, 96, 192)
_CONSECUTIVE = 0.35  # smallest share of windows with stride 1: no others show the shortest time scales
_LEAST_SHARE = 0.3  # smallest observed share of a window's entries
_TRIES = 50


class Table(NamedTuple):
    """Observations of several outputs as rows with missing entries.

    Attributes:
        inputs: inputs in increasing order, ``(N,)``.
        numbers: index of the observation in each entry, -1 if there is none, ``(N, P)``.
    """

    inputs: Tensor
    numbers: NDArray[np.int64]


class Window(NamedTuple):
    """Some rows and outputs of a table.

    Attributes:
        rows: ``(T,)``.
        outputs: ``(Q,)``.
    """

    rows: NDArray[np.int64]
    outputs: NDArray[np.int64]


def table_of(rows: Tensor, num_processes: int) -> Table:
    """The table of rows ``(n, 2)``; of repeated observations only the last is included."""
    inputs, place = rows[:, 0].unique(return_inverse=True)
    numbers = np.full((len(inputs), num_processes), -1)
    numbers[place.numpy(), rows[:, 1].long().numpy()] = np.arange(len(rows))
    return Table(inputs, numbers)


class Windows:
    """Random windows of a table: consecutive rows, or every third, sixth, ... of a longer stretch, of some outputs.

    A window is a part of the observations, so that its evidence is that of the same model; short strides cover the
    short time scales, long strides the long ones. A third has consecutive rows, the others have all strides equally.

    Args:
        table: the observations.
        seed: seed of the choice.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self.observed = table.numbers >= 0
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
    outputs = min(num_outputs, WINDOW_OUTPUTS)
    return min(WINDOW_OBSERVATIONS // outputs, _ROWS, num_rows), outputs


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
    table = table_of(model.train_inputs[0], model.num_processes)
    windows, parameters = Windows(table, seed), learned_parameters(model)
    optimizer = torch.optim.Adam(parameters, lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    losses = []
    for step in range(num_steps):
        evidence, count = window_evidence(model, table, windows.draw())
        loss = -evidence / count - model.log_prior() / len(model.train_targets)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(parameters, _LARGEST_STEP)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if progress is not None:
            progress(step + 1, losses[-1])
    last = float(np.mean(losses[-max(num_steps // 5, 1) :]))
    return Fit(last, num_steps, True, f"{num_steps} windows of the series")


def window_evidence(model: RegressionModel, table: Table, window: Window) -> tuple[Tensor, int]:
    """Log-density in nats of the observations of a window, and their number."""
    numbers, chosen = torch.as_tensor(table.numbers[np.ix_(*window)]), torch.as_tensor(window.outputs)
    inputs, outputs = (numbers >= 0).nonzero(as_tuple=True)
    numbers = numbers[inputs, outputs]
    grams, mixing = grid_covariances(model.covar_module, table.inputs[window.rows, None])
    mixing = mixing[:, chosen][:, :, chosen]
    places = mixed_places(inputs, outputs, (len(chosen), len(window.rows)))
    rows = model.train_inputs[0][numbers]
    residual = model.train_targets[numbers] - model.mean_module(rows)
    noise = noise_of_rows(model.likelihood, rows)
    return mixed_log_evidence(grams, mixing, noise, residual, places), len(numbers)


def pairwise_correlation(table: Table, targets: Tensor) -> Tensor:
    """Correlations ``(P, P)`` over the inputs where both outputs were observed, 0 where these are fewer than three."""
    observed = torch.as_tensor(table.numbers >= 0)
    values = torch.where(observed, targets[table.numbers.clip(min=0)], 0.0).double()
    seen = observed.double()
    count = seen.mT @ seen
    mean = (values.mT @ seen) / count.clamp(min=1.0)  # of each output where the other is observed, too
    product = values.mT @ values / count.clamp(min=1.0) - mean * mean.mT
    square = values.square().mT @ seen / count.clamp(min=1.0) - mean.square()
    scale = (square * square.mT).clamp(min=1e-12).sqrt()
    correlation = torch.where(count >= 3, (product / scale).clamp(-1.0, 1.0), 0.0)
    return correlation.fill_diagonal_(1.0)
