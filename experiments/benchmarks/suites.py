"""What is measured of the blocks alone: against softmax, against the papers' formulas, and what can be counted."""

from collections.abc import Iterable
from pathlib import Path

import torch

from experiments.benchmarks.calls import backward_call, block_calls, forward_call, tokens
from experiments.benchmarks.cases import CENTRE, LABELS, REFERENCE, Case, block_cases, build_blocks
from experiments.benchmarks.counting import count_flops, count_kernels, saved_bytes
from experiments.benchmarks.rows import Row, measured
from experiments.benchmarks.timing import Budget, Timing, interleaved
from experiments.benchmarks.transcriptions import TRANSCRIPTIONS, Transcription, one_thread

__all__ = ["blocks", "memory", "timing_row", "transcriptions"]

_TINY = Budget(0.0, fewest=2)


def blocks(out: Path, quick: bool) -> None:
    """Every block against softmax attention over the grid.

    Args:
        out: folder of the benchmark.
        quick: tiny sizes.
    """
    for case in block_cases(quick):
        measured(out, f"blocks-{case_name(case)}", lambda case=case: _block_rows(case, quick))


def case_name(case: Case) -> str:
    """A case as a file name.

    Args:
        case: the case.

    Example:
        >>> case_name(Case(64))
        'n0064-b32-d128-h4-m16-float32-eager'
    """
    n, batch, width, heads, inducing, *rest = case
    return f"n{n:04d}-b{batch}-d{width}-h{heads}-m{inducing}-{'-'.join(rest)}"


def timing_row(suite: str, block: str, measure: str, case: Case, timing: Timing) -> Row:
    """A row of seconds.

    Args:
        suite: which table it belongs to.
        block: what was run.
        measure: how it was run.
        case: at what size.
        timing: seconds and ratios.
    """
    key = {"suite": suite, "block": block, "measure": measure}
    return key | case._asdict() | {"threads": torch.get_num_threads()} | timing._asdict()


def _block_rows(case: Case, quick: bool) -> Iterable[Row]:
    torch.manual_seed(0)
    built, x = build_blocks(case), tokens(case)
    calls = {name: block_calls(block, x, case) for name, block in built.items()}
    rows = []
    for measure in calls[REFERENCE]:
        budget = _TINY if quick else Budget(8.0 if case.tokens > 100 or case.batch > 100 else 4.0)
        chosen = {name: own[measure] for name, own in calls.items()}
        timings = interleaved(chosen, budget)
        rows += [timing_row("blocks", name, measure, case, timing) for name, timing in timings.items()]
    return rows


def transcriptions(out: Path, quick: bool) -> None:
    """Blocks against the papers' formulas as printed, on one thread where these invert.

    Args:
        out: folder of the benchmark.
        quick: tiny sizes.
    """
    case = block_cases(True)[0] if quick else CENTRE
    measured(out, f"transcriptions-{case_name(case)}", lambda: _transcription_rows(case, quick))


def _transcription_rows(case: Case, quick: bool) -> Iterable[Row]:
    torch.manual_seed(0)
    built, x, rows = build_blocks(case), tokens(case), []
    with one_thread():
        for name, (formula, processes) in TRANSCRIPTIONS.items():
            rank = 4 if quick else 10
            size = rank if name == "kep" else case.inducing
            printed = Transcription(formula, processes, case.width, case.heads, size)
            for measure in ("forward", "backward"):
                calls = {}
                for label, block in ((name, built[name]), (f"{name}, as printed", printed)):
                    made = (
                        forward_call(block, x, case) if measure == "forward" else backward_call(block, block, x, case)
                    )
                    calls[label] = made
                timings = interleaved(calls, _TINY if quick else Budget(5.0, fewest=2))
                rows += [timing_row("transcriptions", label, measure, case, t) for label, t in timings.items()]
            rows.append(
                {"suite": "transcriptions", "block": f"{name}, as printed", "measure": "saved", **case._asdict()}
                | {"saved_bytes": saved_bytes(printed, x)}
            )
    return rows


def memory(out: Path, quick: bool) -> None:
    """Bytes kept for the backward pass, operations and floating-point operations, against n and m.

    Args:
        out: folder of the benchmark.
        quick: tiny sizes.
    """
    cases = [case for case in block_cases(quick) if case.precision == "float32" and case.execution == "eager"]
    for case in cases:
        measured(out, f"memory-{case_name(case)}", lambda case=case: _count_rows(case))


def _count_rows(case: Case) -> Iterable[Row]:
    torch.manual_seed(0)
    x, rows = tokens(case), []
    for name, block in build_blocks(case).items():
        forward, backward = forward_call(block, x, case), backward_call(block, block, x, case)
        counts = {
            "saved_bytes": saved_bytes(block, x),
            "forward_flops": count_flops(forward),
            "backward_flops": count_flops(backward),
            "forward_kernels": count_kernels(forward),
            "backward_kernels": count_kernels(backward),
        }
        rows.append({"suite": "memory", "block": name, "measure": "counts"} | case._asdict() | counts)
    assert all(row["block"] in LABELS for row in rows)
    return rows
