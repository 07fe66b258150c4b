"""What the user types: tables in four formats, the list, and errors."""

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.reports.papers import list_tables, table, table_rows
from experiments.reports.papers.catalogue import TABLES
from experiments.reports.papers.render import RENDERERS, lines
from experiments.reports.papers.rows import Row
from tests.experiments.reports.papers.folders import confident, write_run

SPEC = TABLES["cgpt-I"]


def made(method="sgpa", metric="mcc", **values):
    """A row with a paper's number and ours."""
    defaults = {
        "group": "CoLA",
        "label": method.upper(),
        "paper": 0.25,
        "paper_sd": 0.01,
        "ours": 0.3,
        "ours_sd": 0.02,
        "seeds": 3,
        "protocol": "cgpt",
        "scale": 100.0,
        "digits": 2,
        "missing": (),
        "deviations": (),
    }
    return Row(method=method, metric=metric, **(defaults | values))


NAN = math.nan
THREE = [
    made("sgpa", deviations=("5 epochs",)),
    made("cgpt", ours=0.2, ours_sd=NAN, seeds=1, deviations=("5 epochs", "100 samples")),
    made("scgpt", paper_sd=NAN, ours=NAN, ours_sd=NAN, seeds=0),
    made("sgpa", "ece", paper=0.2, ours=0.15, scale=1.0, digits=3, paper_sd=NAN),
    made("cgpt", "ece", paper=NAN, paper_sd=NAN, ours=0.15, scale=1.0, digits=3),
]


def test_lines_by_hand():
    printed, notes = lines(THREE)
    assert [line.cells for line in printed] == [
        ("CoLA · MCC ×100 ↑", "SGPA", "25.00 ± 1.00", "30.00 ± 2.00", "+5.00", "3", "cgpt"),
        ("CoLA · MCC ×100 ↑", "CGPT", "25.00 ± 1.00", "20.00", "−5.00", "1", "cgpt"),
        ("CoLA · MCC ×100 ↑", "SCGPT", "25.00", "–", "–", "–", "–"),
        ("CoLA · ECE ↓", "SGPA", "0.200", "0.150 ± 0.020", "−0.050", "3", "cgpt"),
        ("CoLA · ECE ↓", "CGPT", "–", "0.150 ± 0.020", "–", "3", "cgpt"),
    ]
    assert notes == ["5 epochs", "100 samples"]
    assert [line.notes for line in printed] == [(1,), (1, 2), (), (), ()]
    assert [line.better for line in printed] == [True, False, None, True, None]
    assert [line.best for line in printed] == [True, False, False, True, True]


def test_one_number_is_not_the_best_of_anything_and_undefined_is_said():
    (line,), _ = lines([made()])
    assert not line.best
    (line,), _ = lines([made(ours=NAN, ours_sd=NAN)])
    assert (line.ours, line.difference, line.seeds) == ("undefined", "–", "3")


def test_many_notes_are_a_range_and_minus_is_a_minus():
    words = tuple(f"note {index}" for index in range(1, 7))
    rows = [made(deviations=words), made("cgpt", ours=-0.1, deviations=words[:3] + words[5:])]
    text = RENDERERS["markdown"](SPEC, rows)
    assert "| 3 | cgpt | 1–6 |" in text
    assert "| −10.00 ± 2.00 | −35.00 | 3 | cgpt | 1–3,6 |" in text


def test_markdown():
    text = RENDERERS["markdown"](SPEC, THREE)
    assert "| CoLA · MCC ×100 ↑ | SGPA | 25.00 ± 1.00 | **30.00 ± 2.00** | +5.00 | 3 | cgpt | 1 |" in text
    assert "|  | CGPT | 25.00 ± 1.00 | 20.00 | −5.00 | 1 | cgpt | 1,2 |" in text
    assert "1. 5 epochs\n2. 100 samples" in text
    assert text.startswith("---\norphan: true\n---\n# Table I of Revisiting Kernel Attention")
    rule = next(line for line in text.splitlines() if line.startswith("|---"))
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {rule.count("|")}
    pooled = RENDERERS["markdown"](SPEC, [row._replace(protocol="pooled") for row in THREE])
    assert "Ours follows the protocol pooled, the paper cgpt." in pooled


def test_latex_escapes_what_latex_would_read():
    text = RENDERERS["latex"](SPEC, [made(label="a_b & 5 %", deviations=("50 % of it",))])
    assert r"CoLA $\cdot$ MCC $\times$100 $\uparrow$ & a\_b \& 5 \% & 25.00 $\pm$ 1.00" in text
    assert r"50 \% of it" in text
    assert text.count(r"\begin{longtable}") == text.count(r"\end{longtable}") == 1
    assert text.isascii()


def test_terminal_fits_and_names_what_departs():
    text = RENDERERS["terminal"](SPEC, THREE)
    assert all(len(line) <= 100 for line in text.splitlines())
    words = [" ".join(line.split()) for line in text.splitlines()]
    assert "SGPA 25.00 ± 1.00 30.00 ± 2.00 +5.00 3 cgpt 1" in words
    assert "[2] 100 samples" in text


WORDS = ("a, b", 'c "d"')
NUMBERS = st.floats(-10, 10) | st.just(NAN)


