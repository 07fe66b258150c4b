"""What "auto" stands for, which structures are fitted, and by which solver."""

import numpy as np
import pytest

from cgp.regression import MAP, Auto, Coregionalised, Factors, Laplace, MultiScale, Windows
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


@pytest.mark.parametrize(
    ("setting", "labels"),
    [
        (Setting(series(20).standardised(), Auto()), list(COMPARED)),
        (Setting(series(20, outputs=1).standardised(), Auto(2)), ["independent"]),
        (Setting(series(20).standardised(), Coregionalised(2)), ["coregionalised"]),
        (Setting(series(20, outputs=6).standardised(), Factors()), ["factors 1", "factors 2", "factors 4"]),
        (Setting(series(20, outputs=6).standardised(), Factors(3)), ["factors 3"]),
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
