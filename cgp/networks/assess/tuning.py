"""Amplitudes, temperatures and scales of every method, chosen by some folds and scored on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from cgp.networks.methods.amplitudes import COARSE, AmplitudeSearch, has_amplitude
from cgp.networks.methods.rows import TEMPERATURES, Logits, Normals, chosen, tune
from cgp.networks.model.inputs import Batch
from cgp.networks.model.progress import Progress, progressing
from cgp.networks.model.repeated import keys_of
from cgp.networks.tasks import Task
from cgp.networks.tasks.metrics import LabelledScores, ValueErrors

from .compared import Entry

__all__ = [
    "KEPT_BYTES",
    "KEPT_LABELS",
    "KEPT_LOGITS",
    "Outcome",
    "Rows",
    "Source",
    "Tuned",
    "ValidationData",
    "outcome_as_it_is",
    "rows_of",
    "together",
]

Array = NDArray[Any]
Key = float | str
Rows = Any  # Logits or Normals, one of which a task has
Outcome = LabelledScores | ValueErrors
Source = Callable[[int, Batch], Rows]
"""What a method predicts of the labelled rows of a batch, whose number is given."""

KEPT_LABELS, KEPT_LOGITS = 50_000, 2**28
"""Labels and logits of all draws that are kept: of larger sets random batches choose amplitudes and temperatures."""


KEPT_BYTES = 2**28
"""Inputs of more bytes are not kept, but read again in every pass."""


class ValidationData:
    """Labelled batches that can be read several times; what can only be read once is kept."""

    def __init__(self, source: Any, read: Callable[[Any], Iterator[Batch]], progress: Progress = None) -> None:
        self.source, self.read, self.progress = source, read, progress
        self.kept: list[Batch] | None = []
        self.labels: list[Tensor] = []
        self.keys: list[int] = []
        size, is_read_once = 0, isinstance(source, Iterator)
        for batch in progressing(read(source), "read", progress):
            assert batch.labels is not None
            self.labels.append(batch.labels)
            self.keys += keys_of(batch)
            tensors = [leaf for leaf in pytree.tree_leaves(batch.inputs) if isinstance(leaf, Tensor)]
            size += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            if size > KEPT_BYTES and not is_read_once:
                self.kept = None
            if self.kept is not None:
                self.kept.append(batch)

    def __iter__(self) -> Iterator[Batch]:
        """The batches, in the same order every time."""
        batches = self._again() if self.kept is None else self.kept
        yield from progressing(batches, "assess", self.progress, len(self.labels))

    def _again(self) -> Iterator[Batch]:
        number = 0
        for number, batch in enumerate(self.read(self.source), 1):
            labels = self.labels[number - 1] if number <= len(self.labels) else None
            if batch.labels is None or labels is None or not torch.equal(batch.labels, labels):
                raise ValueError(
                    "validation: expected a set this large to have the same batches in every pass, got others in batch "
                    f"{number - 1} (pass a loader with shuffle=False)"
                )
            yield batch
        if number < len(self.labels):
            raise ValueError(f"validation: expected {len(self.labels)} batches in every pass, got {number}")


def rows_of(task: Task) -> Any:
    """What rows of a task are: logits with a temperature, or normal distributions with a scale."""
    return Logits if task.has_classes else Normals


def outcome_as_it_is(task: Task, drawn: Tensor, labels: Tensor) -> Outcome:
    """Scores of a batch's labels by what a network returned, ``(1, ..., C)``."""
    flat = task.flat(labels)
    outcome: Outcome = rows_of(task).of_draws(drawn, labels).outcome(flat, _unit(flat))
    return outcome


def together(parts: Sequence[Outcome]) -> Outcome:
    """Scores of the labels of all parts."""
    return type(parts[0])(*map(np.concatenate, zip(*parts, strict=True)))


def _unit(labels: Tensor) -> Any:
    """The temperature, or the scale of each output, that changes nothing."""
    return 1.0 if labels.dim() == 1 else torch.ones_like(labels[0])


class Chunk(NamedTuple):
    """What all sources predict of rows at some places ``(n,)``, by factor or name, and scores of the inputs by name."""

    places: Tensor
    rows: dict[Key, Rows]
    scores: dict[str, Array]

    @staticmethod
    def joined(chunks: Sequence[Chunk]) -> Chunk:
        """All labels of some chunks."""
        rows = {key: type(part).joined([chunk.rows[key] for chunk in chunks]) for key, part in chunks[0].rows.items()}
        scores = {name: np.concatenate([chunk.scores[name] for chunk in chunks]) for name in chunks[0].scores}
        return Chunk(torch.cat([chunk.places for chunk in chunks]), rows, scores)


