"""Learned priors: from synthetic tables and from a series' past, on gaps, on few observations and on draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cgp.regression import CorrelatedGPRegressor, LearnedPrior, ParameterSet, PriorComponent, learn_prior
from cgp.regression.prior import gram_of
from experiments.studies.regression.cached_rows import cached_row
from experiments.studies.regression.methods import outputs
from experiments.studies.regression.multioutput import SETS, gap_scores, stations, with_gaps
from experiments.studies.regression.report import SITES, with_peers, write_results

__all__ = ["prior", "synthetic_table"]

Array = NDArray[np.float64]

_SETS = ("weather", "wind", "tide", "exchange", "air", "jura")
_WINDOWS = {"weather": 1, "wind": 6, "tide": 3, "air": 7, "exchange": 1, "jura": 0}
_COMPARED = ("pretrained", "default", "default, from the prior")
_KERNELS = ("matern12", "matern32", "matern52", "rbf")
_SPAN = 12.0**0.5  # of evenly spaced inputs of unit variance
_FILE = "prior.json"
_TRUE = {
    "rbf": PriorComponent("rbf", 0.25, 1.0),
    "matern": PriorComponent("matern52", 0.25, 1.0),
    "periodic": PriorComponent("periodic", 0.7, 1.0, 1.0),
}
_DRAWN_NOISE = 0.02**2
_FUNCTIONS = 24  # of each kind
_ROWS = (300, 1000, 3000, 10_000, 30_000)


def prior(
    data: Path,
    out: Path,
    parts: Sequence[str] = ("learn", "gaps", "few", "draws", "past", "rows"),
    num_tables: int = 24,
    num_sets: int = 12,
    num_steps: int = 40,
    sets: Sequence[str] = _SETS,
    methods: Sequence[str] = _COMPARED,
    threads: int = 1,
) -> None:
    """A prior learned from synthetic tables, and what it gives.

    Args:
        data: folder with ``multioutput``.
        out: folder of the prior, of tables and rows.
        parts: "learn" (synthetic tables), "gaps" (the gaps of the study of several outputs), "few" (8, 12 and 20
            observations), "draws" (priors learned from draws of known processes), "past" (a prior learned from the
            first 70 % of a series, on the last 30 %), "rows" (seconds over the length of a series).
        num_tables: synthetic tables to learn from.
        num_sets: largest number of parameter sets.
        num_steps: gradient steps.
        sets: sets of "gaps", one window each.
        methods: methods of "gaps".
        threads: number of torch threads.
    """
    torch.set_num_threads(threads)
    out.mkdir(parents=True, exist_ok=True)
    if "learn" in parts:
        tables = [synthetic_table(seed)[:2] for seed in range(num_tables)]
        learn_prior(tables, num_sets=num_sets, kernels=_KERNELS[:2], num_steps=num_steps).save(out / _FILE)
    gaps = partial(_gaps, sets=sets, labels=methods)
    studies: Mapping[str, Callable[[Path, Path], None]] = {
        "gaps": gaps,
        "few": _few,
        "draws": _draws,
        "past": _past,
        "rows": _rows,
    }
    for part in parts:
        if part != "learn":
            studies[part](data, out)


def synthetic_table(seed: int, *, num_outputs: int | None = None, count: int | None = None) -> tuple[Array, Array]:
    """Inputs ``(n, 1)`` and outputs ``(n, P)`` of a table in which all that may vary does.

    One to three components with lengthscales over two decades and any loadings, noise over three decades, delays,
    trends, steps and cycles, 1 to 30 outputs, of which one may be missing in large part.
    """
    generator = np.random.default_rng([seed, 30])
    size = num_outputs or int(np.clip(np.round(np.exp(generator.uniform(0.0, np.log(30.0)))), 1, 30))
    count = count or int(np.clip(150 / size * generator.uniform(0.5, 1.0), 10, 100))
    even = np.linspace(0.0, _SPAN, count)
    x = even if generator.random() < 0.5 else np.sort(generator.uniform(0.0, _SPAN, count))
    y = sum((_component(x, size, generator) for _ in range(generator.integers(1, 4))), np.zeros((count, size)))
    y = y / y.std(0).clip(0.1) + _structure(x, size, generator)
    y = y / y.std(0).clip(0.1)
    noise = 10.0 ** (generator.uniform(-4.0, -0.3) + 0.3 * generator.normal(size=size))
    y = y + np.sqrt(noise) * generator.normal(size=y.shape)
    if size > 1 and generator.random() < 0.3:
        y[generator.integers(count // 8, count // 2 + 1) :, generator.integers(size)] = np.nan
    return x[:, None], y


def _component(x: Array, size: int, generator: np.random.Generator) -> Array:
    """Draws of a process at delayed inputs, of which the outputs are weighted sums; some have one of their own."""
    component = PriorComponent(str(generator.choice(_KERNELS)), float(10.0 ** generator.uniform(-1.7, 0.3)), 1.0)
    rank = int(generator.choice([1, 1, 2, 3]))
    delays = 0.3 * component.lengthscale * generator.normal(size=size) * (generator.random() < 0.3)
    places = torch.as_tensor((x[:, None] + delays).reshape(-1, 1))
    distinct, index = places.unique(dim=0, return_inverse=True)
    K = gram_of(component, distinct).numpy()
    root = np.linalg.cholesky(K + 1e-7 * np.eye(len(K)))
    draws = (root @ generator.normal(size=(len(K), rank)))[index.numpy()].reshape(*x.shape, size, rank)
    shared = np.einsum("npr,pr->np", draws, generator.normal(size=(size, rank)))
    gram = gram_of(component, torch.as_tensor(x[:, None])).numpy()
    own = np.linalg.cholesky(gram + 1e-7 * np.eye(len(x)))
    return shared + 10.0 ** generator.uniform(-2.0, 0.0) * own @ generator.normal(size=(len(x), size))


def _structure(x: Array, size: int, generator: np.random.Generator) -> Array:
    """Trends, steps and cycles, each in a fifth of the tables."""
    total, weights = np.zeros((len(x), size)), generator.normal(size=(3, size)) * (generator.random((3, 1)) < 0.2)
    total += weights[0] * (x[:, None] - x.mean())
    total += weights[1] * (x[:, None] > generator.uniform(0.0, _SPAN))
    return total + weights[2] * np.sin(2 * np.pi * x[:, None] / generator.uniform(0.3, 2.0) + generator.uniform(0, 6))


def _by_prior(path: Path, inputs: Array, targets: Array, *, kernel: str | None = None, **options: Any) -> Any:
    return outputs(inputs, targets, kernel=kernel, prior=LearnedPrior.load(path), **options)


def _gaps(data: Path, out: Path, sets: Sequence[str], labels: Sequence[str]) -> None:
    """The sixteen rows of the study of several outputs, on one of their windows each."""
    path = out / _FILE
    methods: dict[str, Callable[..., tuple[Array, Array]]] = {
        "default": partial(outputs, kernel="matern32"),
        "pretrained": partial(_by_prior, path, inference="pretrained"),
        "default, from the prior": partial(_by_prior, path, kernel="matern32"),
    }
    rows = []
    for name in sets:
        window = _WINDOWS[name]
        inputs, complete = SETS[name](data / "multioutput", window)
        for gap in ("random",) if name == "jura" else ("random", "stretch", "end"):
            problem = with_gaps(inputs, complete, gap, seed=window)
            for label in labels:
                key = {"set": name, "gap": gap, "window": window, "method": label}
                rows.append(cached_row(out / "gaps", key, partial(_row, problem, methods[label])))
    _write(out, "gaps", rows, ("set", "gap", "method"), "default")


def _row(problem: Any, method: Callable[[Array, Array], tuple[Array, Array]]) -> dict[str, Any]:
    return gap_scores(problem, *method(problem.inputs, problem.targets))


def _few(_: Path, out: Path, repetitions: int = 10) -> None:
    """8, 12 and 20 observations over 1 and 4 outputs of synthetic tables that nothing was learned from."""
    methods: dict[str, dict[str, Any]] = {
        "one set of parameters": {"inference": "map", "kernel": "matern32"},
        "pretrained": {"inference": "pretrained", "prior": LearnedPrior.load(out / _FILE)},
    }
    rows = []
    for size in (1, 4):
        for count in (8, 12, 20):
            for seed in range(repetitions):
                for label, options in methods.items():
                    key = {"set": f"{size} outputs", "n": count, "window": seed, "method": label}
                    rows.append(cached_row(out / "few", key, partial(_few_row, size, count, seed, options)))
    _write(out, "few", rows, ("set", "n", "method"), "one set of parameters")


def _few_row(size: int, count: int, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    x, truth = synthetic_table(10_000 + seed, num_outputs=size, count=60)
    generator = np.random.default_rng(seed)
    y = np.full_like(truth, np.nan)
    for number in range(count):  # as many of every output
        free = np.flatnonzero(~np.isnan(truth[:, number % size]) & np.isnan(y[:, number % size]))
        place = generator.choice(free)
        y[place, number % size] = truth[place, number % size]
    with np.errstate(all="ignore"):
        regressor = CorrelatedGPRegressor(random_state=0, **options).fit(x, y)
    return _hidden_scores(regressor, x, y, truth)


def _hidden_scores(regressor: CorrelatedGPRegressor, x: Array, y: Array, truth: Array) -> dict[str, float]:
    """Density of hidden values in units of the standard deviation of each output, and coverage of 95 %."""
    hidden = np.isnan(y) & ~np.isnan(truth)
    mean, sd = (np.asarray(values).reshape(truth.shape) for values in regressor.predict(x, return_std=True))
    density = regressor.log_predictive_density(x, truth).reshape(truth.shape) + np.log(np.nanstd(truth, axis=0))
    inside = np.abs(mean - truth) < 1.959964 * sd
    return {"nll": float(-density[hidden].mean()), "coverage": float(inside[hidden].mean())}


def _draws(_: Path, out: Path) -> None:
    """Priors learned from 48 functions of known processes in their units, beside the true process."""
    path = out / "draws.json"
    functions = [_drawn(_TRUE[kind], _DRAWN_NOISE, seed) for seed in range(16) for kind in _TRUE]
    learned = learn_prior(functions, standardised=False, num_sets=8, num_lengthscales=13, periods=(1.0,), num_steps=40)
    learned.save(path)
    rows = []
    for name, (component, noise) in _processes().items():
        for seed in range(1000, 1000 + (_FUNCTIONS if name in _TRUE else _FUNCTIONS // 2)):
            for label in ("true process", "pretrained"):
                key = {"set": name, "window": seed, "method": label}
                given = _known(component, noise) if label == "true process" else LearnedPrior.load(path)
                rows.append(cached_row(out / "draws", key, partial(_drawn_row, component, noise, seed, given)))
    both = [
        {**row, "density": density, "nll": row[name]}
        for row in rows
        for density, name in (("marginal", "nll"), ("joint", "joint_nll"))
    ]
    _write(out, "draws", both, ("set", "density", "method"), "true process")


def _processes() -> dict[str, tuple[PriorComponent, float]]:
    """The processes that functions are learned from, and others, each with its noise variance."""
    processes = {}
    for name, component in _TRUE.items():
        processes[name] = component, _DRAWN_NOISE
        processes[f"{name}, noise x 10"] = component, 100.0 * _DRAWN_NOISE  # of the standard deviation
        shorter = component._replace(lengthscale=0.5 * component.lengthscale)
        processes[f"{name}, half the lengthscale"] = shorter, _DRAWN_NOISE
    return processes


def _known(component: PriorComponent, noise: float) -> LearnedPrior:
    """The prior that has one process only."""
    return LearnedPrior((ParameterSet((component,), 1.0),), (noise,), (1.0,), 1e-9, 1e9, 1e9, standardised=False)


def _drawn(component: PriorComponent, noise: float, seed: int, count: int = 64) -> tuple[Array, Array]:
    """A function on [-2, 2] at random inputs, with noise."""
    generator = np.random.default_rng([seed, ("rbf", "matern52", "periodic").index(component.kernel)])
    x = np.sort(generator.uniform(-2.0, 2.0, count))[:, None]
    K = gram_of(component, torch.as_tensor(x)).numpy() + noise * np.eye(count)
    return x, (np.linalg.cholesky(K) @ generator.normal(size=count))[:, None]


def _drawn_row(component: PriorComponent, noise: float, seed: int, given: LearnedPrior) -> dict[str, float]:
    x, truth = _drawn(component, noise, seed)
    generator = np.random.default_rng(seed)
    known = generator.permutation(64)[: generator.integers(3, 48)]
    y = np.full_like(truth, np.nan)
    y[known] = truth[known]
    regressor = CorrelatedGPRegressor(inference="pretrained", prior=given).fit(x, y)
    hidden = np.isnan(y[:, 0])
    mean, sd = (np.asarray(values)[hidden, 0] for values in regressor.predict(x, return_std=True))
    inside = np.abs(mean - truth[hidden, 0]) < 1.959964 * sd
    density = regressor.log_predictive_density(x, truth)[hidden]
    joint = _joint_density(regressor, x[hidden], truth[hidden, 0]) / hidden.sum()
    return {"nll": float(-density.mean()), "joint_nll": -joint, "coverage": float(inside.mean())}


def _joint_density(regressor: CorrelatedGPRegressor, x: Array, y: Array) -> float:
    """Joint log-density of values of a single output under the mixture of a regressor, in the units of its prior."""
    rows = torch.as_tensor(np.column_stack([x, np.zeros(len(x))]))
    with torch.no_grad():
        parts = [model.likelihood(model(rows), rows).log_prob(torch.as_tensor(y)) for model in regressor.models_]
    weights = torch.as_tensor(regressor.weights_)
    return float((torch.stack(parts) + weights.log()).logsumexp(0))


def _past(data: Path, out: Path) -> None:
    """Temperature in three-day windows: learned from the first 70 % of the year, used on the last 30 %.

    The stations that report there are used.
    """
    rows, path = [], out / "past.json"
    grid = np.arange(0.0, 8760.0, 0.5)
    values = stations(data / "multioutput", grid, "ATMP")
    end = int(np.flatnonzero(~np.isnan(values).all(1))[-1]) + 1  # of the reports
    grid, values = grid[:end], values[:end]
    border = int(0.7 * end)
    if not path.exists():
        tables = _windows(grid[:border], values[:border])[::6]
        learn_prior(tables, kernels=_KERNELS[:2], num_steps=40).save(path)
    reporting = (~np.isnan(values[border:])).mean(0) > 0.5
    last = _windows(grid[border:], values[border:, reporting])
    for number, (inputs, complete) in enumerate(last[:: max(len(last) // 4, 1)]):
        for gap in ("random", "stretch", "end"):
            problem = with_gaps(inputs, complete, gap, seed=number)
            for label, file in (("synthetic", out / _FILE), ("its past", path)):
                key = {"set": "weather", "gap": gap, "window": number, "method": label}
                method = partial(_by_prior, file, inference="pretrained")
                row = cached_row(out / "past", key, partial(_row, problem, method))
                rows.append({part: value for part, value in row.items() if part != SITES})  # errors are over windows
    _write(out, "past", rows, ("set", "gap", "method"), "synthetic")


def _windows(grid: Array, values: Array, length: int = 144) -> list[tuple[Array, Array]]:
    """Consecutive tables in which every output is observed at more than nine tenths of the inputs."""
    parts = [slice(start, start + length) for start in range(0, len(grid) - length, length)]
    return [(grid[part, None], values[part]) for part in parts if (~np.isnan(values[part])).mean(0).min() > 0.9]


def _rows(_: Path, out: Path) -> None:
    """Seconds of an answer, by the number of rows of a series with a tenth of its values missing."""
    rows = []
    for count in _ROWS:
        key = {"set": "series", "n": count, "method": "pretrained"}
        rows.append(cached_row(out / "rows", key, partial(_series_row, count, LearnedPrior.load(out / _FILE))))
    write_results(out, "regression-prior-rows", "Learned priors", rows, ("n", "method"), ("nll", "processor_seconds"))


def _series_row(count: int, given: LearnedPrior) -> dict[str, float]:
    generator = np.random.default_rng(count)
    x = np.arange(float(count))[:, None]
    truth = np.sin(x / 7.0) + 0.5 * np.sin(x / 41.0) + 0.1 * generator.normal(size=x.shape)
    y = np.where(generator.random(x.shape) < 0.1, np.nan, truth)
    regressor = CorrelatedGPRegressor(inference="pretrained", prior=given).fit(x, y)
    return _hidden_scores(regressor, x, y, truth)


def _write(out: Path, part: str, rows: Sequence[Mapping[str, Any]], groups: Sequence[str], peer: str) -> None:
    places = [name for name in ("set", "density", "gap", "n", "window") if name in rows[0]]
    paired = with_peers(rows, places, dict.fromkeys({row["method"] for row in rows}, peer))
    columns = ("nll", "ahead", "coverage", "processor_seconds")
    write_results(out, f"regression-prior-{part}", "Learned priors", paired, groups, columns)
