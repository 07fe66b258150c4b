"""The table command: three formats, the overview, and errors."""

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from experiments.reports.papers import TABLES, table, tables
from experiments.reports.papers.recorded import with_recorded
from experiments.reports.papers.tables import as_terminal, markdown, pivots
from experiments.reports.papers.tidy import Row
from experiments.runs.rows import label_of, row_names
from tests.experiments.reports.saved import confident, find_runs, write_run

SPEC = TABLES["cgpt-I"]
NAN = math.nan
PAPERS = Path(__file__).parents[4] / "docs" / "results" / "papers"


def made(method="sgpa", metric="mcc", **values):
    """A row with a printed number and ours."""
    defaults = {"setting": "CoLA", "label": method.upper(), "printed": 0.25, "printed_sd": 0.01, "ours": 0.3}
    defaults |= {"ours_sd": 0.02, "seeds": 3, "protocol": "cgpt", "scale": 100.0, "digits": 2, "deviations": ()}
    return Row(method=method, metric=metric, **(defaults | values))


ECE = {"metric": "ece", "scale": 1.0, "digits": 3}
FOUR = [
    made("sgpa", deviations=("5 epochs",)),
    made("sgpa", printed=0.2, printed_sd=NAN, ours=0.15, **ECE),
    made("cgpt", ours=0.2, ours_sd=NAN, seeds=1, deviations=("5 epochs", "100 samples")),
    made("cgpt", printed=NAN, printed_sd=NAN, ours=-0.15, seeds=1, **ECE),
    made("scgpt", printed_sd=NAN, ours=NAN, ours_sd=NAN, seeds=0),
    made("scgpt", printed=NAN, printed_sd=NAN, ours=NAN, ours_sd=NAN, seeds=0, **ECE),
    made("mine", printed=NAN, printed_sd=NAN, ours=NAN, ours_sd=NAN),
    made("mine", printed=NAN, printed_sd=NAN, ours=0.1, **ECE),
]


def texts(measured):
    (grid,) = pivots(measured)
    return grid.header, [[cell.text for cell in row] for row in grid.rows]


def test_pivot_by_hand():
    header, rows = texts(FOUR)
    assert header == ["Method", "MCC ×100 ↑", "ECE ↓", "Seeds", "Notes"]
    assert rows == [
        ["SGPA, printed", "25.00 ± 1.00", "0.200", "", ""],
        ["SGPA, ours", "30.00 ± 2.00", "0.150 ± 0.020", "3", "1"],
        ["CGPT, printed", "25.00 ± 1.00", "–", "", ""],
        ["CGPT, ours", "20.00", "−0.150 ± 0.020", "1", "1,2"],
        ["SCGPT, printed", "25.00", "–", "", ""],
        ["SCGPT, ours", "–", "–", "–", ""],
        ["MINE", "undefined", "0.100 ± 0.020", "3", ""],
    ]


def test_settings_have_tables_of_their_own_and_many_notes_are_a_range():
    assert [grid.title for grid in pivots([*FOUR, made(setting="CoLA-OOD")])] == ["CoLA", "CoLA-OOD"]
    words = tuple(f"note {index}" for index in range(1, 7))
    _, rows = texts([made(deviations=words), made("cgpt", deviations=words[:3] + words[5:])])
    assert [row[-1] for row in rows] == ["", "1–6", "", "1–3,6"]


def test_markdown():
    text = markdown(SPEC, FOUR)
    assert "| SGPA, ours | **30.00 ± 2.00** | 0.150 ± 0.020 | 3 | 1 |" in text
    assert "1. 5 epochs\n2. 100 samples" in text
    assert text.startswith("---\norphan: true\n---\n# Table I of Revisiting Kernel Attention")
    rule = next(line for line in text.splitlines() if line.startswith("| ---"))
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {rule.count("|")}
    pooled = markdown(SPEC, [row._replace(protocol="pooled") for row in FOUR])
    assert "Ours follows the protocol pooled, the paper cgpt." in pooled


