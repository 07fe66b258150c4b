"""Identity of a run: the resolved values of its configuration, except those listed here."""

from collections.abc import Collection
from functools import cache
from typing import Any

from experiments.configuration import RunConfig, flattened
from experiments.runs.parsing import resolve
from experiments.runs.rows import is_row

__all__ = ["PLACES", "PREDICTED", "SPLIT", "WORDS", "changed", "changes", "check_name"]

WORDS = ("method.label", "deviations", "reduced")
"""Name and description of a run."""

PLACES = ("data.root", "data.folder", "data.cache", "data.download")
"""Location of its data."""

PREDICTED = (
    *("data.ood", "data.limit_ood"),
    *("data.corruptions.kinds", "data.corruptions.severities", "data.corruptions.limit", "data.corruptions.source"),
    *("evaluation.draws", "evaluation.batch_size", "evaluation.full"),
)
"""Inputs to predict and number of draws, which may change after the training."""

_READ_OFF = (
    *("name", "seed", "data.name", "data.unchecked", "data.limit_train", "data.limit_validation", "data.limit_test"),
    *("data.corruptions.seed", "data.ood", "data.limit_ood", "data.corruptions.kinds", "data.corruptions.severities"),
    *("data.corruptions.limit", "data.corruptions.source", "evaluation.batch_size", "evaluation.full"),
)
"""Values reported elsewhere: the predictions of a run show the number of examples, the sets and the corruptions."""


SPLIT = (
    *("data.name", "data.split", "data.split_seed", "data.validation", "data.unchecked", "data.limit_train"),
    *("data.image_size", "data.encoder", "data.max_length", "data.vocabulary_size", "data.min_count"),
)
"""Values that determine the training examples and their form; the predicted examples may differ."""


def changed(
    there: RunConfig, wanted: RunConfig, *, only: Collection[str] | None = None, but: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Return the values in which two configurations differ, by dotted names."""
    values, others = (dict(flattened(config.plain())) for config in (there, wanted))
    names = (key for key in {**values, **others} if key not in but and (only is None or key in only))
    return {key: (values.get(key), others.get(key)) for key in names if values.get(key) != others.get(key)}


def changes(config: RunConfig) -> list[str]:
    """The values overridden by the command line or a configuration over the row, as one sentence or none."""
    if not is_row(config.name):
        return []
    differing = changed(_row(config.name), config, but=(*WORDS, *PLACES, *_READ_OFF))
    words = ", ".join(f"{key} {value} ({row})" for key, (row, value) in differing.items())
    return [f"not as in the row: {words}"] if words else []


def check_name(config: RunConfig) -> None:
    """Check that a run with the name of a row uses the row's data: tables select runs by name."""
    if not is_row(config.name):
        return
    data, row = config.data.name, _row(config.name).data.name
    if data != row:
        method = config.name.split("/")[1]
        raise ValueError(
            f"name: expected another one for a run on {data}, as --name {data}/{method}, got {config.name}, a row on "
            f"{row}"
        )


@cache
def _row(name: str) -> RunConfig:
    return resolve([name])
