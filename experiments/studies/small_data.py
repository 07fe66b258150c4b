"""Are the intervals of a regression calibrated with few observations?

Parameters are drawn from the model's priors, functions and observations given the parameters; each observation is
of one output at a separate input, and every output has at least one. The regressor predicts all outputs at new
inputs. Printed per size: the share of new observations in the 95 % interval with its standard error over draws, their
mean log-density, and the smallest mean log-density of a draw. Densities are in units of each output's own standard
deviation over all its drawn values, so that a normal distribution with the right moments has -1.42.
`python -m experiments.studies.small_data --arguments '{inference: map}'`
"""

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from cgp.regression import CorrelatedGPRegression, CorrelatedGPRegressor, correlated_covariance
from cgp.regression.covariances.rows import dense_covariance
from cgp.regression.likelihood import every_process
from experiments.runs.parsing import run_functions

__all__ = ["Drawn", "draw", "scores", "small_data"]

Array = NDArray[np.float64]

_STRUCTURES = ("coregionalised", "shared", "shifted", "independent")
_NEW = 12
_WIDTH = 3.0**0.5  # half the range of uniform inputs of unit variance


class Drawn(NamedTuple):
    """Observations of functions of the prior.

    Attributes:
        inputs: (n, 1).
        targets: (n, P), one value in each row, the others NaN.
        new_inputs: (t, 1).
        truth: observations at the new inputs, (t, P).
        unit: standard deviation of each output over targets and truth, (P,).
    """

    inputs: Array
    targets: Array
    new_inputs: Array
    truth: Array
    unit: Array


def small_data(
    sizes: Sequence[int] = (8, 12, 20, 40),
    outputs: Sequence[int] = (1, 4),
    draws: int = 50,
    seed: int = 0,
    arguments: Mapping[str, Any] | None = None,
    threads: int = 1,
) -> None:
    """Print a table of coverage and log-density, a row for each number of outputs and observations.

    Args:
        sizes: numbers of observations, all outputs together.
        outputs: numbers of outputs.
        draws: number of functions for each row.
        seed: seed of the first function.
        arguments: arguments of the regressor that replace its defaults.
        threads: number of torch threads.
    """
    torch.set_num_threads(threads)
    print(
        "| outputs | observations | coverage of 95 % | log-density a value | smallest of a draw | CPU seconds a fit |"
    )
    print("|--:|--:|--:|--:|--:|--:|", flush=True)
    for number in outputs:
        for size in sizes:
            started = time.process_time()
            each = [scores(draw(size, number, seed + index), **(arguments or {})) for index in range(draws)]
            inside, density = np.array(each).T
            error, seconds = inside.std(ddof=1) / draws**0.5, (time.process_time() - started) / draws
            levels = f"{inside.mean():.3f} ± {error:.3f} | {density.mean():.2f} | {density.min():.1f}"
            print(f"| {number} | {size} | {levels} | {seconds:.1f} |", flush=True)


def draw(size: int, outputs: int, seed: int) -> Drawn:
    """Observations with parameters drawn from the priors; the four structures alternate."""
    generator = torch.Generator().manual_seed(seed)
    inputs = (2.0 * torch.rand(size + _NEW, 1, generator=generator, dtype=torch.float64) - 1.0) * _WIDTH
    observed = torch.cat([torch.arange(outputs), torch.randint(outputs, (size - outputs,), generator=generator)])
    values = _observations(inputs, outputs, _STRUCTURES[seed % len(_STRUCTURES)], generator).numpy()
    targets = np.full((size, outputs), np.nan)
    targets[np.arange(size), observed] = values[np.arange(size), observed]
    return Drawn(inputs[:size].numpy(), targets, inputs[size:].numpy(), values[size:], values.std(0))


def _observations(inputs: torch.Tensor, outputs: int, structure: str, generator: torch.Generator) -> torch.Tensor:
    """Noisy values ``(n, P)`` at inputs ``(n, 1)``."""
    rows = every_process(inputs, outputs).flatten(0, 1)
    covariance = correlated_covariance(outputs, 1, structure=structure).double()
    model = CorrelatedGPRegression(rows, torch.zeros(len(rows)).double(), outputs, covar_module=covariance)
    with torch.no_grad():
        for _, module, prior, closure, assign in model.named_priors():
            noise = torch.randn(closure(module).shape, generator=generator, dtype=torch.float64)
            assign(module, prior.loc + prior.scale * noise)
        noisy = dense_covariance(model.covar_module, rows) + model.noise().diag()
        root = torch.linalg.cholesky(noisy)
        white = torch.randn(len(rows), generator=generator, dtype=torch.float64)
        return (model.mean_module(rows) + root @ white).reshape(-1, outputs)


def scores(drawn: Drawn, **arguments: Any) -> tuple[float, float]:
    """Share of the truth in the 95 % interval, and its mean log-density in units of each output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor = CorrelatedGPRegressor(random_state=0, **arguments).fit(drawn.inputs, drawn.targets)
    mean, sd = regressor.predict(drawn.new_inputs, return_std=True)
    density = regressor.log_predictive_density(drawn.new_inputs, drawn.truth) + np.log(drawn.unit)
    return float(np.mean(np.abs(drawn.truth - mean) < 1.959964 * sd)), float(np.mean(density))


if __name__ == "__main__":
    run_functions(small_data, "studies.small_data")
