import numpy as np
import pandas as pd
import pytest
from matplotlib.dates import num2date
from matplotlib.figure import Figure

from cgp import CorrelatedGPImputer
from cgp.tables import BoxCox, read_table
from tests.cgp.tables.test_imputer import QUICK, frame

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_an_imputer_draws_its_table():
    table = frame("Europe/Zurich")
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    overview, *columns = imputer.plot(figure=Figure())
    assert [label.get_text() for label in overview.get_yticklabels()] == ["a", "b", "n"]
    filled = columns[0].lines[1].get_ydata()
    np.testing.assert_allclose(filled[10:15], imputer.transform(table)["a"].iloc[10:15])
    # Local times, as the index shows them.
    assert num2date(columns[0].lines[0].get_xdata()[0]).hour == table.index[0].hour
    ax = imputer.plot_pairs(ax=Figure().subplots())
    assert len(ax.texts) == 3  # pairs
    assert ax.get_title(loc="left") == "correlation of columns,\nwithout noise"  # as no column is transformed


def test_the_band_of_a_transformed_column_is_its_interval():
    table = np.exp(3.0 * frame()[["a"]] - 2.0)
    imputer = CorrelatedGPImputer(transforms={"a": "log"}, **QUICK).fit(table)
    _, column = imputer.plot(figure=Figure())
    band = column.collections[0].get_paths()[0].vertices[:, 1]
    gaps = table["a"].isna()
    lower, upper = (end["a"][gaps] for end in imputer.interval(0.95))
    assert band.min() >= 0.0
    for ends in (lower, upper):
        assert np.isin(ends.round(9), band.round(9)).all()


def test_titles_have_the_units_of_a_file_and_logarithms_an_axis_of_theirs(tmp_path):
    """Of places, too; the map of gaps has names only."""
    days = np.arange(1, 29)
    rows = pd.DataFrame(
        {"day": [f"2024-01-{day:02d}" for day in days], "Q": 2.0**days, "level": days / 2, "a": days % 5}
    )
    rows.loc[6:7, "Q"] = rows.loc[8, "level"] = np.nan
    lines = rows.assign(E=days + 0.5, N=days**2 % 7).to_csv(sep=";", index=False).splitlines()
    lines.insert(1, "yyyy-mm-dd;m³/s;[m];;km;km")
    (tmp_path / "in.csv").write_text("\n".join(lines))
    table = read_table(tmp_path / "in.csv")
    assert table.frame.attrs["units"] == {"Q": "m³/s", "level": "m", "E": "km", "N": "km"}
    imputer = CorrelatedGPImputer(transforms={"Q": BoxCox()}, **QUICK).fit(table.frame)
    overview, *columns = imputer.plot(figure=Figure())
    assert [label.get_text() for label in overview.get_yticklabels()] == ["Q", "level", "a", "E", "N"]
    assert [ax.get_title(loc="left") for ax in columns] == ["Q (m³/s), log axis", "level (m)"]
    assert [ax.get_yscale() for ax in columns] == ["log", "linear"]
    places = CorrelatedGPImputer(inputs=("E", "N"), **QUICK).fit(table.frame)
    assert [ax.get_title(loc="left") for ax in places.plot(figure=Figure())] == ["Q (m³/s)", "level (m)"]  # with gaps
    assert [ax.get_title(loc="left") for ax in places.plot(Figure(), columns=["a", "Q"])] == ["a", "Q (m³/s)"]


def test_lags_are_named_in_the_units_of_time():
    table = frame().drop(columns="n")
    imputer = CorrelatedGPImputer(**QUICK | {"structure": "shifted"}).fit(table)
    lag = imputer.regressor_.delays_[0, 1, 0]
    ax = imputer.plot_pairs(ax=Figure().subplots())
    (second,) = (label.get_text() for label in ax.get_yticklabels())
    hours, minutes = 24.0 * lag, 1440.0 * lag
    assert second in (f"b ({lag:+.2g} d)", f"b ({hours:+.2g} h)", f"b ({minutes:+.2g} min)")
    assert second.endswith(" d)" if abs(lag) >= 1.0 else " h)" if abs(hours) >= 1.0 else " min)")


def test_places_are_drawn_as_maps():
    """Longitude to the east, whatever the order of the columns."""
    table = frame().reset_index(drop=True).assign(lat=np.linspace(46, 48, 40), lon=np.linspace(6, 10, 40) ** 1.1)
    imputer = CorrelatedGPImputer(inputs=("lat", "lon"), **QUICK).fit(table)
    errors = imputer.plot_residuals(figure=Figure())
    assert (errors[0].get_aspect(), errors[-1].get_xlabel()) == (pytest.approx(1 / np.cos(np.radians(47))), "lon")
    axes = imputer.plot(figure=Figure())
    assert len(axes) == 2  # n has no gap
    filled = axes[0].collections[1].get_offsets()
    np.testing.assert_allclose(filled, table.loc[10:14, ["lon", "lat"]])
    assert axes[0].get_aspect() == pytest.approx(1 / np.cos(np.radians(47)))
    assert (axes[-1].get_xlabel(), axes[0].get_ylabel()) == ("lon", "lat")


