"""The tables of what fits and evaluations are expected to take, and take."""

import json

import numpy as np

from cgp.regression import MAP, CorrelatedGPRegressor
from experiments.studies.regression.costs import PROBLEMS, FitProblem, fits, forms


def test_a_fit_is_measured_beside_what_is_expected(monkeypatch, tmp_path, capsys):
    x = np.linspace(0.0, 5.0, 30)[:, None]
    options = {"inference": MAP(max_steps=2)}
    y = np.column_stack([np.sin(x), np.cos(x)])
    monkeypatch.setitem(PROBLEMS, "sine", FitProblem(lambda _: (x, y), options))
    costs, estimate = [], CorrelatedGPRegressor.estimate  # a clock is in it: it says other seconds at each call

    def kept(regressor, *arguments):
        assert regressor.inference == options["inference"]
        assert [one.tolist() for one in arguments] == [x.tolist(), y.tolist()]
        costs.append(estimate(regressor, *arguments))
        return costs[-1]

    monkeypatch.setattr(CorrelatedGPRegressor, "estimate", kept)
    fits(tmp_path, tmp_path, problems=["sine"])
    line, factor = capsys.readouterr().out.splitlines()[-3::2]
    name, count, expected, measured, ratio = (cell.strip() for cell in line.strip("|").split("|"))
    assert (name, count) == ("sine", "60")
    stored = json.loads((tmp_path / "fits" / "rows" / "sine.json").read_text(encoding="utf-8"))
    (seconds,) = [cost.seconds for cost in costs]
    true = stored["processor_seconds"] / seconds
    assert (expected, measured) == (f"{seconds:.1f}", f"{stored['processor_seconds']:.1f}")
    assert (ratio, factor) == (f"{true:.2f}", f"largest factor: {max(true, 1 / true):.2f}")


def test_table_has_both_forms(capsys):
    forms(num_observations=(32,), repetitions=1)
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line in lines:
        *_, exact, expected, linear, linear_expected = (cell.strip() for cell in line.strip("|").split("|"))
        assert min(float(expected), float(linear_expected)) >= 0.001
    assert min(float(exact), float(linear)) >= 0.0
