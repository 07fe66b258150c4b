"""Amplitudes and temperatures of a classifier's methods, chosen by some folds and scored on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.networks.detect.detectors import OutputScores
from cgp.networks.methods.amplitudes import (
    COARSE,
    TEMPERATURES,
    AmplitudeSearch,
    LabelScores,
    chosen,
    has_amplitude,
    tune,
)
from cgp.networks.methods.temperature_scaling import fit_temperature, with_labels
from cgp.networks.model.inputs import Batch
from cgp.networks.tasks.labels import NO_LABEL
from cgp.networks.tasks.metrics import LabelledScores

from .validation_data import ValidationData

__all__ = ["KEPT_LABELS", "KEPT_LOGITS", "Scored", "Tuned"]

Array = NDArray[Any]
Key = float | str

KEPT_LABELS, KEPT_LOGITS = 50_000, 2**28
"""Labels and logits of all draws that are kept: of larger sets random batches choose amplitudes and temperatures."""


class Chunk(NamedTuple):
    """Logits of some labels.

    Attributes:
        rows: their positions among all, ``(n,)``.
        logits: by factor of the amplitudes (0 without draws) or name of another source, ``(S, n, C)``.
        far: scores of the representation by name, ``(n,)``.
    """

    rows: Tensor
    logits: dict[Key, Tensor]
    far: dict[str, Array]

    @staticmethod
    def joined(chunks: Sequence[Chunk]) -> Chunk:
        """All labels of some chunks."""
        logits = {key: torch.cat([chunk.logits[key] for chunk in chunks], 1) for key in chunks[0].logits}
        far = {name: np.concatenate([chunk.far[name] for chunk in chunks]) for name in chunks[0].far}
        return Chunk(torch.cat([chunk.rows for chunk in chunks]), logits, far)


class Scored(NamedTuple):
    """What is known of the labels when all have been scored.

    Attributes:
        methods: scores of every label by method.
        outputs: detection scores of the outputs by name, ``(N,)``; none where labels are not of inputs.
        far: those of the representation.
    """

    methods: dict[str, LabelledScores]
    outputs: dict[str, Array]
    far: dict[str, Array]


class Tuned:
    """Methods tuned on the other folds.

    Args:
        search: draws of the model.
        held: the validation data.
        fold_of: fold of each label, ``(N,)``.
        draws: whether the model draws.
        sources: further sources of logits ``(S, B, ..., C)`` by the name of the method that uses them, functions of a
            batch's number and the batch.
        far: scores of the representation of a batch's inputs, by name.
    """

    def __init__(
        self,
        search: AmplitudeSearch,
        held: ValidationData,
        fold_of: Tensor,
        *,
        draws: bool,
        sources: Mapping[str, Callable[[int, Batch], Tensor]],
        far: Callable[[Batch], dict[str, Array]],
    ) -> None:
        self.search, self.held, self.sources, self.far, self.draws = search, held, sources, far, draws
        scaled = any(has_amplitude(module) for module in search.model.modules())
        self.factors = (0.0, *(COARSE if scaled else (1.0,))) if draws else (0.0,)
        self.fold_of, self.labels = fold_of, torch.cat([labels[labels != NO_LABEL] for labels in held.labels])
        keys = (*self.factors, *sources)
        batches = self._batches(len(keys))
        known = Chunk.joined(list(self._chunks(keys, batches)))
        self.kept = known if batches is None else None
        self.logits, self.of_tuned, self.folds = known.logits, self.labels[known.rows], fold_of[known.rows.cpu()]
        self.scores = {f: LabelScores.of(self.logits[f], self.of_tuned, TEMPERATURES) for f in self.factors}

    def names(self) -> list[str]:
        """The methods."""
        drawn = ["posterior", "posterior + temperature", "widest posterior"] if self.draws else []
        return ["as trained", "temperature", *drawn, *self.sources]

    def choice(self, method: str, rows: Tensor | None = None) -> tuple[Key, float]:
        """The source of a method's logits, such as a factor of the amplitudes, and the temperature, by some labels."""
        if method == "as trained":
            return 0.0, 1.0
        if method == "temperature" or method in self.sources:
            key = method if method in self.sources else 0.0
            return key, self._temperature(key, rows)
        criterion = "widest" if method == "widest posterior" else "likelihood"
        return self._best(rows, criterion, fits=method != "posterior")

    def scored(self, *, inputs: bool) -> Scored:
        """Score every label by the choices of the other folds, and every input by the detectors, if asked."""
        plans = {
            name: {int(fold): self.choice(name, (self.folds != fold).to(self.labels.device)) for fold in self._folds}
            for name in self.names()
        }
        widest = OutputScores(self.search, *self._factor("widest posterior"))
        keys = {key for plan in plans.values() for key, _ in plan.values()} | {0.0, widest.factor}
        parts: list[Scored] = []
        for chunk in self._all_chunks([key for key in (*self.factors, *self.sources) if key in keys]):
            outputs = widest.of_logits(chunk.logits) if inputs else {}
            methods = {name: self._of_chunk(plan, chunk) for name, plan in plans.items()}
            parts.append(Scored(methods, outputs, chunk.far))
        return Scored(
            {name: LabelledScores.joined([part.methods[name] for part in parts]) for name in plans},
            *({n: np.concatenate([part[i][n] for part in parts]) for n in parts[0][i]} for i in (1, 2)),
        )

    def widest(self) -> tuple[float, float]:
        """Factor of the amplitudes, 0 without draws, and temperature of the widest posterior."""
        return self._factor("widest posterior")

    @property
    def _folds(self) -> Tensor:
        return self.fold_of.unique()

    def _factor(self, method: str) -> tuple[float, float]:
        key, temperature = self.choice(method if self.draws else "temperature")
        return float(key), temperature

    def _of_chunk(self, plan: dict[int, tuple[Key, float]], chunk: Chunk) -> LabelledScores:
        labels = self.labels[chunk.rows]
        probabilities = torch.zeros_like(chunk.logits[0.0][0])
        for fold, (key, temperature) in plan.items():
            rows = (self.fold_of[chunk.rows.cpu()] == fold).to(labels.device)
            probabilities[rows] = (chunk.logits[key][:, rows] / temperature).softmax(-1).mean(0)
        return LabelledScores.of(probabilities.cpu().numpy(), labels.cpu().numpy())

    def _best(self, rows: Tensor | None, criterion: str, *, fits: bool) -> tuple[float, float]:
        """The factor of the amplitudes and the temperature selected by some labels."""
        tried = tune(self.scores if fits else {f: scores.at(1.0) for f, scores in self.scores.items()}, rows)
        trial = chosen(tried, criterion)
        if not fits:
            return trial.factor, trial.temperature
        least = min(tried[0.0].temperature, 1.0) if trial.factor else TEMPERATURES[0]
        return trial.factor, self._temperature(trial.factor, rows, least=least)

    def _temperature(self, key: Key, rows: Tensor | None, *, least: float = TEMPERATURES[0]) -> float:
        """The temperature of logits ``(S, N, C)`` fitted to some labels; the smallest if all predictions are right."""
        kept = slice(None) if rows is None else rows
        return fit_temperature(self.logits[key][:, kept], self.of_tuned[kept], least=least)

    def _batches(self, num_keys: int) -> set[int] | None:
        """Random batches whose logits can be kept, or None: all."""
        first = next(iter(self.held))
        assert first.labels is not None
        classes = next(self.search.draws([first], (0.0,)))[2].shape[-1]
        logits = classes * num_keys * self.search.num_samples
        sizes = [labels.numel() for labels in self.held.labels]
        most = min(KEPT_LABELS, KEPT_LOGITS // logits)
        if sum(sizes) <= most:
            return None
        order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(self.search.seed)).tolist()
        total = np.cumsum([sizes[index] for index in order])
        folds = self.fold_of.split([int((labels != NO_LABEL).sum()) for labels in self.held.labels])
        count = max(int((total <= most).sum()), 1)
        while len(torch.cat([folds[index] for index in order[:count]]).unique()) < 2:  # each is tuned on another
            count += 1
        return set(order[:count])

    def _all_chunks(self, keys: Sequence[Key]) -> Iterator[Chunk]:
        if self.kept is not None:
            yield self.kept
        else:
            yield from self._chunks(keys, None)

    def _chunks(self, keys: Sequence[Key], batches: set[int] | None) -> Iterator[Chunk]:
        """Logits of all batches, or some, from several sources."""
        factors, last = [key for key in keys if isinstance(key, float)], 0
        for number, batch in enumerate(self.held):
            assert batch.labels is not None
            start, last = last, last + int((batch.labels != NO_LABEL).sum())
            if batches is not None and number not in batches:
                continue
            logits: dict[Key, Tensor] = {f: drawn for f, _, drawn in self.search.draws([batch], factors, first=number)}
            plain = next(iter(logits.values()))
            logits |= {name: source(number, batch).to(plain) for name, source in self.sources.items() if name in keys}
            of_labels = {key: with_labels(drawn, batch.labels)[0] for key, drawn in logits.items()}
            rows = torch.arange(start, last, device=self.labels.device)
            yield Chunk(rows, of_labels, self.far(batch))
