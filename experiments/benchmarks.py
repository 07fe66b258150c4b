"""Time and memory of blocks and models over softmax attention's: `python -m experiments.benchmarks`."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from jsonargparse import auto_cli
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from cgp.attention import (
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    SGPAttention,
    SoftmaxAttention,
    SparseCGPAttention,
)
from cgp.model.blocks import added_losses, clear_added_losses
from cgp.model.likelihoods import CategoricalLikelihood
from cgp.model.objective import Objective
from experiments.storage import write_text
from models import CGPT_CIFAR, DIGITS, TextTransformer, VisionTransformer

__all__ = ["BLOCKS", "MODELS", "benchmark", "interleaved", "saved_bytes"]

BLOCKS: Mapping[str, Callable[..., nn.Module]] = {
    "softmax attention": SoftmaxAttention,
    "kernel attention": KernelAttention,
    "sparse correlated GP, direct": SparseCGPAttention,
    "sparse correlated GP, latent": partial(SparseCGPAttention, coupling="latent"),
    "exact correlated GP, direct": CGPAttention,
    "exact correlated GP, latent": partial(CGPAttention, coupling="latent"),
    "softmax's mean, sparse covariance": partial(SparseCGPAttention, mean="softmax"),
    "softmax's mean, exact covariance": partial(CGPAttention, mean="softmax"),
    "SGPA": SGPAttention,
    "KEP-SVGP": KEPSVGPAttention,
}
"""Blocks as a user gets them, the reference first."""

_TOKENS = 4096  # tokens per batch: the batch of sequences of length n is as large as that allows, 32 at most
_BATCH = 32


def benchmark(
    out: Path = Path("docs/benchmarks.md"),
    *,
    lengths: Sequence[int] = (64, 256, 512),
    models: Sequence[str] = ("digits", "CoLA", "CIFAR-10"),
    threads: int = 1,
    rounds: int = 15,
) -> None:
    """Measure blocks (d 128, h 4) and training steps of whole models, and write a page of tables.

    Args:
        out: the page.
        lengths: numbers n of tokens.
        models: some of digits, CoLA, CIFAR-10.
        threads: of every call.
        rounds: how often each call is timed; a ratio is the median over the rounds.
    """
    unknown = [name for name in models if name not in MODELS]
    if unknown:
        raise ValueError(f"models: expected some of {', '.join(MODELS)}, got {', '.join(unknown)}")
    torch.manual_seed(0)
    blocks = {n: _measure_blocks(n, threads, rounds) for n in lengths}
    epochs = {name: _measure_models(name, threads, rounds) for name in models}
    chosen = f"--lengths '{_listed(lengths)}' --models '{_listed(models)}' --threads {threads} --rounds {rounds}"
    write_text(out, _page(blocks, epochs, chosen, _machine(threads)))


def interleaved(
    calls: Mapping[str, Callable[[], object]], *, threads: int, rounds: int
) -> dict[str, tuple[float, float, float]]:
    """Time calls in rounds of one each, every other round backwards, so that other work disturbs all of them alike.

    Returns:
        For each call its median seconds, and median and half the distance of the quartiles of its ratio to the first
        call in the same round.
    """
    timers = {name: Timer("call()", globals={"call": call}, num_threads=threads) for name, call in calls.items()}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for number in range(rounds):
        for name, timer in list(timers.items())[:: -1 if number % 2 else 1]:
            taken[name].append(timer.timeit(1).mean)
    first = next(iter(taken.values()))
    return {name: (median(seconds), *_ratio(seconds, first)) for name, seconds in taken.items()}


def _ratio(seconds: Sequence[float], first: Sequence[float]) -> tuple[float, float]:
    ratios = [own / other for own, other in zip(seconds, first, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return middle, (high - low) / 2


def saved_bytes(block: nn.Module, x: Tensor) -> int:
    """Bytes that a forward pass keeps for its backward pass, each storage once, the weights left out.

    Example:
        >>> saved_bytes(nn.Linear(4, 4), torch.zeros(2, 4, requires_grad=True))
        32
    """
    weights = {parameter.untyped_storage().data_ptr() for parameter in block.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = block(x)
    total = sum(kept.values())
    del result  # not before: a freed storage's address would be taken again
    return total


def _measure_blocks(n: int, threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Ratios of every block at a length; those of cubic cost are part of it, they say what they cost."""
    x = torch.randn(max(1, min(_BATCH, _TOKENS // n)), n, 128, requires_grad=True)
    built = {name: make(128, 4) for name, make in BLOCKS.items()}
    forward = interleaved({k: _forward(block, x) for k, block in built.items()}, threads=threads, rounds=rounds)
    training = interleaved({k: _training(block, x) for k, block in built.items()}, threads=threads, rounds=rounds)
    kept = {name: saved_bytes(block.train(), x) for name, block in built.items()}
    reference = next(iter(kept.values()))
    return {
        name: {"forward": forward[name][1], "training": training[name][1], "bytes": kept[name] / reference}
        | {"forward ±": forward[name][2], "training ±": training[name][2], "ms": 1000 * training[name][0]}
        for name in built
    }


def _forward(block: nn.Module, x: Tensor) -> Callable[[], object]:
    """A draw from the posterior (of softmax and kernel attention the output) without a graph."""

    @torch.no_grad()
    def call() -> object:
        block.eval()
        if getattr(block, "stochastic", False):
            block.sampling = "marginal"
        return block(x)

    return call


def _training(block: nn.Module, x: Tensor) -> Callable[[], None]:
    """Forward and backward to tokens and weights, with what the block adds to the loss."""
    cotangent = torch.randn_like(x)

    def call() -> None:
        x.grad = None
        block.train().zero_grad(set_to_none=True)
        y = block(x)
        terms = list(added_losses(block).values())
        torch.autograd.backward([y, *terms], [cotangent, *(torch.ones_like(term) for term in terms)])
        clear_added_losses(block)

    return call


def _digits(attention: Callable[..., nn.Module]) -> tuple[nn.Module, Any, int]:
    return VisionTransformer(**DIGITS, num_classes=2, attention=attention), torch.rand(64, 1, 8, 8), 1077


def _cifar(attention: Callable[..., nn.Module]) -> tuple[nn.Module, Any, int]:
    return VisionTransformer(**CGPT_CIFAR, num_classes=2, attention=attention), torch.rand(64, 3, 32, 32), 45_000


def _cola(attention: Callable[..., nn.Module]) -> tuple[nn.Module, Any, int]:
    """Sentences of 12 words, CoLA's average."""
    sizes = {"depth": 2, "embed_dim": 256, "mlp_dim": 256, "num_heads": 4, "dropout": 0.1, "max_length": 64}
    model = TextTransformer(**sizes, vocabulary_size=5000, num_classes=2, attention=attention)
    return model, {"tokens": torch.randint(2, 5000, (32, 12)), "padding_mask": torch.zeros(32, 12).bool()}, 8551


MODELS: Mapping[str, Callable[..., tuple[nn.Module, Any, int]]] = {
    "digits": _digits,
    "CoLA": _cola,
    "CIFAR-10": _cifar,
}
"""A model, a batch, and the number of training examples."""


def _measure_models(name: str, threads: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Seconds per epoch and their ratio to softmax's, by training steps: objective, backward, Adam."""
    calls, steps = {}, 1.0
    for label, attention in BLOCKS.items():
        model, inputs, count = MODELS[name](attention)
        batch = len(inputs if isinstance(inputs, Tensor) else inputs["tokens"])
        calls[label], steps = _step(model, inputs, batch, count), count / batch
    timings = interleaved(calls, threads=threads, rounds=rounds)
    return {label: (steps * seconds, ratio) for label, (seconds, ratio, _) in timings.items()}


def _step(model: nn.Module, inputs: Any, batch: int, count: int) -> Callable[[], None]:
    objective = Objective(model, CategoricalLikelihood(2), count).train()
    optimiser = torch.optim.Adam(objective.parameters(), lr=1e-4)
    labels = torch.arange(batch) % 2

    def call() -> None:
        optimiser.zero_grad()
        objective(inputs, labels).backward()
        optimiser.step()

    return call


def _page(
    blocks: Mapping[int, Mapping[str, Mapping[str, float]]],
    epochs: Mapping[str, Mapping[str, tuple[float, float]]],
    options: str,
    machine: str,
) -> str:
    """The page: one table of blocks, one of models."""
    head = [f"n {n}: forward | training | bytes" for n in blocks]
    lines = [f"| block | {' | '.join(head)} |", f"| --- |{' ---: | ---: | ---: |' * len(blocks)}"]
    for name in BLOCKS:
        cells = [_cells(measured[name]) for measured in blocks.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"| model | {' | '.join(epochs)} |", f"| --- |{' ---: |' * len(epochs)}"]
    for position, name in enumerate(BLOCKS):
        ratios = [f"{m[name][0]:.3g} s" if position == 0 else f"{m[name][1]:.2f}" for m in epochs.values()]
        lines.append(f"| {name} | {' | '.join(ratios)} |")
    return _INTRODUCTION.format(machine=machine, options=options, tables="\n".join(lines))


def _listed(values: Sequence[object]) -> str:
    return f"[{','.join(str(value) for value in values)}]"


def _cells(row: Mapping[str, float]) -> str:
    times = [f"{row[key]:.2f} ± {row[f'{key} ±']:.2f}" for key in ("forward", "training")]
    return " | ".join([*times, f"{row['bytes']:.2f}"])


def _machine(threads: int) -> str:
    info = Path("/proc/cpuinfo")
    named = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    processor = named[0].split(":")[1].strip() if named else "a processor"
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return f"{processor}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}, {date}"


_INTRODUCTION = """# Benchmarks

Written by the command, not edited: `python -m experiments.benchmarks {options}`. {machine}.

Blocks as a user gets them (d 128, h 4, defaults; batches of 32, 16 and 8 sequences of 64, 256 and 512 tokens) over
softmax attention in the same round of the same process: median of the rounds ± half the distance of the quartiles.
*Forward*: one draw from the posterior in eval mode, without a graph. *Training*: forward and backward with what the
block adds to the loss. *Bytes*: kept for the backward pass. Whole models: seconds of an epoch with softmax attention,
and training steps (objective, backward, Adam) over softmax's.

{tables}
"""

if __name__ == "__main__":
    auto_cli(benchmark, as_positional=False, prog="python -m experiments.benchmarks")
