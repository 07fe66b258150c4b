"""Which run a configuration is: its resolved values but for those that are declared here not to count."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from experiments.configuration import RunConfig, flattened
from experiments.runs.parsing import resolve
from experiments.runs.rows import is_row

__all__ = ["PLACES", "PREDICTED", "WORDS", "changes", "check_name", "differences", "identity"]

WORDS = ("method.label", "deviations", "reduced")
"""What a run is called, and what is said of it."""

PLACES = ("data.root", "data.folder", "data.cache", "data.download")
"""Where its data lie."""

PREDICTED = (
    *("data.ood", "data.limit_ood"),
    *("data.corruptions.kinds", "data.corruptions.severities", "data.corruptions.limit", "data.corruptions.source"),
    *("evaluation.draws", "evaluation.batch_size", "evaluation.full"),
)
"""What is predicted, and how often, by a model that may be trained long since."""

_READ_OFF = (
    *("name", "seed", "data.name", "data.unchecked", "data.limit_train", "data.limit_validation", "data.limit_test"),
    *("data.corruptions.seed", "data.ood", "data.limit_ood", "data.corruptions.kinds", "data.corruptions.severities"),
    *("data.corruptions.limit", "data.corruptions.source", "evaluation.batch_size", "evaluation.full"),
)
"""What is said elsewhere of a run: how many examples, which sets and which corruptions its predictions show."""


def identity(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the weights of a run, by dotted names."""
    return _without(plain, (*WORDS, *PLACES, *PREDICTED))


def differences(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Name the values in which two runs differ."""
    changed = [key for key in sorted({*there, *wanted}) if there.get(key) != wanted.get(key)]
    return [f"{key}: {there.get(key)!r} there, {wanted.get(key)!r} asked for" for key in changed]


def changes(config: RunConfig) -> list[str]:
    """Name the values that the command line or a configuration over the row changed, in one sentence or none."""
    if not is_row(config.name):
        return []
    row, own = (_without(one.plain(), (*WORDS, *PLACES, *_READ_OFF)) for one in (_row(config.name), config))
    changed = [key for key in {**row, **own} if row.get(key) != own.get(key)]
    words = ", ".join(f"{key} {own.get(key)} ({row.get(key)})" for key in changed)
    return [f"not as in the row: {words}"] if words else []


def check_name(config: RunConfig) -> None:
    """Check that a run that is called after a row is trained on the row's data: tables go by the name."""
    if not is_row(config.name):
        return
    own, row = config.data.name, _row(config.name).data.name
    if own != row:
        method = config.name.split("/")[1]
        raise ValueError(
            f"name: expected another one for a run on {own}, as --name {own}/{method}, got {config.name}, a row on "
            f"{row}"
        )


@cache
def _row(name: str) -> RunConfig:
    return resolve([name])


def _without(plain: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    skipped = set(names)
    return {key: value for key, value in flattened(plain) if key not in skipped}
