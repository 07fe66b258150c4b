"""Mutation testing: small changes to the library that the tests must notice, and which tests are run against each.

Mutants are drawn from the whole library (pictures apart, which are looked at); ``tests.mutants_in_place`` runs them.
The tests of one are those that execute its line, fastest first, or, to spare the run that records this, its file's
doctests, the tests of the same name, and those of a few files that name what it exports.
"""

import ast
import io
import json
import multiprocessing
import os
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = ("plotting",)
TESTS = ("cgp", "tests/cgp", "tests/equivalence")
NEAR = 6  # files of tests that name what a mutant's file exports
FIRST = 40  # tests that are tried before all others: most mutants die of one of them
LIBRARIES = ("torch", "gpytorch", "sklearn", "scipy.linalg")  # not pytest, hypothesis and plugins: imported afresh
SECONDS = 600.0
MOST_SECONDS = 45.0  # of tests for one mutant, as recorded: one that outlives them counts as alive
MOST_BYTES = 12 * 2**30
Batches = list[tuple[list[str], float]]  # tests, and the seconds after which they do not end
_ENDLESS = " (does not end)"

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.And: ast.Or, ast.Or: ast.And, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
REDUCTIONS = {"sum": "mean", "mean": "sum", "amax": "amin", "amin": "amax", "any": "all", "all": "any", "exp": "neg"}


class Mutant(NamedTuple):
    """One changed file."""

    path: str
    line: int
    what: str
    source: str
    lines: tuple[int, ...] = ()  # any of which shows that a test runs it


def mutants(path: str) -> Iterator[Mutant]:
    """Every mutant of a file: one operator, constant or reduction changed."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    statement = {id(child): node.lineno for node in nodes if isinstance(node, ast.stmt) for child in ast.walk(node)}
    annotations = [node.annotation for node in nodes if isinstance(node, ast.AnnAssign)]
    annotations += [node.returns for node in nodes if isinstance(node, ast.FunctionDef) and node.returns]
    left_out = {id(child) for node in (*annotations, *filter(_is_left_out, nodes)) for child in ast.walk(node)}
    for node in nodes:
        if id(node) not in left_out and (change := _change(node)) is not None:
            what, fields = change
            before = {name: getattr(node, name) for name in fields}
            vars(node).update(fields)
            source = ast.unparse(tree)
            vars(node).update(before)
            place: Any = node  # what can be changed has lines
            lines = (statement[id(node)], *range(place.lineno, place.end_lineno + 1))
            yield Mutant(path, place.lineno, what, source, lines)


def draw(size: int, seed: int) -> list[Mutant]:
    """So many mutants of the library, in the order in which they are drawn."""
    paths = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "cgp").rglob("*.py") if p.parent.name not in LEFT_OUT)
    everything = [mutant for path in paths for mutant in mutants(path)]
    return random.Random(seed).sample(everything, min(size, len(everything)))


def _is_left_out(node: ast.AST) -> bool:
    """Annotations, ``int | None``, messages, ``strict=``: nothing runs or nobody should test them."""
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.arg | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right))
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _change(node: ast.AST) -> tuple[str, dict[str, Any]] | None:
    """What can be changed of a node, and the fields that change it."""
    match node:
        case ast.BinOp(op=old) | ast.BoolOp(op=old) | ast.AugAssign(op=old) | ast.Compare(ops=[old, *_]):
            if type(old) not in SWAPPED:
                return None
            new = SWAPPED[type(old)]()
            fields = {"ops": [new, *node.ops[1:]]} if isinstance(node, ast.Compare) else {"op": new}
            return f"{type(old).__name__} -> {type(new).__name__}", fields
        case ast.UnaryOp(op=ast.USub() | ast.Not() as old, operand=operand) if not isinstance(operand, ast.Constant):
            return f"without {type(old).__name__}", {"operand": ast.UnaryOp(old, operand)}
        case ast.Constant(value=bool() | int() | float() as old):
            return f"{old!r} -> {_other(old)!r}", {"value": _other(old)}
        case ast.Call(func=ast.Attribute(attr=old) as method) if old in REDUCTIONS:
            other = REDUCTIONS[old]
            return f".{old} -> .{other}", {"func": ast.Attribute(method.value, other, method.ctx)}
        case ast.IfExp(body=body, orelse=orelse):
            return "branches swapped", {"body": orelse, "orelse": body}
    return None


def _other(value: float) -> float:
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2.0 * value + 0.5


class Recorder:
    """Plugin of pytest that notes which test executes which line of the library, and for how long each runs."""

    def __init__(self) -> None:
        import coverage

        self.coverage = coverage.Coverage(data_file=None, source=[str(ROOT / "cgp")], config_file=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)

    def recorded(self) -> dict[str, Any]:
        """The tests that pass with their seconds, fastest first, and per file and line which of them execute it."""
        self.coverage.stop()
        data = self.coverage.get_data()
        tests = sorted(self.seconds.keys() - self.failed, key=self.seconds.__getitem__)
        number = {test: index for index, test in enumerate(tests)}
        lines = {
            str(Path(path).relative_to(ROOT)): {
                line: sorted(number[test] for test in executing if test in number)
                for line, executing in data.contexts_by_lineno(path).items()
            }
            for path in data.measured_files()
        }
        seconds = [self.seconds[test] for test in tests]
        return {"tests": tests, "seconds": seconds, "lines": lines, "failed": sorted(self.failed)}


class Recording(NamedTuple):
    """Which tests execute which lines of the library."""

    tests: list[str]  # fastest first
    seconds: list[float]
    lines: dict[str, dict[str, list[int]]]  # indices of tests, per file and line
    failed: list[str]  # without a mutant: not used


def record(file: Path) -> Recording:
    """Run the tests on the library as it is, unless the file has such a run already, and read what was recorded."""
    if not file.exists():
        process = multiprocessing.get_context("fork").Process(target=_record, args=(file,))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"recording the tests ended with {process.exitcode}")
    recording = Recording(**json.loads(file.read_text(encoding="utf-8")))
    for test in recording.failed:
        print(f"fails without a mutant, not used: {test}")
    return recording


def _record(file: Path) -> None:
    recorder = Recorder()
    status = _run_tests(ROOT, TESTS, plugins=[recorder])
    if status in (0, 1):
        file.write_text(json.dumps(recorder.recorded()), encoding="utf-8")
    os._exit(0 if status in (0, 1) else status)


def tests_of(mutant: Mutant, recording: Recording) -> Batches:
    """Tests that execute the lines, or what imports them, those of the file's name first, then the fastest."""
    lines = recording.lines.get(mutant.path, {})
    executing = {index for line in mutant.lines for index in lines.get(str(line), ())}
    executing = executing or {index for indices in lines.values() for index in indices}
    files = _named_alike(mutant)
    order = sorted(executing, key=lambda index: (recording.tests[index].split("::")[0] not in files, index))
    ends = accumulate(recording.seconds[index] for index in order)
    order = [index for index, end in zip(order, ends, strict=True) if end < MOST_SECONDS]
    batches = [order[:FIRST], order[FIRST:]]
    seconds = [60.0 + 10.0 * sum(recording.seconds[index] for index in batch) for batch in batches]
    return [([recording.tests[index] for index in batch], time) for batch, time in zip(batches, seconds, strict=True)]


