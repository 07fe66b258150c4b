"""The demo's table: hidden values are filled, and its numbers are those of an independent computation."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import cbook

from experiments.reports.filling import fill_prices

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_a_table_is_filled_drawn_and_scored(tmp_path):
    lines = fill_prices(tmp_path / "table.png", structure="coregionalised")
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
    assert lines[2].startswith("The imputer warns: X: errors of '^GSPC' are 3.5 times as large from 2008")
    assert "96 months of 4 share prices, 96 values hidden" in lines[0]
    with cbook.get_sample_data("Stocks.csv") as file:
        prices = pd.read_csv(file, comment="#", index_col="Date", parse_dates=True)
    whole = np.log(prices.loc["2004":"2011", ["^GSPC", "^IXIC", "MSFT", "IBM"]].dropna())
    table = whole.copy()
    for column, first in enumerate((12, 6, 0, 18)):  # half a year in every two, at other times in each column
        for start in range(first, 96, 24):
            table.iloc[start : start + 6, column] = np.nan
    lines_drawn = table.interpolate("time", limit_direction="both")
    squared = ((lines_drawn - whole) ** 2 / whole.var(ddof=0)).to_numpy()[table.isna().to_numpy()]
    numbers = dict(re.findall(r"(cgp|straight lines) (\d\.\d+)", lines[1]))
    assert float(numbers["straight lines"]) == pytest.approx(squared.mean(), abs=6e-4)
    assert float(numbers["cgp"]) < 0.8 * squared.mean()
    assert 80 <= float(re.search(r"(\d+) % of what was hidden", lines[1])[1]) <= 100
