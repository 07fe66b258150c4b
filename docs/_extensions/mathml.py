"""Mathematics as MathML, which browsers draw themselves: the pages need no script and no network."""

import html
import re
from typing import Any, cast

from docutils import nodes
from latex2mathml import exceptions
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
_FAULTS = tuple(kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception))
_ENVIRONMENT = re.compile(r"\\begin\{(equation|align|gather)\*?\}(.*)\\end\{\1\*?\}", re.DOTALL)


def mathml(latex: str, *, display: bool) -> str:
    """LaTeX as a ``<math>`` element that keeps its source as an annotation for screen readers and for copying."""
    source = latex.strip()
    match = _ENVIRONMENT.fullmatch(source)
    if match:
        kind, body = match.groups()
        source = rf"\begin{{align*}}{body}\end{{align*}}" if kind == "align" else body
    markup = convert(source, display="block" if display else "inline")
    return markup.replace("<math ", f'<math alttext="{html.escape(latex.strip(), quote=True)}" ', 1)


def _element(node: nodes.Element, *, display: bool) -> str:
    """The markup; what the converter does not know comes out as it came in, and is reported."""
    latex = node.astext()
    try:
        markup = mathml(latex, display=display)
    except _FAULTS as error:
        LOG.warning("formula %r: %s %s", latex, type(error).__name__, error, location=node)
        return f"<code>{html.escape(latex)}</code>"
    visible = re.sub(r'alttext="[^"]*"', "", markup)
    if "\\" in visible or "&#x0005C;" in visible:
        LOG.warning("formula %r: not all of it is known to latex2mathml", latex, location=node)
    return markup


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """A formula in a line."""
    translator.body.append(f'<span class="math">{_element(node, display=False)}</span>')
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """A formula of its own."""
    translator.body.append(f'<div class="math">{_element(node, display=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return cast("dict[str, Any]", {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True})
