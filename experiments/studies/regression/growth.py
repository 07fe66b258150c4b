"""What a series costs as its rows grow: seconds and memory of the linear form, beside quasiseparable solvers."""

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
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
_BELOW = "#F2BC95"  # of a line that another one covers
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


_TASKS = ("evidence and gradient", "evidence", "fill", "update and forecast")
"""Those in the picture: the others would be lines over these."""

_COLUMNS = ("evaluation_seconds", "memory_mb")
_PACKAGES = {
    "cgp": "cgp's regressor",
    "ExactGP": "GPyTorch's ExactGP with cgp's Markov",
    "tinygp": "tinygp",
    "celerite2": "celerite2",
}
_MARKERS = dict(zip(_PACKAGES, "oD^s", strict=True))


def table(size: int, outputs: int) -> tuple[Array, Array]:
    """Inputs ``(n,)`` in steps and outputs ``(n, P)`` with gaps."""
    generator = np.random.default_rng(0)
    t = np.arange(float(size))
    y = np.sin(t[:, None] / _STEPS + np.arange(outputs)) + math.sqrt(_NOISE) * generator.normal(size=(size, outputs))
    y[generator.random(y.shape) < _MISSING] = np.nan
    return t, y


def growth_figure(rows: Sequence[Row]) -> Figure:
    """CPU seconds against rows, in logarithms: a panel per task, a colour per package, dashes for several outputs."""
    lines = [line for line in _lines(rows) if _task(line[0]["method"]) in _TASKS]
    tasks = [task for task in _TASKS if any(_task(line[0]["method"]) == task for line in lines)]
    figure = Figure(figsize=(8.0, 3.0), layout="constrained")
    if not tasks:
        return figure
    drawn: dict[str, Line2D] = {}
    for axis, task in zip(figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0], tasks, strict=True):
        for line in lines:
            package, outputs = _package(line[0]["method"]), line[0]["outputs"]
            if _task(line[0]["method"]) != task or (outputs > 1 and package != "cgp"):  # whose lines are on each other
                continue
            look: dict[str, Any] = {"color": PALETTE[[*_PACKAGES].index(package)], "marker": _MARKERS[package], "ms": 4}
            if package == "ExactGP":  # as fast as the regressor: open marks and a wider, paler line below
                look |= {"lw": 3.2, "ms": 7, "mfc": "white", "mec": look["color"], "color": _BELOW, "zorder": 1}
            points = [(row["n"], row["evaluation_seconds"]) for row in line]
            (of_line,) = axis.plot(*zip(*points, strict=True), ls="-" if outputs == 1 else "--", **look)
            drawn.setdefault(_PACKAGES[package], of_line)
            if outputs > 1:
                place: dict[str, Any] = {"xytext": (-4, 5), "textcoords": "offset points", "ha": "right"}
                axis.annotate(f"{outputs} outputs", points[-1], fontsize=8, **place)
        axis.set(xscale="log", yscale="log", xlabel="rows")
        axis.margins(0.1)
        axis.set_title(task, loc="left")
        axis.grid(color="0.9", lw=0.6)
    figure.axes[0].set_ylabel("CPU seconds")
    figure.legend(drawn.values(), drawn, loc="outside lower center", ncols=len(drawn))
    return figure


def _package(method: str) -> str:
    first = method.split()[0]
    return first if first in _PACKAGES else "cgp"


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
