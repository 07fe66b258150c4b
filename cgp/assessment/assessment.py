"""What :func:`cgp.assess` found: tables, pictures, and the sentence that they end in."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from cgp.extras import needs_extra
from cgp.model.prediction import data_frame

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["ADVISED", "Assessment", "Detection", "Difference"]

_COLUMNS = ("nll", "brier", "ece", "ece_chance", "aurc", "risk80", "risk90", "accuracy")


ADVISED = {
    "posterior + temperature": "the posterior of the best likelihood with its temperature (calibrate with "
    "criterion='likelihood')",
    "GP read-out + temperature": "a GP read-out of the representation with a temperature (cgp.regression.GPReadout)",
}


class Difference(NamedTuple):
    """A paired difference.

    Attributes:
        mean: over the examples.
        error: standard error of that mean.
    """

    mean: float
    error: float

    def __str__(self) -> str:
        """Both numbers."""
        return f"{self.mean:+.4f} ± {self.error:.4f}"


class Detection(NamedTuple):
    """How well a score tells inputs of another kind.

    Attributes:
        auroc: area under the ROC curve.
        fpr95: share of known inputs that are flagged where 95 % of the others are.
        gain: in AUROC over the first score, one minus the confidence, with DeLong's error.
    """

    auroc: float
    fpr95: float
    gain: Difference


@dataclass(frozen=True)
class Assessment:
    """The scores of a classifier's uncertainties, side by side.

    Attributes:
        scores: for each method, by its name, what :func:`cgp.model.metrics.classification_scores` gives on held-out
            folds of the validation data.
        differences: for each method and each of "nll", "brier" and "accuracy", the paired difference to the model as
            trained.
        beyond_temperature: paired difference in NLL to the temperature by itself, of the posterior with a temperature
            and of the GP read-out with one, where there are such.
        detection: for each set of other inputs, by its name, and each score.
        num_labels: labels of the validation data.
        confidences: for each method, the largest probability of each label, ``(N,)``.
        correct: for each method, whether its prediction is right, ``(N,)``.
    """

    scores: dict[str, dict[str, float]]
    differences: dict[str, dict[str, Difference]]
    beyond_temperature: dict[str, Difference]
    detection: dict[str, dict[str, Detection]]
    num_labels: int
    confidences: dict[str, NDArray[Any]] = field(repr=False)
    correct: dict[str, NDArray[Any]] = field(repr=False)

    def __str__(self) -> str:
        """The tables and the sentence."""
        return f"{self.table()}\n\n{self.sentence}"

    @property
    def sentence(self) -> str:
        """Which uncertainty to use, and by how much it helps.

        A posterior or a temperature is advised if it lowers the NLL by two standard errors. Of the scores that detect
        other inputs the one with the largest AUROC is named among those that are better than the first one by two
        standard errors; without any, the best one is said to be level with the first.
        """
        parts, told = [self._advice()], dict[tuple[str, bool], list[str]]()
        for name, detectors in self.detection.items():
            better = [score for score, found in detectors.items() if found.gain.mean > 2 * found.gain.error]
            best = max(better or detectors, key=lambda score: detectors[score].auroc)
            told.setdefault((best, bool(better)), []).append(name)
        parts += [self._told(score, names, better=better) for (score, better), names in told.items()]
        return " ".join(parts)

    def table(self) -> str:
        """The scores as text: one row per method, then one per score of other inputs."""
        rows = [["method", *_COLUMNS, "NLL against as trained"]]
        for method, scores in self.scores.items():
            change = "" if method == "as trained" else str(self.differences[method]["nll"])
            rows.append([method, *(f"{scores[column]:.4f}" for column in _COLUMNS), change])
        lines = _aligned(rows)
        for name, detectors in self.detection.items():
            found = [[score, f"{d.auroc:.3f}", f"{d.fpr95:.3f}"] for score, d in detectors.items()]
            lines += ["", *_aligned([[name, "AUROC", "FPR95"], *found])]
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

    def plot(self) -> Figure:
        """Draw reliability, as trained and of the method with the smallest NLL, and risk by coverage."""
        with needs_extra("plot", "Assessment.plot"):
            import matplotlib.pyplot as plt

        from cgp import plotting

        best = min(self.scores, key=lambda method: self.scores[method]["nll"])
        shown = list(dict.fromkeys(("as trained", best)))
        width = 3.2 * (len(shown) + 1)
        with plotting.style():
            figure, axes = plt.subplots(1, len(shown) + 1, figsize=(width, 3.2), layout="constrained")
            for ax, method in zip(axes, shown, strict=False):
                plotting.reliability_diagram(self.confidences[method], self.correct[method], ax=ax).set_title(method)
            plotting.risk_coverage({m: (self.confidences[m], self.correct[m]) for m in shown}, ax=axes[-1])
        return figure

    def _told(self, score: str, names: list[str], *, better: bool) -> str:
        """Which score tells sets of other inputs, and whether it is better than the first."""
        which, plain = ", ".join(names), next(iter(self.detection[names[0]]))
        found, against = self._aurocs(score, names), self._aurocs(plain, names)
        if score == plain:
            return f"Nothing tells {which} from in-distribution inputs better than {plain}: AUROC {against}."
        gains = ", ".join(str(self.detection[name][score].gain) for name in names)
        numbers = f"AUROC {found}, against {against} for {plain} ({gains})."
        if better:
            return f"To tell {which} from in-distribution inputs, use the {score}: {numbers}"
        return f"At telling {which} from in-distribution inputs, the {score} is level with {plain}: {numbers}"

    def _aurocs(self, score: str, names: list[str]) -> str:
        return ", ".join(f"{self.detection[name][score].auroc:.3f}" for name in names)

    def _advice(self) -> str:
        scaled, beyond = self.differences["temperature"]["nll"], self.beyond_temperature
        better = [method for method, change in beyond.items() if change.mean < -2 * change.error]
        if better:
            best = min(better, key=lambda method: beyond[method].mean)
            return f"Use {ADVISED[best]}: its NLL differs from a temperature's by {beyond[best]} nats."
        tried = [
            f"the {method.removesuffix(' + temperature')} (NLL {change} nats)" for method, change in beyond.items()
        ]
        if scaled.mean < -2 * scaled.error:
            use = f"Use a temperature, to which {_nothing(tried)}" if tried else "Use a temperature"
            return f"{use}; it changes the NLL by {scaled} nats."
        use = "Use the model as it is"
        use += f": beyond a temperature, {_nothing(tried)}, and" if tried else ":"
        return f"{use} a temperature changes its NLL by {scaled} nats."


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = ([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))] for row in rows)
    return ["  ".join(line).rstrip() for line in cells]


def _nothing(tried: list[str]) -> str:
    return f"{' and '.join(tried)} add{'s' if len(tried) == 1 else ''} nothing"
