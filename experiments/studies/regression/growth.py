"""What a series costs as its rows grow: seconds and memory of the linear form, beside quasiseparable solvers."""

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import IndexKernel, MaternKernel
from gpytorch.likelihoods import GaussianLikelihood
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from cgp.kernels import Markov
from cgp.plotting.style import PALETTE, style
from cgp.regression import CorrelatedGPRegressor, SeriesCorrelatedGPRegression, correlated_covariance
from cgp.regression.observations import Observations
from cgp.regression.solvers.choice import SOLVERS, Problem
from experiments.atomic_files import write_atomically
from experiments.studies.regression.problems import Array
from experiments.studies.regression.report import cached_row, write_results

__all__ = ["METHODS", "growth", "growth_figure", "table"]
Row = Mapping[str, Any]

_STEPS = 50.0  # of the lengthscale
_NOISE = 0.1  # variance
_MISSING = 0.1
_UPDATES = 20
_WARM = 100  # rows
_RANK = 3  # of the outputs of an ExactGP, beside variances of their own


def growth(
    out: Path,
    sizes: Sequence[int] = (1000, 10_000, 100_000, 1_000_000),
    outputs: Sequence[int] = (1, 10),
    methods: Sequence[str] | None = None,
    most_gigabytes: float = 8.0,
) -> None:
    """A regular series with a tenth of its values missing: processor seconds and peak memory, and their picture.

    With given parameters of a Matérn 3/2 process (coregionalised outputs): evidence with gradient, evidence alone,
    means and variances at all rows, an update by a row with its forecast; and the default fit with predictions at all
    rows. The same by an ``ExactGP`` of GPyTorch with a Markov kernel, of rank three if there are several outputs, and
    for one output by tinygp and celerite2, where these are installed.

    Args:
        out: where tables, rows and the picture go.
        sizes: numbers of rows.
        outputs: numbers of outputs.
        methods: names of those to run; None means all.
        most_gigabytes: what is expected to need more memory is left out.
    """
    rows = []
    for count in outputs:
        for name, method in METHODS.items():
            for size in sizes if methods is None or name in methods else ():
                if _can_run(name, size, count, most_gigabytes):
                    key = {"outputs": count, "method": name, "n": size}
                    rows.append(cached_row(out / "growth", key, partial(method, size, count)))
    write_results(out, "regression-growth", "A series that grows", rows, ("outputs", "method", "n"), _COLUMNS)
    with style():
        write_atomically(out / "regression-growth.png", growth_figure(rows).savefig)


_TASKS = ("evidence and gradient", "evidence", "fill", "update and forecast", "default fit and fill")
_COLUMNS = ("evaluation_seconds", "memory_mb")
_MARKERS = {"cgp": "o", "ExactGP": "D", "tinygp": "^", "celerite2": "s"}


def table(size: int, outputs: int) -> tuple[Array, Array]:
    """Inputs ``(n,)`` in steps and outputs ``(n, P)`` with gaps."""
    generator = np.random.default_rng(0)
    t = np.arange(float(size))
    y = np.sin(t[:, None] / _STEPS + np.arange(outputs)) + math.sqrt(_NOISE) * generator.normal(size=(size, outputs))
    y[generator.random(y.shape) < _MISSING] = np.nan
    return t, y


def growth_figure(rows: Sequence[Row]) -> Figure:
    """Seconds and megabytes against rows, in logarithms: a colour per task, a marker per package, dashed if several."""
    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, column, label in zip(axes, _COLUMNS, ("CPU seconds", "peak memory (MB)"), strict=True):
        for row_set in _lines(rows):
            method, count = row_set[0]["method"], row_set[0]["outputs"]
            look = {"color": PALETTE[_TASKS.index(_task(method))], "ls": _dashes(count)}
            points = [(row["n"], row[column]) for row in row_set]
            axis.plot(*zip(*points, strict=True), ms=4, marker=_MARKERS[_package(method)], **look)
        axis.set(xscale="log", yscale="log", xlabel="rows", ylabel=label)
        axis.grid(color="0.9", lw=0.6)
    low, high = axes[0].get_xlim()
    bottom, top = axes[0].get_ylim()
    (slope,) = axes[0].plot([low, high], [1e-5 * low, 1e-5 * high], color="0.6", ls=":", lw=1.0, label="slope 1")
    axes[0].set(xlim=(low, high), ylim=(bottom, top))
    figure.legend(handles=[*_meanings(rows), slope], loc="outside right center", handlelength=3.2)
    return figure


