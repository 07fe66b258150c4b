"""The documentation: the code of its pages runs, the API page has every public name, formulas can be drawn."""

import ast
import functools
import importlib
import inspect
import pydoc
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import is_typeddict

import pytest

import cgp
from cgp import attention, plotting

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
API = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md")))
_ROWS = [line.split(" | ") for line in API.splitlines() if line.startswith("| `")]
OPTIONS = {option: row for row in _ROWS for option in re.findall(r"`(\w+)`", row[0])}  # of the blocks
PUBLIC = ["cgp", "cgp.attention", "cgp.tables", "cgp.kernels", "cgp.operators", "cgp.plotting", "cgp.regression"]
PUBLIC += [
    "cgp.variational",
    "cgp.networks.model.blocks",
    "cgp.networks.model.diagnostics",
    "cgp.networks.tasks.metrics",
    "cgp.networks.model.pyro",
    "models",
]
PUBLIC += ["cgp.networks", "cgp.networks.assess", "cgp.networks.predict.readout"]

sys.path.append(str(DOCS / "_extensions"))
pages = importlib.import_module("pages")


@pytest.mark.slow  # the build of the pages runs them as well
@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_pages_print_their_outputs(page):
    assert pages.differences(page, pages.run(page)) == []


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_what_is_printed_stands_below(page):
    for block in pages.blocks(page):
        tree = ast.parse(block.code)
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert any(isinstance(call, ast.Name) and call.id == "print" for call in calls) == (block.output is not None)
    assert [name for name in pages.pictures(page) if not (pages.PICTURES / name).exists()] == []


def test_output_is_compared_up_to_the_last_digit_and_seconds(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\nNLL 0.378 on 400 labels in 24.3 s\n```\n")
    assert pages.differences(page, ["NLL 0.379 on 400 labels in 7.0 s\n"]) == []
    for other in ("NLL 0.381 on 400 labels in 24.3 s", "NLL 0.378 on 401 labels in 24.3 s", "ECE 0.378 on 400 labels"):
        assert len(pages.differences(page, [other])) == 1


@pytest.mark.parametrize("printed", ["NLL 0.378", "NLL 0.376"])
def test_a_build_warns_of_a_page_that_prints_something_else(printed, tmp_path, monkeypatch, caplog):
    """And a warning is an error of `make docs`."""
    logging = pytest.importorskip("sphinx.util.logging")
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint('NLL 0.378')\n```\n\n```text\n{printed}\n```\n")
    monkeypatch.setattr(pages, "PAGES", (page,))
    monkeypatch.setattr(pages, "BUILT", tmp_path / "images")
    monkeypatch.setattr(logging.getLogger(pages.__name__).logger, "propagate", True)
    pages._build(SimpleNamespace(parallel=1))
    assert [record.levelname for record in caplog.records] == ["WARNING"] * (printed != "NLL 0.378")
    assert printed in caplog.text or not caplog.records


def test_sentences_of_an_output_wrap_and_its_columns_do_not():
    """Columns, a sentence that was folded, and lines of code: the sentence is a block of its own, in one line."""
    words = " ".join(["word"] * 30)
    output = f"method  NLL\nlines  0.25\n\n{words}\n{words}\n\nmodel = report.apply(model)\n"
    source = [f"before\n\n```text\n{output}```\n\nafter\n"]
    pages._show_built(None, "page", source)
    blocks = re.findall(r"^```([^\n]*)\n(?::class: (\w+)\n\n)?(.*?)\n```$", source[0], re.DOTALL | re.MULTILINE)
    assert blocks == [
        ("text", "", "method  NLL\nlines  0.25"),
        ("{code-block} text", "sentence", f"{words} {words}"),
        ("text", "", "model = report.apply(model)"),
    ]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("negative values", "gaps"),
        ("rain and other zeros", "gaps"),
        ("monthly totals", "gaps"),
        ("monthly totals", "files"),
        ("day first", "files"),
    ],
)
def test_what_people_search_for_is_on_its_page(words, page):
    """The search of the built pages finds words that a page has: those that a user types, not ours for them."""
    assert words in (DOCS / "guides" / f"{page}.md").read_text(encoding="utf-8").lower()