NUMBERS = st.floats(-10, 10) | st.just(NAN)


@settings(max_examples=30)
@given(st.lists(NUMBERS, min_size=1, max_size=6), st.sampled_from(["mcc", "ece"]))
def test_the_best_is_the_best(values, metric):
    measured = [made(f"m{index}", metric, ours=value, printed=NAN) for index, value in enumerate(values)]
    (grid,) = pivots(measured)
    marked = [row[1].best for row in grid.rows]
    finite = [round(value * 100, 2) for value in values if not math.isnan(value)]
    top = None if len(finite) < 2 else max(finite) if metric == "mcc" else min(finite)
    assert marked == [not math.isnan(value) and round(value * 100, 2) == top for value in values]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "find_runs", find_runs)
    labels = np.arange(1816) % 2
    for seed, right in enumerate((1300, 1400)):
        logits = confident(labels, np.arange(1816) < right, classes=2)
        write_run(tmp_path / "runs", "cola-pooled", "cgpt", seed, sets={"test": (logits, labels)})
    return tmp_path / "runs"


def test_one_seed_is_not_the_best_and_reduced_settings_are_named():
    (grid,) = pivots([made("sgpa", seeds=1, deviations=("10,000 of 45,000 train examples",)), made("cgpt", ours=0.1)])
    assert grid.title.endswith(", reduced")
    assert not any(cell.best for row in grid.rows for cell in row)


@pytest.mark.parametrize("page", sorted(page for page in PAPERS.glob("*-*.md") if page.stem != "cgpt-I-short"))
def test_without_runs_the_command_writes_the_pages_that_it_reads(page, tmp_path):
    protocol = "pooled" if page.stem.endswith("-pooled") else None
    out = tmp_path / "page.md"
    table(page.stem.removesuffix("-pooled"), runs=tmp_path, out=out, format="markdown", protocol=protocol)
    assert out.read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


def test_recorded_numbers_are_those_of_a_page_of_all_methods(tmp_path):
    rows = with_recorded("cgpt-I", tables._measured([SPEC], [], None)["cgpt-I"], tables._title)
    (line,) = [row for row in rows if (row.setting, row.method, row.metric) == ("CoLA", "temperature_cgpt", "mce")]
    assert (line.ours, line.ours_sd, line.seeds, len(line.deviations)) == (0.541, 0.010, 3, 6)
    assert math.isnan(line.printed)


@pytest.mark.parametrize("page", sorted(PAPERS.glob("*-*.md")))
def test_recorded_pages_have_the_names_that_the_command_writes(page):
    text = page.read_text(encoding="utf-8")
    assert f"# {tables._caption(TABLES[page.stem.removesuffix('-pooled').removesuffix('-short')])}\n" in text
    plain = {label_of(row.partition("/")[2]) for row in row_names("*/*")}
    methods = plain | {f"Ensemble of {name}" for name in plain}
    known = methods | {f"{name}, temperature" for name in methods}
    named = re.findall(r"^\| (\w.*?)(?:, (?:printed|ours|to be measured))? \|", text, re.MULTILINE)
    assert set(named) - {"Method"} <= known
    assert len(named) > 2


