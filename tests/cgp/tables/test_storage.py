"""Imputers on disk, and imputers that take in further rows."""

import json

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

import cgp.weights as weights
from cgp import CorrelatedGPImputer
from cgp.regression import Laplace, MultiScale, Windows
from cgp.statespace import filter as kalman
from tests.cgp.tables.test_imputer import QUICK, frame

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

KINDS = {
    "coregionalised": {},
    "averaged": {"structure": "auto", "kernel": "matern32"},
    "laplace": {"inference": Laplace(max_steps=10)},
    "several samples": {"inference": Laplace(max_steps=10), "structure": "auto"},
    "sparse": {"num_inducing": 8},
    "multiscale": {"structure": MultiScale(num_scales=2, periods=("1D",)), "inference": Windows(num_steps=3)},
}


def tables():
    table = frame("Europe/Zurich")
    months = frame().set_axis(pd.period_range("2020-01", periods=40, freq="M"))
    return {
        "times": table,
        "months": months,
        "rows": table.reset_index(drop=True).assign(n=table["n"].to_numpy().astype(np.int16)),
        "series": table["a"],
        "nullable": table.assign(n=table["n"].astype("Int64").mask(table["n"] == 3)).iloc[::-1],
        "durations": table.set_axis(pd.timedelta_range(0, periods=40, freq="h", name="after")),
        "codes": table.fillna(-200.0),
        "beyond floats": table.assign(n=2**53 + 1 + 2 * np.arange(40)),
    }


def test_what_was_saved_fills_alike(tmp_path):
    for name, table in tables().items():
        codes = {"missing_values": -200.0} if name == "codes" else {}
        imputer = CorrelatedGPImputer(**QUICK, **codes).fit(table)
        imputer.save(tmp_path / name)
        again = CorrelatedGPImputer.load(tmp_path / name)
        same = pd.testing.assert_series_equal if name == "series" else pd.testing.assert_frame_equal
        same(again.transform(table), imputer.transform(table))
        same(again.std_, imputer.std_)
        same(again._table.given, table)
        ahead = imputer.forecast(3).value
        same(again.forecast(3).value, ahead)
        assert again.regressor_.summary() == imputer.regressor_.summary()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_is_kept(kind, tmp_path):
    table = frame()
    imputer = CorrelatedGPImputer(**QUICK | KINDS[kind]).fit(table)
    imputer.save(tmp_path)
    again = CorrelatedGPImputer.load(tmp_path)
    pd.testing.assert_frame_equal(again.transform(table), imputer.transform(table), rtol=1e-12)
    pd.testing.assert_frame_equal(again.std_, imputer.std_, rtol=1e-9)
    for first, second in zip(again.draws(3), imputer.draws(3), strict=True):
        pd.testing.assert_frame_equal(first, second, rtol=1e-6)
    later = frame(count=44).iloc[40:]
    forecasts = [each.update(later).forecast(2).value for each in (again, imputer)]
    pd.testing.assert_frame_equal(*forecasts, rtol=1e-9)


def test_a_file_is_no_folder_to_save_in(tmp_path):
    """One that was saved in before is written anew."""
    imputer, file = CorrelatedGPImputer(**QUICK).fit(frame()), tmp_path / "gaps.bin"
    file.touch()
    with pytest.raises(
        ValueError, match="folder: expected a folder, or the place of a new one, got a file, .*gaps.bin"
    ):
        imputer.save(file)
    for _ in range(2):
        imputer.save(tmp_path / "gaps")


def test_units_are_kept_with_further_rows_and_on_disk(tmp_path):
    table, units = frame(), {"a": "m", "n": "µg/m³"}
    table.attrs["units"] = units
    imputer = CorrelatedGPImputer(**QUICK).fit(table).update(frame(count=44).iloc[40:])
    imputer.save(tmp_path)
    again = CorrelatedGPImputer.load(tmp_path)
    for each in (imputer, again):
        assert each._table.given.attrs["units"] == units
    level = frame()["a"]
    level.attrs["units"] = units
    CorrelatedGPImputer(**QUICK).fit(level).save(tmp_path)
    assert CorrelatedGPImputer.load(tmp_path)._table.given.attrs["units"] == {"a": "m"}


