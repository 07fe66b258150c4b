"""The result of :func:`cgp.assess`: tables, pictures, and a recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cgp.comparisons import Difference, aligned, critical_value
from cgp.extras import needs_extra

from .claims import (
    FEWEST_INPUTS,
    FEWEST_LABELS,
    FEWEST_WRONG,
    LEAST_NATS,
    Detection,
    best_detector,
)
from .recipe import DROPOUT, READ_OUT, Recipe
from .report import Report, in_nats, nothing_added

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ADVISED", "Assessment", "Detection"]

_COLUMNS = ("nll", "brier", "ece", "ece_chance", "aurc", "risk80", "risk90", "accuracy")


ADVISED = {
    "posterior + temperature": "the posterior of the best likelihood with its temperature (calibrate with "
    "method='posterior', criterion='likelihood')",
    READ_OUT: "a GP read-out of the representation with a temperature (calibrate with method='readout')",
    DROPOUT: "the model's own dropout, left on, with a temperature (calibrate with method='dropout')",
}


@dataclass(frozen=True)
class Assessment(Report):
    """The scores of a classifier's uncertainties, side by side.

    Attributes:
        scores: for each method, by its name, :func:`cgp.networks.tasks.metrics.classification_scores` on
            held-out folds of the validation data.
        differences: for each method and each of "nll", "brier" and "accuracy", the paired difference to the model as
            trained.
        beyond_temperature: paired difference in NLL to the temperature alone, of the posterior, the GP read-out and
            the dropout with a temperature, if they exist.
        detection: results for each set of other inputs, by its name, and each score.
        num_labels: labels of the validation data.
        num_inputs: inputs that they belong to.
        confidences: for each method, the largest probability of each label, ``(N,)``.
        correct: for each method, whether its prediction is right, ``(N,)``.
        recipe: fitted components, for :meth:`apply`.
    """

    scores: dict[str, dict[str, float]]
    differences: dict[str, dict[str, Difference]]
    beyond_temperature: dict[str, Difference]
    detection: dict[str, dict[str, Detection]]
    num_labels: int
    num_inputs: int
    confidences: dict[str, NDArray[Any]] = field(repr=False)
    correct: dict[str, NDArray[Any]] = field(repr=False)
    recipe: Recipe = field(repr=False)

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
        names = self._advised if detectors is None else tuple(detectors)
        if missing := [name for name in names if name not in self.recipe.detectors]:
            raise ValueError(f"detectors: expected some of {tuple(self.recipe.detectors)}, got {missing[0]!r}")
        return self.recipe.apply(model, method, names)

    @property
    def calls(self) -> str:
        """The calls that apply the recommendation, as code."""
        lines = ["model = report.apply(model)", f"prediction = cgp.predict(model, inputs{self.recipe.options})"]
        lines += [f'prediction.ood["{name}"]' for name in self._advised]
        return "\n".join(lines)

    @property
    def _advised(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in self.detectors.values() if name is not None))

    @property
    def method(self) -> str:
        """The name of the recommended method.

        Of the posterior, the GP read-out and the dropout with a temperature, the best that lowers the NLL of a
        temperature; else the temperature if it lowers the NLL of the model as trained; else "as trained". A difference
        counts if it is above .002 nats and above its standard error times the critical value for the best of as many
        comparisons (:func:`cgp.comparisons.critical_value`), among at least 20 labels with 5 wrong answers.
        """
        z, gains = critical_value(1 + len(self.beyond_temperature)), self.beyond_temperature
        if not self._has_enough_labels:
            return "as trained"
        if better := [method for method, change in gains.items() if (-change).exceeds(LEAST_NATS, z)]:
            return min(better, key=lambda method: gains[method].mean)
        helps = (-self.differences["temperature"]["nll"]).exceeds(LEAST_NATS, z)
        return "temperature" if helps else "as trained"

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
        verdicts: dict[tuple[str, str], list[str]] = {}
        for name in self.detection:
            verdicts.setdefault(self._verdict(name), []).append(name)
        parts = [self._sentence_about(kind, score, names) for (kind, score), names in verdicts.items()]
        return " ".join([self._advice(), *parts])

    def table(self) -> str:
        """The scores as text: a row per method; AUROC and FPR95 with a row per score and a column per set."""
        lines = aligned(self._rows(_COLUMNS, "as trained"))
        for measure in ("auroc", "fpr95") if self.detection else ():
            lines += ["", *aligned([[measure.upper(), *self.detection], *self._detection_rows(measure)])]
        return "\n".join(lines)

    def _detection_rows(self, measure: str) -> list[list[str]]:
        """Cells of one measure of detection; a score that a set has not is left empty."""
        scores = dict.fromkeys(score for detectors in self.detection.values() for score in detectors)
        sets = self.detection.values()
        return [[score, *(f"{getattr(d[score], measure):.3f}" if score in d else "" for d in sets)] for score in scores]

    def plot(self) -> Figure:
        """Draw reliability and risk by coverage, as trained, with a temperature and by ``method``, and the detectors.

        Returns:
            A figure with a panel of reliability per method, one of risk by coverage and, where there are other inputs,
            one of the AUROC with twice DeLong's error of the first score and of those that ``detectors`` names.
        """
        with needs_extra("plot", "Assessment.plot"):
            import matplotlib.pyplot as plt

        from cgp import plotting

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
    def _has_enough_labels(self) -> bool:
        return min(self.num_labels, self.num_inputs) >= FEWEST_LABELS and self._num_wrong >= FEWEST_WRONG

    @property
    def _num_wrong(self) -> int:
        return int((~self.correct["as trained"]).sum())

    def _verdict(self, name: str) -> tuple[str, str]:
        """The verdict on detecting a set, and the score it refers to."""
        detectors, score = self.detection[name], self.detectors[name]
        if next(iter(detectors.values())).num_inputs < FEWEST_INPUTS:
            return "few", ""
        if score is not None:
            return "use", score
        best = max(detectors, key=lambda score: detectors[score].auroc)
        return "level" if detectors[best].is_right(critical_value(len(detectors))) else "none", best

    def _sentence_about(self, kind: str, score: str, names: list[str]) -> str:
        """The sentence about sets of other inputs with one verdict."""
        which, plain = ", ".join(names), next(iter(self.detection[names[0]]))
        if kind == "few":
            return f"Too few of {which} to compare scores: at least {FEWEST_INPUTS} on either side are needed."
        aurocs, against = self._aurocs(score, names), self._aurocs(plain, names)
        written = score.replace("Mahalanobis", "Mahalanobis distance")
        if kind == "none":
            return f"No score tells {which} from in-distribution inputs: the best, the {written}, has AUROC {aurocs}."
        if score == plain:
            return f"Nothing tells {which} from in-distribution inputs better than {plain}: AUROC {against}."
        gains = ", ".join(str(self.detection[name][score].gain) for name in names)
        numbers = f"AUROC {aurocs}, against {against} for {plain} ({gains})."
        if kind == "use":
            return f"To tell {which} from in-distribution inputs, use the {written}: {numbers}"
        return f"At telling {which} from in-distribution inputs, the {written} is level with {plain}: {numbers}"

    def _aurocs(self, score: str, names: list[str]) -> str:
        return ", ".join(f"{self.detection[name][score].auroc:.3f}" for name in names)

    def _advice(self) -> str:
        method, scaled = self.method, self.differences["temperature"]["nll"]
        if not self._has_enough_labels:
            which = "" if self.num_inputs >= self.num_labels else f" of {self.num_inputs} inputs"
            return (
                f"{self.num_labels} labels{which} with {self._num_wrong} wrong answers say nothing of temperatures and "
                f"posteriors: at least {FEWEST_LABELS} with {FEWEST_WRONG} are needed."
            )
        if method in ADVISED:
            change = self.beyond_temperature[method]
            return f"Use {ADVISED[method]}: its NLL differs from a temperature's by {change} nats."
        tried = {name.removesuffix(" + temperature"): change for name, change in self.beyond_temperature.items()}
        if method == "temperature":
            use = f"Use a temperature, to which {nothing_added(tried)}" if tried else "Use a temperature"
            return f"{use}; it changes the NLL by {in_nats(scaled)}."
        use = "Use the model as it is"
        use += f": beyond a temperature, {nothing_added(tried)}, and" if tried else ":"
        return f"{use} a temperature changes its NLL by {in_nats(scaled)}."
