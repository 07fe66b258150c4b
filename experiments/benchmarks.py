"""Time and memory of blocks and models relative to softmax attention's: `python -m experiments.benchmarks`."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.attention import GaussianProcessAttention
from cgp.networks.model.blocks import added_losses, clear_added_losses
from cgp.networks.model.objective import CategoricalLikelihood, Objective
from experiments.atomic_files import write_text
from experiments.grids import Cell, Grid, as_markdown, write_csv
from experiments.registry import forms
from experiments.runs.parsing import run_functions
from models import CGPT_CIFAR, DIGITS, TextTransformer, VisionTransformer

__all__ = ["BLOCKS", "MODELS", "benchmark", "interleaved", "saved_bytes"]

BLOCKS: Mapping[str, Callable[..., nn.Module]] = {form.title: form.make for form in forms().values()}
"""Blocks with their default options, the reference first."""

_Timed = Callable[[Mapping[str, Callable[[], object]]], dict[str, tuple[float, float, float]]]
_TOKENS = 4096  # tokens per batch of sequences of length n, of which there are at most 32
_BATCH = 32
_ROUNDS = (5, 25)  # smallest and largest number of rounds


class Measurement(NamedTuple):
    """One number of a row: seconds or bytes, and the ratio to the first row's with its spread."""

    row: str
    setting: str  # length of the sequences, or a model
    measure: str  # forward, training, bytes or epoch
    value: float
    ratio: float
    spread: float


def benchmark(
    out: Path = Path("docs/benchmarks.md"),
    *,
    csv: Path = Path("docs/results/benchmarks.csv"),
    lengths: Sequence[int] = (64, 256, 512),
    models: Sequence[str] = ("digits", "CoLA", "CIFAR-10"),
    threads: int = 1,
    seconds: float = 20.0,
    device: str = "cpu",
) -> None:
    """Measure blocks (d 128, h 4) and training steps of whole models, and write a page of tables and a CSV file.

    Args:
        out: file of the page.
        csv: file of all numbers, one per line.
        lengths: numbers n of tokens.
        models: names of models, among digits, CoLA and CIFAR-10.
        threads: number of threads of every call.
        seconds: time after which no further round of a measurement begins; there are at least 5 and at most 25.
        device: where the blocks and models are, "cpu" or "cuda".
    """
    unknown = [name for name in models if name not in MODELS]
    if unknown:
        raise ValueError(f"models: expected some of {', '.join(MODELS)}, got {', '.join(unknown)}")
    torch.manual_seed(0)
    time = partial(interleaved, threads=threads, rounds=_ROUNDS, seconds=seconds)
    with torch.device(device):
        blocks = [measurement for n in lengths for measurement in _measure_blocks(n, time)]
        epochs = [measurement for name in models for measurement in _measure_models(name, time)]
    write_csv(csv, [measurement._asdict() for measurement in (*blocks, *epochs)])
    chosen = f"--lengths '{_listed(lengths)}' --models '{_listed(models)}' --threads {threads} --seconds {seconds:g}"
    chosen += "" if device == "cpu" else f" --device {device} --out {out} --csv {csv}"
    tables = f"{_pivot('block', blocks)}\n{_pivot('model', epochs)}"
    title, explained = _PROCESSOR if device == "cpu" else _ACCELERATOR
    filled = {"machine": _machine(threads, device), "options": chosen, "csv": csv.name, "tables": tables}
    write_text(out, _PAGE.format(title=title, explained=explained, **filled))


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    threads: int,
    rounds: tuple[int, int],
    seconds: float = 0.0,
) -> dict[str, tuple[float, float, float]]:
    """Time calls in rounds of one each, every other round in reverse order, so that other work affects all alike.

    No further round begins after `seconds`. Returned for each call: median seconds, and of its ratio to the first call
    in the same round the median and half the distance of the quartiles.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    start = perf_counter()
    for number in range(rounds[1]):
        if number >= rounds[0] and perf_counter() - start > seconds:
            break
        for name, call in list(calls.items())[:: -1 if number % 2 else 1]:
            taken[name].append(_seconds(call))
    torch.set_num_threads(before)
    first = next(iter(taken.values()))
    return {name: (median(times), *_ratio(times, first)) for name, times in taken.items()}


def _seconds(call: Callable[[], object]) -> float:
    call()  # warm-up: in training, the previous call was the same
    _wait()
    start = perf_counter()
    call()
    _wait()
    return perf_counter() - start


def _wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _ratio(seconds: Sequence[float], first: Sequence[float]) -> tuple[float, float]:
    ratios = [value / other for value, other in zip(seconds, first, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return middle, (high - low) / 2


def saved_bytes(block: nn.Module, x: Tensor) -> int:
    """Bytes that a forward pass keeps for its backward pass, each storage once, without the weights."""
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
    del result  # not before: the address of a freed storage would be reused
    return total


def _measure_blocks(n: int, time: _Timed) -> Iterator[Measurement]:
    """Ratios of every block at one sequence length, blocks of cubic cost included."""
    x = torch.randn(max(1, min(_BATCH, _TOKENS // n)), n, 128, requires_grad=True)
    built = {name: make(128, 4) for name, make in BLOCKS.items()}
    for measure, call in (("forward", _forward), ("training", _training)):
        for name, result in time({name: call(block, x) for name, block in built.items()}).items():
            yield Measurement(name, f"n {n}", measure, *result)
    kept = {name: saved_bytes(block.train(), x) for name, block in built.items()}
    reference = next(iter(kept.values()))
    for name, num_bytes in kept.items():
        yield Measurement(name, f"n {n}", "bytes", num_bytes, num_bytes / reference, 0.0)


def _forward(block: nn.Module, x: Tensor) -> Callable[[], object]:
    """A draw from the posterior (for softmax and kernel attention the output) without a graph."""

    @torch.no_grad()
    def call() -> object:
        block.eval()
        if isinstance(block, GaussianProcessAttention):
            block.sampling = "marginal"
        return block(x)

    return call


def _training(block: nn.Module, x: Tensor) -> Callable[[], None]:
    """Forward and backward pass to tokens and weights, with the loss terms that the block adds."""
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
    sizes: dict[str, Any] = {"depth": 2, "embed_dim": 256, "mlp_dim": 256, "num_heads": 4, "max_length": 64}
    model = TextTransformer(**sizes, dropout=0.1, vocabulary_size=5000, num_classes=2, attention=attention)
    return model, {"tokens": torch.randint(2, 5000, (32, 12)), "padding_mask": torch.zeros(32, 12).bool()}, 8551


MODELS: Mapping[str, Callable[..., tuple[nn.Module, Any, int]]] = {
    "digits": _digits,
    "CoLA": _cola,
    "CIFAR-10": _cifar,
}
"""A model, a batch, and the number of training examples."""


def _measure_models(name: str, time: _Timed) -> Iterator[Measurement]:
    """Seconds per epoch and their ratio to softmax's, by training steps: objective, backward, Adam."""
    calls, steps = {}, 1.0
    for label, attention in BLOCKS.items():
        model, inputs, count = MODELS[name](attention)
        batch = len(inputs if isinstance(inputs, Tensor) else inputs["tokens"])
        calls[label], steps = _step(model, inputs, batch, count), count / batch
    for label, (seconds, ratio, spread) in time(calls).items():
        yield Measurement(label, name, "epoch", steps * seconds, ratio, spread)


