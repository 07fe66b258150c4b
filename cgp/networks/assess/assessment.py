"""The result of :func:`cgp.assess`: tables, pictures, and a recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cgp.comparisons import Difference, aligned, critical_value
from cgp.extras import needs_extra
from cgp.networks.predict.prediction import data_frame
from cgp.networks.tasks.metrics import LabelledScores, ValueErrors

from .claims import FEWEST_LABELS, FEWEST_WRONG, LEAST_NATS, Detection, best_detector
from .recipe import Recipe
from .sentences import about_detection, about_methods
from .sets import COVERAGE, Sets

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Assessment", "Detection"]

_COLUMNS = ("nll", "brier", "ece", "ece_chance", "aurc", "risk80", "risk90", "accuracy")
_OF_VALUES = ("nll", "crps", "rmse", "coverage90", "width90")
_PER_MILLE = ("aurc",)


@dataclass(frozen=True)
class Assessment:
    """The scores of a network's uncertainties, side by side.

    Attributes:
        scores: for each method, by its name, on held-out folds: of classes
            :func:`cgp.networks.tasks.metrics.classification_scores`, of values
            :meth:`cgp.networks.tasks.metrics.ValueErrors.summary`, in their units.
        differences: for each method and each of "nll", "brier" and "accuracy", of values "nll" and "crps", the paired
            difference to the first one.
        beyond: paired difference in NLL to the temperature or scale alone, of every method that does more.
        least: lower bound of the gain of the temperature or scale over the network as trained, and of those over it:
            all of them hold with a probability of 95 %, whatever the distribution of the differences
            (:func:`cgp.networks.assess.gains.least_mean`).
        detection: results for each set of other inputs, by its name, and each detector.
        sets: results of prediction sets, by the name of their score, if any was compared.
        num_labels: labels of the validation data, or rows of values.
        num_inputs: inputs that they belong to.
        outcomes: for each method, the scores of every label.
        recipe: fitted components, for :meth:`apply`.
    """

    scores: dict[str, dict[str, float]]
    differences: dict[str, dict[str, Difference]]
    beyond: dict[str, Difference]
    least: dict[str, float]
    detection: dict[str, dict[str, Detection]]
    sets: dict[str, Sets]
    num_labels: int
    num_inputs: int
    outcomes: dict[str, LabelledScores | ValueErrors] = field(repr=False)
    recipe: Recipe = field(repr=False)

    def __str__(self) -> str:
        """The tables, the sentence, and the calls that apply the recommendation."""
        return f"{self.table()}\n\n{self.sentence}\n\n{self.calls}"

    def apply(self, model: nn.Module, method: str | None = None, detectors: Sequence[str] | None = None) -> nn.Module:
        """A model that predicts by the recommended method, and scores inputs by the recommended detectors.

        Args:
            model: the assessed model. It is not changed.
            method: another method of the table, by its name; None is :attr:`method`.
            detectors: other scores of the tables, by their names; None means those of :attr:`detectors`.

        Returns:
            A copy that shares the model's tensors, for :func:`cgp.predict` (whose prediction holds the scores in
            ``ood``), :func:`cgp.save_pretrained` and :func:`cgp.pipeline`. All parameters are fitted to all labels.

        Raises:
            ValueError: if the model is another one, or the report has no such method or detector.
        """
        method = self.method if method is None else method
        if method not in self.recipe.choices:
            raise ValueError(f"method: expected one of {tuple(self.recipe.choices)}, got {method!r}")
        names = self._named if detectors is None else tuple(detectors)
        if missing := [name for name in names if name not in self.recipe.detectors]:
            raise ValueError(f"detectors: expected some of {tuple(self.recipe.detectors)}, got {missing[0]!r}")
        return self.recipe.apply(model, method, names)

    @property
    def calls(self) -> str:
        """The calls that apply the recommendation, as code."""
        options = self.recipe.options(self.method)
        lines = ["model = report.apply(model)", f"prediction = cgp.predict(model, inputs{options})"]
        lines += [f'prediction.ood["{name}"]' for name in self._named]
        return "\n".join(lines)

    @property
    def method(self) -> str:
        """The name of the recommended method.

        Of the methods that do more than a temperature or scale, the best that lowers the NLL of that alone; else that
        alone, if it lowers the NLL of the network as trained, or that has no distribution; else "as trained". A
        difference counts if it is above .002 nats and above its standard error times the critical value for the best of
        as many comparisons (:func:`cgp.comparisons.critical_value`), if its lower bound is above 0, among at least 20
        labels, of classes with 5 wrong answers.
        """
        first, alone, gains = next(iter(self.scores)), self.recipe.task.parameter, self.beyond
        if not self.has_enough_labels:
            return first
        if better := [method for method in gains if self.is_clear(method)]:
            return min(better, key=lambda method: gains[method].mean)
        return alone if first == alone or self.is_clear(alone) else first

    def is_clear(self, method: str, *, bounded: bool = True) -> bool:
        """Whether a method lowers the NLL by more than chance would.

        Args:
            method: its name; the temperature or scale is compared with the network as trained, others with it.
            bounded: whether answers that no label has shown count, too; otherwise only standard errors do.

        Returns:
            Whether the gain is clear.
        """
        change = self.beyond.get(method, self.differences[method]["nll"])
        is_large = (-change).exceeds(LEAST_NATS, critical_value(len(self.least)))
        return is_large and (not bounded or self.least[method] > 0.0)

    @property
    def detectors(self) -> dict[str, str | None]:
        """The recommended score for each set of other inputs, by its name, or None.

        It is the one with the largest AUROC among those that gain .01 over the first score, and the critical value for
        the best of all scores on all sets times DeLong's error, and whose AUROC is as clearly above one half. Sets of
        fewer than 20 inputs have none.
        """
        comparisons = sum(len(scores) - 1 for scores in self.detection.values())
        return {name: best_detector(scores, comparisons) for name, scores in self.detection.items()}

    @property
    def sentence(self) -> str:
        """The recommendation, with its benefit: ``method`` and ``detectors`` in a sentence."""
        return " ".join([about_methods(self), *about_detection(self.detection, self.detectors)])

    def table(self) -> str:
        """The scores as text: a row per method; AUROC and FPR95 with a row per score and a column per set."""
        lines = aligned(self._method_rows())
        for measure in ("auroc", "fpr95") if self.detection else ():
            lines += ["", *aligned([[measure.upper(), *self.detection], *self._detection_rows(measure)])]
        if self.sets:
            head = [f"sets at {100 * COVERAGE:.0f} %", "coverage", "classes", "of one class"]
            rows = [[name, *(f"{value:.3f}" for value in found)] for name, found in self.sets.items()]
            lines += ["", *aligned([head, *rows])]
        return "\n".join(lines)

    def to_frame(self) -> pd.DataFrame:
        """The scores, one row per method, with "nll_change" and its "nll_change_error"; needs pandas."""
        names = list(next(iter(self.scores.values())))
        columns: dict[str, Any] = {name: [scores[name] for scores in self.scores.values()] for name in names}
        columns["nll_change"] = [self.differences[method]["nll"].mean for method in self.scores]
        columns["nll_change_error"] = [self.differences[method]["nll"].error for method in self.scores]
        return data_frame(columns, list(self.scores))

    def to_html(self) -> str:
        """The sentence and the tables as a fragment of HTML."""
        return f"<section><p>{escape(self.sentence)}</p><pre>{escape(self.table())}</pre></section>"

    @property
    def confidences(self) -> dict[str, NDArray[Any]]:
        """For each method, the largest probability of each label, ``(N,)``; none of values."""
        return {name: each.confidence for name, each in self.outcomes.items() if isinstance(each, LabelledScores)}

    @property
    def correct(self) -> dict[str, NDArray[Any]]:
        """For each method, whether its prediction is right, ``(N,)``; none of values."""
        return {name: each.correct for name, each in self.outcomes.items() if isinstance(each, LabelledScores)}

    @property
    def cumulative(self) -> dict[str, NDArray[Any]]:
        """For each method, the predictive distribution function at each value, ``(N C,)``; none of classes."""
        return {name: each.cumulative for name, each in self.outcomes.items() if isinstance(each, ValueErrors)}

    @property
    def num_wrong(self) -> int:
        """Wrong answers of the network as trained."""
        return int((~next(iter(self.correct.values()))).sum())

    @property
    def has_enough_labels(self) -> bool:
        """Whether there are enough for any claim of a method."""
        enough = min(self.num_labels, self.num_inputs) >= FEWEST_LABELS
        return enough and (not self.correct or self.num_wrong >= FEWEST_WRONG)

    def plot(self) -> Figure:
        """Draw reliability and risk by coverage, as trained, with a temperature and by ``method``, and the detectors.

        Returns:
            A figure with a panel of reliability per method, one of risk by coverage and, where there are other inputs,
            one of the AUROC with twice DeLong's error of the first score and of those that ``detectors`` names. Of
            values, a panel with the share inside central intervals against the nominal share, by method.
        """
        with needs_extra("plot", "Assessment.plot"):
            import matplotlib.pyplot as plt

        from cgp import plotting

        if self.cumulative:
            with plotting.style():
                figure, ax = plt.subplots(figsize=(4.2, 3.2), layout="constrained")
                plotting.interval_coverage(self.cumulative, ax=ax)
            return figure
        methods = list(dict.fromkeys(("as trained", "temperature", self.method)))
        pairs = {method: (self.confidences[method], self.correct[method]) for method in methods}
        with plotting.style():
            figure = plt.figure(figsize=(3.2 * len(methods), 6.2), layout="constrained")
            above, below = figure.subfigures(2, 1, height_ratios=(3.4, 2.8), squeeze=False)[:, 0]
            for ax, method in zip(above.subplots(1, len(methods)), methods, strict=True):
                plotting.reliability_diagram(*pairs[method], ax=ax).set_title(method)
            beside = below.subplots(1, 2 if self.detection else 1, squeeze=False)[0]
            plotting.risk_coverage(pairs, ax=beside[0])
            if self.detection:
                self._plot_detectors(beside[1])
        return figure

    def _plot_detectors(self, ax: Axes) -> None:
        rows: dict[str, list[tuple[float, Detection]]] = {}
        for place, (name, score) in enumerate(self.detectors.items()):
            first = next(iter(self.detection[name]))
            for step, label in enumerate(dict.fromkeys((first, score or first))):
                rows.setdefault(label, []).append((place + 0.2 * step, self.detection[name][label]))
        for label, marks in rows.items():
            places, detections = zip(*marks, strict=True)
            errors = [2 * d.error if np.isfinite(d.error) else 0.0 for d in detections]
            ax.errorbar([d.auroc for d in detections], places, xerr=errors, fmt="o", label=label)
        ax.axvline(0.5, color="0.6", lw=0.9)
        ax.set(xlabel="AUROC", yticks=range(len(self.detection)), yticklabels=list(self.detection))
        ax.set_ylim(len(self.detection) - 0.4, -0.6)
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0))

    @property
    def _named(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in self.detectors.values() if name is not None))

    def _method_rows(self) -> list[list[str]]:
        """Cells of the table of methods, whose last column is the change of the NLL against the first method."""
        columns, first = _COLUMNS if self.correct else _OF_VALUES, next(iter(self.scores))
        names = [f"{column} ‰" if column in _PER_MILLE else column for column in columns]
        rows = [["method", *names, f"NLL against {first}"]]
        for method, scores in self.scores.items():
            change = "" if method == first else str(self.differences[method]["nll"])
            rows.append([method, *(_cell(column, scores[column]) for column in columns), change])
        return rows

    def _detection_rows(self, measure: str) -> list[list[str]]:
        """Cells of one measure of detection; a score that a set has not is left empty."""
        scores = dict.fromkeys(score for detectors in self.detection.values() for score in detectors)
        sets = self.detection.values()
        return [[score, *(f"{getattr(d[score], measure):.3f}" if score in d else "" for d in sets)] for score in scores]


def _cell(column: str, value: float) -> str:
    return f"{1000 * value:.1f}" if column in _PER_MILLE else f"{value:.4f}"
