"""The result of :func:`cgp.assess`: tables, pictures, and a recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import nn

from cgp.comparisons import LEVEL, Difference, critical_value
from cgp.extras import needs_extra
from cgp.networks.detect.detector import Detector
from cgp.networks.detect.scores import DrawnScore
from cgp.networks.methods.known import Posterior
from cgp.networks.methods.temperature_scaling import is_useless
from cgp.networks.model.fingerprints import Fingerprint, fingerprint, mark_calibrated, set_logit_temperature
from cgp.networks.model.repeated import keep_keys
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.method import Method, Settings, as_assessed, with_settings
from cgp.networks.predict.prediction import data_frame
from cgp.networks.tasks import Task
from cgp.networks.tasks.metrics import LabelledScores, ValueErrors
from cgp.spelling import counted, meant

from .claims import LEAST_NATS, Detection, Sets, are_enough, best_detector, num_comparisons, tells_nothing
from .words import about_detection, about_methods, meanings, tables
from .written import write

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Assessment", "Choice", "Detection"]


class Choice(NamedTuple):
    """A method fitted to all labels, the factor of its amplitudes (0 without) and its temperature or scale ``(C,)``."""

    method: Method
    factor: float
    parameter: Any

    def __repr__(self) -> str:
        """The name of the method, and its numbers."""
        is_one = isinstance(self.parameter, float)
        numbers = ", ".join(f"{value:.3g}" for value in ([self.parameter] if is_one else self.parameter.tolist()))
        words = [self.method.name, *([f"amplitude × {self.factor:.3g}"] if self.factor else [])]
        return f"Choice({', '.join(words)}, {'temperature' if is_one else 'scale'} {numbers})"


@dataclass(frozen=True, repr=False)
class Assessment:
    """The scores of a network's uncertainties, side by side.

    Attributes:
        scores: for each method, by its name, on held-out folds: of classes
            :func:`cgp.networks.tasks.metrics.classification_scores`, of values
            :meth:`cgp.networks.tasks.metrics.ValueErrors.summary`, in their units.
        differences: for each method and each of "nll", "brier" and "accuracy", of values "nll" and "crps", the paired
            difference to the first one.
        beyond: paired difference in NLL to the temperature or scale alone, of every method that does more.
        least: lower bound of the gain of the temperature or scale over the network as trained, which holds with a
            probability of 95 %, and of those over it, which all hold with 95 %, whatever the distribution of the
            differences (:func:`cgp.networks.assess.claims.least_mean`).
        harms: for each of them, the most that it may add to the loss of an input.
        detection: results for each set of other inputs, by its name, and each detector.
        sets: results of prediction sets, by the name of their score, if any was compared.
        num_labels: labels of the validation data, or rows of values.
        num_inputs: inputs that they belong to.
        outcomes: for each method, the scores of every label.
        labels: the classes, ``(N,)``, or values, ``(N, C)``.
        groups: the input, from 0, that each of them belongs to, ``(N,)``.
        weights: fingerprint of the assessed model's weights.
        keys: of all inputs that it was compared or fitted with (:func:`cgp.with_held_out` takes none of them).
        columns: which of the several labels of an input each is, from 0, ``(N,)``; 0 where an input has one class.
        task: the task.
        choices: for each method, by its name, what was fitted to all labels.
        fitted: detectors by name.
        left_out: names of methods and detectors that were not compared, as the network is at chance.
    """

    scores: dict[str, dict[str, float]]
    differences: dict[str, dict[str, Difference]]
    beyond: dict[str, Difference]
    least: dict[str, float]
    harms: dict[str, float]
    detection: dict[str, dict[str, Detection]]
    sets: dict[str, Sets]
    num_labels: int
    num_inputs: int
    outcomes: dict[str, LabelledScores | ValueErrors]
    weights: Fingerprint
    keys: NDArray[np.int64]
    labels: NDArray[Any]
    groups: NDArray[np.int64]
    columns: NDArray[np.int64]
    task: Task
    choices: dict[str, Choice]
    fitted: dict[str, Detector]
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line: what is recommended, and by how many labels."""
        labels = counted(self.num_labels, "label" if self.task.has_classes else "row")
        return f"Assessment({', '.join([self.method, *self._named, labels])})"

    def __str__(self) -> str:
        """The tables, the sentence, and the calls that apply the recommendation."""
        return "\n\n".join(filter(None, [self.table(), self.sentence, self.calls]))

    @torch.no_grad()
    def apply(self, model: nn.Module, method: str | None = None, detectors: Sequence[str] | None = None) -> nn.Module:
        """A model that predicts by the recommended method, and scores inputs by the recommended detectors.

        Args:
            model: the assessed model. It is not changed.
            method: another method of the table, by its row ("GP read-out + temperature") or name ("readout"); None is
                :attr:`method`.
            detectors: other scores of the tables, by their names; None means those of :attr:`detectors`.

        Returns:
            A copy that shares the model's tensors, for :func:`cgp.predict` (whose prediction holds the scores in
            ``ood``), :func:`cgp.save_pretrained` and :func:`cgp.pipeline`. All parameters are fitted to all labels.
            Its own outputs, ``model(x)``, are not its predictions: they are neither divided by the temperature nor
            averaged over draws, and a warning says so where there are such. Of all that is added a state dict has only
            a converted model's temperature, and another warning says what it lacks.

        Raises:
            ValueError: if the model is another one, or the report has no such method or detector.
        """
        name = self.method if method is None else self._row(method)
        if isinstance(detectors, str):
            raise ValueError(f"detectors: expected a list of names, got the text {detectors!r}: [{detectors!r}]")
        names = self._named if detectors is None else tuple(detectors)
        if missing := [name for name in names if name not in self.fitted]:
            raise ValueError(
                f"detectors: expected some of {tuple(self.fitted)}, got {missing[0]!r}{meant(missing, self.fitted)}"
            )
        if fingerprint(model) != self.weights:
            kind = type(uncompiled(model)).__name__
            raise ValueError(
                f"model: expected the one that was assessed, got another {kind}, or one whose weights have changed "
                "since (assess it again)"
            )
        way, factor, parameter = self.choices[name]
        changed, used = as_assessed(model), None if isinstance(way, Posterior) else way
        if isinstance(way, Posterior):
            changed = way.widened(changed, factor)
        settings = Settings(used, {name: _relative(self.fitted[name], factor) for name in names})
        settings.warn_of_silent("report.apply")
        if not self.task.has_classes:
            head = self.task.has_distribution and not way.needs_train
            settings = replace(settings, scale=parameter.cpu(), task=self.task.name, has_variance_head=head)
        changed = with_settings(changed, settings)
        if self.task.has_classes:
            set_logit_temperature(changed, parameter)
        mark_calibrated(changed)
        keep_keys(changed, self.keys.tolist())
        return changed

    def _row(self, method: str) -> str:
        """The row of a method, by one of :attr:`rows`."""
        if method not in self.rows:
            names = tuple(self.rows)
            raise ValueError(f"method: expected one of {names}, got {method!r}{meant([method], names)}")
        return self.rows[method]

    @property
    def rows(self) -> dict[str, str]:
        """The row of the table by every name that :meth:`apply` takes: its own, and those of its method."""
        methods = [(row, choice.method) for row, choice in self.choices.items()]
        return {row: row for row in self.choices} | {
            name: row for row, way in methods for name in (way.name, way.label) if name not in self.choices
        }

    @property
    def calls(self) -> str:
        """The calls that apply the recommendation, as code; none where nothing is recommended of a useless model."""
        if self.has_enough_labels and self.is_at_chance and self.method not in self.beyond and not self._named:
            return ""
        is_read = self.choices[self.method].method.needs_train and not self.task.has_classes  # which needs no options
        options = "" if is_read else self.task.options
        lines = ["model = report.apply(model)", f"prediction = cgp.predict(model, inputs{options})"]
        lines += [f'prediction.ood["{name}"]' for name in self._named]
        return "\n".join(lines)

    @property
    def method(self) -> str:
        """The name of the recommended method.

        Of the methods that do more than a temperature or scale, the best that lowers the NLL of that alone; else that
        alone, if it lowers the NLL of the network as trained, or that has no distribution; else "as trained". A
        difference counts if it is above .002 nats and above its standard error times the critical value for the best of
        as many methods (:func:`cgp.comparisons.critical_value`), if its lower bound is above 0, among at least 20
        labels, of classes with 5 wrong answers. The temperature or scale has one parameter and cannot change an answer:
        it is tested by itself, one-sided at 5 %, whatever else is compared. Nothing that is at chance is recommended.
        """
        first, alone, gains = next(iter(self.scores)), self.task.parameter, self.beyond
        if not self.has_enough_labels:
            return first
        if better := [method for method in gains if self.is_clear(method) and not self.tells_nothing(method)]:
            return min(better, key=lambda method: gains[method].mean)
        return alone if first == alone or (self.is_clear(alone) and not self.is_at_chance) else first

    def is_clear(self, method: str, *, bounded: bool = True) -> bool:
        """Whether a method lowers the NLL by more than chance would.

        Args:
            method: its name; the temperature or scale is compared with the network as trained, others with it.
            bounded: whether answers that no label has shown count, too; otherwise only standard errors do.

        Returns:
            Whether the gain is clear.
        """
        change = self.beyond.get(method, self.differences[method]["nll"])
        is_large = (-change).exceeds(LEAST_NATS, self.errors_needed(method))
        return is_large and (not bounded or self.least[method] > 0.0)

    def errors_needed(self, method: str) -> float:
        """Standard errors that a gain in NLL needs.

        Args:
            method: its name.

        Returns:
            Those of the best of several; of the temperature or scale, which is tested by itself, one-sided at 5 %.
        """
        return critical_value(len(self.beyond)) if method in self.beyond else float(norm.isf(LEVEL))

    @property
    def detectors(self) -> dict[str, str | None]:
        """The recommended score for each set of other inputs, by its name, or None.

        It is the one with the largest AUROC among those that gain .01 over the first score, and the critical value for
        the best of all scores on all sets times DeLong's error, and whose AUROC is as clearly above one half. Sets of
        fewer than 20 inputs have none.
        """
        comparisons = num_comparisons(self.detection)
        return {name: best_detector(scores, comparisons) for name, scores in self.detection.items()}

    @property
    def sentence(self) -> str:
        """The recommendation, with its benefit: lines about ``method``, and on ``detectors`` by verdict and set."""
        return "\n".join([*about_methods(self), *about_detection(self.detection, self.detectors)])

    def table(self) -> str:
        """The scores as text: those of a sentence by method; AUROC and FPR95 by score, with a column per set."""
        return tables(self)

    def to_frame(self) -> pd.DataFrame:
        """All scores, one row per method, and what was fitted to all labels; needs pandas.

        Returns:
            A frame that ends in "nll_change", its "nll_change_error" and "temperature", as :meth:`apply` has it and 1
            of methods without; of a regression "scale", a list where there are several outputs.
        """
        names = list(next(iter(self.scores.values())))
        columns: dict[str, Any] = {name: [scores[name] for scores in self.scores.values()] for name in names}
        columns["nll_change"] = [self.differences[method]["nll"].mean for method in self.scores]
        columns["nll_change_error"] = [self.differences[method]["nll"].error for method in self.scores]
        fitted = (torch.as_tensor(self.choices[method].parameter, dtype=torch.float64) for method in self.scores)
        columns[self.task.parameter] = [parameter.squeeze().tolist() for parameter in fitted]
        return data_frame(columns, list(self.scores))

    def to_html(self) -> str:
        """The sentence, the tables, the picture (with matplotlib), and what they mean, as a fragment of HTML."""
        image = ""
        if find_spec("matplotlib") is not None:
            from .pictures import as_image

            image = as_image(self)
        said = "<br>".join(map(escape, self.sentence.splitlines()))
        terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in meanings(self).items())
        folded = f"<details open><summary>What columns and pictures mean</summary><dl>{terms}</dl></details>"
        return f"<section><p>{said}</p><pre>{escape(self.table())}</pre>{image}{folded}</section>"

    _repr_html_ = to_html

    def save(self, path: str | PathLike[str], **details: Any) -> None:
        """Write the report, for records and other programs, beside its place first.

        It is not loaded again: pickle keeps the report itself, :func:`cgp.save_pretrained` the model that it advises.

        Args:
            path: a .json gets the sentence, all scores with their differences, temperatures, and the thresholds of the
                recommended detectors with formulas and constants, as of ``cgp assess --out``, large ones as
                ``{"file": "report.constants.npz", "array": name}`` in a file beside it; a .html what :meth:`to_html`
                has, as a page.
            **details: further entries of a .json, such as ``model="resnet-3"``; one of the report's own replaces it.

        Raises:
            ValueError: if the file has another ending, or entries are for a .html.
        """
        write(self, Path(path), details)

    @property
    def confidences(self) -> dict[str, NDArray[Any]]:
        """For each method, the largest probability of each label, ``(N,)``; none of values."""
        return {name: each.confidence for name, each in self.outcomes.items() if isinstance(each, LabelledScores)}

    @property
    def orders(self) -> dict[str, NDArray[Any]]:
        """For each method, what its answers are ranked by, ``(N,)``: their confidence by what :meth:`apply` has."""
        return {name: each.order for name, each in self.outcomes.items() if isinstance(each, LabelledScores)}

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
    def is_at_chance(self) -> bool:
        """Whether outputs tell nothing of the labels as trained, or nothing that a temperature could use."""
        return self.tells_nothing(next(iter(self.scores))) or self.is_useless

    @property
    def is_useless(self) -> bool:
        """Whether the likeliest temperature is at its upper bound, where all classes are alike."""
        return self.task.has_classes and is_useless(self.choices[self.task.parameter].parameter)

    def tells_nothing(self, method: str) -> bool:
        """Whether a method tells no more of the labels than chance (:func:`cgp.networks.assess.claims.tells_nothing`).

        Args:
            method: its name.

        Returns:
            Whether.
        """
        return tells_nothing(self.outcomes[method], self.labels, self.columns, self.groups)

    @property
    def has_enough_labels(self) -> bool:
        """Whether there are enough for any claim of a method."""
        return are_enough(min(self.num_labels, self.num_inputs), self.num_wrong if self.correct else None)

    def plot(self) -> Figure:
        """Draw reliability and risk by coverage, as trained, with a temperature and by ``method``, and the detectors.

        Returns:
            A figure with a panel of reliability per method, one of risk by coverage and, where there are other inputs,
            one of the AUROC with twice DeLong's error of the first score, of all that ``detectors`` names and of the
            best of each set, each in a colour and shape of its own in every report; of one set, of all scores by name.
            Where prediction sets were compared, one of their coverage, with their classes on average. Of values, a
            panel with the share inside central intervals against the nominal share, by method.
        """
        with needs_extra("plot", "Assessment.plot"):
            from .pictures import drawn

        return drawn(self)

    @property
    def _named(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in self.detectors.values() if name is not None))


def _relative(detector: Detector, factor: float) -> Detector:
    """A detector for a model whose amplitudes have been multiplied by a factor."""
    drawn = next((score.posterior for score in detector.terms if isinstance(score, DrawnScore)), None)
    return detector if drawn is None or not factor else detector.drawn_by(drawn._replace(factor=drawn.factor / factor))