def test_the_navigation_begins_with_the_tutorials_tables_first():
    """After the installation, as in README; their names say which is which."""
    navigation = re.search(r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    assert re.findall(r"<(.*)>", navigation) == ["install", "tutorial-tables", "tutorial-networks"]


@pytest.mark.parametrize("page", sorted((DOCS / "guides").glob("*.md")), ids=lambda page: page.stem)
def test_each_guide_is_read_in_five_minutes(page):
    text = page.read_text(encoding="utf-8")
    read = re.sub(r"^```text\n.*?^```$|<details>.*?</details>", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(read.split()) <= 1150


def plain_words(text):
    """Words that a reader of the built page has before them: without code, what is folded, and long tables."""
    text = re.sub(r"<details>.*?</details>|```.*?```", "", text, flags=re.DOTALL)
    tables = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
    return len(tables.sub(lambda table: table[0] if table[0].count("\n") <= 12 else "", text).split())


@pytest.mark.parametrize("page", sorted(DOCS.rglob("[a-zA-Z]*.md")), ids=lambda page: page.stem)
def test_no_link_is_without_a_text(page):
    """GitHub, which fills none in, would show nothing."""
    assert not re.findall(r"\[\]\([^)]*\)", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", sorted(DOCS.rglob("[a-zA-Z]*.md")), ids=lambda page: page.stem)
def test_no_sentence_is_a_row_of_the_table_above_it(page):
    """A forge takes what follows a row without an empty line for a further one."""
    assert not re.findall(r"^ *\|.*\n *[^|\s].*", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("[a-zA-Z]*.md")), ids=lambda page: page.stem)
def test_no_page_takes_longer_than_ten_minutes(page):
    assert plain_words(page.read_text(encoding="utf-8")) <= 2000


@pytest.mark.parametrize("page", sorted((DOCS / "results").glob("*.md")), ids=lambda page: page.stem)
def test_pages_of_results_begin_with_what_they_say(page):
    """A paragraph of two lines or so, before any command, table or heading."""
    _, first, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert re.match(r"(?!```)[\w*`]", first)
    assert len(first.split()) <= 90


def shape(node):
    """Kinds of a node's children, with the words of folds."""
    return [child.astext() if type(child).__name__ == "raw" else type(child).__name__ for child in node.children]


def summary(text):
    return f"<details><summary>{text}</summary>"


@pytest.fixture
def nodes():
    return pytest.importorskip("docutils.nodes")


def fold(nodes, name, *sections):
    importlib.import_module("folding")._fold(None, nodes.document("", None, "", *sections), name)


def table_of(nodes, rows):
    body = nodes.tbody("", *(nodes.row() for _ in range(rows)))
    return nodes.table("", nodes.tgroup("", nodes.thead("", nodes.row()), body))


def test_pages_of_results_fold_what_is_not_the_sentence_and_the_table(nodes):
    section = nodes.section("", nodes.title("", "What is chosen"), nodes.paragraph())
    page = nodes.section("", nodes.title(), nodes.paragraph(), nodes.paragraph(), table_of(nodes, 15))
    page += [nodes.paragraph(), section]
    fold(nodes, "results/x", page)
    how, more, end = summary("How it was measured"), summary("More"), "</details>"
    assert shape(page) == ["title", "paragraph", how, "paragraph", end, "table", more, "paragraph", end, "section"]
    assert shape(section) == ['<details class="section"><summary>', "title", "</summary>", "paragraph", "</details>"]


@pytest.mark.parametrize("name", ["results/where-it-pays", "results/index", "concepts"])
def test_other_pages_stay_open(nodes, name):
    page = nodes.section("", nodes.title(), nodes.paragraph(), table_of(nodes, 3), nodes.paragraph())
    fold(nodes, name, page)
    assert shape(page) == ["title", "paragraph", "table", "paragraph"]


def test_a_first_section_that_has_the_table_is_open_as_far_as_it(nodes):
    first = nodes.section("", nodes.title(), nodes.paragraph(), table_of(nodes, 16), nodes.paragraph())
    second = nodes.section("", nodes.title(), nodes.paragraph())
    fold(nodes, "results/x", nodes.section("", nodes.title(), nodes.paragraph(), first, second))
    rest = [summary("All 16 rows"), "table", "</details>", summary("More"), "paragraph", "</details>"]
    assert shape(first)[2:] == ["table", *rest]
    assert len(first.children[2].children[0].children[1]) == 6  # rows of the table that is open
    assert shape(second)[0].startswith("<details")


def test_entries_of_the_api_fold_what_follows_their_first_paragraph(nodes):
    sphinx = pytest.importorskip("sphinx.addnodes")
    fields = nodes.field_list("", nodes.field("", nodes.field_name("", "Parameters"), nodes.field_body()))
    member = sphinx.desc("", sphinx.desc_content("", nodes.paragraph()))
    content = sphinx.desc_content("", nodes.paragraph(), nodes.paragraph(), fields, nodes.doctest_block(), member)
    fold(nodes, "api/tables", nodes.section("", content))
    folded = summary("arguments, example")
    assert shape(content) == [
        "paragraph", folded, "paragraph", "field_list", "doctest_block", "</details>", "desc",
    ]  # fmt: skip
    assert shape(member.children[0]) == ["paragraph"]


def test_a_build_draws_into_a_folder_of_its_own(tmp_path, monkeypatch):
    """And leaves the pictures that are in the repository as they are."""
    page, tracked = tmp_path / "readme.md", pages.PICTURES / "readme-1.png"
    page.write_text(
        "```python\nimport matplotlib.pyplot as plt\n\nplt.figure()\n```\n\n![A picture.](images/readme-1.png)\n"
    )
    monkeypatch.setattr(pages, "PAGES", (page,))
    monkeypatch.setattr(pages, "BUILT", tmp_path / "_build" / "images", raising=False)
    before = tracked.read_bytes()
    try:
        pages._build(SimpleNamespace(parallel=1))
        assert tracked.read_bytes() == before
    finally:
        tracked.write_bytes(before)
    assert (tmp_path / "_build" / "images" / "readme-1.png").exists()
    source = ["![A picture.](../images/readme-1.png) and ![another](images/other-1.png)"]
    pages._show_built(None, "guides/page", source)
    assert source == ["![A picture.](/_build/images/readme-1.png) and ![another](images/other-1.png)"]


def test_a_build_links_to_the_gallery_and_the_api():
    """In the repository, where they are not, an example is its file, and a name is code."""
    code = "## What `cgp.assess` says\n\n```python\n# as `cgp.assess` does\n```"
    source = [
        f"[a](examples/new_block.py), [b](../examples/new_block.py), `cgp.assess` and `cgp.assess(x)`\n\n{code}\n"
    ]
    pages._show_built(None, "page", source)
    links = "[a](gallery/new_block), [b](../gallery/new_block), {py:obj}`cgp.assess` and `cgp.assess(x)`"
    assert source == [f"{links}\n\n{code}\n"]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("[a-zA-Z]*.md")), ids=lambda page: page.stem)
