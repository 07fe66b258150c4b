"""A prior learned from training functions by `cgp.regression.learn_prior`, and the answers of a regressor under it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cgp.regression import CorrelatedGPRegressor, LearnedPrior, learn_prior
from experiments.studies.in_context.tasks import Drawn, Stream, Tasks

__all__ = ["learned", "scores_under"]

Array = NDArray[Any]

_PERIODS = (0.6, 0.9, 1.2, 1.6, 2.4)
_PER_BATCH = 2
_INTERVAL = 1.959964


def learned(stream: Stream, *, seed: int, tables: int) -> tuple[LearnedPrior, float]:
    """A prior from so many functions, two of each training batch, and the processor seconds that it took.

    Args:
        stream: draws training tasks.
        seed: of the functions and of what is hidden in them.
        tables: number of functions.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen: list[tuple[Array, Array]] = []
    while len(chosen) < tables:
        chosen += list(_whole(stream(generator).part(0, _PER_BATCH)))
    started = time.process_time()
    prior = learn_prior(chosen[:tables], standardised=False, periods=_PERIODS, seed=seed)
    return prior, time.process_time() - started


def scores_under(prior: LearnedPrior, sets: Mapping[str, Drawn], *, functions: int) -> dict[str, Array]:
    """Log-density of the targets one by one, and how many 95 % intervals hold them, of the first functions of each set.

    Args:
        prior: of the regressor, which answers by weights of evidence, without an optimizer.
        sets: test sets.
        functions: number of functions of each.
    """
    table = {}
    for name, drawn in sets.items():
        pairs = [_answer(prior, drawn.tasks.part(b, b + 1)) for b in range(min(functions, len(drawn.tasks.x)))]
        table[f"{name}.marginal"], table[f"{name}.inside"] = np.array(pairs).T
    return table


def _answer(prior: LearnedPrior, task: Tasks) -> tuple[float, float]:
    real = slice(None) if task.padding is None else ~task.padding[0]
    x, y, asked, truth = (
        values.double().numpy() for values in (task.x[0][real], task.y[0][real], task.x_targets[0], task.y_targets[0])
    )
    regressor = CorrelatedGPRegressor(prior=prior, inference="pretrained").fit(x[:, None], y)
    density = regressor.log_predictive_density(asked[:, None], truth)
    mean, sd = regressor.predict(asked[:, None], return_std=True, include_noise=True)
    return float(density.mean()), float(np.mean(np.abs(truth - mean) < _INTERVAL * sd))


def _whole(tasks: Tasks) -> Iterator[tuple[Array, Array]]:
    """Contexts and targets of each function as a table."""
    y = torch.cat([tasks.y, tasks.y_targets], -1)
    for x, values in zip(tasks.inputs, y, strict=True):
        yield x.double().numpy()[:, None], values.double().numpy()
