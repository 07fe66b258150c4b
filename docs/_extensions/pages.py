"""Pages whose code is run: what it prints stands on the page, and its pictures are drawn anew in each build.

A Python block is followed by a text block with its output; the blocks of a page share their names. Of pages that begin
with the first block of the network tutorial, which trains its model, a process runs it once. ``<!-- not run -->`` above
a block leaves it out. ``python docs/_extensions/pages.py docs/guides/saving.md`` writes outputs and pictures into a
page.

A build draws into ``docs/_build/images`` and shows those; the pictures beside the pages, which a reader of the
repository sees, change by that command only. Training on a page must not amplify rounding, or every processor prints
other numbers: float64, and a learning rate that falls to zero.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from torch import nn

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
PICTURES = DOCS / "images"
BUILT = DOCS / "_build" / "images"
TUTORIAL = DOCS / "tutorial-networks.md"
GUIDES = (
    "abstaining",
    "assess-gaps",
    "assess-own",
    "assess-tasks",
    "assessing",
    "conversion",
    "files",
    "fine-tuning",
    "forecasts",
    "gaps",
    "gpytorch",
    "known-totals",
    "many-inputs",
    "markov",
)
GUIDES += ("correlation", "regression", "regression-more", "saving", "training")
PAGES = (
    DOCS.parent / "README.md",
    DOCS / "tutorial-tables.md",
    TUTORIAL,
    *(DOCS / "guides" / f"{name}.md" for name in GUIDES),
    *sorted((DOCS / "notes").glob("thread-*.md")),  # texts for open threads elsewhere
)

_PRECISION, _RANDOM, _PRINTED = "default dtype", "random state", "printed"
_BLOCK = re.compile(
    r"(?P<skip><!-- not run -->\n)?```python\n(?P<code>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.DOTALL
)
_OUTPUT = re.compile(r"^```text\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_EXAMPLE = re.compile(r"\]\(((?:\.\./)?)examples/(\w+)\.py\)")
# Outside of blocks and headings, whose addresses have no roles.
_NAME = re.compile(r"^```.*?^```|^#[^\n]*|(?<![`\[}])`(cgp(?:\.\w+)+)`(?![`\]])", re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(r"\]\(\S*images/([\w-]+\.png)\)")
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_SECONDS = re.compile(r"[\d.]+ s\b")
_begun: dict[str, Any] = {}  # names after the tutorial's first block, and what it prints, in this process


class Block(NamedTuple):
    """A block of code, the output that stands on the page (None without), and where the two stand in its text."""

    code: str
    output: str | None
    place: tuple[int, int]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that are run."""
    matches = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(m["code"], m["output"], m.span()) for m in matches if not m["skip"]]


def pictures(page: Path) -> list[str]:
    """File names of the pictures that a page draws: those that begin with its own name."""
    return [name for name in _PICTURE.findall(page.read_text(encoding="utf-8")) if name.startswith(page.stem.lower())]


def run(page: Path, folder: Path | None = None) -> list[str]:
    """What each block prints; the figures that are left open are written into a folder as the page's pictures.

    Raises:
        ValueError: if the page shows another number of pictures than its code draws.
    """
    space = _copied(tutorial()) if continues(page) else {}
    printed, drawn = ([space.pop(_PRINTED)] if space else []), []
    with _fresh():
        torch.set_default_dtype(space.pop(_PRECISION, torch.float32))
        torch.set_rng_state(space.pop(_RANDOM, torch.get_rng_state()))
        for number, block in enumerate(blocks(page)[len(printed) :], len(printed) + 1):
            printed.append(_execute(block.code, f"{page.name}, block {number}", space))
            drawn += [plt.figure(index) for index in plt.get_fignums() if plt.figure(index) not in drawn]
        names = pictures(page)
        if len(drawn) != len(names):
            raise ValueError(f"{page.name}: expected a picture for each of {len(drawn)} figures, got {names}")
        for figure, name in zip(drawn, names, strict=True) if folder else ():
            figure.savefig(folder / name, dpi=160, bbox_inches="tight")
    return printed


def continues(page: Path) -> bool:
    """Whether a page begins with the first block of the network tutorial."""
    return any(block.code == blocks(TUTORIAL)[0].code for block in blocks(page)[:1])


def tutorial() -> dict[str, Any]:
    """The names after that block, and what it prints: a process trains the model once for all of these pages."""
    if not _begun:
        with _fresh():
            printed = _execute(blocks(TUTORIAL)[0].code, TUTORIAL.name, _begun)
            state = torch.get_default_dtype(), torch.get_rng_state()
            _begun.update(zip((_PRECISION, _RANDOM, _PRINTED), (*state, printed), strict=True))
    return _begun


def _copied(space: dict[str, Any]) -> dict[str, Any]:
    return {name: deepcopy(v) if isinstance(v, nn.Module) else v for name, v in space.items()}


