"""What "auto" stands for, which structures are fitted, and by which solver."""

import numpy as np
import pytest

from cgp.regression import MAP, Auto, Coregionalised, Factors, Laplace, MultiScale, Sums, Windows
from cgp.regression.inference.setting import COMPARED, Setting, chosen
from cgp.regression.observations import Observations


def series(count, outputs=2, dim=1):
    generator = np.random.default_rng(0)
    return Observations(generator.normal(size=(count, dim)), generator.normal(size=(count, outputs)))


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (1000, {}, ("auto", "auto")),
        (1001, {}, ("multiscale", "windows")),
        (1001, {"inference": "map"}, ("multiscale", "windows")),
        (1001, {"inference": MAP(max_steps=5)}, ("auto", "map")),
        (1001, {"inference": Laplace()}, ("auto", "laplace")),
        (1001, {"kernel": "rbf"}, ("auto", "auto")),
        (1001, {"kernel": "matern52"}, ("multiscale", "windows")),
        (1001, {"num_inducing": 20}, ("auto", "auto")),
        (1001, {"structure": Auto(2)}, ("auto", "auto")),
        (1001, {"structure": "shared"}, ("shared", "auto")),
        (10, {"structure": "multiscale"}, ("multiscale", "windows")),
        (10, {"inference": Windows(num_steps=3)}, ("multiscale", "windows")),
    ],
)
def test_what_auto_stands_for(count, options, expected):
    given = {"structure": "auto", "inference": "auto", "kernel": None, "num_inducing": None} | options
    structure, inference = chosen(series(count), **given)
    assert (structure.name, inference.name) == expected


def test_several_inputs_are_no_series():
    structure, _ = chosen(series(1500, dim=2), "auto", "auto", None, None)
    assert structure == Auto()
    with pytest.raises(ValueError, match="X: expected one column, got 2, for structure='multiscale'"):
        chosen(series(10, dim=2), MultiScale(), "auto", None, None)


def with_silent_output(outputs=2, count=30):
    """A series, its last output known by sums of three rows only."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(count, outputs))
    sums = np.repeat(np.arange(count // 3), 3)
    places = np.column_stack([np.arange(float(count)), np.full(count, outputs - 1.0)])
    known = Sums(
        places,
        np.ones(count),
        sums,
        np.bincount(sums, values[:, -1]),
        np.zeros(count // 3),
        np.ones(count // 3, dtype=bool),
        tuple(f"sum {m}" for m in range(count // 3)),
    )
    values[:, -1] = np.nan
    return Observations(np.arange(float(count))[:, None], values, sums=known)


@pytest.mark.parametrize(
    ("setting", "labels"),
    [
        (Setting(series(20).standardised(), Auto()), list(COMPARED)),
        (Setting(series(20, outputs=1).standardised(), Auto(2)), ["independent"]),
        (Setting(series(20).standardised(), Coregionalised(2)), ["coregionalised"]),
        (Setting(series(20, outputs=6).standardised(), Factors()), ["factors 1", "factors 2", "factors 4"]),
        (Setting(series(20, outputs=6).standardised(), Factors(3)), ["factors 3"]),
        (Setting(with_silent_output().standardised(), Auto()), ["rough"]),
        (Setting(with_silent_output(outputs=1).standardised(), Auto()), ["independent"]),
        (Setting(with_silent_output().standardised(), Coregionalised()), ["coregionalised"]),
        (Setting(series(400, outputs=9).standardised(), Auto()), ["factors 1", "factors 2", "factors 4"]),
    ],
)
def test_structures_that_are_fitted(setting, labels):
    assert list(setting.candidates) == labels


def test_components_are_those_that_were_asked_for():
    setting = Setting(series(20).standardised(), Auto(2))
    counts = {name: len(problem.covariance.kernels) for name, (_, problem) in setting.solvers.items()}
    assert counts == {"coregionalised": 2, "shared": 3, "shifted": 2, "independent": 2}


@pytest.mark.parametrize(("count", "inference"), [(25, "slice"), (26, "map")])
def test_few_observations_are_sampled(count, inference):
    setting = Setting(series(count).standardised(), Coregionalised())
    _, found = chosen(setting.observations, "coregionalised", "auto", None, None)
    assert found.resolved(setting).name == inference
    assert found.resolved(Setting(setting.observations, Coregionalised(), num_inducing=3)).name == "map"
