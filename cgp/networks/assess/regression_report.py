"""The result of :func:`cgp.assess` for a regression: a table, a picture, and a recommendation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor, nn

from cgp.comparisons import Difference, aligned, critical_value, gaussian_scores
from cgp.extras import needs_extra

from .claims import FEWEST_LABELS, LEAST_NATS
from .regression_recipe import AS_TRAINED, DROPOUT, POSTERIOR, READ_OUT, SCALE, RegressionRecipe
from .report import Report, in_nats, nothing_added

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ADVISED", "RegressionAssessment", "report_of"]

Array = NDArray[Any]

_COLUMNS = ("nll", "crps", "rmse", "coverage90", "width90")
ADVISED = {
    DROPOUT: "the network's own dropout, left on, with a scale (calibrate with method='dropout')",
    POSTERIOR: "the posterior of the attention of the best likelihood, with a scale (calibrate with "
    "method='posterior', criterion='likelihood')",
    READ_OUT: "a GP read-out of the representation (calibrate with method='readout')",
}


@dataclass(frozen=True)
class RegressionAssessment(Report):
    """The scores of the variances of a regression network's errors, side by side.

    Attributes:
        scores: for each method, by its name, on held-out folds: "nll" (nats) and "crps" per value, "rmse", share of
            the values inside the central 90 % interval and its mean width. CRPS, RMSE and width are in the values'
            units, averaged over outputs.
        differences: for each method, the paired differences in "nll" and "crps" to the first one.
        beyond_scale: paired difference in NLL to the scale alone, of each method that does more.
        num_inputs: rows of values.
        cumulative: for each method, the predictive distribution function at each value, ``(N C,)``.
        recipe: fitted components, for :meth:`apply`.
    """

    scores: dict[str, dict[str, float]]
    differences: dict[str, dict[str, Difference]]
    beyond_scale: dict[str, Difference]
    num_inputs: int
    cumulative: dict[str, Array] = field(repr=False)
    recipe: RegressionRecipe = field(repr=False)

    def apply(self, model: nn.Module, method: str | None = None) -> nn.Module:
        """A model that predicts by the recommended method.

        Args:
            model: the assessed model. It is not changed.
            method: another method of the table, by its name; None is :attr:`method`.

        Returns:
            A copy that shares the model's tensors, for :func:`cgp.predict` and :func:`cgp.save_pretrained`. All
            parameters are fitted to all values.

        Raises:
            ValueError: if the model is another one, or the report has no such method.
        """
        return self.recipe.apply(model, self.method if method is None else method)

    @property
    def calls(self) -> str:
        """The calls that apply the recommendation, as code."""
        call = f"cgp.predict(model, inputs{self.recipe.options(self.method)})"
        return f"model = report.apply(model)\nprediction = {call}"

    @property
    def method(self) -> str:
        """The name of the recommended method.

        Of the methods that add a variance, the best that lowers the NLL of the scale alone; else the scale, where the
        network has no variance of its own or where it lowers the NLL of that one; else "as trained". A difference
        counts if it is above .002 nats and above its standard error times the critical value for the best of as many
        comparisons (:func:`cgp.comparisons.critical_value`), among at least 20 inputs.
        """
        first, gains = next(iter(self.scores)), self.beyond_scale
        if self.num_inputs < FEWEST_LABELS:
            return first
        z = critical_value(len(gains) + (first == AS_TRAINED))
        if better := [method for method, change in gains.items() if (-change).exceeds(LEAST_NATS, z)]:
            return min(better, key=lambda method: gains[method].mean)
        helps = (-self.differences[SCALE]["nll"]).exceeds(LEAST_NATS, z)
        return SCALE if first == SCALE or helps else AS_TRAINED

    @property
    def sentence(self) -> str:
        """The recommendation, with its benefit: ``method`` in a sentence."""
        method, has_head = self.method, next(iter(self.scores)) == AS_TRAINED
        plain = "a factor of its variance" if has_head else "a constant variance"
        if self.num_inputs < FEWEST_LABELS:
            return f"{self.num_inputs} rows of values say nothing of variances: at least {FEWEST_LABELS} are needed."
        if method in ADVISED:
            return f"Use {ADVISED[method]}: its NLL differs from {plain}'s by {self.beyond_scale[method]} nats."
        tried = {name.removesuffix(" + scale"): change for name, change in self.beyond_scale.items()}
        nothing = f", to which {nothing_added(tried)}" if tried else ""
        if not has_head:
            return f"Use {plain}{nothing} (calibrate with method='scale')."
        change = f"the factor changes the NLL by {in_nats(self.differences[SCALE]['nll'])}"
        if method == SCALE:
            return f"Use {plain} (calibrate with method='scale'){nothing}; {change}."
        return f"Use the network's variance as it is{nothing}; {change}."

    def table(self) -> str:
        """The scores as text, one row per method."""
        return "\n".join(aligned(self._rows(_COLUMNS, next(iter(self.scores)))))

    def plot(self) -> Figure:
        """Draw the share of values inside central intervals against the nominal share, by method.

        Returns:
            A figure of one panel.
        """
        with needs_extra("plot", "RegressionAssessment.plot"):
            import matplotlib.pyplot as plt

        from cgp import plotting

        with plotting.style():
            figure, ax = plt.subplots(figsize=(4.2, 3.2), layout="constrained")
            plotting.interval_coverage(self.cumulative, ax=ax)
        return figure


def report_of(
    scored: dict[str, tuple[Tensor, Tensor]], values: Tensor, recipe: RegressionRecipe
) -> RegressionAssessment:
    """The report on means and variances ``(N, C)`` by method."""
    means = {name: mean.cpu().numpy() for name, (mean, _) in scored.items()}
    deviations = {name: variance.sqrt().cpu().numpy() for name, (_, variance) in scored.items()}
    errors = {name: values.cpu().numpy() - mean for name, mean in means.items()}
    pairs = {name: gaussian_scores(errors[name], deviations[name]) for name in scored}
    first = next(iter(pairs))

    def against(name: str, other: str) -> dict[str, Difference]:
        of_rows = [(mine - theirs).mean(1) for mine, theirs in zip(pairs[name], pairs[other], strict=True)]
        return {score: Difference.of(change) for score, change in zip(("nll", "crps"), of_rows, strict=True)}

    return RegressionAssessment(
        scores={name: _scores(pairs[name], errors[name], deviations[name]) for name in scored},
        differences={name: against(name, first) for name in scored},
        beyond_scale={name: against(name, SCALE)["nll"] for name in scored if name in ADVISED},
        num_inputs=len(values),
        cumulative={name: norm.cdf(errors[name] / deviations[name]).ravel() for name in scored},
        recipe=recipe,
    )


def _scores(pair: tuple[Array, Array], errors: Array, sd: Array) -> dict[str, float]:
    z = float(norm.isf(0.05))
    numbers = (*pair, errors**2, np.abs(errors) <= z * sd, 2 * z * sd)
    scores = {name: float(values.mean()) for name, values in zip(_COLUMNS, numbers, strict=True)}
    return scores | {"rmse": scores["rmse"] ** 0.5}
