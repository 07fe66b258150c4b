"""Many runs: rows x seeds, each after those that it needs, on several processes; what is done is skipped."""

import contextlib
import dataclasses
import multiprocessing
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from pathlib import Path
from queue import Empty
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.configuration import RunConfig, TrainerConfig
from experiments.runs.identity import check_name
from experiments.runs.run import Run
from experiments.storage import write_text

__all__ = ["Sweep", "commands"]

_ERROR = "error.txt"
_COLUMNS = (
    *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs")),
    *(TimeElapsedColumn(), TimeRemainingColumn()),
)
_Report = Callable[[tuple[str, int]], None]
_report: _Report = lambda _: None  # noqa: E731 - of this process: where the folder of a run and its epochs done go


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Does runs that are not done; one that fails leaves its traceback in its folder and lets the others go on.

    Each run has one thread: for small models two threads gain little on free cores, and lose much on busy ones.

    Args:
        out: folder of all runs.
        trainer: where to train.
        workers: number of processes; 1 runs in this one.
        predict: whether the runs predict their input sets.
    """

    out: Path
    trainer: TrainerConfig
    workers: int = 1
    predict: bool = True

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers: expected at least 1, got {self.workers}")

    def perform(self, configs: Sequence[RunConfig]) -> dict[str, str]:
        """Do every run that is not done, and show how far it is.

        Returns:
            What went wrong, by the folder of the run.

        Raises:
            ValueError: if a folder holds a run of another configuration, or a row is given other data; nothing was done
                then.
        """
        waiting, failed = [], {}
        for config in configs:
            check_name(config)
            run = Run(config.folder(self.out))
            run.check(config)
            if not run.is_complete or run.lacks(config) or run.is_moved(config):
                waiting.append(config)
        quiet = dataclasses.replace(self, trainer=dataclasses.replace(self.trainer, progress=False))
        progress = _Progress(waiting, shown=self.trainer.progress)
        with progress, _executor(min(self.workers, len(waiting)), progress) as executor:
            running: dict[Future[str | None], RunConfig] = {}
            while waiting or running:
                there = {(config.name, config.seed) for config in [*waiting, *running.values()]}
                for config in [config for config in waiting if there.isdisjoint(config.needs())]:
                    waiting.remove(config)
                    running[executor.submit(_perform, quiet, config)] = config
                if not running:
                    raise ValueError(f"rows: expected rows that do not need each other, got {sorted(there)}")
                for future in wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done:
                    config, error = running.pop(future), future.result()
                    progress.finished(config, error)
                    if error is not None:
                        failed[str(config.folder(self.out))] = error
                progress.drain()
        return failed


def _perform(sweep: Sweep, config: RunConfig) -> str | None:
    """Do one run, and return the last line of what went wrong, if something did."""
    from experiments.runs.fitting import perform

    folder = config.folder(sweep.out)
    options: dict[str, Any] = {"out": sweep.out, "trainer": sweep.trainer, "wait": True, "predict": sweep.predict}
    try:
        perform(config, **options, report=lambda epochs: _report((str(folder), epochs)))
    except Exception:  # noqa: BLE001 - whatever it was, thirty other runs wait
        words = traceback.format_exc()
        with contextlib.suppress(OSError):  # a full disk may be what went wrong
            write_text(folder / _ERROR, words)
        return words.strip().splitlines()[-1]
    (folder / _ERROR).unlink(missing_ok=True)
    return None


class _Progress:
    """A bar of epochs where the output is a terminal, a line per run where it is none."""

    def __init__(self, configs: Sequence[RunConfig], *, shown: bool) -> None:
        self.reports: Any = None
        self._epochs: dict[str, int] = {}
        self._count, self._done = len(configs), 0
        self._start = time.perf_counter()
        self._lines = shown and not sys.stdout.isatty()
        self._bar = Progress(*_COLUMNS, disable=not shown or self._lines)
        self._task = self._bar.add_task("training", total=sum(config.epochs for config in configs))

    def __enter__(self) -> "_Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, message: tuple[str, int]) -> None:
        folder, epochs = message
        self._epochs[folder] = epochs
        self._bar.update(self._task, completed=sum(self._epochs.values()))

    def drain(self) -> None:
        """Pass on what the workers reported."""
        with contextlib.suppress(Empty):
            while self.reports is not None:
                self.update(self.reports.get_nowait())

    def finished(self, config: RunConfig, error: str | None) -> None:
        self._done += 1
        if self._lines:
            seconds = time.perf_counter() - self._start
            state = "done" if error is None else "FAILED"
            print(
                f"{self._done} of {self._count}: {config.name} seed {config.seed} {state}, {seconds:.0f} s", flush=True
            )


class _Here(Executor):
    """Does what it is given at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **options))
        return future


@contextlib.contextmanager
def _executor(workers: int, progress: _Progress) -> Iterator[Executor]:
    """Yield an executor: this process, or fresh ones that end with it."""
    import torch

    global _report
    if workers <= 1:
        _report, threads = progress.update, torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield _Here()
        finally:
            torch.set_num_threads(threads)
        return
    context = multiprocessing.get_context("spawn")
    progress.reports = context.Queue()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(progress.reports,)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start(reports: Any) -> None:
    """Hold a worker process to one thread; let it end with its parent, as a later start goes on from its checkpoint."""
    import torch

    global _report
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()

    def report(message: tuple[str, int]) -> None:
        if parent is not None and not parent.is_alive():
            os._exit(1)
        reports.put(message)

    _report = report


def commands(configs: Sequence[RunConfig], out: Path, rest: Sequence[str]) -> list[str]:
    """Return one command a run that is not done, in an order in which they can be run.

    Raises:
        ValueError: if a folder holds a run of another configuration.
    """
    lines = []
    for config in configs:
        check_name(config)
        run = Run(config.folder(out))
        run.check(config)
        if not run.is_complete or run.lacks(config):
            parts = ["python", "-m", "experiments", "fit", "--config", config.name, *rest]
            lines.append(shlex.join([*parts, "--seed", str(config.seed), "--out", str(out)]))
    return lines
