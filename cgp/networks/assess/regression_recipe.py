"""The fitted components of an assessment of a regression, from which its recommendation is applied to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.model.inputs import logits_of
from cgp.networks.model.representation import Features
from cgp.networks.predict.readout import GPReadout
from cgp.networks.predict.settings import Settings, as_assessed, with_settings

from .recipe import check_same, with_posterior

__all__ = ["AS_TRAINED", "DROPOUT", "POSTERIOR", "READ_OUT", "SCALE", "RegressionRecipe"]

AS_TRAINED, SCALE = "as trained", "scale"
DROPOUT, POSTERIOR, READ_OUT = (f"{name} + scale" for name in ("dropout", "posterior", "GP read-out"))


@dataclass(frozen=True)
class RegressionRecipe:
    """What an assessment fitted, from which its recommendation is applied to a model.

    Attributes:
        model: fingerprint of the assessed model.
        layers: layers to convert if the model has no stochastic layer.
        choices: for each method, by its name, the factor of the amplitudes (0: no draws) and the scale ``(C,)``.
        readout: read-out fitted to the training data, or None.
        features: what computes the representation that the read-out reads.
        has_variance_head: whether scales are factors of a variance that the model returns.
        output: what takes the outputs from what the model returns.
    """

    model: str
    layers: Any
    choices: dict[str, tuple[float, Tensor]]
    readout: GPReadout | None = field(repr=False)
    features: Features
    has_variance_head: bool
    output: Callable[[Any], Tensor]

    @torch.no_grad()
    def apply(self, model: nn.Module, method: str) -> nn.Module:
        """A copy of a model that predicts by a method."""
        check_same(model, self.model)
        if method not in self.choices:
            raise ValueError(f"method: expected one of {tuple(self.choices)}, got {method!r}")
        factor, scale = self.choices[method]
        draws = {DROPOUT: "dropout", POSTERIOR: "layers"}.get(method, "none")
        changed = as_assessed(model)
        changed = with_posterior(changed, self.layers, factor) if method == POSTERIOR else changed
        readout = self.readout if method == READ_OUT else None
        head = self.has_variance_head and readout is None
        settings = Settings(draws, readout, self.features, scale=scale, task="regression", has_variance_head=head)
        return with_settings(changed, settings)

    def options(self, method: str) -> str:
        """The options that predictions by a method need, as code."""
        output = "" if self.output is logits_of or method == READ_OUT else ", output=..."
        return output + (", noise=..." if self.has_variance_head and method != READ_OUT else "")