def _named_alike(mutant: Mutant) -> list[str]:
    """The mutant's file, for its doctests, and the file of tests of the same name."""
    path = Path(mutant.path)
    return [mutant.path, str(Path("tests", path).with_name(f"test_{path.name}"))]


def tests_near(mutant: Mutant) -> Batches:
    """Doctests of the file and tests of its name; then of some files that name what it exports."""
    path = Path(mutant.path)
    names = re.findall(r"^(?:class|def) (\w+)|^([A-Z_]+) = ", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    wanted = re.compile(r"\b(?:" + "|".join(filter(None, {path.stem, *sum(names, ())})) + r")\b")
    first = _named_alike(mutant)
    files = {str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in (ROOT / "tests/cgp").rglob("test_*.py")}
    naming = sorted((name for name, text in files.items() if wanted.search(text)), key=lambda name: len(files[name]))
    room = str(Path("tests", path).parent)
    others = sorted(set(naming) - set(first), key=lambda name: not name.startswith(room))
    return [([name for name in first if (ROOT / name).exists()], SECONDS), (others[:NEAR], SECONDS)]


def _run_tests(target: Path, tests: Sequence[str], plugins: Sequence[object] = ()) -> int:
    import pytest

    os.chdir(target)
    sys.path[:] = [str(target), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
    for name in [name for name in sys.modules if name.split(".")[0] in ("cgp", "models", "experiments", "tests")]:
        del sys.modules[name]
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(output):
        status = int(pytest.main(["-q", *tests], plugins=plugins))
    if plugins:
        print(output.getvalue()[-4000:])
    return status