class Tuned:
    """Methods tuned on the other folds, with further sources of rows and scores of the inputs by name."""

    def __init__(
        self,
        search: AmplitudeSearch,
        held: ValidationData,
        fold_of: Tensor,
        *,
        draws: bool,
        sources: Mapping[str, Source],
        scores: Callable[[int, Batch, Tensor], dict[str, Array]],
    ) -> None:
        self.search, self.held, self.sources, self.scores_of = search, held, sources, scores
        self.kind = rows_of(search.task)
        scaled = any(has_amplitude(module) for module in search.model.modules())
        factors = (0.0, *(COARSE if scaled else (1.0,))) if draws else (0.0,)
        self.fold_of, self.labels = fold_of, torch.cat([search.task.flat(labels) for labels in held.labels])
        keys = (*factors, *sources)
        batches = self._batches(len(keys))
        known = Chunk.joined(list(self._chunks(keys, batches)))
        self.kept = known if batches is None else None
        self.rows, self.of_tuned, self.folds = known.rows, self.labels[known.places], fold_of[known.places.cpu()]
        tried = factors if draws else ()  # otherwise there is no amplitude to choose
        tunings = {factor: self.rows[factor].tuning(self.of_tuned) for factor in tried}
        self.tunings = {factor: tuning for factor, tuning in tunings.items() if tuning is not None}  # draws overflow
        self._plans: dict[tuple[Key | None, str, bool], dict[int, tuple[Key, Any]]] = {}
        self._wholes: dict[tuple[Key | None, str, bool], tuple[Key, Any]] = {}

    @property
    def draws(self) -> bool:
        """Whether there is a posterior, some of whose draws are finite."""
        return len(self.tunings) > 1

    @property
    def kept_folds(self) -> list[int]:
        """The folds."""
        return self.fold_of.unique().tolist()

    def choice(self, entry: Entry, rows: Tensor | None = None) -> tuple[Key, Any]:
        """The source of a row of the report, and its temperature or scale, by some labels."""
        if entry.key is None:
            return self._best(entry, rows)
        return entry.key, self._parameter(entry.key, rows) if entry.fits else _unit(self.labels)

    def whole(self, entry: Entry) -> tuple[Key, Any]:
        """The choice by all labels."""
        asked = entry.key, entry.criterion, entry.fits
        if asked not in self._wholes:
            self._wholes[asked] = self.choice(entry)
        return self._wholes[asked]

    def plan(self, entry: Entry) -> dict[int, tuple[Key, Any]]:
        """The choices for each fold, by the other folds."""
        asked = entry.key, entry.criterion, entry.fits
        if asked not in self._plans:
            others = {fold: (self.folds != fold).to(self.labels.device) for fold in self.kept_folds}
            self._plans[asked] = {fold: self.choice(entry, rows) for fold, rows in others.items()}
        return self._plans[asked]

    def scored(
        self, entries: Mapping[str, Entry], widest: float, of_draws: Callable[[Rows], dict[str, Array]]
    ) -> tuple[dict[str, Outcome], dict[str, Array]]:
        """Scores of every label by the other folds' choices, and of every input by the draws of the widest factor."""
        plans = {name: self.plan(entry) for name, entry in entries.items()}
        whole = {name: self.whole(entry) for name, entry in entries.items()}
        choices = [*whole.values(), *(choice for plan in plans.values() for choice in plan.values())]
        keys = {key for key, _ in choices} | {0.0, widest}
        parts: dict[str, list[tuple[Array, Outcome]]] = {name: [] for name in plans}
        scores: list[dict[str, Array]] = []
        for chunk in self.all_chunks([key for key in {0.0: None, **self.tunings, **self.sources} if key in keys]):
            for name, plan in plans.items():
                parts[name] += self._outcomes(plan, whole[name], chunk)
            scores.append({**chunk.scores, **of_draws(chunk.rows[widest])})
        of_inputs = {name: np.concatenate([part[name] for part in scores]) for name in scores[0]}
        return {name: _in_order(outcomes) for name, outcomes in parts.items()}, of_inputs

    def all_chunks(self, keys: Sequence[Key]) -> Iterator[Chunk]:
        """Predictions of all labels by some sources: the ones that are kept, or made again."""
        if self.kept is not None:
            yield self.kept
        else:
            yield from self._chunks(keys, None)

    def _outcomes(
        self, plan: Mapping[int, tuple[Key, Any]], whole: tuple[Key, Any], chunk: Chunk
    ) -> Iterator[tuple[Array, Outcome]]:
        """Places and scores of a chunk's labels, fold by fold, and their order by the choice of all labels."""
        labels, folds = self.labels[chunk.places], self.fold_of[chunk.places.cpu()]
        for fold, (key, parameter) in plan.items():
            if (inside := folds == fold).any():
                rows = inside.to(labels.device)
                outcome: Outcome = chunk.rows[key].at(rows).outcome(labels[rows], parameter)
                if isinstance(outcome, LabelledScores) and (key, parameter) != whole:
                    order = chunk.rows[whole[0]].at(rows).probabilities(whole[1]).amax(-1)
                    outcome = outcome._replace(order=order.cpu().numpy())
                yield chunk.places[rows].cpu().numpy(), outcome

    def _best(self, entry: Entry, rows: Tensor | None) -> tuple[float, Any]:
        """The factor of the amplitudes and the temperature or scale selected by some labels."""
        if not entry.fits:
            trial = chosen(tune({f: scores.at(1.0) for f, scores in self.tunings.items()}, rows), entry.criterion)
            return trial.factor, trial.parameter
        tried = tune(self.tunings, rows)
        trial = chosen(tried, entry.criterion)
        if not isinstance(trial.parameter, float):  # a scale is exact already
            return trial.factor, trial.parameter
        return trial.factor, self._parameter(trial.factor, rows, least=min(tried[0.0].parameter, 1.0))

    def _parameter(self, key: Key, rows: Tensor | None, *, least: float = TEMPERATURES[0]) -> Any:
        """The temperature or scale fitted to some labels; the smallest if all predictions are right."""
        kept = slice(None) if rows is None else rows
        return self.rows[key].at(kept).fit(self.of_tuned[kept], least=least)

    def _batches(self, num_keys: int) -> set[int] | None:
        """Random batches whose predictions can be kept, or None: all."""
        first = next(iter(self.held))
        classes = next(self.search.draws([first], (0.0,)))[2].shape[-1]
        logits = classes * num_keys * self.search.num_samples
        sizes = [labels.numel() for labels in self.held.labels]
        most = min(KEPT_LABELS, KEPT_LOGITS // logits)
        if sum(sizes) <= most:
            return None
        generator = torch.Generator().manual_seed(self.search.seed)
        order = torch.randperm(len(sizes), generator=generator, device="cpu").tolist()
        total = np.cumsum([sizes[index] for index in order])
        folds = self.fold_of.split([int(self.search.task.present(labels).sum()) for labels in self.held.labels])
        count = max(int((total <= most).sum()), 1)
        while len(torch.cat([folds[index] for index in order[:count]]).unique()) < 2:  # each is tuned on another
            count += 1
        return set(order[:count])

    def _chunks(self, keys: Sequence[Key], batches: set[int] | None) -> Iterator[Chunk]:
        """Predictions of all batches, or some, from several sources."""
        factors, last = [key for key in keys if isinstance(key, float)], 0
        for number, batch in enumerate(self.held):
            assert batch.labels is not None
            start, last = last, last + int(self.search.task.present(batch.labels).sum())
            if batches is not None and number not in batches:
                continue
            drawn = {f: logits for f, _, logits in self.search.draws([batch], factors, first=number)}
            rows: dict[Key, Rows] = {f: self.kind.of_draws(logits, batch.labels) for f, logits in drawn.items()}
            rows |= {name: source(number, batch) for name, source in self.sources.items() if name in keys}
            places = torch.arange(start, last, device=self.labels.device)
            yield Chunk(places, rows, self.scores_of(number, batch, drawn[0.0][0]))


def _in_order(parts: Sequence[tuple[Array, Outcome]]) -> Outcome:
    """Scores of some labels each, with their places, as those of all labels in order."""
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    joined = together([outcome for _, outcome in parts])
    return type(joined)(*(column[order] for column in joined))
