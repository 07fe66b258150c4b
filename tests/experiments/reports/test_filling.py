"""The demo's table: hidden values are filled, and its numbers are those of an independent computation."""

import re

import numpy as np
import pandas as pd
import pytest
from rich.text import Text

from experiments.reports.filling import AIR, _held, fill_air
from experiments.reports.page import report
from tests.experiments.reports.saved import find_runs, random_logits, write_run


@pytest.fixture(scope="module")
def filling(tmp_path_factory):
    picture = tmp_path_factory.mktemp("demo") / "table.png"
    filling = fill_air(picture, structure="shared")
    assert picture.read_bytes() == filling.png
    return filling


def test_a_table_is_filled_drawn_and_scored(filling):
    assert filling.png.startswith(b"\x89PNG")
    assert filling.weeks.startswith(b"\x89PNG")
    whole = pd.read_csv(AIR, comment="#", index_col="date", parse_dates=True)
    table = whole.copy()
    for column, first in enumerate((14, 7, 0, 21)):  # a week in every four, at other times in each column
        for start in range(first, 153, 28):
            table.iloc[start : start + 7, column] = np.nan
    hidden = table.isna() & whole.notna()
    assert f"{hidden.to_numpy().sum()} values hidden" in filling.what
    errors = (table.interpolate("time", limit_direction="both") - whole).abs()
    rows = {row[0].text: [float(cell.text) for cell in row[1:]] for row in filling.errors.rows}
    assert rows["straight lines"] == pytest.approx(errors.where(hidden).mean().tolist(), abs=0.06)
    nearest = np.minimum(rows["straight lines"], rows["ridge on the other columns"])
    assert (np.array(rows["cgp"]) < nearest).all()
    assert [cell.best for cell in filling.errors.rows[-1]] == [False, True, True, True, True]
    assert filling.held.endswith("% intervals, as they should be.")


def test_the_picture_of_the_table_shows_what_was_hidden(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr("experiments.reports.filling.as_png", lambda figure, dpi: figures.append(figure) or b"")
    fill_air(tmp_path / "table.png", structure="shared")
    columns = figures[0].axes[1:]
    hidden = [np.isfinite(np.asarray(ax.lines[-1].get_ydata(), dtype=float)).sum() for ax in columns]
    assert sum(hidden) == 142
    assert all(ax.lines[-1].get_label() == "true, hidden" for ax in columns)
    assert columns[0].get_legend() is not None


def test_means_of_months_have_errors_and_the_truth_where_it_is_known(filling):
    whole = pd.read_csv(AIR, comment="#", index_col="date", parse_dates=True)
    true = whole[["wind", "temperature"]].resample("MS").mean()
    assert filling.means.header == ["", "ozone", "wind", "true", "temperature", "true"]
    shown = np.array([[cell.text.split(" ± ") for cell in (row[2], row[4])] for row in filling.means.rows], dtype=float)
    known = np.array([[row[3].text, row[5].text] for row in filling.means.rows], dtype=float)
    assert known == pytest.approx(true.to_numpy(), abs=0.051)
    near = np.abs(shown[..., 0] - known) <= 2 * shown[..., 1]
    assert filling.known == f"{near.sum()} of the 10 means whose truth is known are within two errors of it."


def test_a_filled_table_comes_first_and_the_comparison_is_folded(filling, tmp_path):
    """On the terminal there are only the findings; figures of every network are in folded parts of the page."""
    made = {name: random_logits(samples=60, seed=place) for place, name in enumerate(("test", "validation"))}
    for method in ("softmax", "cgp"):
        write_run(tmp_path, "digits", method, sets=made)
    shown = report(find_runs([tmp_path]), tmp_path / "out", filling=filling)
    assert [type(part) for part in shown] == [Text]
    assert shown[0].plain.startswith("The 2 kinds of attention compared")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    tables, networks = page.split('id="networks"')
    assert tables.count("<img") == 2
    assert "<details" not in tables[tables.index("<body") :]
    assert networks.index("<details") < networks.index("<img")
    cards = re.findall(r'<details class="card" id="([a-z-]+)">', networks)
    assert (cards[0], cards[-1]) == ("numbers", "details")
    assert {"reliability", "risk-coverage"} <= set(cards)
    assert "<section" not in networks
    assert filling.held in tables.replace("&nbsp;", " ")


@pytest.mark.parametrize(
    ("inside", "words"), [(88.2, "88 % of the hidden values are in their 95 % intervals: too narrow"), (99.1, "wider")]
)
def test_a_share_that_is_not_the_level_is_commented(inside, words):
    assert words in _held(inside)
