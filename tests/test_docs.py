"""The documentation: its first example runs, its gallery shows every picture, its formulas can be drawn."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from cgp import plotting

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))


@pytest.fixture
def extension(monkeypatch):
    """A module of the documentation's own extensions, by name."""
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    yield importlib.import_module
    for name in ("gallery", "mathml"):
        sys.modules.pop(name, None)


def test_the_front_page_shows_ten_lines_that_run():
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    statements = [line for line in code.splitlines() if line and not line.startswith(("import", "from"))]
    assert len(statements) <= 10
    space: dict[str, object] = {}
    exec(compile(code, "docs/index.md", "exec"), space)
    assert space["prediction"].probabilities.shape == (64, 10)
    assert plt.get_fignums()
    plt.close("all")


def test_every_picture_is_drawn_in_the_gallery():
    """Calls of what was imported from cgp.plotting, under whatever name."""
    drawn = set()
    for path in EXAMPLES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [
            node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "cgp.plotting"
        ]
        names = {alias.asname or alias.name: alias.name for node in imports for alias in node.names}
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        drawn |= {names[call.id] for call in calls if isinstance(call, ast.Name) and call.id in names}
    functions = {name for name in plotting.__all__ if callable(getattr(plotting, name))}
    assert functions == drawn


def test_the_gallery_has_an_order(extension):
    gallery = extension("gallery")
    assert sorted(gallery.ORDER) == [path.name for path in EXAMPLES]


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\tfrac12", "<mfrac>"),
        (r"\begin{align*}a &= b \\ c &= d\end{align*}", "<mtable"),
        (r"K_{qk}(K_k + \sigma^2 I)^{-1}", "<msup>"),
    ],
)
def test_formulas_become_mathml(extension, latex, expected):
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed")
    markup = extension("mathml").mathml(latex, display=True)
    shown = re.sub(r'alttext="[^"]*"', "", markup)
    assert expected in shown
    assert "\\" not in shown
    assert 'display="block"' in markup