def test_pages_are_read_in_the_repository(page):
    """Their links lead to files, and roles of Sphinx, which only a build shows, are in the API alone."""
    text = re.sub(r"```.*?```|`[^`\n]*\]\([^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\((?!https?:|#)([^)\s#]+)(?:#[^)]*)?\)", text)
    assert [target for target in targets if not (page.parent / target).exists()] == []
    assert page.parent.name in ("api", "notes") or re.findall(r"\{(?:func|meth|class|mod)\}`", text) == []


def documented(names: str) -> set[str]:
    """Names that a page of Sphinx's directives describes."""
    names_found = set(re.findall(r"auto(?:class|function):: (\w+)", names))
    return names_found.union(*(importlib.import_module(m).__all__ for m in re.findall(r"automodule:: ([\w.]+)", names)))


@pytest.mark.parametrize("module", PUBLIC)
def test_the_api_page_has_every_public_name(module):
    public = importlib.import_module(module)
    names = {name for name in public.__all__ if not inspect.ismodule(getattr(public, name))}
    assert names - documented(API) <= {"__version__"}


def entries(page):
    """The objects that a page of the API describes, without those that are described elsewhere, too (no-index)."""
    module = ""
    directive = re.compile(r"^\.\. (\w+):: ([\w.]+)\n((?: +:.*\n)*)", re.MULTILINE)
    for kind, name, options in directive.findall(page.read_text(encoding="utf-8")):
        module = name if kind == "currentmodule" else module
        if kind == "automodule":
            left_out = re.findall(r"\w+", (re.findall(r":exclude-members: (.*)", options) or [""])[0])
            yield from (f"{name}.{each}" for each in importlib.import_module(name).__all__ if each not in left_out)
        elif kind != "currentmodule" and ":no-index:" not in options:
            yield name if name.startswith("cgp.") else f"{module}.{name}"