def test_residuals_are_those_of_every_observation():
    """In its row: also where rows are in another order, have no value, or came later."""
    table = frame()
    table.iloc[33] = np.nan
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    residuals = imputer.residuals()
    pd.testing.assert_frame_equal(residuals.isna(), table.isna())
    mean, sd = imputer.regressor_.leave_one_out()
    expected = (table.iloc[5, 1] - mean[5, 1]) / sd[5, 1]
    assert residuals.iloc[5, 1] == pytest.approx(expected, rel=1e-6)
    later = frame(count=44).iloc[40:]
    later.iloc[0] = np.nan
    imputer.update(later.iloc[:1]).update(later.iloc[1:])
    grown = imputer.residuals()
    pd.testing.assert_frame_equal(grown.isna(), pd.concat([table, later]).isna())
    np.testing.assert_allclose(grown.iloc[:20], residuals.iloc[:20], atol=0.5)
    axes = imputer.plot_residuals(figure=Figure())
    assert len(axes) == 3
    drawn = sum(len(line.get_ydata()) for line in axes[0].lines[1:])
    assert drawn == grown["a"].notna().sum()


@pytest.mark.parametrize("inputs", [None, "n", ("when", "n")])
def test_other_inputs_are_drawn_too(inputs):
    table = frame().reset_index(drop=True)
    table = table.assign(when=frame().index) if isinstance(inputs, tuple) else table
    overview, *columns = CorrelatedGPImputer(inputs=inputs, **QUICK).fit(table).plot(figure=Figure())
    assert columns[-1].get_xlabel() == {None: "", "n": "n"}.get(inputs, "row")
    assert len(overview.get_yticklabels()) == len(columns) + (inputs is None)  # n has no gap


def test_columns_and_a_time_can_be_chosen_for_a_picture():
    """A column without gaps there is drawn, too, if it is asked for; a month is all of it."""
    table = frame("Europe/Zurich")
    imputer = CorrelatedGPImputer(**QUICK).fit(table)
    day = str(table.index[-1].date())
    overview, *columns = imputer.plot(Figure(), columns=["b", "a"], between=(day, day))
    assert [label.get_text() for label in overview.get_yticklabels()] == ["b", "a"]
    assert [ax.get_title(loc="left") for ax in columns] == ["b", "a"]
    assert len(columns[0].lines[0].get_xdata()) == len(table.loc[day])
    _, only = imputer.plot(Figure(), columns="n", between=(table.index[0], table.index[5]))
    assert len(only.lines[0].get_xdata()) == 6
    counted = CorrelatedGPImputer(**QUICK).fit(table.to_numpy())
    assert len(counted.plot(Figure(), columns=[0], between=(3, 7))[1].lines[0].get_xdata()) == 5
    for wrong, message in (
        ({"columns": ["a", "N"]}, r"columns: expected some of \['a', 'b', 'n'\], got \['N'\]; did you mean 'n'\?"),
        ({"columns": []}, "columns: expected some of"),
        ({"between": day}, r"between: expected \(first, last\), times, got '"),
        ({"between": (day, "2000-01-01")}, r"the first before the last, \('2000-01-01', '.*'\), got \('"),
        ({"between": ("soon", "later")}, r"between: expected \(first, last\), times, got \('soon"),
        ({"between": ("05/03/2022", "2022-04-07")}, r"got '05/03/2022': day or month first\?"),
        (
            {"between": ("1999", "2000")},
            r"between: expected .*, times from .* to .*, got \('1999', .* read as 1999 to 2000",
        ),
        ({"between": ("3 Mar 1999", "April 5 1999")}, r"got \('3 Mar 1999', .*, read as 1999-03-03 to 1999-04-05"),
    ):
        with pytest.raises(ValueError, match=message):
            imputer.plot(Figure(), **wrong)


def test_a_picture_has_the_level_and_the_units_that_are_asked_for():
    imputer = CorrelatedGPImputer(**QUICK).fit(table := frame())
    overview, *columns = imputer.plot(figure=Figure(), level=0.8, units={"a": "m", "b": "ppb"})
    assert [ax.get_title(loc="left") for ax in columns[:2]] == ["a (m)", "b (ppb)"]
    assert [text.get_text() for text in overview.get_legend().get_texts()][-1] == "80 % interval"
    band = columns[0].collections[0].get_paths()[0].vertices[:, 1]
    lower = imputer.interval(0.8).lower["a"][table["a"].isna()]
    assert np.isin(lower.round(9), band.round(9)).all()
    for wrong, said in (({"level": 80}, "between 0 and 1, got 80"), ({"units": {"aa": "m"}}, "did you mean 'a'")):
        with pytest.raises(ValueError, match=said):
            imputer.plot(figure=Figure(), **wrong)
