"""The README's short example runs as printed, and its links exist; the long one is run with the pages."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"(?<!<!-- not run -->\n)```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_is_an_example_of_each_use():
    assert len(EXAMPLES) == 2  # fill, train


@pytest.mark.parametrize("number", range(1, len(EXAMPLES)))
def test_example_runs(number):
    exec(compile(EXAMPLES[number], f"README example {number + 1}", "exec"), {})


def test_pictures_and_pages_exist():
    targets = re.findall(r"\]\((?!https:)([^)#]+)\)", README.read_text(encoding="utf-8"))
    missing = [t for t in targets if not (README.parent / t).exists()]
    assert not missing