def test_recorded_numbers_need_no_runs(tmp_path, capsys):
    table("list", runs=tmp_path)
    shown = capsys.readouterr()
    assert all(name in shown.out for name in TABLES)
    assert (
        shown.err == "Our numbers are those that docs/results/papers has recorded "
        f"(runs: expected a folder with complete runs, got {tmp_path}, which has none).\n"
    )
    table("cgpt-I", runs=tmp_path, format="markdown")
    shown = capsys.readouterr()
    assert "SGPA, printed | 28.826 ± 0.982" in shown.out
    assert "SGPA, ours | 13.900 ± 1.204 | 1.581 ± 0.079 | 0.801 ± 0.005 | 0.319 ± 0.006 | 5 | 1–7 |" in shown.out
    guide = (PAPERS.parents[1] / "guides" / "papers-tables.md").read_text(encoding="utf-8")
    for line in re.findall(r"^SGPA, .*", guide, re.MULTILINE):  # the guide shows what the command prints
        assert " | ".join(re.split("  +", line)[:3]) in shown.out
    assert "\n7. attention returns the same to every token" in shown.out
    assert "table: python -m experiments sweep cola-pooled/sgpa cola-pooled/cgpt cola-pooled/scgpt --out" in shown.err
    table("cgpt-I", runs=tmp_path, out=tmp_path / "mine.csv", format="csv")
    assert capsys.readouterr().err.startswith("Our numbers are those that docs/results/papers has recorded")
    table("cgpt-I", runs=tmp_path, format="csv")  # and without a place it is printed
    assert capsys.readouterr().out == (tmp_path / "mine.csv").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]
    with (tmp_path / "mine.csv").open(newline="") as file:
        (line,) = [row for row in csv.DictReader(file) if (row["method"], row["metric"]) == ("sgpa", "nll")][:1]
    assert (float(line["ours"]), float(line["ours_sd"]), line["seeds"]) == (1.581, 0.079, "5")
    assert float(line["printed"]) == 0.842


def test_files_are_written_whole_and_named(runs, tmp_path, capsys):
    for style, ending in (("markdown", "md"), ("csv", "csv")):
        out = tmp_path / style
        table("cgpt-I", runs=runs, out=out, format=style)
        assert [path.name for path in out.iterdir()] == [f"cgpt-I.{ending}"]
        assert capsys.readouterr().out.strip() == str(out / f"cgpt-I.{ending}")
        assert "CGPT" in (out / f"cgpt-I.{ending}").read_text(encoding="utf-8")
    table("cgpt-I", runs=runs, out=tmp_path / "mine.md", format="markdown")
    assert (tmp_path / "mine.md").read_text(encoding="utf-8").count("\n") > 20
    with (tmp_path / "csv" / "cgpt-I.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    (line,) = [line for line in read if (line["seeds"], line["metric"]) == ("2", "mcc")]
    expected = np.mean([2 * right / 1816 - 1 for right in (1300, 1400)])  # in natural units
    assert float(line["ours"]) == pytest.approx(expected)
    assert float(line["printed"]) == pytest.approx(0.26471)
    assert len(read) == 24
    table("all", runs=runs, out=tmp_path / "all", format="csv")
    assert {path.stem for path in (tmp_path / "all").iterdir()} == set(TABLES)


def test_printed(runs, capsys):
    table("cgpt-I", runs=runs)
    assert "26.471 ± 0.387" in capsys.readouterr().out
    table(runs=runs)
    text = capsys.readouterr().out
    assert "4 of 24" in text
    assert all(name in text for name in TABLES)


def test_a_table_of_which_no_run_is_there_says_so(runs, capsys):
    table("cgpt-I", runs=runs, format="markdown")
    assert not capsys.readouterr().err  # some are
    table("cgpt-II", runs=runs)
    said = capsys.readouterr().err
    assert said.startswith(f"No run of this table is in {runs}: it has the printed numbers alone.\nThe runs of this")


@pytest.mark.parametrize(("width", "shown"), [(200, True), (40, False)])
def test_notes_are_shown_where_a_row_refers_to_them(width, shown):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(as_terminal(SPEC, FOUR))
    assert ("Not shown at" in captured.get(), "[1] 5 epochs" in captured.get()) == (not shown, shown)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cgpt-I", {"format": "html"}, "format: expected one of terminal, markdown, csv, got 'html'"),
        ("cgpt-I", {"protocol": "papers"}, "protocol: expected one of pooled, cgpt, kep, sgpa, got 'papers'"),
        ("cgpt-VI", {}, "name: expected list, all, "),
    ],
)
def test_bad_input_is_refused(runs, name, options, message):
    with pytest.raises(ValueError, match=message):
        table(name, runs=runs, **options)
