"""Many runs on several processes, under one progress bar."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any, Protocol

import torch
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Task", "perform_all"]

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("epochs"),
    TimeElapsedColumn(),
    TimeRemainingColumn(),
)
_Report = Callable[[int, int], None]
"""Takes the number of a run and its number of epochs done."""


class Task(Protocol):
    """A run that can be handed to a process."""

    @property
    def epochs(self) -> int:
        """Number of epochs of its training."""

    def folder(self, root: Path) -> Path:
        """Return its folder."""

    def is_complete(self, root: Path) -> bool:
        """Say whether everything is done."""

    def perform(self, root: Path, report: Callable[[int], None]) -> None:
        """Do what is not done yet; `report` takes the number of epochs done."""


def perform_all(runs: Sequence[Task], root: Path, *, workers: int, console: Console) -> None:
    """Do every run that is not done, and show how far it is.

    Each run has one thread: for small models two threads gain little on free cores, and lose much on busy ones.

    Args:
        runs: what to do.
        root: the application's output folder.
        workers: number of processes; 1 runs in this one.
        console: where the progress bar goes.

    Raises:
        ValueError: if there is no worker.
    """
    if workers < 1:
        raise ValueError(f"workers: expected at least 1, got {workers}")
    workers = min(workers, sum(not run.is_complete(root) for run in runs))
    epochs = [0] * len(runs)
    with Progress(*_COLUMNS, console=console) as progress:
        task = progress.add_task("training", total=sum(run.epochs for run in runs))

        def report(index: int, done: int) -> None:
            epochs[index] = done
            progress.update(task, completed=sum(epochs))

        if workers > 1:
            _in_processes(runs, root, workers, report)
        else:
            _one_by_one(runs, root, report)


def _one_by_one(runs: Sequence[Task], root: Path, report: _Report) -> None:
    """Do the runs in this process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for index, run in enumerate(runs):
            _perform_alone(run, root, partial(report, index))
    finally:
        torch.set_num_threads(threads)


def _in_processes(runs: Sequence[Task], root: Path, workers: int, report: _Report) -> None:
    """Do the runs in fresh processes, which end with this one."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(queue,)) as pool:
        futures = {pool.submit(_in_worker, index, run, root) for index, run in enumerate(runs)}
        try:
            for future in _finished(futures, lambda: _drain(queue, report)):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _finished(futures: set[Future[None]], meanwhile: Callable[[], None]) -> Iterator[Future[None]]:
    """Yield the futures as they finish."""
    while futures:
        done, futures = wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
        meanwhile()
        yield from done


def _drain(queue: Any, report: _Report) -> None:
    """Pass on what the workers reported."""
    while True:
        try:
            report(*queue.get_nowait())
        except Empty:
            return


def _start_worker(queue: Any) -> None:
    """Keep the queue in the worker process, and hold it to one thread."""
    global _queue
    _queue = queue
    torch.set_num_threads(1)


def _in_worker(index: int, run: Task, root: Path) -> None:
    """Do one run in a worker process."""
    parent = multiprocessing.parent_process()

    def report(done: int) -> None:
        if parent is not None and not parent.is_alive():
            os._exit(1)  # nobody waits for the result; a later start goes on from the last checkpoint
        _queue.put((index, done))

    _perform_alone(run, root, report)


def _perform_alone(run: Task, root: Path, report: Callable[[int], None]) -> None:
    """Do one run while no other process does, such as the last worker of a command that was killed."""
    folder = run.folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        run.perform(root, report)
