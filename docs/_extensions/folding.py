"""What a page says stays open, and what only some ask for is folded: nothing is lost, and nobody has to scroll past it.

On pages of results the first paragraph and the first table stay; on the changelog the titles; of an entry of the API
its signature and its first paragraph. ``_static/folds.js`` opens what a link leads to.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

LONGEST = 15
"""Rows of a table that stays open."""
FIRST = 6
"""Rows of a longer one that do."""
OPEN = ("results/index", "results/where-it-pays")
"""Pages of results that are read whole: the list of them, and the conclusions."""

_FIELDS = {"Parameters": "arguments", "Variables": "attributes", "Returns": "returns", "Yields": "returns"}


def _fold(_: Sphinx, doctree: nodes.document, name: str) -> None:
    if name.startswith("results/"):
        _fold_tables(doctree)
    for section in [node for node in doctree.children if isinstance(node, nodes.section)]:
        if name == "changelog":
            _fold_sections(section)
        elif name.startswith(("results/", "benchmarks")) and name not in OPEN:
            _fold_result(section)
    if name.startswith("api/"):
        for content in list(doctree.findall(addnodes.desc_content)):
            _fold_entry(content)


def _fold_tables(doctree: nodes.document) -> None:
    for table in list(doctree.findall(nodes.table)):
        rows = sum(len(body) for body in table.findall(nodes.tbody))
        place = table.parent.index(table)
        folded = place > 0 and isinstance(table.parent.children[place - 1], nodes.raw)  # by the page itself
        if rows > LONGEST and not folded:
            preview = table.deepcopy()
            for body in preview.findall(nodes.tbody):
                del body.children[FIRST:]
            preview["ids"] = []
            table.parent.insert(place, preview)
            _wrap(table.parent, [table], f"All {rows} rows")


def _fold_result(section: nodes.section) -> None:
    """Title, first paragraph and first table stay; where the table is in a section, that one is open as far as it."""
    inner = [node for node in section.children if isinstance(node, nodes.section)]
    parts = section.children[: len(section) - len(inner)]
    span = _first_table(parts)
    start, end = span or (len(parts), len(parts))
    _wrap(section, parts[end:], "More")
    _wrap(section, parts[2:start], "How it was measured")
    for child in inner[span is None :]:
        _fold_section(child)
    if span is None and inner:
        _, end = _first_table(inner[0].children) or (0, 1)
        _wrap(inner[0], inner[0].children[end:], "More")


def _first_table(children: Sequence[nodes.Node]) -> tuple[int, int] | None:
    """Where the first table, or what a command printed with errors, begins and ends among these, with its own fold."""
    for place, node in enumerate(children):
        if isinstance(node, nodes.table) or (isinstance(node, nodes.literal_block) and "±" in node.astext()):
            longer = children[place + 1 : place + 2]
            own = bool(longer) and isinstance(longer[0], nodes.raw) and "All" in longer[0].astext()
            return place, place + 1 + 3 * own
    return None


def _fold_sections(section: nodes.section) -> None:
    """The sections of a section's sections."""
    for outer in section.children:
        for inner in outer.children if isinstance(outer, nodes.section) else ():
            if isinstance(inner, nodes.section):
                _fold_section(inner)


def _fold_section(section: nodes.section) -> None:
    """A section behind its title."""
    section.insert(0, _raw('<details class="section"><summary>'))
    section.insert(2, _raw("</summary>"))
    section.append(_raw("</details>"))


def _fold_entry(content: addnodes.desc_content) -> None:
    """What follows the first paragraph of an entry, up to its members."""
    members = [
        index for index, node in enumerate(content.children) if isinstance(node, (addnodes.index, addnodes.desc))
    ]
    end = min(members, default=len(content.children))
    start = 1 if content.children and isinstance(content.children[0], nodes.paragraph) else 0
    rest = content.children[start:end]
    _wrap(content, rest, _summary(rest))


def _summary(rest: Sequence[nodes.Node]) -> str:
    fields = [field[0].astext() for node in rest if isinstance(node, nodes.field_list) for field in node]
    kinds = dict.fromkeys(_FIELDS[field] for field in fields if field in _FIELDS)
    example = any(isinstance(node, (nodes.doctest_block, nodes.literal_block)) for node in rest)
    return ", ".join([*kinds, *(["example"] if example else [])]) or "more"


def _wrap(parent: nodes.Element, children: Sequence[nodes.Node], summary: str) -> None:
    """Put children that follow each other behind a summary; one of a page's own folds stays as it is."""
    if not children:
        return
    start = parent.index(children[0])
    parent.insert(start + len(children), _raw("</details>"))
    parent.insert(start, _raw(f"<details><summary>{html.escape(summary)}</summary>"))


def _raw(markup: str) -> nodes.raw:
    return nodes.raw("", markup, format="html")


def _leave_out_of_search(app: Sphinx, _: nodes.document) -> None:
    """Notes of the laboratory are linked where they matter; a search finds what is for users."""
    if app.env.docname.startswith("notes"):
        app.env.metadata[app.env.docname]["nosearch"] = "true"


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-resolved", _fold)
    app.connect("doctree-read", _leave_out_of_search)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
