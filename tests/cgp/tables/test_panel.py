"""Panels: each table as dense algebra fills it, in every form, alone or together, after save and load."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from cgp.regression.covariances import MultiScale
from cgp.tables import CorrelatedGPImputer
from cgp.tables import panel as panel_module

T, P = 8, 2


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(panel_module.fit_covariance.__kwdefaults__, "num_steps", 25)


def _tables(count: int, seed: int = 0) -> np.ndarray:
    """Windows of two columns that follow each other, 30 % missing."""
    rng, t = np.random.default_rng(seed), np.arange(float(T))
    phases = rng.uniform(0, 2 * np.pi, (count, 1))
    values = np.stack([np.sin(t / 2 + phases), 3.0 + np.cos(t / 2 + phases)], -1) + 0.1 * rng.normal(size=(count, T, P))
    values[rng.random(values.shape) < 0.3] = np.nan
    return values


def _frames(values: np.ndarray) -> list[pd.DataFrame]:
    days = pd.date_range("2024-01-01", periods=len(values), freq="D")
    return [
        pd.DataFrame(table, index=pd.date_range(day, periods=T, freq="h"), columns=["a", "b"])
        for day, table in zip(days, values, strict=True)
    ]


def _fitted(X: object) -> CorrelatedGPImputer:
    return CorrelatedGPImputer(kernel="matern32", random_state=0).fit(X)


@pytest.mark.parametrize("count", [12, 60])  # without and with a free covariance on offer
def test_each_table_is_filled_as_by_dense_algebra(count: int) -> None:
    values = _tables(count)
    imputer = _fitted(values)
    filled, sd, law, scaling = imputer.transform(values), imputer.std_, imputer.panel_.law, imputer.panel_.scaling
    for table, mean, spread in zip(values, filled, sd, strict=True):
        row = scaling.apply(table).ravel()
        seen, C, centre = ~np.isnan(row), law.covariance.numpy(), law.mean.numpy()
        gain = np.linalg.solve(C[np.ix_(seen, seen)], C[np.ix_(seen, ~seen)])
        error = row[seen] - centre[seen]
        q = error @ np.linalg.solve(C[np.ix_(seen, seen)], error)
        scale = 1.0 if np.isinf(law.freedom) else (law.freedom + q) / (law.freedom + seen.sum() - 2.0)
        expected = row.copy()
        expected[~seen] = centre[~seen] + gain.T @ error
        variance = scale * (C[np.ix_(~seen, ~seen)] - C[np.ix_(~seen, seen)] @ gain).diagonal()
        units = np.tile(scaling.unit, T)
        np.testing.assert_allclose(mean, scaling.undo(expected.reshape(T, P)), atol=1e-9)
        np.testing.assert_allclose(spread.ravel()[~seen], np.sqrt(variance) * units[~seen], atol=1e-9)
        assert (spread.ravel()[seen] == 0.0).all()


def test_parametric_law_is_the_multiscale_covariance() -> None:
    imputer = _fitted(_tables(12))
    panel = imputer.panel_
    rows = torch.cartesian_prod(torch.arange(float(T)), torch.arange(float(P))).double()
    with torch.no_grad():
        dense = panel.covariance.covar_module(rows).to_dense()
        noise = (panel.covariance.log_noise.exp() + 1e-5).repeat(T)
    share = 1.0 if np.isinf(panel.law.freedom) else (panel.law.freedom - 2.0) / panel.law.freedom
    torch.testing.assert_close(panel.law.covariance, share * (dense + torch.diag(noise)), atol=1e-6, rtol=1e-6)


def test_forms_agree() -> None:
    values = _tables(12)
    frames = _frames(values)
    index = pd.concat(frames, keys=range(len(frames)), names=["day", "time"])
    shuffled = index.sample(frac=1.0, random_state=0)
    whole = _fitted(values).transform(values)
    of_list, of_index = _fitted(frames), _fitted(index)
    np.testing.assert_allclose(np.stack(of_list.transform(frames)), whole, atol=1e-5)
    pd.testing.assert_index_equal(of_list.transform(frames)[3].index, frames[3].index)
    filled = of_index.transform(shuffled)
    pd.testing.assert_index_equal(filled.index, shuffled.index)
    pd.testing.assert_frame_equal(filled.loc[index.index], of_index.transform(index))
    np.testing.assert_allclose(filled.loc[index.index].to_numpy().reshape(values.shape), whole, atol=1e-5)


def test_a_table_does_not_see_the_others() -> None:
    imputer, others = _fitted(_tables(60)), _tables(5, seed=1)
    together = imputer.transform(others)
    for table, filled in zip(others, together, strict=True):
        np.testing.assert_allclose(imputer.transform(table), filled, atol=1e-10)
    np.testing.assert_allclose(imputer.transform(others[::-1])[::-1], together, atol=1e-10)


def test_rows_that_are_not_there_are_rows_of_nan() -> None:
    frames = _frames(_tables(12))
    imputer = _fitted(frames)
    gappy = frames[0].copy()
    gappy.iloc[[2, 5]] = np.nan
    expected = imputer.transform(gappy).drop(gappy.index[[2, 5]])
    pd.testing.assert_frame_equal(imputer.transform(gappy.drop(gappy.index[[2, 5]])), expected)


def test_tables_at_times_of_their_own() -> None:
    rng = np.random.default_rng(0)
    frames = []
    for table in _tables(12):
        frame = pd.DataFrame(table, index=np.concatenate([[0.0], np.sort(rng.uniform(0.5, T, T - 1))]))
        frames.append(frame.iloc[: rng.integers(5, T + 1)])
    imputer = _fitted(frames)
    assert imputer.panel_.grid is None
    together, spread = imputer.transform(frames), imputer.std_
    for frame, filled, sd in zip(frames, together, spread, strict=True):
        assert filled.notna().all().all()
        assert (sd.to_numpy()[frame.notna().to_numpy()] == 0.0).all()
        pd.testing.assert_frame_equal(imputer.transform(frame), filled)


def test_draws_and_sums_are_those_of_the_joint_law() -> None:
    imputer = _fitted(_tables(60))
    new = _tables(2, seed=3)
    imputer.update(new)
    draws = np.array(imputer.draws(4000, random_state=1))[:, -2:]
    mean, sd = imputer.transform(new), imputer.std_[-2:]
    gaps = np.isnan(new)
    assert (draws[:, ~gaps] == new[~gaps]).all()
    np.testing.assert_allclose(draws.std(0)[gaps], sd[gaps], rtol=0.1)
    np.testing.assert_allclose(draws.mean(0)[gaps], mean[gaps], atol=4 * sd.max() / np.sqrt(4000))
    total, error = imputer.aggregate()
    sums = draws.sum(2)  # (draws, tables, columns)
    np.testing.assert_allclose(total[-2:, 0], mean.sum(1), atol=1e-9)
    np.testing.assert_allclose(error[-2:, 0], sums.std(0), rtol=0.1)


@pytest.mark.filterwarnings("ignore:aggregate.*before the first row")
def test_intervals_and_sums_have_the_form_of_the_panel() -> None:
    frames = _frames(_tables(12))
    imputer = _fitted(frames)
    lower, upper = imputer.interval(0.9)
    assert len(lower) == len(upper) == 12
    assert (upper[0] >= lower[0]).all().all()
    totals = imputer.aggregate("4h", "mean")
    assert totals.value[0].shape == (2, P)
    index = _fitted(pd.concat(frames, keys=list("abcdefghijkl")))
    assert index.aggregate("D").value.shape == (12, P)
    within = index.aggregate("D", level=0.9)
    assert within.lower.shape == within.upper.shape == (12, P)
    assert (within.lower < within.value).to_numpy()[(within.std > 0.0).to_numpy()].all()
    assert within.absent.index.equals(within.value.index)


@pytest.mark.parametrize("form", ["array", "list", "index"])
def test_load_is_what_was_saved(form: str, tmp_path: Path) -> None:
    values = _tables(60)
    frames = _frames(values)
    X = {"array": values, "list": frames, "index": pd.concat(frames, keys=[f"day {n}" for n in range(60)])}[form]
    imputer = CorrelatedGPImputer(structure=MultiScale(num_scales=2, periods=[0.5]), random_state=0).fit(X)
    imputer.save(tmp_path)
    loaded = CorrelatedGPImputer.load(tmp_path)
    for first, second in zip(
        imputer.transform(frames if form != "array" else list(values)),
        loaded.transform(frames if form != "array" else list(values)),
        strict=True,
    ):
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    for first, second in zip(imputer.std_, loaded.std_, strict=True):
        np.testing.assert_array_equal(first, second)


def test_order_of_columns_does_not_matter() -> None:
    values = _tables(60)
    one, other = _fitted(values).panel_.law, _fitted(values[..., ::-1].copy()).panel_.law
    assert one.freedom == other.freedom
    swapped = torch.arange(T * P).reshape(T, P).flip(-1).ravel()
    torch.testing.assert_close(one.covariance, other.covariance[swapped][:, swapped], atol=1e-8, rtol=0)


def test_a_refit_forgets_the_panel() -> None:
    values = _tables(12)
    imputer = _fitted(values).fit(values[0])
    assert not hasattr(imputer, "panel_")
    assert imputer.transform(values[0]).shape == (T, P)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([np.ones((3, 2)), np.ones((3, 1))], "table 1: X has 1 features"),
        (np.full((3, 4, 2), np.nan), "at least one value in each column"),
        ([pd.DataFrame({"a": [1.0, 2.0]}, index=[1.0, 1.0])] * 2, "different times in each table"),
        (np.ones((2, 1, 1)), "tables of two rows or more"),
        (np.ones((2, 2000, 2)), "at most 3000 observed values"),
        ([pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})], "table 1: "),
    ],
)
def test_unusable_panels_are_refused(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CorrelatedGPImputer().fit(X)


def test_three_levels_are_refused() -> None:
    frame = pd.concat({"x": pd.concat(_frames(_tables(2)), keys=[0, 1])})
    with pytest.raises(ValueError, match="two levels"):
        CorrelatedGPImputer().fit(frame)


def test_rows_without_a_table_are_refused() -> None:
    frame = pd.concat(_frames(_tables(2)), keys=["a", np.nan])
    with pytest.raises(ValueError, match="name of a table in every row, got none in 8"):
        CorrelatedGPImputer().fit(frame)


def test_coordinates_are_no_names_of_tables() -> None:
    places = pd.MultiIndex.from_product([[50.5, 51.0], [7.0, 7.5, 8.0]])
    with pytest.raises(ValueError, match="got coordinates"):
        CorrelatedGPImputer().fit(pd.DataFrame({"a": np.arange(6.0)}, index=places))


def test_what_a_panel_cannot_do_is_said() -> None:
    values = _tables(12)
    for options, message in (
        ({"structure": "independent"}, "structure"),
        ({"inference": "nuts"}, "inference"),
        ({"num_inducing": 5}, "num_inducing"),
        ({"kernel": "rbf"}, "kernel"),
    ):
        with pytest.raises(ValueError, match=message):
            CorrelatedGPImputer(**options).fit(values)
    imputer = _fitted(values)
    with pytest.raises(ValueError, match="several tables"):
        imputer.residuals()
    with pytest.raises(ValueError, match="several tables"):
        imputer.plot()
    with pytest.raises(ValueError, match="several tables"):
        imputer.forecast(2)
    with pytest.raises(ValueError, match="include_noise"):
        imputer.aggregate(include_noise=False)
    with pytest.raises(ValueError, match="fit to tables of its length"):
        imputer.transform(np.ones((1, T + 1, P)))
    with pytest.raises(ValueError, match="as array"):
        imputer.update([values[0]])
