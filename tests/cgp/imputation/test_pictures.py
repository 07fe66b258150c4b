import numpy as np
import pytest
from matplotlib.dates import num2date
from matplotlib.figure import Figure

from cgp import CorrelatedGPImputer
from tests.cgp.imputation.test_imputer import QUICK, frame

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
    assert len(ax.texts) == 9


def test_lags_are_named_in_the_units_of_time():
    table = frame().drop(columns="n")
    imputer = CorrelatedGPImputer(**QUICK | {"structure": "shifted"}).fit(table)
    lag = imputer.regressor_.delays_[0, 1, 0] * 24.0
    ax = imputer.plot_pairs(ax=Figure().subplots())
    first, second = (label.get_text() for label in ax.get_yticklabels())
    assert first == "a"
    assert second == (f"b ({lag:+.2g} h)" if abs(lag) >= 1.0 else f"b ({60.0 * lag:+.2g} min)")


@pytest.mark.parametrize("inputs", [None, "n", ("a", "n")])
def test_other_inputs_are_drawn_too(inputs):
    table = frame().reset_index(drop=True).fillna({"a": 0.0})
    overview, *columns = CorrelatedGPImputer(inputs=inputs, **QUICK).fit(table).plot(figure=Figure())
    assert columns[-1].get_xlabel() == {None: "", "n": "n"}.get(inputs, "row")
    assert len(overview.get_yticklabels()) == len(columns)