@settings(max_examples=50)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.floats(0, 3), st.integers(0, 4)), min_size=1, max_size=6))
def test_csv_is_read_back_as_it_was(values):
    given_rows = [
        made(
            f"m{index}", paper=paper, ours=ours if seeds else NAN, ours_sd=sd, seeds=seeds, deviations=("a, b", 'c "d"')
        )
        for index, (paper, ours, sd, seeds) in enumerate(values)
    ]
    read = list(csv.DictReader(io.StringIO(RENDERERS["csv"](SPEC, given_rows))))
    for line, row in zip(read, given_rows, strict=True):
        for name in ("paper", "ours", "ours_sd", "difference"):
            value = getattr(row, name)
            assert float(line[name] or "nan") == pytest.approx(value, rel=1e-5, nan_ok=True)
        assert int(line["seeds"]) == row.seeds
        assert line["deviations"] == ('a, b; c "d"' if row.seeds else "")


@settings(max_examples=30)
@given(st.lists(NUMBERS, min_size=1, max_size=6), st.sampled_from(["mcc", "ece"]))
def test_the_best_is_the_best(values, metric):
    printed, _ = lines([made(f"m{index}", metric, ours=value) for index, value in enumerate(values)])
    finite = [round(value * 100, 2) for value in values if not math.isnan(value)]
    if len(finite) < 2:
        assert not any(line.best for line in printed)
        return
    top = max(finite) if metric == "mcc" else min(finite)
    for line, value in zip(printed, values, strict=True):
        assert line.best == (not math.isnan(value) and round(value * 100, 2) == top)


@pytest.fixture
def runs(tmp_path):
    labels = np.arange(1816) % 2
    for seed, right in enumerate((1300, 1400)):
        logits = confident(labels, np.arange(1816) < right, classes=2)
        write_run(tmp_path / "runs", "cola-pooled", "cgpt", seed, sets={"test": (logits, labels)})
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("style", "ending"), [("terminal", "txt"), ("markdown", "md"), ("csv", "csv"), ("latex", "tex")]
)
def test_files_are_written_whole_and_named(runs, tmp_path, capsys, style, ending):
    out = tmp_path / "tables"
    table("cgpt-I", runs=runs, out=out, format=style)
    assert [path.name for path in out.iterdir()] == [f"cgpt-I.{ending}"]
    assert capsys.readouterr().out.strip() == str(out / f"cgpt-I.{ending}")
    assert "CGPT" in (out / f"cgpt-I.{ending}").read_text(encoding="utf-8") or style == "csv"


def test_a_file_may_be_named_and_all_tables_asked_for(runs, tmp_path, capsys):
    table("cgpt-I", runs=runs, out=tmp_path / "mine.md", format="markdown")
    assert (tmp_path / "mine.md").read_text(encoding="utf-8").count("\n") > 20
    table("all", runs=runs, out=tmp_path / "all", format="csv")
    assert {path.stem for path in (tmp_path / "all").iterdir()} == set(TABLES)


def test_printed(runs, capsys):
    table("cgpt-I", runs=runs, format="csv")
    read = csv.DictReader(io.StringIO(capsys.readouterr().out))
    (line,) = [line for line in read if (line["seeds"], line["metric"]) == ("2", "mcc")]
    expected = np.mean([2 * right / 1816 - 1 for right in (1300, 1400)])
    assert float(line["ours"]) == pytest.approx(expected, rel=1e-5)
    assert float(line["paper"]) == pytest.approx(0.26471)
    table("cgpt-I", runs=runs)
    assert "26.471 ± 0.387" in capsys.readouterr().out


def test_numbers_for_python(runs):
    found = table_rows("cgpt-I", runs=runs, protocol="pooled", cache=False)["cgpt-I"]
    assert {row.protocol for row in found} == {"pooled"}
    assert not (runs / ".metrics").exists()
    table_rows("cgpt-I", runs=runs)
    assert (runs / ".metrics").is_dir()


def test_list(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    (tmp_path / "data" / "cola").mkdir(parents=True)
    list_tables(runs=runs, data=tmp_path / "data")
    text = capsys.readouterr().out
    assert "4 of 24" in text
    assert "16 for a run; 4 for predictions: out-of-domain" in text
    assert all(name in text for name in TABLES)
    monkeypatch.setenv("CGP_DATA", str(tmp_path / "data"))
    table("list", runs=runs)
    assert capsys.readouterr().out == text
    list_tables("cgpt-I", runs=runs, data=tmp_path / "data")
    text = capsys.readouterr().out
    assert "cola-pooled/cgpt   2 seeds" in text
    assert "cola-pooled/sgpa   waiting for a run" in text


def test_bad_input_is_refused(runs, tmp_path):
    with pytest.raises(ValueError, match="format: expected one of terminal, markdown, csv, latex, got 'html'"):
        table("cgpt-I", runs=runs, format="html")
    with pytest.raises(ValueError, match="protocol: expected one of pooled, cgpt, kep, sgpa, got 'papers'"):
        table("cgpt-I", runs=runs, protocol="papers")
    with pytest.raises(ValueError, match="name: expected"):
        table("cgpt-VI", runs=runs)
    with pytest.raises(ValueError, match="runs: expected a folder"):
        list_tables(runs=tmp_path / "nowhere")
