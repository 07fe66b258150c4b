"""The README's examples run, word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number):
    exec(compile(EXAMPLES[number], f"README example {number + 1}", "exec"), {})


def test_there_is_an_example_of_each_use():
    assert len(EXAMPLES) == 4  # convert, regress, attend, inspect


def test_pictures_and_pages_exist():
    targets = re.findall(r"\]\(([^)#]+)\)", README.read_text())
    missing = [t for t in targets if not (README.parent / t).exists()]
    assert not missing