def _meanings(rows: Sequence[Row]) -> Iterator[Line2D]:
    """What colours, markers and dashes stand for, an entry each."""
    methods = dict.fromkeys(row["method"] for row in rows)
    for task in dict.fromkeys(map(_task, methods)):
        yield Line2D([], [], color=PALETTE[_TASKS.index(task)], label=task)
    for package in dict.fromkeys(map(_package, methods)):
        yield Line2D([], [], color="0.3", ls="", marker=_MARKERS[package], ms=4, label=package)
    for count in dict.fromkeys(row["outputs"] for row in rows):
        yield Line2D([], [], color="0.3", ls=_dashes(count), label=f"{count} output{'s' if count > 1 else ''}")


def _dashes(outputs: int) -> str:
    return "-" if outputs == 1 else "--"


def _package(method: str) -> str:
    first = method.split()[0]
    return first if first in _MARKERS else "cgp"


def _task(method: str) -> str:
    """What a method does, whoever's it is."""
    return method.removeprefix("tinygp ").removeprefix("celerite2 ").removeprefix("ExactGP ")


def _lines(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if "failed" not in row:
            groups.setdefault((row["method"], row["outputs"]), []).append(row)
    return list(groups.values())


def _can_run(name: str, size: int, outputs: int, most_gigabytes: float) -> bool:
    package = name.split()[0]
    if package == "ExactGP":
        return True
    if package in ("tinygp", "celerite2"):
        return outputs == 1 and importlib.util.find_spec(package) is not None
    if name == "default fit and fill":
        bytes_needed = CorrelatedGPRegressor().estimate(*_framed(size, outputs)).bytes
    else:
        covariance = correlated_covariance(outputs, 1, kernel="matern32", structure="coregionalised").double()
        bytes_needed = SOLVERS["linear"].cost(Problem(covariance, size * outputs, size)).bytes
        if "gradient" not in name:
            bytes_needed -= size * 24.0 * (2.0 * outputs) ** 2  # covariances of the states are kept for gradients only
    return bytes_needed < 1e9 * most_gigabytes


def _framed(size: int, outputs: int) -> tuple[Array, Array]:
    t, y = table(size, outputs)
    return t[:, None], np.nan_to_num(y[:, 0]) if outputs == 1 else y


def _model(size: int, outputs: int) -> SeriesCorrelatedGPRegression:
    """Lengthscale, noise and correlations of one half as given; time in lengthscales."""
    t, y = table(size, outputs)
    given = Observations(t[:, None] / _STEPS, y)
    covariance = correlated_covariance(outputs, 1, kernel="matern32", structure="coregionalised").double()
    covariance.kernels[0].input_maps.log_scales.data.zero_()
    if outputs > 1:
        covariance.kernels[0].loadings.set_correlation(0.5 + 0.5 * torch.eye(outputs, dtype=torch.float64))
    model = SeriesCorrelatedGPRegression(given.rows, given.targets, outputs, covar_module=covariance)
    model.likelihood.noise = _NOISE
    return model.eval()


def _seconds(compute: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    value = compute()
    return time.process_time() - start, value


def _evidence_and_gradient(size: int, outputs: int) -> Row:
    model = _model(size, outputs)

    def evaluate() -> float:
        value = model.log_evidence()
        value.backward()
        return float(value.detach())

    seconds, value = _seconds(evaluate)
    return {"evaluation_seconds": seconds, "evidence": value}


@torch.no_grad()
def _evidence(size: int, outputs: int) -> Row:
    model = _model(size, outputs)
    seconds, value = _seconds(model.log_evidence)
    return {"evaluation_seconds": seconds, "evidence": float(value)}


@torch.no_grad()
def _fill(size: int, outputs: int) -> Row:
    model = _model(size, outputs)
    x = torch.cartesian_prod(torch.arange(float(size)).double() / _STEPS, torch.arange(float(outputs)).double())
    seconds, moments = _seconds(lambda: model.moments(x.reshape(-1, 2)))
    return {
        "evaluation_seconds": seconds,
        "mean": float(moments.mean.mean()),
        "variance": float(moments.variance.mean()),
    }


@torch.no_grad()
def _update(size: int, outputs: int) -> Row:
    """A row of all outputs, and the forecast of the next."""
    model = _model(size, outputs)
    condition = model.condition()
    condition.frontiers  # noqa: B018  # the filter goes through the past once
    numbers, seconds = torch.arange(float(outputs)).double(), 0.0
    for row in range(size, size + _UPDATES):
        x = torch.cartesian_prod(torch.tensor([row, row + 1.0]).double() / _STEPS, numbers).reshape(2, outputs, 2)
        spent, (model, condition) = _seconds(partial(model.extended, x[0], torch.zeros(outputs).double(), condition))
        seconds += spent + _seconds(partial(model.moments, x[1], condition))[0]
    return {"evaluation_seconds": seconds / _UPDATES}


def _default(size: int, outputs: int) -> Row:
    x, y = _framed(size, outputs)
    regressor = CorrelatedGPRegressor(random_state=0)
    return {"evaluation_seconds": _seconds(lambda: regressor.fit(x, y).predict(x, return_std=True))[0]}


class _ExactGP(gpytorch.models.ExactGP):
    """GPyTorch's own model with a Markov kernel and given parameters; several outputs are rows (input, output)."""

    def __init__(self, size: int, outputs: int) -> None:
        t, y = table(size, outputs)
        row, output = np.nonzero(~np.isnan(y))
        rows = np.stack([t[row] / _STEPS, output], axis=-1)[:, : 1 + (outputs > 1)]
        super().__init__(torch.as_tensor(rows), torch.as_tensor(y[row, output]), GaussianLikelihood())
        self.mean_module, matern = gpytorch.means.ZeroMean(), MaternKernel(nu=1.5, active_dims=[0])
        matern.lengthscale = 1.0
        tasks = IndexKernel(num_tasks=outputs, rank=min(_RANK, outputs), active_dims=[1])
        tasks.initialize(covar_factor=0.5, var=torch.full((outputs,), 0.5))
        self.covar_module = Markov(matern if outputs == 1 else matern * tasks)
        self.double()
        self.likelihood.noise = _NOISE

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _gpytorch_evidence(size: int, outputs: int) -> Row:
    model = _ExactGP(size, outputs)
    (x,), y = model.train_inputs, model.train_targets

    def evaluate() -> float:
        value = model.likelihood(model(x)).log_prob(y)
        value.backward()
        return float(value.detach())

    seconds, value = _seconds(evaluate)
    return {"evaluation_seconds": seconds, "evidence": value}


@torch.no_grad()
def _gpytorch_fill(size: int, outputs: int) -> Row:
    model = _ExactGP(size, outputs).eval()
    x = torch.cartesian_prod(torch.arange(float(size)).double() / _STEPS, torch.arange(float(outputs)).double())
    seconds, predicted = _seconds(lambda: model(x[:, : 1 + (outputs > 1)]))
    mean, variance = predicted.mean, predicted.variance
    return {"evaluation_seconds": seconds, "mean": float(mean.mean()), "variance": float(variance.mean())}


def _tinygp(size: int, outputs: int, *, fill: bool) -> Row:
    jax, tinygp = importlib.import_module("jax"), importlib.import_module("tinygp")
    jax.config.update("jax_enable_x64", True)
    t, y = table(size, outputs)
    seen = ~np.isnan(y[:, 0])

    def process(parameters: Any) -> Any:
        kernel = tinygp.kernels.quasisep.Matern32(scale=parameters[1], sigma=parameters[0])
        return tinygp.GaussianProcess(kernel, t[seen] / _STEPS, diag=parameters[2])

    def moments(parameters: Any) -> Any:
        posterior = process(parameters).condition(y[seen, 0]).gp
        return posterior.loc, posterior.variance

    evidence = jax.value_and_grad(lambda parameters: process(parameters).log_probability(y[seen, 0]))
    compiled = jax.jit(moments if fill else evidence)
    start = jax.numpy.array([1.0, 1.0, _NOISE])
    jax.block_until_ready(compiled(start))  # compiles
    seconds, value = _seconds(lambda: jax.block_until_ready(compiled(start)))
    return {"evaluation_seconds": seconds} | ({} if fill else {"evidence": float(value[0])})


def _celerite2(size: int, outputs: int) -> Row:
    celerite2 = importlib.import_module("celerite2")  # not declared: it is here for comparison only
    t, y = table(size, outputs)
    seen = ~np.isnan(y[:, 0])

    def evaluate() -> float:
        process = celerite2.GaussianProcess(celerite2.terms.Matern32Term(sigma=1.0, rho=1.0))
        process.compute(t[seen] / _STEPS, diag=np.full(seen.sum(), _NOISE))
        return float(process.log_likelihood(y[seen, 0]))

    seconds, value = _seconds(evaluate)
    return {"evaluation_seconds": seconds, "evidence": value}


def _warm(method: Callable[[int, int], Row], size: int, outputs: int) -> Row:
    """Not the first call, which imports and compiles."""
    method(_WARM, outputs)
    return method(size, outputs)


METHODS: Mapping[str, Callable[[int, int], Row]] = {
    "evidence and gradient": partial(_warm, _evidence_and_gradient),
    "evidence": partial(_warm, _evidence),
    "fill": partial(_warm, _fill),
    "update and forecast": partial(_warm, _update),
    "default fit and fill": _default,
    "ExactGP evidence and gradient": partial(_warm, _gpytorch_evidence),
    "ExactGP fill": partial(_warm, _gpytorch_fill),
    "tinygp evidence and gradient": partial(_tinygp, fill=False),
    "tinygp fill": partial(_tinygp, fill=True),
    "celerite2 evidence": _celerite2,
}
