"""Studies as commands: what there is, and what a mistake is answered with."""

import sys
from pathlib import Path

import pytest

from experiments import studies
from experiments.runs.parsing import run_functions
from experiments.studies.__main__ import listing
from experiments.studies.regression.report import write_results


def growth(sizes: list[int], out: Path = Path("out")) -> None:
    """Grow."""
    if not sizes:
        raise ValueError("sizes: expected some, got none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "[1]"], "(did you mean 'sizes'?); --help shows the options"),
        (["--sizes", "[]"], "sizes: expected some, got none"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", *arguments])
    with pytest.raises(SystemExit) as stop:
        run_functions(growth, "studies.growth")
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.startswith("error: ")
    assert error.endswith(f"{message}\n")
    assert error.count("\n") == 1


def test_every_study_that_is_a_command_is_listed():
    folder = Path(studies.__file__).parent
    packages = {path.parent.name for path in folder.glob("*/__main__.py")}
    scripts = {path.stem for path in folder.glob("*.py") if "__main__" in path.read_text() and path.stem != "__main__"}
    names = [line.removeprefix("python -m experiments.studies.") for line in listing().splitlines()[::2]]
    assert names == sorted(packages | scripts)
    assert all(line.startswith("    ") and line.strip() for line in listing().splitlines()[1::2])


def test_results_are_printed_as_a_table(tmp_path, capsys):
    rows = [{"method": name, "nll": value} for name, value in (("lines", 0.5), ("cgp", 0.25))]
    write_results(tmp_path, "gaps", "Gaps", rows, ["method"], ["nll"])
    shown = capsys.readouterr().out
    assert "| cgp | 1 | **0.2500** |" in shown
    assert "{" not in shown
