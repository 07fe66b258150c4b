"""The demo's table: hidden values are filled, and its numbers are those of an independent computation."""

import numpy as np
import pandas as pd
import pytest

from experiments.reports.filling import AIR, _held, fill_air


def test_a_table_is_filled_drawn_and_scored(tmp_path):
    filling = fill_air(tmp_path / "table.png", structure="coregionalised")
    assert (tmp_path / "table.png").read_bytes() == filling.png
    assert filling.png.startswith(b"\x89PNG")
    whole = pd.read_csv(AIR, comment="#", index_col="date", parse_dates=True)
    whole["ozone"] = np.log(whole["ozone"])
    table = whole.copy()
    for column, first in enumerate((14, 7, 0, 21)):  # a week in every four, at other times in each column
        for start in range(first, 153, 28):
            table.iloc[start : start + 7, column] = np.nan
    hidden = (table.isna() & whole.notna()).to_numpy()
    assert f"153 days of 4 measurements of the air over New York, {hidden.sum()} values hidden" in filling.what
    squared = (table.interpolate("time", limit_direction="both") - whole) ** 2 / whole.var(ddof=0)
    numbers = {row[0].text: float(row[1].text) for row in filling.grid.rows}
    assert numbers["straight lines"] == pytest.approx(squared.to_numpy()[hidden].mean(), abs=6e-4)
    assert numbers["cgp"] < min(numbers["straight lines"], numbers["ridge on the other columns"])
    assert filling.sentences[0].endswith("% intervals, as they should be.")


@pytest.mark.parametrize(
    ("inside", "words"), [(88.2, "88 % of the hidden values are in their 95 % intervals: too narrow"), (99.1, "wider")]
)
def test_a_share_that_is_not_the_level_is_commented(inside, words):
    assert words in _held(inside)
