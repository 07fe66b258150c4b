"""Which run a configuration is: its resolved values but for those that are declared here not to count."""

from collections.abc import Collection
from functools import cache
from typing import Any

from experiments.configuration import RunConfig, flattened
from experiments.runs.parsing import resolve
from experiments.runs.rows import is_row

__all__ = ["PLACES", "PREDICTED", "SPLIT", "WORDS", "changed", "changes", "check_name"]

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


SPLIT = (
    *("data.name", "data.split", "data.split_seed", "data.validation", "data.unchecked", "data.limit_train"),
    *("data.image_size", "data.encoder", "data.max_length", "data.vocabulary_size", "data.min_count"),
)
"""What decides which examples a run learns from, and in what form; which are predicted may differ."""


def changed(
    there: RunConfig, wanted: RunConfig, *, only: Collection[str] | None = None, but: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Return the values in which two configurations differ, by dotted names."""
    values, others = (dict(flattened(config.plain())) for config in (there, wanted))
    names = (key for key in {**values, **others} if key not in but and (only is None or key in only))
    return {key: (values.get(key), others.get(key)) for key in names if values.get(key) != others.get(key)}


def changes(config: RunConfig) -> list[str]:
    """Name the values that the command line or a configuration over the row changed, in one sentence or none."""
    if not is_row(config.name):
        return []
    differing = changed(_row(config.name), config, but=(*WORDS, *PLACES, *_READ_OFF))
    words = ", ".join(f"{key} {value} ({row})" for key, (row, value) in differing.items())
    return [f"not as in the row: {words}"] if words else []


def check_name(config: RunConfig) -> None:
    """Check that a run that is called after a row is trained on the row's data: tables go by the name."""
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
