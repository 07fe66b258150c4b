"""The ends of exchange rates beside statsmodels, where that is installed."""

import importlib.util

import numpy as np
import pytest

from experiments.studies.regression import imputers as study


def rates(window: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(window)
    common = generator.normal(size=(60, 1)).cumsum(0)
    return np.arange(60.0)[:, None], common * [1.0, -0.5, 2.0, 1.5] + 0.2 * generator.normal(size=(60, 4)).cumsum(0)


def test_a_table_has_a_row_per_method_with_its_lead(tmp_path, monkeypatch):
    def constant(inputs, targets, shift):
        mean = np.broadcast_to(np.nanmean(targets, axis=0), targets.shape) + shift
        return mean, np.broadcast_to(np.nanstd(targets, axis=0), targets.shape)

    methods = {
        "cgp, Matérn 3/2": lambda x, y: constant(x, y, 0.0),
        "statsmodels DynamicFactor": lambda x, y: constant(x, y, 100.0),
    }
    monkeypatch.setattr(study, "ENDS", methods)
    monkeypatch.setitem(study.SETS, "exchange", lambda folder, window: rates(window))
    study.ends(tmp_path, tmp_path, windows=[0, 1], methods=list(methods))
    text = (tmp_path / "regression-ends.md").read_text(encoding="utf-8")
    far = next(line for line in text.splitlines() if "| statsmodels DynamicFactor | 2 |" in line)
    ahead = float(far.split("|")[-4].split("±")[0])
    assert ahead > 1.0


@pytest.mark.parametrize("name", [name for name in study.ENDS if name.startswith("statsmodels")])
def test_factors_follow_the_outputs_that_are_known(name):
    if importlib.util.find_spec("statsmodels") is None:
        pytest.skip("statsmodels is not installed")
    inputs, complete = rates(0)
    targets = complete.copy()
    targets[-12:, :2] = np.nan
    mean, sd = study.ENDS[name](inputs, targets)
    error = np.abs(mean - complete)[-12:, :2]
    assert mean.shape == sd.shape == complete.shape
    assert np.isfinite(sd).all()
    assert error.mean() < 0.5 * np.abs(complete[-12:, :2] - np.nanmean(targets, axis=0)[:2]).mean()
