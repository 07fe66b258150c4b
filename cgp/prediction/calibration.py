"""What a calibration did."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

__all__ = ["Calibration"]


@dataclass(frozen=True)
class Calibration:
    """What :func:`cgp.calibrate` did, and the model that predicts so.

    Attributes:
        model: for :func:`cgp.predict`, :func:`cgp.save_pretrained` and :func:`cgp.pipeline`: the model that was given
            with method "posterior", else a copy that shares its tensors.
        method: how it was calibrated.
        criterion: by which the amplitude was chosen; None without a posterior.
        factor: by which the amplitudes were multiplied; 1 with other draws, 0 without draws.
        amplitudes: for each layer, by its name, the amplitude of each head as it is now.
        temperature: by which :func:`cgp.predict` divides the logits from now on.
        nll_mean: negative log-likelihood of the model as it was, without draws, in nats per label.
        nll_temperature: without draws, at its best temperature.
        nll_best: of the draws at the amplitude that is best for it, each amplitude at its best temperature.
        nll: of the draws at the amplitude chosen.
        standard_error: of ``nll_best`` over the labels.
        accuracy_mean: share of right answers without draws.
        accuracy: of the averaged draws.
        disagreement: how much draws differ from their average: total variation distance in [0, 1], mean over labels.
        num_labels: labels that were used.
        seconds: in all.
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
        """What the amplitude costs in nats per label, beside the amplitude that is best."""
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
