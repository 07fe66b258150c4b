"""The benchmark as a command: suites, then tables, CSV, pictures and the page of the documentation."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import torch

from experiments.benchmarks.machine import machine, settle_allocator
from experiments.benchmarks.models import prediction, vit
from experiments.benchmarks.report import write_report
from experiments.benchmarks.rows import measured, stored
from experiments.benchmarks.suites import blocks, memory, transcriptions

__all__ = ["SUITES", "benchmark"]

SUITES: Mapping[str, Callable[[Path, bool], None]] = {
    "blocks": blocks,
    "transcriptions": transcriptions,
    "memory": memory,
    "prediction": prediction,
    "vit": vit,
}


def benchmark(
    suite: Literal["blocks", "transcriptions", "memory", "prediction", "vit", "all", "report"],
    out: Path = Path("runs/benchmarks"),
    threads: int = 2,
    quick: bool = False,
    docs: Path | None = None,
    note: str = "",
) -> None:
    """Measure the blocks against softmax attention. Groups that are in the folder already are not measured again.

    Args:
        suite: what to measure; "report" writes tables and pictures of what is there.
        out: folder of rows, tables and pictures.
        threads: of torch.
        quick: tiny sizes, in seconds: for tests, not for figures.
        docs: folder of the documentation whose page, pictures and CSV are to be written; none if None.
        note: a sentence for the page on the circumstances, such as what else the machine was doing.

    Raises:
        ValueError: if the number of threads is not positive.
    """
    if threads < 1:
        raise ValueError(f"threads: expected at least 1, got {threads}")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    settle_allocator()
    try:
        measured(out, "machine", lambda: [machine()])
        for name, run in SUITES.items():
            if suite in (name, "all"):
                run(out, quick)
    finally:
        torch.set_num_threads(before)
    write_report(stored(out), out, docs, note)
