"""The README's examples run one after the other, from the checkout, and its links exist."""

import re
from pathlib import Path

import numpy as np

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"(?<!<!-- not run -->\n)```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_examples_run_one_after_the_other_and_print_what_it_shows(monkeypatch, capsys):
    monkeypatch.chdir(README.parent)
    assert len(EXAMPLES) == 6  # tables; a network, asked how sure it is, with a guarantee; a series; attention
    names = {}
    for number, example in enumerate(EXAMPLES, 1):
        exec(compile(example, f"README example {number}", "exec"), names)
    printed, shown = capsys.readouterr().out, re.findall(r"```text\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert printed.split() == " ".join(shown).split()
    assert len(names["filled"]) == len(names["table"])
    assert not np.isnan(names["filled"].to_numpy()).any()
    kept = names["new"][names["kept"]]
    assert len(kept) > 100
    assert (names["network"](names["x"][kept]).argmax(-1) != names["y"][kept]).double().mean() <= 0.05


def test_pictures_and_pages_exist():
    targets = re.findall(r"\]\((?!https:)([^)#]+)\)", README.read_text(encoding="utf-8"))
    missing = [t for t in targets if not (README.parent / t).exists()]
    assert not missing


def rows(text):
    """Cells of a page's tables, by the first of their row."""
    lines = [[cell.strip(" *") for cell in line.strip("| ").split("|")] for line in text.splitlines()]
    return {name: cells for name, *cells in lines if cells}


def test_its_benchmark_has_the_numbers_of_the_results():
    results = (README.parent / "docs" / "results" / "public-benchmarks.md").read_text(encoding="utf-8")
    page = rows(results.partition("<!-- tsi -->\n")[2].partition("\n\n")[0])
    shown = rows(README.read_text(encoding="utf-8").partition("TSI-Bench")[2].partition("ImputeGAP")[0])
    shown = {name.replace("single values,", "point"): cells for name, cells in shown.items() if name[0].isupper()}
    assert len(shown) == 4
    for name, (lines, best, ours, inside) in shown.items():
        best_published, _, _, lines_ours, panel, _, _, _, covered, *_ = page[name.replace("stretches,", "stretches")]
        assert (lines, best, ours) == (lines_ours.partition(" /")[0], best_published, panel)
        assert inside == f"{float(covered):.0%}".replace("%", " %")