def test_arrays_and_places_are_kept(tmp_path):
    array = frame().to_numpy()
    imputer = CorrelatedGPImputer(**QUICK).fit(array)
    imputer.save(tmp_path)
    np.testing.assert_array_equal(CorrelatedGPImputer.load(tmp_path).transform(array), imputer.transform(array))
    places = frame().reset_index(names="time").assign(x=np.arange(40) % 7)
    imputer = CorrelatedGPImputer(inputs=("time", "x"), **QUICK).fit(places)
    imputer.save(tmp_path)
    pd.testing.assert_frame_equal(CorrelatedGPImputer.load(tmp_path).transform(places), imputer.transform(places))


def test_files_are_whole_checked_and_have_a_version(tmp_path, monkeypatch):
    imputer = CorrelatedGPImputer(**QUICK).fit(frame())
    imputer.save(tmp_path)
    file = tmp_path / "imputer.safetensors"
    with safe_open(file, "pt") as content:
        assert json.loads(content.metadata()["cgp"])["format_version"] == 2
    whole = file.read_bytes()
    monkeypatch.setattr(weights, "save_tensors", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        imputer.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["imputer.safetensors"]
    assert file.read_bytes() == whole
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="damaged"):
        CorrelatedGPImputer.load(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(weights, "_VERSION", 3)
    imputer.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="expected a file of format_version 2, got 3"):
        CorrelatedGPImputer.load(tmp_path)
    named = CorrelatedGPImputer(**QUICK).fit(frame().set_axis([("a", 1), ("b", 1), ("c", 2)], axis=1))
    with pytest.raises(FileNotFoundError):
        CorrelatedGPImputer.load(tmp_path / "nothing")
    assert named.transform(frame().set_axis([("a", 1), ("b", 1), ("c", 2)], axis=1)).shape == (40, 3)


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
def test_rows_taken_in_are_as_good_as_fitted_to(kernel):
    """As by a refit with the same parameters: a regressor that is given all observations together."""
    table = frame(count=60)
    table.iloc[50, 0] = np.nan
    imputer = CorrelatedGPImputer(kernel=kernel, **QUICK).fit(table.iloc[:40])
    refit = imputer.regressor_.conditioned(np.arange(40, 60)[:, None] / 8.0, table.iloc[40:])
    for first in range(40, 60, 5):
        assert imputer.update(table.iloc[first : first + 5]) is imputer
    filled = imputer.transform(table)
    pd.testing.assert_frame_equal(filled.where(table.notna()), table)
    gaps = table.isna().to_numpy()
    mean, sd = refit.predict(np.arange(60)[:, None] / 8.0, return_std=True)
    np.testing.assert_allclose(filled["a"].to_numpy()[gaps[:, 0]], mean[gaps[:, 0], 0], rtol=1e-8)
    np.testing.assert_allclose(imputer.std_.to_numpy()[gaps], sd[gaps], atol=1e-8)  # of columns of unit variance
    pd.testing.assert_index_equal(imputer.std_.index, table.index, check_exact=True)
    array = CorrelatedGPImputer(kernel=kernel, **QUICK).fit(table.to_numpy()[:40])
    refit = array.regressor_.conditioned(np.arange(40, 60)[:, None], table.to_numpy()[40:])
    filled = array.update(table.to_numpy()[40:]).transform(table.to_numpy())
    np.testing.assert_allclose(filled[gaps], refit.predict(np.arange(60)[:, None])[gaps], rtol=1e-8)


def test_an_update_of_a_series_does_not_read_its_past(monkeypatch):
    """One row after many: no more observations enter the filter than there are in the row."""
    table = frame(count=60)
    options = {"structure": MultiScale(num_scales=2, periods=()), "inference": "auto", "random_state": 0}
    imputer = CorrelatedGPImputer(**options).fit(table.iloc[:50])
    imputer.update(table.iloc[50:51])
    rows = []
    filtered = kalman.Chain.filtered

    def counted(self, *arguments, **options):
        rows.append(len(self.steps))
        return filtered(self, *arguments, **options)

    monkeypatch.setattr(kalman.Chain, "filtered", counted)
    for row in range(51, 55):
        imputer.update(table.iloc[row : row + 1]).forecast(1)
    assert max(rows) <= 2


def test_a_time_zone_without_a_name_is_refused_when_it_is_saved(tmp_path):
    tz = pytest.importorskip("dateutil.tz")
    table = frame().tz_localize(tz.gettz("Europe/Zurich"))
    with pytest.raises(ValueError, match="save: expected a time zone with a name"):
        CorrelatedGPImputer(**QUICK).fit(table).save(tmp_path / "imputer")
    assert not (tmp_path / "imputer").exists()
