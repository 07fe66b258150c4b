"""Statistics over seeds, cells, Markdown, and the comparison in words."""

import csv
import math

import numpy as np
import pytest

from experiments.reports.demo_tables import cell, markdown, table_cells, verdict, write_csv
from experiments.reports.results import COLUMNS, Statistic, statistics

BY_KEY = {column.key: column for column in COLUMNS}


def row(method, seed, **values):
    """A row of results with 0.5 everywhere else."""
    return {"method": method, "seed": seed} | {column.key: 0.5 for column in COLUMNS} | values


ROWS = [
    row("softmax", 0, accuracy=0.96, nll=0.20, ood_epistemic=math.nan),
    row("softmax", 1, accuracy=0.98, nll=0.10, ood_epistemic=math.nan),
    row("cgp", 0, accuracy=0.95, nll=0.10, ece=0.4),
    row("cgp", 1, accuracy=0.96, nll=0.12, ece=0.4),
]
LABELS = {"softmax": "Softmax", "cgp": "CGP"}


def test_statistics_equal_numpy():
    mean, sd = statistics(ROWS, "softmax")["nll"]
    assert mean == pytest.approx(0.15)
    assert sd == pytest.approx(np.std([0.2, 0.1], ddof=1))
    assert math.isnan(statistics(ROWS[:1], "softmax")["nll"].sd)


def test_cells():
    assert cell(BY_KEY["accuracy"], Statistic(0.9666, 0.0123)) == "96.7 ± 1.2"
    assert cell(BY_KEY["nll"], Statistic(0.1234, math.nan)) == "0.123"
    assert cell(BY_KEY["ood_epistemic"], Statistic(math.nan, math.nan)) == "–"


def test_the_best_of_each_column_is_marked_by_its_direction():
    softmax, cgp = table_cells(ROWS, LABELS)
    marks = {column.key: (a[1], b[1]) for column, a, b in zip(COLUMNS, softmax[1:], cgp[1:], strict=True)}
    assert marks["accuracy"] == (True, False)
    assert marks["nll"] == (False, True)
    assert marks["ood_epistemic"] == (False, True)
    assert marks["seconds_per_epoch"] == (False, False)


def test_markdown_has_a_line_a_method():
    lines = markdown(ROWS, LABELS).splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert lines[3].startswith("| CGP | 95.5 ± 0.7 | **0.110 ± 0.014** |")


def test_verdict_names_what_is_not_better():
    (sentence,) = verdict(ROWS, LABELS, baseline="softmax", challengers=["cgp"])
    assert sentence == (
        "CGP: accuracy −1.5 points against Softmax (within 2); "
        "better in NLL, ECE; not better in corrupted NLL, corrupted ECE."
    )
    worse = [row("softmax", 0, accuracy=0.99), row("cgp", 0, accuracy=0.9)]
    (sentence,) = verdict(worse, LABELS, baseline="softmax", challengers=["cgp"])
    assert "accuracy −9.0 points against Softmax (not within 2)" in sentence
    assert "better in nothing" in sentence


def test_csv_round_trip(tmp_path):
    write_csv(tmp_path / "rows.csv", ROWS)
    with (tmp_path / "rows.csv").open(newline="") as file:
        back = list(csv.DictReader(file))
    assert [float(line["nll"]) for line in back] == [0.2, 0.1, 0.1, 0.12]
