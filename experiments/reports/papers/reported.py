"""The papers' printed numbers, as data: `reported.csv`, whose source and doubts `README.md` beside it names."""

import csv
import functools
import math
from pathlib import Path
from typing import NamedTuple

__all__ = ["REPORTED", "Reported", "reported"]

REPORTED = Path(__file__).parent / "reported.csv"


class Reported(NamedTuple):
    """One printed number in natural units.

    Attributes:
        paper: "cgpt" or "kep-svgp".
        table: its number as printed, "II" or "2".
        dataset: what the model was trained on or, for corrupted sets, what it was tested on.
        shift: category of corruptions or OOD set; empty otherwise.
        method: as printed.
        detector: of OOD inputs, where there are several.
        metric: as `experiments.evaluation` calls it.
        mean: printed mean / scale.
        sd: printed standard deviation / scale, NaN where none is printed.
        scale: what the natural value was multiplied by for printing.
        digits: decimals printed.
        note: what is inferred, repeated or doubtful.
    """

    paper: str
    table: str
    dataset: str
    shift: str
    method: str
    detector: str
    metric: str
    mean: float
    sd: float
    scale: float
    digits: int
    note: str


@functools.cache
def _all(path: Path) -> tuple[Reported, ...]:
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_number(line) for line in csv.DictReader(file))


def _number(line: dict[str, str]) -> Reported:
    scale = float(line["scale"])
    return Reported(
        *(line[key] for key in ("paper", "table", "dataset", "shift", "method", "detector", "metric")),
        mean=float(line["mean"]) / scale,
        sd=float(line["sd"]) / scale if line["sd"] else math.nan,
        scale=scale,
        digits=len(line["mean"].partition(".")[2]),
        note=line["note"],
    )


def reported(paper: str, number: str, *, path: Path = REPORTED) -> tuple[Reported, ...]:
    """The printed numbers of one table, in the order of the page.

    Args:
        paper: "cgpt" or "kep-svgp".
        number: the table's, as printed.
        path: the file.

    Returns:
        Its numbers; none for a figure or for slides that print none.

    Example:
        >>> first = reported("cgpt", "I")[0]
        >>> first.method, first.metric, round(first.mean, 5), round(first.sd, 5), first.scale
        ('SGPA', 'mcc', 0.28826, 0.00982, 100.0)
    """
    return tuple(number_ for number_ in _all(path) if (number_.paper, number_.table) == (paper, number))
