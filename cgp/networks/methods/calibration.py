"""The results of calibrations."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

__all__ = ["Calibration", "RegressionCalibration"]


@dataclass(frozen=True)
class Calibration:
    """The result of :func:`cgp.calibrate`, with the calibrated model.

    Attributes:
        model: for :func:`cgp.predict`, :func:`cgp.save_pretrained` and :func:`cgp.pipeline`: the model that was given
            with method "posterior", else a copy that shares its tensors.
        method: method of the calibration.
        criterion: criterion by which the amplitude was chosen; None without a posterior.
        factor: factor by which the amplitudes were multiplied; 1 with other draws, 0 without draws.
        amplitudes: for each layer, by its name, the new amplitude of each head.
        temperature: temperature by which :func:`cgp.predict` divides the logits.
        nll_mean: negative log-likelihood of the model before, without draws, in nats per label.
        nll_temperature: negative log-likelihood without draws, at the best temperature.
        nll_best: smallest negative log-likelihood of the draws over amplitudes, each at its best temperature.
        nll: negative log-likelihood of the draws at the chosen amplitude.
        standard_error: standard error of ``nll_best`` over the labels.
        accuracy_mean: share of correct predictions without draws.
        accuracy: share of correct predictions of the averaged draws.
        disagreement: how much draws differ from their average: total variation distance in [0, 1], mean over labels.
        num_labels: number of labels used.
        seconds: total time in seconds.
    """

    model: nn.Module = field(repr=False)
    method: str
    criterion: str | None
    factor: float
    amplitudes: dict[str, Tensor]
    temperature: float
    nll_mean: float
    nll_temperature: float
    nll_best: float
    nll: float
    standard_error: float
    accuracy_mean: float
    accuracy: float
    disagreement: float
    num_labels: int
    seconds: float

    @property
    def price(self) -> float:
        """Cost of the chosen amplitude relative to the best one, in nats per label."""
        return max(self.nll - self.nll_best, 0.0)  # below zero by the finer temperatures only

    def __str__(self) -> str:
        """A summary, and one line per layer."""
        if self.method != "posterior":
            return self._short()
        moved = "differ from their average by" if self.disagreement >= 1e-3 else "hardly differ from their average:"
        lines = [
            f"amplitude × {self.factor:.3g} ({self.criterion}), temperature {self.temperature:.3f}",
            f"on {self.num_labels} labels in {self.seconds:.1f} s",
            f"NLL {self.nll:.4f}, {self.price:.4f} above the best (standard error {self.standard_error:.4f})",
            f"NLL without draws {self.nll_mean:.4f}, with a temperature {self.nll_temperature:.4f}",
            f"accuracy {self.accuracy:.4f}, without draws {self.accuracy_mean:.4f}",
            f"draws {moved} {self.disagreement:.2g} (total variation)",
        ]
        for name, amplitude in self.amplitudes.items():
            lines.append(f"{name}: amplitude {float(amplitude.min()):.3g} to {float(amplitude.max()):.3g}")
        return "\n".join(lines)

    def _short(self) -> str:
        return "\n".join(
            (
                f"{self.method}, temperature {self.temperature:.3f}",
                f"on {self.num_labels} labels in {self.seconds:.1f} s",
                f"NLL {self.nll:.4f}, as it was {self.nll_mean:.4f}, with a temperature {self.nll_temperature:.4f}",
                f"accuracy {self.accuracy:.4f}, as it was {self.accuracy_mean:.4f}",
            )
        )


@dataclass(frozen=True)
class RegressionCalibration:
    """What :func:`cgp.calibrate` did to a network that regresses, and the model that predicts so.

    Attributes:
        model: a copy that shares the tensors of the one that was given.
        method: how it was calibrated.
        factor: factor by which the posterior's amplitudes were multiplied; 1 of other draws, 0 without draws.
        scale: the noise variance of each output, ``(C,)``, or the factor of the one that the model or read-out gives.
        scores: "rmse", "nll" per value and "coverage90" of the values that it was fitted to.
        num_labels: rows of values.
        seconds: in all.
    """

    model: nn.Module = field(repr=False)
    method: str
    factor: float
    scale: Tensor
    scores: dict[str, float]
    num_labels: int
    seconds: float

    def __str__(self) -> str:
        """A summary."""
        scales = ", ".join(f"{value:.4g}" for value in self.scale.tolist()[:8]) + ", ..." * (len(self.scale) > 8)
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        return f"{self.method}, variance × {scales}\non {self.num_labels} rows in {self.seconds:.1f} s\n{scores}"
