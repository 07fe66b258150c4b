"""Costs of imports, and names that no file of the project may contain."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("lightning", "pytorch_lightning", "torchmetrics", "torchvision", "timm", "transformers", "pandas")

# Put together from halves, so that this file does not name them either.
FOREIGN = {
    "a folder of one machine": re.compile(r"(?<![\w.])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me/\w+)/"),
    "a folder beside the checkout": re.compile(r"\.\./sha" + r"red\b|\bsha" + r"red/(?:data|design|papers|hooks)\b"),
    "the host of a package registry": re.compile(
        r"\b(?:py" + r"pi\.org|python" + r"hosted\.org|download\.pytor" + r"ch\.org)"
    ),
}


# scikit-learn imports pandas where it is installed, and so does the room of its estimators.
ESTIMATORS = ("tables", "regression", "CorrelatedGPRegressor", "CorrelatedGPImputer", "GapReport", "assess_gaps")
NAMES = f"[getattr(cgp, name) for name in cgp.__all__ if name not in {ESTIMATORS}]"
STATEMENTS = ("import cgp", NAMES, "import models", "import pandas")


def test_the_library_and_the_models_import_nothing_heavy() -> None:
    """One fresh interpreter, and what it holds after each statement; the last shows that the probe sees an import."""
    report = "; import sys; print(*{name.split('.')[0] for name in sys.modules})"
    script = "\n".join(statement + report for statement in STATEMENTS)
    command = [sys.executable, "-W", "default::FutureWarning", "-c", script]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "FutureWarning" not in run.stderr  # of libraries that the reader cannot change
    library, names, models, probe = (set(line.split()) for line in run.stdout.splitlines())
    assert "cgp" in library
    assert library.isdisjoint({"torch", "numpy"})  # names are imported when they are used
    assert "torch" in names
    for loaded in (library, names, models):
        assert loaded.isdisjoint(HEAVY), sorted(loaded.intersection(HEAVY))
    assert "models" in models
    assert "experiments" not in models
    assert "pandas" in probe


def project_texts() -> dict[str, str]:
    """Every text file that git tracks or would track, by its path."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed: it lists the project's files")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip(f"git cannot list the project's files: {listed.stderr.strip()}")
    texts = {}
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            texts[name] = content.decode("utf-8")
    return texts


def test_the_names_of_tests_can_be_read() -> None:
    """In one line of pytest's summary, beside the path."""
    pattern = re.compile(r"^ *(?:async )?def (test_\w{66,})\(", re.MULTILINE)
    long_names = [name for path in (ROOT / "tests").rglob("*.py") for name in pattern.findall(path.read_text("utf-8"))]
    assert not long_names, "\n".join(["longer than 70 characters:", *long_names])


def test_no_file_names_a_machine_or_a_registry() -> None:
    texts = project_texts()
    assert "tests/test_imports.py" in texts
    offending = [
        f"{name}:{number} names {what}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in FOREIGN.items()
        if pattern.search(line)
    ]
    assert not offending, "\n".join(offending)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("open('" + "/wo" + "rk/main/x')", "a folder of one machine"),
        ("see ../sha" + "red/design", "a folder beside the checkout"),
        ("https://py" + "pi.org/simple", "the host of a package registry"),
    ],
)
def test_the_search_finds_forbidden_names(line: str, what: str) -> None:
    assert [name for name, pattern in FOREIGN.items() if pattern.search(line)] == [what]
