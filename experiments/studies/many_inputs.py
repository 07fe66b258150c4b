"""Memory of predictions and assessments by the number of inputs: peak resident set of a process for each."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import cgp

__all__ = ["CALLS", "Inputs", "main", "network"]

CALLS = ("start", "predict_batches", "predict", "assess")
_WIDTH, _CLASSES, _BATCH = 512, 10, 2000


class Inputs:
    """Labelled batches that are made when they are read, in the same order every time.

    Args:
        count: number of inputs, of 2 kB each.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self.count, _BATCH):
            generator = torch.Generator().manual_seed(start)
            x = torch.randn(min(_BATCH, self.count - start), _WIDTH, generator=generator)
            noise = torch.randn(len(x), _CLASSES, generator=generator)
            yield x, (x[:, :_CLASSES] + noise).argmax(-1)


def network() -> nn.Module:
    """A small classifier with dropout, which is too sure."""
    torch.manual_seed(0)
    first, last = nn.Linear(_WIDTH, _CLASSES), nn.Linear(_CLASSES, _CLASSES)
    with torch.no_grad():
        first.weight.copy_(torch.eye(_CLASSES, _WIDTH))
        last.weight.copy_(3.0 * torch.eye(_CLASSES))
    return nn.Sequential(first, nn.Dropout(0.1), last).eval()


def _measure(call: str, count: int) -> None:
    """Run one call and print seconds and peak memory in MB."""
    start, source = time.process_time(), Inputs(count)
    if call == "predict_batches":
        for prediction in cgp.predict_batches(network(), source, progress=False):
            prediction.confidence.sum()
    elif call == "predict":
        cgp.predict(network(), source, keep_variance=False)
    elif call == "assess":
        cgp.assess(network(), source, compare=[], ood={"shifted": (3.0 + x for x, _ in Inputs(10_000))})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024.0 if sys.platform != "darwin" else 1024.0**2)
    print(f"{time.process_time() - start:.1f} {peak:.0f}")


def main(*counts: int) -> None:
    """Print a table of calls by number of inputs, each in a process of its own.

    Args:
        *counts: numbers of inputs.
    """
    print("| call | " + " | ".join(f"{count:,}" for count in counts) + " |")
    print("| --- |" + " ---: |" * len(counts))
    for call in CALLS:
        cells = []
        for count in counts:
            command = [sys.executable, "-W", "ignore", "-m", "experiments.studies.many_inputs", call, str(count)]
            result = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ, cwd=Path.cwd())
            seconds, peak = result.stdout.split()
            cells.append(f"{peak} MB, {float(seconds):.0f} s")
        print(f"| {call} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given and given[0] in CALLS:
        _measure(given[0], int(given[1]))
    else:
        main(*(int(count) for count in given or ("10000", "100000", "1000000")))
