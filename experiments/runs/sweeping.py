"""Many runs: rows x seeds, each after the runs that it needs, on several processes; complete runs are skipped."""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from graphlib import TopologicalSorter
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm

from experiments.atomic_files import write_text
from experiments.configuration import RunConfig, TrainerConfig
from experiments.runs.identity import check_name
from experiments.runs.run import Run

__all__ = ["Sweep", "commands"]

_ERROR = "error.txt"
_FEW = 5  # lines of progress of runs that are alike
_WORK = "experiments.runs.performing"  # what a worker imports


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Performs incomplete runs; a failing run writes its traceback to its folder, and the others continue.

    Each run has one thread: for small models two threads gain little on idle cores and lose much on busy ones.
    """

    out: Path
    trainer: TrainerConfig
    workers: int = 1  # processes; 1 runs in this one
    are_alike: bool = False  # whether all take about as long: a few lines then say how many are done, and what remains

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers: expected at least 1, got {self.workers}")

    def perform(self, configs: Sequence[RunConfig]) -> dict[str, str]:
        """Perform every incomplete run, printing a line for each; return errors by the folder of the run."""
        waiting = {(config.name, config.seed): config for config in _unfinished(configs, self.out)}
        order = TopologicalSorter({key: waiting.keys() & config.needs() for key, config in waiting.items()})
        order.prepare()
        ready: list[tuple[str, int]] = []
        running: dict[Future[str | None], tuple[str, int]] = {}
        rounds = math.ceil(len(waiting) / self.workers) if self.are_alike else 1
        every = math.ceil(len(waiting) / _FEW) if self.are_alike else 1
        failed, progress = {}, _Progress(len(waiting), is_shown=self.trainer.progress, rounds=rounds, every=every)
        progress.say(f"{len(waiting)} runs, {min(self.workers, len(waiting))} at a time, into {self.out}")
        with progress, _executor(min(self.workers, len(waiting))) as executor:
            while order.is_active():
                ready += order.get_ready()
                while ready and len(running) < self.workers:
                    key = ready.pop(0)
                    with _interrupts_wait():
                        future = executor.submit(_perform, self, waiting[key])
                    running[future] = key
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    key, error = running.pop(future), future.result()
                    order.done(key)
                    folder = waiting[key].folder(self.out)
                    if error is not None:
                        failed[str(folder)] = error
                    state = "FAILED" if error is not None else "done"
                    result = "" if error is not None or self.are_alike else _first_result(Run(folder))
                    progress.count(f"{key[0]} seed {key[1]} {state}{result}")
        return failed


class _Progress:
    """A line for each run that ends, or for every few, and on a terminal a bar below with the time that is left.

    If runs of about equal length follow each other in several rounds, each line says how long the others will take.
    """

    def __init__(self, total: int, *, is_shown: bool, rounds: int = 1, every: int = 1) -> None:
        self._total, self._done, self._start, self._rounds = total, 0, time.perf_counter(), rounds
        self._every = every
        self._is_shown = is_shown and total > 0
        self._bar = tqdm(total=total, desc="runs", leave=False, disable=None if self._is_shown else True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def say(self, line: str) -> None:
        """Write a line."""
        if self._is_shown:
            tqdm.write(line)
            sys.stdout.flush()

    def count(self, what: str) -> None:
        """A run has ended."""
        self._bar.update()
        self._done += 1
        took = time.perf_counter() - self._start
        if self._done % self._every == 0 or self._done == self._total:
            self.say(f"{self._done} of {self._total}: {what}, {took:.0f} s{self._remaining(took)}")

    def _remaining(self, took: float) -> str:
        """How long the rounds that are left take, if each takes as long as those so far."""
        passed = math.ceil(self._done / math.ceil(self._total / self._rounds)) if self._total else self._rounds
        if passed == self._rounds:
            return ""
        minutes = max(1, round(took / passed * (self._rounds - passed) / 60))
        return f": about {'1 minute remains' if minutes == 1 else f'{minutes} minutes remain'}"


def _first_result(run: Run) -> str:
    """What the validation examples say of the epoch that was kept; nothing of a run without training."""
    record = run.record
    kept = [epoch for epoch in record.get("history") or [] if epoch["epoch"] == record.get("best_epoch")]
    if not kept or "validation_accuracy" not in kept[0]:
        return ""
    smoke = "smoke run: " if any(words.startswith("smoke test") for words in run.config.reduced) else ""
    return f" ({smoke}validation accuracy {kept[0]['validation_accuracy']:.1%}, NLL {kept[0]['validation_nll']:.3f})"


def _unfinished(configs: Iterable[RunConfig], out: Path) -> Iterator[RunConfig]:
    for config in configs:
        check_name(config)
        run = Run(config.folder(out))
        run.check(config)
        if not run.is_complete or run.lacks(config) or run.is_moved(config):
            yield config


def _perform(sweep: Sweep, config: RunConfig) -> str | None:
    """Perform one run; return the last line of its error, or None."""
    from experiments.runs.performing import perform

    folder, quiet = config.folder(sweep.out), dataclasses.replace(sweep.trainer, progress=False)
    try:
        perform(config, out=sweep.out, trainer=quiet, wait=True)
    except Exception:  # noqa: BLE001 - whatever it was, thirty other runs wait
        words = traceback.format_exc()
        with contextlib.suppress(OSError):  # the error may be a full disk
            write_text(folder / _ERROR, words)
        return words.strip().splitlines()[-1]
    (folder / _ERROR).unlink(missing_ok=True)
    return None


class _Here(Executor):
    """Executor that runs a call at once, in this process."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **options))
        return future


@contextlib.contextmanager
def _executor(workers: int) -> Iterator[Executor]:
    """Yield an executor: this process, or new ones that end with it."""
    import torch

    if workers > 1:
        # Workers are forked from a server that has imported PyTorch and Lightning once, before it starts threads.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_WORK])
        if threading.current_thread() is threading.main_thread():  # no other may say what signals do
            _start_server()
        import_module(_WORK)  # as the server does meanwhile: a worker that is asked for earlier waits for that
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker) as pool:
            try:
                yield pool
            except KeyboardInterrupt:
                for worker in multiprocessing.active_children():
                    worker.terminate()  # otherwise the pool waits for its runs, which go on from their checkpoints
                raise
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield _Here()
    finally:
        torch.set_num_threads(threads)


def _start_server() -> None:
    """Start the server, which ignores ctrl-C, as what it forks does: this process ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let ctrl-C wait until a worker has started that would otherwise be ended halfway, with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> None:
    """Limit a worker process to one thread, and end it with its parent: a later start continues from a checkpoint."""
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def commands(configs: Sequence[RunConfig], out: Path, rest: Sequence[str]) -> list[str]:
    """Return one command per incomplete run, in an order in which they can be run."""
    return [
        shlex.join(
            [
                *("python", "-m", "experiments", "fit", "--config", config.name),
                *(*rest, "--seed", str(config.seed), "--out", str(out)),
            ]
        )
        for config in _unfinished(configs, out)
    ]
