"""The README's examples run one after the other, from the checkout, and its links exist."""

import re
from pathlib import Path

import numpy as np

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"(?<!<!-- not run -->\n)```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_examples_run_one_after_the_other(monkeypatch):
    monkeypatch.chdir(README.parent)
    assert len(EXAMPLES) == 4  # tables; a network, asked how sure it is; toolkit
    names = {}
    for number, example in enumerate(EXAMPLES, 1):
        exec(compile(example, f"README example {number}", "exec"), names)
    assert len(names["filled"]) == len(names["table"])
    assert not np.isnan(names["filled"].to_numpy()).any()


def test_pictures_and_pages_exist():
    targets = re.findall(r"\]\((?!https:)([^)#]+)\)", README.read_text(encoding="utf-8"))
    missing = [t for t in targets if not (README.parent / t).exists()]
    assert not missing