@functools.cache
def all_entries():
    """Classes and functions that the API describes, with the name that stands there."""
    found = [(pydoc.locate(name), name) for page in sorted((DOCS / "api").glob("*.md")) for name in entries(page)]
    return [(value, name) for value, name in found if inspect.isclass(value) or inspect.isfunction(value)]


def test_every_entry_of_the_api_is_on_one_page():
    found = all_entries()
    assert [name for value, name in found if sum(value is other for other, _ in found) > 1] == []
    public = [getattr(module, name) for module in map(importlib.import_module, PUBLIC) for name in module.__all__]
    public = {value for value in public if inspect.isclass(value) or inspect.isfunction(value)}
    assert public <= {value for value, _ in found}


@pytest.mark.parametrize("page", [DOCS / "concepts.md", *sorted((DOCS / "guides").glob("*.md"))], ids=lambda p: p.stem)
def test_functions_and_classes_that_a_guide_names_are_in_the_api(page):
    text = page.read_text(encoding="utf-8")
    imports = re.findall(r"^from (cgp[\w.]*) import ([\w, ]+)", text, re.MULTILINE)
    names = {f"{module}.{name}" for module, names in imports for name in re.findall(r"\w+", names)}
    values = [pydoc.locate(name) for name in names | set(re.findall(r"\bcgp(?:\.\w+)+", text))]
    named = [
        each for each in values if inspect.isclass(each) or (inspect.isfunction(each) and "." not in each.__qualname__)
    ]
    assert set(named) <= {value for value, _ in all_entries()}


# GPyTorch's own arguments pass through cgp.kernels; those of cgp.networks.model and the metrics theirs at the top.
EXPLAINED_ELSEWHERE = ("cgp.kernels", "cgp.networks.model", "cgp.networks.tasks.metrics")


@pytest.mark.parametrize("module", [name for name in PUBLIC if not name.startswith(EXPLAINED_ELSEWHERE)])
def test_every_argument_is_explained(module):
    """In its docstring, that of a class that it inherits from or whose arguments it has, or in the table of options."""
    public = importlib.import_module(module)
    for name in public.__all__:
        value = getattr(public, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)) or is_typeddict(value) or not value.__doc__:
            continue
        text = "\n".join(part.__doc__ or "" for part in (inspect.getmro(value) if inspect.isclass(value) else [value]))
        if same := re.search(r"Arguments are those of :class:`\.?(\w+)`", text):
            text += getattr(public, same[1]).__doc__
        table = OPTIONS if name.endswith("Attention") else {}
        for parameter in inspect.signature(value).parameters.values():
            entry = parameter.name in table or re.search(rf"^\s*\**{parameter.name}(, [^:]*)?:", text, re.MULTILINE)
            assert entry or parameter.kind == parameter.VAR_KEYWORD, f"{module}.{name}: {parameter.name}"


