"""In words, what of a run is not as its row has it."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from experiments.runs.experiment import Experiment
from experiments.runs.parsing import experiment_from
from experiments.runs.rows import is_row

__all__ = ["changes", "check_name"]

_PARTS = ("data", "model", "method", "training", "evaluation")
_WORDS = {"method.label"}
# How many examples, which sets and which corruptions are read off the data and the predictions.
_READ_OFF = re.compile(
    r"data\.(root|folder|cache|download|name|unchecked|ood|limit_\w+|corruptions\..*)|evaluation\.(batch_size|full|strengths)"
)


def changes(experiment: Experiment) -> list[str]:
    """Name the values that the command line or an override changed.

    Args:
        experiment: a run; nothing is said of one that is called after no row.

    Returns:
        One sentence, or nothing.

    Example:
        >>> changes(experiment_from(["cola/softmax"], ["training.epochs=3"]))
        ['not as in the row: training.epochs 3 (50)']
    """
    if not is_row(experiment.name):
        return []
    row, own = (dict(_flat(one.plain())) for one in (_row(experiment.name), experiment))
    changed = [key for key in {**row, **own} if row.get(key) != own.get(key) and _counts(key)]
    words = ", ".join(f"{key} {own.get(key)} ({row.get(key)})" for key in changed)
    return [f"not as in the row: {words}"] if words else []


def check_name(experiment: Experiment) -> None:
    """Check that a run that is called after a row is trained on the row's data: tables go by the name.

    Args:
        experiment: a run.

    Raises:
        ValueError: if it is trained on others.

    Example:
        >>> check_name(experiment_from(["cola/softmax"], ["data.name=imdb"]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: name: expected another one for a run on imdb, as --name imdb/softmax, got cola/softmax, ...
    """
    if not is_row(experiment.name):
        return
    own, row = experiment.data.name, _row(experiment.name).data.name
    if own != row:
        method = experiment.name.split("/")[1]
        raise ValueError(
            f"name: expected another one for a run on {own}, as --name {own}/{method}, got {experiment.name}, a row on "
            f"{row}"
        )


@cache
def _row(name: str) -> Experiment:
    return experiment_from([name])


def _counts(key: str) -> bool:
    return key not in _WORDS and not _READ_OFF.fullmatch(key)


def _flat(plain: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values of the parts that decide the numbers of a run, by their dotted names."""
    for part in _PARTS:
        for key, value in plain[part].items():
            if isinstance(value, Mapping):
                yield from ((f"{part}.{key}.{name}", option) for name, option in value.items())
            else:
                yield f"{part}.{key}", value
