"""`.ci/run` tells the truth: each step's failure is its own, and pytest's closing line is the last one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CLOSING = "3 passed, 1 skipped in 4.20s"
STEPS = ("lint", "test", "demo-quick", "docs")

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def run_with_stub(folder: Path, *, failing: str = "", closing: str = CLOSING) -> subprocess.CompletedProcess[str]:
    """Run the script in a copy where `make` only says its target, prints pytest's closing line, and fails as told."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    (folder / "docs").mkdir()
    (folder / "docs" / "conf.py").touch()
    stub = folder / "bin" / "make"
    stub.parent.mkdir()
    stub.write_text(
        f'#!/bin/sh\necho "ran $1"\n[ "$1" = test ] && echo "==== {closing} ===="\n[ "$1" != "{failing}" ]\n',
        encoding="utf-8",
    )
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", str(folder / ".ci" / "run")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_all_steps_run_and_the_closing_line_is_last(tmp_path: Path) -> None:
    done = run_with_stub(tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert [line.removeprefix("ran ") for line in lines if line.startswith("ran ")] == list(STEPS)
    assert lines[-1] == CLOSING
    assert done.stderr == ""


@pytest.mark.parametrize("failing", STEPS)
def test_one_failing_step_fails_the_run_and_stops_no_other(tmp_path: Path, failing: str) -> None:
    done = run_with_stub(tmp_path, failing=failing)
    lines = done.stdout.splitlines()
    assert done.returncode != 0
    assert sum(line.startswith("ran ") for line in lines) == len(STEPS)
    assert lines[-2:] == [f"== failed: {failing.removesuffix('-quick')}", CLOSING]


@pytest.mark.parametrize("closing", ["1 failed, 2 passed, 3 warnings in 75.12s (0:01:15)", "no tests ran in 0.01s"])
def test_every_form_of_the_closing_line_is_found(tmp_path: Path, closing: str) -> None:
    assert run_with_stub(tmp_path, closing=closing).stdout.splitlines()[-1] == closing


def test_tests_that_never_close_are_reported_as_such(tmp_path: Path) -> None:
    done = run_with_stub(tmp_path, failing="test", closing="Killed")
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "pytest did not finish"
