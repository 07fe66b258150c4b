"""What of a run departs from the paper, in words: every number carries it."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.evaluation.diagnostics import DIAGNOSTICS, collapse_of_runs
from experiments.reports.papers.measure import Measured
from experiments.reports.papers.names import plain
from experiments.reports.papers.runs import Run, logits_shape
from experiments.reports.papers.specification import Block
from experiments.runs.derived import derivation

__all__ = ["deviations"]

_DRAWS = 10
_SPLITS = {"cola-pooled": "pooled", "cola-official": "official"}
_SPLIT_WORDS = {
    "pooled": "80 : 20 of train and dev together",
    "selected": "70 : 10 : 20 of train and dev together, selected on the 10 %",
    "official": "8,551 : 527",
}


def deviations(block: Block, results: Sequence[tuple[Run, Measured]]) -> tuple[str, ...]:
    """Everything that departs from the paper in the runs behind a number.

    Args:
        block: the rows that it stands in.
        results: the runs, each with what was measured.

    Returns:
        Words, each once.
    """
    words = [word for run, measured in results for word in (*_recorded(run), *_seen(block, run), *measured.partial)]
    return tuple(dict.fromkeys(words))


def _recorded(run: Run) -> list[str]:
    """What the run says itself."""
    said = run.record.get("reduced") or []
    return [said] if isinstance(said, str) else [str(word) for word in said]


def _seen(block: Block, run: Run) -> list[str]:
    """What its configuration and its predictions show."""
    words = [] if run.data in block.folders else [f"the setting {run.data}, the paper's is {block.folders[0]}"]
    if block.question.kind == "corrupted" and _generated(run):
        words.append("generated corruptions, not the published files")
    if block.question.kind == "ood":
        words += _sources(block, run)
    words += _split(block, run)
    if block.question.kind != "cost":
        words += _numbers(block, run)
    collapse = collapse_of_runs([run.folder / DIAGNOSTICS])
    return words if collapse is None else [*words, collapse]


def _generated(run: Run) -> bool:
    return "generated" in (run.record.get("corruptions"), _nested(run.config, "data", "corruptions", "source"))


def _sources(block: Block, run: Run) -> list[str]:
    """What the OOD images are, where the run says that they are not simply what their name says."""
    said = {plain(name): words for name, words in (run.record.get("sources") or {}).items()}
    found = {name: said.get(plain(f"ood-{name}")) for name in block.question.members}
    return [f"{name}: {words}" for name, words in found.items() if words]


def _split(block: Block, run: Run) -> list[str]:
    expected = _SPLITS.get(block.folders[0])
    got = _nested(run.config, "data", "split")
    if expected is None or got in (None, expected):
        return []
    return [f"CoLA split {_SPLIT_WORDS.get(got, got)}, the paper's is {_SPLIT_WORDS[expected]}"]


def _numbers(block: Block, run: Run) -> list[str]:
    """Numbers of draws and of samples, read off the predictions on which the number rests."""
    path = _first_file(block, run)
    if path is None:
        return []
    draws, samples, _ = logits_shape(path)
    words = []
    if draws != _DRAWS and not _is_deterministic(run, draws) and derivation(run.method)[0] != "ensemble":
        words.append(f"{draws} draws, the paper's {_DRAWS}")
    if block.samples is not None and samples != block.samples:
        words.append(f"{samples:,} test samples, the paper's {block.samples:,}")
    return words


def _is_deterministic(run: Run, draws: int) -> bool:
    """One draw where more were asked for, or nobody noted how many: there is nothing to draw."""
    return draws == 1 and _nested(run.config, "evaluation", "draws") != 1


def _first_file(block: Block, run: Run) -> Any:
    kind = block.question.kind
    if kind == "corrupted":
        found = run.corrupted()
        return next((path for name in block.question.members for path in found.get(name, {}).values()), None)
    return run.file("test" if kind == "ood" else kind)


def _nested(config: Mapping[str, Any], *keys: str) -> Any:
    value: Any = config
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
