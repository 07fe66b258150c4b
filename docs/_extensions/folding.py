"""Long tables on pages of results are folded: what they say stands above them, and the rows are there for who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LONGEST = 15
"""Rows of a table that stays open."""


def _fold(_: Sphinx, doctree: nodes.document, name: str) -> None:
    if not name.startswith("results/"):
        return
    for table in list(doctree.findall(nodes.table)):
        rows = sum(len(body) for body in table.findall(nodes.tbody))
        siblings = table.parent.children
        place = siblings.index(table)
        folded = place > 0 and isinstance(siblings[place - 1], nodes.raw)  # by the page itself
        if rows > LONGEST and not folded:
            summary = f"<details><summary>Table of {rows} rows</summary>"
            table.parent.insert(place + 1, nodes.raw("", "</details>", format="html"))
            table.parent.insert(place, nodes.raw("", summary, format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-resolved", _fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
