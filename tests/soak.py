"""Soak test: every block trained for long, fast, deep and in bfloat16, and what happened.

``python -m tests.soak`` trains a vision transformer on scikit-learn's digits with each block and writes a row per
training to ``soak.md``: losses, steps whose loss was not finite, the error that ended it, growth of memory.
"""

import argparse
import contextlib
import multiprocessing
import resource
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cgp
from models import VisionTransformer

BLOCKS: dict[str, Callable[[int, int], nn.Module]] = {
    "softmax": cgp.SoftmaxAttention,
    "kernel, rbf": cgp.KernelAttention,
    "kernel, exponential": partial(cgp.KernelAttention, kernel="exponential"),
    "CGP direct": cgp.CGPAttention,
    "CGP latent": partial(cgp.CGPAttention, coupling="latent"),
    "CGP softmax's mean": partial(cgp.CGPAttention, mean="softmax"),
    "CGP regularised": partial(cgp.CGPAttention, objective="marginal"),
    "sparse CGP direct": cgp.SparseCGPAttention,
    "sparse CGP latent": partial(cgp.SparseCGPAttention, coupling="latent"),
    "sparse CGP softmax's mean": partial(cgp.SparseCGPAttention, mean="softmax"),
    "SGPA": cgp.SGPAttention,
    "SGPA standard": cgp.StandardSGPAttention,
    "KEP-SVGP": cgp.KEPSVGPAttention,
}


class Training(NamedTuple):
    """What is trained, and how."""

    block: str
    way: str
    steps: int
    learning_rate: float = 1e-3
    depth: int = 2
    dtype: torch.dtype = torch.float32
    workers: int = 0
    compiled: bool = False


class Outcome(NamedTuple):
    """What came of it."""

    steps: int
    first: float  # mean loss of the first 20 steps
    last: float  # and of the last 20
    not_finite: int  # steps
    growth: float  # of the peak memory after the first tenth, MiB
    error: str


def trainings(steps: int, fast_steps: int) -> Iterator[Training]:
    """All of them."""
    for block in BLOCKS:
        yield Training(block, "lr 1e-3", steps)
        yield Training(block, "lr 1e-1", fast_steps, 1e-1)
        yield Training(block, "lr 1", fast_steps // 3, 1.0)
        yield Training(block, "12 layers", fast_steps, depth=12)
        yield Training(block, "bfloat16", fast_steps, dtype=torch.bfloat16)
    for block in ("sparse CGP direct", "SGPA", "KEP-SVGP"):
        yield Training(block, "2 DataLoader workers", fast_steps, workers=2)
        yield Training(block, "compiled, then state_dict", fast_steps // 10, compiled=True)


def batches(workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of 16 digits without end."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
    data = TensorDataset(images, torch.tensor(digits.target))
    loader = DataLoader(data, 16, shuffle=True, drop_last=True, num_workers=workers)
    while True:
        yield from loader


def build(training: Training) -> VisionTransformer:
    """The transformer with the block in every layer."""
    return VisionTransformer(
        image_size=8, patch_size=2, channels=1, num_classes=10, depth=training.depth, embed_dim=32, mlp_dim=64,
        num_heads=4, attention=BLOCKS[training.block],
    )  # fmt: skip


def train(training: Training) -> Outcome:
    """Train until done or until an error."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = build(training)
    objective = cgp.Objective(model, cgp.CategoricalLikelihood(10), 1797)
    optimizer = torch.optim.Adam(objective.parameters(), lr=training.learning_rate)
    if training.compiled:
        objective.compile()
    cast = training.dtype != torch.float32
    context = torch.autocast("cpu", training.dtype) if cast else contextlib.nullcontext()
    losses: list[float] = []
    peak, error = 0.0, ""
    try:
        for step, (x, y) in zip(range(training.steps), batches(training.workers), strict=False):
            optimizer.zero_grad()
            with context:
                loss = objective(x, y)
            loss.backward()
            nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            if step == training.steps // 10:
                peak = peak_memory()
        if training.compiled:
            build(training).load_state_dict(model.state_dict())
    except (ValueError, RuntimeError) as problem:
        error = f"{type(problem).__name__}: {str(problem).splitlines()[0][:120]}"
    values = torch.tensor(losses or [torch.nan])
    growth = peak_memory() - peak if peak else 0.0
    not_finite = int((~values.isfinite()).sum())
    return Outcome(len(losses), values[:20].mean().item(), values[-20:].mean().item(), not_finite, growth, error)


def peak_memory() -> float:
    """Of this process, MiB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    """Train everything, each in a process of its own, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000, help="at learning rate 1e-3")
    parser.add_argument("--fast-steps", type=int, default=300, help="at learning rate 1e-1, and of the other trainings")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--out", type=Path, default=Path("soak.md"), help="file of the table")
    options = parser.parse_args()
    lines = ["| block | training | steps | first loss | last loss | not finite | memory, MiB | error |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|---|")
    everything = list(trainings(options.steps, options.fast_steps))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.soak"])  # imported once, not by every training
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for training, outcome in zip(everything, pool.map(train, everything), strict=True):
            numbers = f"{outcome.first:.3f} | {outcome.last:.3f} | {outcome.not_finite} | {outcome.growth:+.0f}"
            lines.append(f"| {training.block} | {training.way} | {outcome.steps} | {numbers} | {outcome.error} |")
            print(lines[-1], flush=True)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