def _step(model: nn.Module, inputs: Any, batch: int, count: int) -> Callable[[], None]:
    objective = Objective(model, CategoricalLikelihood(2), count).train()
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-4)
    labels = torch.arange(batch) % 2

    def call() -> None:
        optimizer.zero_grad()
        objective(inputs, labels).backward()
        optimizer.step()

    return call


def _pivot(corner: str, measured: Sequence[Measurement]) -> str:
    """Rows by settings and measures; for models the first row has the seconds of an epoch."""
    rows: dict[str, list[Cell]] = {}
    for measurement in measured:
        rows.setdefault(measurement.row, []).append(Cell(_cell(measurement)))
    first = [measurement for measurement in measured if measurement.row == measured[0].row]
    header = [corner, *(f"{measurement.setting}, {measurement.measure}" for measurement in first)]
    return as_markdown(Grid(header, [[Cell(name), *cells] for name, cells in rows.items()]))


def _cell(measurement: Measurement) -> str:
    if measurement.measure == "bytes":
        return f"{measurement.ratio:.2f}"
    seconds = f"{measurement.value:.3g} s" if measurement.measure == "epoch" else f"{1000 * measurement.value:.3g} ms"
    return seconds if measurement.row == next(iter(BLOCKS)) else f"{measurement.ratio:.2f} ± {measurement.spread:.2f}"


def _listed(values: Sequence[object]) -> str:
    return f"[{','.join(str(value) for value in values)}]"


def _machine(threads: int, device: str) -> str:
    info = Path("/proc/cpuinfo")
    named = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    processor = named[0].split(":")[1].strip() if named else "a processor"
    if device == "cuda":
        processor = f"{torch.cuda.get_device_name()}, {processor}"
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    return f"{processor}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}, {date}"


_PAGE = """# {title}

Written by the command, not edited: `python -m experiments.benchmarks {options}`. {machine}.

{explained} [All numbers](results/{csv}).

{tables}"""

_PROCESSOR = (
    "Benchmarks",
    """\
Blocks as a user gets them (d 128, h 4, defaults; batches of 32, 16 and 8 sequences of 64, 256 and 512 tokens) over
softmax attention in the same round of the same process: median of the rounds ± half the distance of the quartiles;
the first row says how long softmax attention takes. *Forward*: one draw from the posterior in eval mode, without a
graph. *Training*: forward and backward with what the block adds to the loss. *Bytes*: kept for the backward pass.
*Epoch*: training steps (objective, backward, Adam) of a whole model.""",
)
_ACCELERATOR = (
    "Benchmarks on a GPU",
    "As in [benchmarks](benchmarks.md). At these sizes a GPU waits for launches, of which softmax attention has one.",
)

if __name__ == "__main__":
    run_functions(benchmark, "benchmarks")