def differences(page: Path, printed: list[str]) -> list[str]:
    """Where the page says something else than was printed; seconds and the last digit of a number may differ."""
    pairs = zip(blocks(page), printed, strict=True)
    return [
        f"{page.name}, block {number}: expected\n{block.output or ''}\ngot\n{now}"
        for number, (block, now) in enumerate(pairs, 1)
        if not _alike(block.output or "", now)
    ]


def write(page: Path) -> None:
    """Put what the code prints now, and its pictures, into the page."""
    printed, text = run(page, PICTURES), page.read_text(encoding="utf-8")
    for block, now in reversed(list(zip(blocks(page), printed, strict=True))):
        output = f"\n```text\n{_folded(now)}```\n" if now else ""
        text = text[: block.place[0]] + f"```python\n{block.code}```\n{output}" + text[block.place[1] :]
    page.write_text(text, encoding="utf-8")


def _folded(text: str) -> str:
    """Long sentences on several lines; tables stay as they are. The comparison does not see white space."""
    lines = [line if "  " in line else textwrap.fill(line, 120, break_on_hyphens=False) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


@contextmanager
def _fresh() -> Iterator[None]:
    """A working directory with nothing but ``docs``, as in a checkout, and a random seed; what was comes back."""
    folder, precision = Path.cwd(), torch.get_default_dtype()
    plt.close("all")
    with tempfile.TemporaryDirectory() as empty, mpl.rc_context(), torch.random.fork_rng(devices=[]):
        (Path(empty) / "docs").symlink_to(DOCS)
        os.chdir(empty)
        try:
            torch.seed()
            yield
        finally:
            os.chdir(folder)
            torch.set_default_dtype(precision)
            plt.close("all")


def _execute(code: str, name: str, space: dict[str, Any]) -> str:
    space.setdefault("__name__", "__page__")
    out = io.StringIO()
    with redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they go to stderr, and pages show what is printed
        exec(compile(code, name, "exec"), space)
    return out.getvalue()


def _alike(expected: str, now: str) -> bool:
    texts = [_SECONDS.sub("s", text) for text in (expected, now)]
    words = [_NUMBER.sub("0", text).split() for text in texts]
    numbers = [_NUMBER.findall(text) for text in texts]
    return words[0] == words[1] and all(map(_close, *numbers))


def _close(expected: str, now: str) -> bool:
    """Equal but for the last digit that the page shows."""
    mantissa, _, exponent = expected.replace("−", "-").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    whole = "." not in mantissa and not exponent
    return abs(float(expected.replace("−", "-")) - float(now.replace("−", "-"))) <= (0 if whole else 1.01 * unit)


def _build(app: Sphinx) -> None:
    """Run every page, in as many processes as the build has; other output is a warning, hence an error of the build."""
    from sphinx.util import logging

    log = logging.getLogger(__name__)
    BUILT.mkdir(parents=True, exist_ok=True)
    begin, done = time.monotonic(), 0
    together = [page for page in PAGES if continues(page)]  # its model is trained in one process
    groups = [*filter(None, [together]), *([page] for page in PAGES if page not in together)]
    with ProcessPoolExecutor(app.parallel, get_context("spawn")) as pool:
        for found in (pool.map if app.parallel > 1 else map)(_differences, groups):
            for page, lines in found.items():
                done += 1
                # Printed, as the build is told to be quiet but for warnings.
                print(f"{done} of {len(PAGES)} pages run, {time.monotonic() - begin:.0f} s: {page.name}", flush=True)
                for difference in lines:
                    log.warning(difference)
    print("Next: the examples of the gallery that changed, then the pages: a minute or two more", flush=True)


def _differences(group: list[Path]) -> dict[Path, list[str]]:
    return {page: differences(page, run(page, BUILT)) for page in group}


def _show_built(_: Sphinx, _name: str, source: list[str]) -> None:
    """Let a page show the pictures of this build, link to the gallery and the API, and let sentences of outputs wrap.

    In the repository, where none of it is, links to examples go to their files, and names are code.
    """
    source[0] = _OUTPUT.sub(lambda m: "\n".join(_shown(m[1])), source[0])
    source[0] = _PICTURE.sub(lambda m: f"](/_build/images/{m[1]})" if (BUILT / m[1]).exists() else m[0], source[0])
    source[0] = _EXAMPLE.sub(r"](\1gallery/\2)", source[0])
    source[0] = _NAME.sub(lambda m: f"{{py:obj}}`{m[1]}`" if m[1] else m[0], source[0])


def _shown(output: str) -> Iterator[str]:
    """Blocks of an output: columns stay as they are and scroll, a sentence is one line that a reader's window wraps."""
    paragraphs = output.strip("\n").split("\n\n")
    for is_sentence, group in groupby(
        paragraphs, key=lambda text: "  " not in text and max(map(len, text.split("\n"))) > 90
    ):
        if is_sentence:
            yield from (
                f"```{{code-block}} text\n:class: sentence\n\n{' '.join(text.split())}\n```\n" for text in group
            )
        else:
            columns = "\n\n".join(group)
            yield f"```text\n{columns}\n```\n"


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", _build)
    app.connect("source-read", _show_built)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS.parent))
    for argument in sys.argv[1:]:
        write(Path(argument).resolve())
