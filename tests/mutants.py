"""Mutation testing: small changes to the library that the tests must notice.

``python -m tests.mutants --sample 200`` draws mutants of the formulas, blocks, model and conversion code, runs the
tests of the mutated room against each, and writes the survivors with their lines to ``mutants.md``.
"""

import argparse
import ast
import copy
import io
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ALSO = {  # besides the tests of the room itself
    "functional": ("tests/cgp/attention", "tests/equivalence", "tests/cgp/variational"),
    "attention": ("tests/equivalence",),
    "model": ("tests/cgp/conversion",),
    "conversion": (),
}
LIBRARIES = ("torch", "gpytorch", "sklearn", "scipy.linalg")  # not pytest and hypothesis: they must be imported afresh
SECONDS = 600

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


def mutants(path: str) -> Iterator[Mutant]:
    """Every mutant of a file: one operator, constant or reduction changed."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    left_out = {id(child) for node in ast.walk(tree) if _is_left_out(node) for child in ast.walk(node)}
    for index, node in enumerate(ast.walk(tree)):
        if id(node) not in left_out and (what := _describe(node)) is not None:
            changed = copy.deepcopy(tree)
            _change(next(n for i, n in enumerate(ast.walk(changed)) if i == index))
            yield Mutant(path, getattr(node, "lineno", 0), what, ast.unparse(changed))


def _is_left_out(node: ast.AST) -> bool:
    """Annotations, messages and type-checking code: nothing runs or nobody should test them."""
    if isinstance(node, ast.arg | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _describe(node: ast.AST) -> str | None:
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPPED:
        if isinstance(node, ast.BinOp) and _is_annotation_like(node):
            return None
        return f"{type(node.op).__name__} -> {SWAPPED[type(node.op)].__name__}"
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        return f"{type(node.ops[0]).__name__} -> {SWAPPED[type(node.ops[0])].__name__}"
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub | ast.Not)
        and not isinstance(node.operand, ast.Constant)
    ):
        return f"without {type(node.op).__name__}"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        return f"{node.value!r} -> {_other(node.value)!r}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REDUCTIONS:
        return f".{node.func.attr} -> .{REDUCTIONS[node.func.attr]}"
    if isinstance(node, ast.IfExp):
        return "branches swapped"
    return None


def _is_annotation_like(node: ast.BinOp) -> bool:
    """``int | None`` and its like, which say nothing at run time."""
    return isinstance(node.op, ast.BitOr) and any(
        isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.right)
    )


def _other(value: float) -> float:
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2.0 * value + 0.5


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        node.op = SWAPPED[type(node.op)]()
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPPED[type(node.ops[0])]()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant):
        node.value = _other(node.value)
    elif isinstance(node, ast.Call):
        node.func.attr = REDUCTIONS[node.func.attr]
    elif isinstance(node, ast.IfExp):
        node.body, node.orelse = node.orelse, node.body


def tests_of(path: str) -> list[str]:
    """The file's doctests, the tests that bear its name, those of its room, then those of the rooms above."""
    room, stem = Path(path).parts[1], Path(path).stem
    own = sorted(str(p.relative_to(ROOT)) for p in ROOT.glob(f"tests/cgp/{room}/test_*{stem}*.py"))
    named = [path, *own, f"tests/cgp/{room}", *ALSO[room]]
    return [name for name in dict.fromkeys(named) if (ROOT / name).exists()]


def is_killed(mutant: Mutant) -> bool:
    """Whether a test fails, or the tests do not end in time, on a copy of the checkout with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        target = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns(".*", "runs", "docs", "__pycache__", "*.egg-info", "build")
        shutil.copytree(ROOT, target, ignore=ignored)
        (target / mutant.path).write_text(mutant.source, encoding="utf-8")
        process = multiprocessing.get_context("fork").Process(target=_run_tests, args=(target, tests_of(mutant.path)))
        process.start()
        process.join(SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            return True
        if process.exitcode not in (0, 1, 2):  # passed, failed, could not be imported
            raise RuntimeError(f"pytest ended with {process.exitcode} on {mutant.path}:{mutant.line} {mutant.what}")
        return process.exitcode != 0


def _run_tests(target: Path, tests: list[str]) -> None:
    import pytest

    os.chdir(target)
    sys.path[:] = [str(target), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
    for name in [name for name in sys.modules if name.split(".")[0] in ("cgp", "models", "experiments", "tests")]:
        del sys.modules[name]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])
    os._exit(int(status))


def main() -> int:
    """Draw, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--out", type=Path, default=Path("mutants.md"), help="file of the survivors")
    options = parser.parse_args()
    os.environ |= {"CI": "true", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    for library in LIBRARIES:
        __import__(library)
    paths = sorted(str(p.relative_to(ROOT)) for room in ALSO for p in (ROOT / "cgp" / room).rglob("*.py"))
    everything = [mutant for path in paths for mutant in mutants(path)]
    chosen = random.Random(options.seed).sample(everything, min(options.sample, len(everything)))
    for room in {Path(mutant.path).parts[1] for mutant in chosen}:
        path = next(mutant.path for mutant in chosen if Path(mutant.path).parts[1] == room)
        if is_killed(Mutant(path, 0, "unchanged", (ROOT / path).read_text(encoding="utf-8"))):
            raise SystemExit(f"the tests of cgp/{room} fail without a mutant")
    start, survivors = time.monotonic(), []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (mutant, killed) in enumerate(zip(chosen, pool.map(is_killed, chosen), strict=True), start=1):
            fate = "killed  " if killed else "SURVIVED"
            print(f"{number}/{len(chosen)} {fate} {mutant.path}:{mutant.line} {mutant.what}", flush=True)
            survivors += [] if killed else [mutant]
    share = 100.0 * (1.0 - len(survivors) / len(chosen))
    head = f"{len(chosen)} of {len(everything)} mutants, {share:.1f} % killed, {time.monotonic() - start:.0f} s"
    lines = [head, "", *(f"- {mutant.path}:{mutant.line} {mutant.what}" for mutant in survivors)]
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(head)
    return 0


if __name__ == "__main__":
    sys.exit(main())
