"""Mutants put into a process that has collected the tests already: a fork of it runs them, its functions exchanged.

``python -m tests.mutants_in_place --recording recording.json`` draws by ``tests.mutants`` and takes seconds for a
mutant that dies. What a module or class does while it is imported has been done by then: mutants of that are named, and
not run. ``--near`` spares the recording, and gives a mutant ``--seconds`` of a processor.
"""

from __future__ import annotations

import argparse
import ast
import gc
import inspect
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from tests.mutants import ROOT, Mutant, draw, record, tests_near, tests_of

Places = dict[tuple[str, int], CodeType]  # by qualified name and first line


class Plan(NamedTuple):
    """A mutant, the functions to exchange, and the tests to run within so many seconds."""

    number: int
    mutant: Mutant
    functions: Places
    tests: list[str]  # or their files
    seconds: float
    processor: float = float("inf")  # seconds after which no further test is run


def exchanged(path: str, before: str, after: str) -> Places | None:
    """The functions that differ between two sources of a file, or None if what is imported differs."""
    sources = before, ast.unparse(ast.parse(before)), after  # mutants are written as syntax trees are
    live, *pair = [list(_codes(compile(source, path, "exec"))) for source in sources]
    if any([code.co_qualname for code in codes] != [code.co_qualname for code in live] for codes in pair):
        return None
    differing = {}
    for running, old, new in zip(live, *pair, strict=True):
        if old.co_flags & inspect.CO_NEWLOCALS and old.co_flags & inspect.CO_OPTIMIZED:
            if [_content(code) for code in _codes(old)] != [_content(code) for code in _codes(new)]:
                differing[running.co_qualname, running.co_firstlineno] = new
        elif _content(old) != _content(new):
            return None
    return differing


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _content(code: CodeType) -> tuple[Any, ...]:
    constants = [(type(x), repr(x)) for x in code.co_consts if not isinstance(x, CodeType)]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


class InPlace:
    """Plugin of pytest that runs tests on mutants where it would run all tests once."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans = plans

    def pytest_runtestloop(self, session: Any) -> bool:
        """Every mutant in a fork of its own."""
        items, functions, fates = defaultdict(list), _functions(), list[str]()
        for item in session.items:
            items[item.nodeid].append(item)
            items[item.nodeid.split("::")[0]].append(item)
        for plan in self.plans:
            pairs = [(f, code) for place, code in plan.functions.items() for f in functions[plan.mutant.path, *place]]
            chosen = [item for test in plan.tests for item in items[test]]
            fate = _fate(session, pairs, chosen, plan) if pairs and chosen else "NOT RUN"
            mutant = plan.mutant
            fates.append(fate)
            print(f"{plan.number} {mutant.path}:{mutant.line} {mutant.what}: {fate}", file=sys.__stderr__, flush=True)
        alive = sum(fate.startswith("SURVIVED") for fate in fates)
        print(f"{alive} of {len(fates)} mutants survived", file=sys.__stderr__, flush=True)
        return True


def _functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """The library's functions by file, name and line."""
    functions = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename.startswith(f"{ROOT}/cgp/"):
            code = thing.__code__
            functions[os.path.relpath(code.co_filename, ROOT), code.co_qualname, code.co_firstlineno].append(thing)
    return functions


def _fate(session: Any, pairs: Sequence[tuple[FunctionType, CodeType]], tests: Sequence[Any], plan: Plan) -> str:
    receiver, sender = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_run, args=(session, pairs, tests, sender, plan.processor))
    process.start()
    sender.close()
    process.join(plan.seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return "does not end"
    try:
        return str(receiver.recv())
    except EOFError:
        return f"killed by exit {process.exitcode}"


def _run(
    session: Any,
    pairs: Sequence[tuple[FunctionType, CodeType]],
    tests: Sequence[Any],
    sender: Connection,
    processor: float,
) -> None:
    for function, code in pairs:
        function.__code__ = code
    for test, following in zip(tests, [*tests[1:], None], strict=True):
        test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if session.testsfailed:
            sender.send(f"killed by {test.nodeid}")
            os._exit(0)
        if time.process_time() > processor:
            sender.send(f"SURVIVED until {test.nodeid}")
            os._exit(0)
    sender.send("SURVIVED")
    os._exit(0)


def main() -> int:
    """Draw, run, report on standard error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the draw, from 1")
    parser.add_argument("--recording", type=Path, default=Path("recording.json"), help="written, or read if it exists")
    parser.add_argument("--near", action="store_true", help="tests by name instead of by recorded lines")
    parser.add_argument("--seconds", type=float, default=45.0, help="of a processor, for a mutant of --near")
    options = parser.parse_args()
    os.environ |= {"CI": "true", "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    recording, plans = None if options.near else record(options.recording.absolute()), []
    for number, mutant in enumerate(draw(options.sample, options.seed), 1):
        if options.only and number not in options.only:
            continue
        functions = exchanged(str(ROOT / mutant.path), (ROOT / mutant.path).read_text(encoding="utf-8"), mutant.source)
        if not functions:
            print(f"{number} {mutant.path}:{mutant.line} {mutant.what}: ON IMPORT", file=sys.stderr)
            continue
        batches = tests_near(mutant) if recording is None else tests_of(mutant, recording)
        tests, seconds = [test for batch, _ in batches for test in batch], sum(limit for _, limit in batches)
        processor = options.seconds if options.near else float("inf")
        plans.append(Plan(number, mutant, functions, tests, seconds, processor))
    import pytest

    files = sorted({test.split("::")[0] for plan in plans for test in plan.tests})
    return int(pytest.main(["-q", "--assert=plain", *files], plugins=[InPlace(plans)])) if plans else 0


if __name__ == "__main__":
    sys.exit(main())
