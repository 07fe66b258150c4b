"""What :func:`cgp.assess` found: tables, pictures, and the sentence that they end in."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from cgp.model.prediction import data_frame

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Assessment", "Detection", "Difference"]

_COLUMNS = ("nll", "brier", "ece", "ece_chance", "ece_debiased", "aurc", "risk80", "risk90", "accuracy")


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
    """

    auroc: float
    fpr95: float


@dataclass(frozen=True)
class Assessment:
    """The scores of a classifier's uncertainties, side by side.

    Attributes:
        scores: for each method, by its name, what :func:`cgp.model.metrics.classification_scores` gives on held-out
            folds of the validation data.
        differences: for each method and each of "nll", "brier" and "accuracy", the paired difference to the model as
            trained.
        beyond_temperature: difference of the posterior with a temperature to the temperature by itself, in NLL; None
            without a posterior.
        detection: for each set of other inputs, by its name, and each score.
        num_labels: labels of the validation data.
        confidences: for each method, the largest probability of each label, ``(N,)``.
        correct: for each method, whether its prediction is right, ``(N,)``.
    """

    scores: dict[str, dict[str, float]]
    differences: dict[str, dict[str, Difference]]
    beyond_temperature: Difference | None
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

        A posterior or a temperature is advised if it lowers the NLL by two standard errors; of the scores that detect
        other inputs the one with the largest AUROC is named.
        """
        parts = [self._advice()]
        for name, detectors in self.detection.items():
            best = max(detectors, key=lambda detector: detectors[detector].auroc)
            first = next(iter(detectors))
            plain = detectors[first]
            parts.append(
                f"Nothing tells {name} from in-distribution inputs better than {first}: AUROC {plain.auroc:.3f}."
                if best == first
                else f"To tell {name} from in-distribution inputs, use the {best}: "
                f"AUROC {detectors[best].auroc:.3f}, against {plain.auroc:.3f} for {first}."
            )
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

    def _advice(self) -> str:
        scaled, beyond = self.differences["temperature"]["nll"], self.beyond_temperature
        if beyond is not None and beyond.mean < -2 * beyond.error:
            return (
                "Use the posterior of the best likelihood with its temperature (calibrate with "
                f"criterion='likelihood'): its NLL differs from a temperature's by {beyond} nats."
            )
        if beyond is not None:
            nothing = f"The posterior adds nothing here beyond a temperature (NLL {beyond} nats)"
        if scaled.mean < -2 * scaled.error:
            use = "Use a temperature" if beyond is None else f"{nothing}: use the temperature alone"
            return f"{use}; it changes the NLL by {scaled} nats."
        what = "Use the model as it is" if beyond is None else f"{nothing}, nor a temperature beyond the model"
        return f"{what}: a temperature changes its NLL by {scaled} nats."


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = ([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))] for row in rows)
    return ["  ".join(line).rstrip() for line in cells]
