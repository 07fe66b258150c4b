"""How fast the upper layers learn with another attention in the place of the pretrained one.

Protocol, written before the runs: the states of 1,000 training images of CIFAR-10 above ten layers, as `fit` has them;
the last two layers, the norm and a new head, four epochs, AdamW, validation by the blocks' means on 500 images after
every epoch. Every form keeps the host's maps of values and outputs, and starts with new maps of queries and keys, as
:func:`cgp.replace_attention` does; "softmax" is the same with softmax, "softmax, pretrained" keeps all of the host's.
Blocks and the head learn ten times as fast as the rest. The rate of each form is that of 3e-5, 1e-4 and 3e-4 with the
smallest validation NLL after one epoch of another seed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import cgp
from experiments.configuration import each_seed
from experiments.data import Examples
from experiments.grids import as_markdown, write_csv
from experiments.studies.learning_curves import FORMS, Point, table, trained

from .network import Upper, host, splits_of_states

__all__ = ["learning"]

_PRETRAINED = "softmax, pretrained"
_RATES, _FASTER, _PILOT = (3e-5, 1e-4, 3e-4), 10.0, 99
_TRAIN, _VALIDATION = 1000, 500


def learning(
    *,
    data: Path,
    out: Path = Path("runs/dinov2"),
    names: Sequence[str] = ("softmax", _PRETRAINED, "cgp", "sparse_cgp", "kernel", "sgpa", "kep_svgp"),
    seeds: int | tuple[int, ...] = (0, 1),
    epochs: int = 4,
) -> None:
    """Train every form and print a table of the curves, which are written beside it.

    Args:
        data: folder with cifar10/.
        out: folder to write.
        names: forms of the registry, and "softmax, pretrained"; softmax among them.
        seeds: the seeds, one or several, such as `[0,1,2]`.
        epochs: number of epochs.
    """
    splits = splits_of_states(data, out)
    parts = _pair(splits.train, _TRAIN), _pair(splits.validation, _VALIDATION)
    points = []
    for name in names:
        rate = min(_RATES, key=lambda rate: _curve(name, _PILOT, *parts, epochs=1, rate=rate)[-1].nll)
        print(f"{name}: {rate:g}", flush=True)
        for seed in each_seed(seeds):
            points += _curve(name, seed, *parts, epochs=epochs, rate=rate)
            write_csv(out / "learning.csv", [point._asdict() for point in points])
    print(as_markdown(table(points)))


def _pair(part: Examples, count: int) -> tuple[Tensor, Tensor]:
    return part.images[:count].float(), part.known_labels[:count]


def _curve(
    name: str,
    seed: int,
    known: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    *,
    epochs: int,
    rate: float,
) -> list[Point]:
    torch.manual_seed(seed)
    model: nn.Module = Upper(host(), 2, 10)
    new = [*model.get_submodule("head").parameters()]
    if name != _PRETRAINED:
        block: Any = FORMS[name]
        model = cgp.replace_attention(model, block)
        new = [p for n, p in model.named_parameters() if n.startswith("head") or ".attention.block" in n]
    measured = trained(model, known, held_out, epochs=epochs, rate=rate, new=new, faster=_FASTER)
    return [Point("dinov2", 2, name, seed, *each) for each in measured]
