"""`.ci/run` reports failures correctly: each step's by itself, with pytest's closing line at the end."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CLOSINGS = (
    "3 passed, 1 skipped in 4.20s",
    "1 failed, 2 passed, 3 warnings in 75.1s (0:01:15)",
    "no tests ran in 0.01s",
)
NAMES = {"demo-quick": "demo", "test-plain": "plain", "docs-plain": "docs"}
STEPS = ("lint", "test", "test-plain", "demo-quick", "docs-plain")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def run_with_stub(folder: Path, *, failing: str, closing: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a copy where `make` only says its target, prints pytest's closing line, and fails as told."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "docs").mkdir()
    (folder / "docs" / "conf.py").touch()
    stub = folder / "bin" / "make"
    stub.parent.mkdir()
    stub.write_text(
        f'#!/bin/sh\necho "ran $1"\n[ "$1" = test ] && echo "==== {closing} ===="\n'
        f'[ "$1" = test-plain ] && echo "==== 7 passed in 7.77s ===="\n[ "$1" != "{failing}" ]\n',
        encoding="utf-8",
    )
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", str(folder / ".ci" / "run")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("failing", ["", *STEPS])
def test_a_failing_step_stops_no_other_and_the_closing_line_is_last(tmp_path: Path, failing: str, closing: str) -> None:
    done = run_with_stub(tmp_path, failing=failing, closing=closing)
    lines = done.stdout.splitlines()
    assert [line.removeprefix("ran ") for line in lines if line.startswith("ran ")] == list(STEPS)
    failed = [f"== failed: {NAMES.get(failing, failing)}"] if failing else []
    assert [line for line in lines if line.startswith("== failed")] == failed
    assert (done.returncode != 0) == bool(failing)
    assert lines[-1] == closing
    assert done.stderr == ""


def commands(target: str, word: str) -> list[str]:
    """Lines with a word among those that `make` would run."""
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if word in line]


def test_what_trains_is_run_again_in_other_arithmetic(pytestconfig: pytest.Config) -> None:
    """With kernels that round otherwise and two threads; the files that train are in the list, and the list is run."""
    tests, doctests = commands("test-plain", "pytest")
    (pages,), (native,) = commands("docs-plain", "sphinx"), commands("docs", "sphinx")
    for line in (tests, doctests, pages):
        assert "ATEN_CPU_CAPABILITY=default" in line
        assert "OMP_NUM_THREADS=2" in line
    assert "trains and not slow" in tests
    assert doctests.endswith("cgp models")
    assert pages.endswith(native.removeprefix("OMP_NUM_THREADS=1"))
    marker = next(line for line in pytestconfig.getini("markers") if line.startswith("trains"))
    assert "make test-plain" in marker


def test_bytecode_is_kept_whatever_the_environment_says() -> None:
    """Rewriting and compiling the tests and the library takes a third of their collection, in every process anew."""
    command = ["make", "--no-print-directory", "--eval", "said:; @echo [$$PYTHONDONTWRITEBYTECODE]", "said"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_tests_that_never_close_are_reported_as_such(tmp_path: Path) -> None:
    done = run_with_stub(tmp_path, failing="test", closing="Killed")
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "pytest did not finish"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_an_environment_is_installed_again_only_where_it_differs(tmp_path):
    """Files that are newer, but the same, as after a checkout, need no installation."""
    for name in ("Makefile", "setup.cfg", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    python = tmp_path / "v" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)

    def made():
        call = ["make", "-s", "install", "VENV=v", f"PYTHON={sys.executable}"]
        return subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    later = time.time() + 60.0
    assert made().startswith("Installing the pinned versions")
    assert made() == ""
    os.utime(tmp_path / "setup.cfg", (later, later))
    assert made() == ""
    (tmp_path / "setup.cfg").write_text("[options]\n")
    os.utime(tmp_path / "setup.cfg", (later + 60.0, later + 60.0))
    assert made().startswith("Installing the pinned versions")