@pytest.mark.parametrize("name", [name for name in cgp.__all__ if name.endswith("Attention")])
def test_the_table_of_options_has_every_default(name):
    for option, parameter in inspect.signature(getattr(attention, name)).parameters.items():
        if option not in ("embed_dim", "num_heads"):
            assert option in OPTIONS, f"docs/api: expected {option} of {name} in the table of options, got no row"
            _, default, _, blocks = OPTIONS[option]
            assert default == f"`{parameter.default!r}`"
            short, listed = name.removesuffix("Attention"), set(blocks.strip(" |").split(", "))
            assert {short, "all"} & listed, f"docs/api: expected {short} in the row of {option}, got {blocks!r}"


def prose_calls():
    """The code `cgp. ...` in the prose of README and pages, parsed, with the page."""
    pages_of_prose = [DOCS.parent / "README.md", *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
    for page in pages_of_prose:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for code in re.findall(r"`(cgp\.[^`\n]+)`", text) if page.name != "changelog.md" else ():
            filled = re.sub(r"=(?=[,)])", "=...", code.replace("…", "..."))  # "train=" names an argument
            try:
                yield page.name, ast.parse(filled, mode="eval").body
            except SyntaxError:
                continue  # `cgp.functional.{kernels,linalg}`


def test_what_the_prose_names_exists():
    named, called = 0, 0
    for page, code in prose_calls():
        names = [ast.unparse(node) for node in ast.walk(code) if isinstance(node, ast.Attribute)]
        names = [name for name in names if re.fullmatch(r"cgp(\.\w+)+", name)]
        calls = [node for node in ast.walk(code) if isinstance(node, ast.Call)]
        assert [name for name in names if pydoc.locate(name) is None] == [], page
        for call in (node for node in calls if ast.unparse(node.func) in names):
            inspect.signature(pydoc.locate(ast.unparse(call.func))).bind_partial(**{k.arg: 0 for k in call.keywords})
            called += 1
        named += len(names)
    assert named > 60
    assert called > 10


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=lambda page: page.stem)
def test_pages_of_the_api_name_what_they_have_where_none_builds_them(page):
    """On a forge a directive is only its own text."""
    written, _, _ = page.read_text(encoding="utf-8").partition("```{eval-rst}")
    assert len(re.findall(r"^\| `cgp\.[\w.]+` \| .+ \|$", written, re.MULTILINE)) >= 10


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


def test_the_gallery_has_an_order():
    assert sorted(importlib.import_module("gallery").ORDER) == [path.name for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_that_need_the_checkout_say_how_they_are_run(path):
    """Only `cgp` is installed; `models` and `experiments` are found where the interpreter is told to look."""
    code = path.read_text(encoding="utf-8")
    needs = re.search(r"^(?:from|import) (?:models|experiments)\b", code, re.MULTILINE)
    assert bool(needs) == (f"PYTHONPATH=. python docs/examples/{path.name}" in ast.get_docstring(ast.parse(code)))


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\tfrac12", "<mfrac>"),
        (r"\begin{align*}a &= b \\ c &= d\end{align*}", "<mtable"),
        (r"K_{qk}(K_k + \sigma^2 I)^{-1}", "<msup>"),
    ],
)
def test_formulas_become_mathml(latex, expected):
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed")
    markup = importlib.import_module("mathml").mathml(latex, display=True)
    shown = re.sub(r'alttext="[^"]*"', "", markup)
    assert expected in shown
    assert "\\" not in shown
    assert 'display="block"' in markup


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_a_page_that_uses_the_tutorials_model_trains_it(page):
    """Each runs by itself: a reader of one has read no other."""
    code = "\n".join(block.code for block in pages.blocks(page))
    assert pages.continues(page) == bool(re.search(r"\bvit\b", code))
