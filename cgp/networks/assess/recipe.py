"""The fitted components of an assessment, from which its recommendation is applied to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.convert.convert import convert
from cgp.networks.convert.sites import attention_sites
from cgp.networks.detect.detectors import Detector
from cgp.networks.methods.amplitudes import with_amplitudes
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.inputs import logits_of
from cgp.networks.model.representation import Features
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.model.temperature import set_logit_temperature
from cgp.networks.predict.readout import GPReadout
from cgp.networks.predict.settings import Settings, as_assessed, with_settings

__all__ = [
    "DROPOUT",
    "READ_OUT",
    "Recipe",
    "check_same",
    "drawing_model",
    "fingerprint",
    "layers_of",
    "with_posterior",
]

READ_OUT = "GP read-out + temperature"
DROPOUT = "dropout + temperature"


@dataclass(frozen=True)
class Recipe:
    """All components, fitted to all labels.

    Attributes:
        model: fingerprint of the assessed model.
        layers: layers to convert if the model has no stochastic layer.
        choices: for each method, by its name, the factor of the amplitudes (0: no draws) and the temperature.
        readout: read-out fitted to the training data, or None.
        detectors: detectors by name.
        features: what computes the representation that the read-out reads.
        output: what takes the logits from what the model returns.
        task: what a label belongs to.
    """

    model: str
    layers: Any
    choices: dict[str, tuple[float, float]]
    readout: GPReadout | None
    detectors: dict[str, Detector]
    features: Features
    output: Callable[[Any], Tensor]
    task: str

    @torch.no_grad()
    def apply(self, model: nn.Module, method: str, detectors: Sequence[str]) -> nn.Module:
        """A copy of a model that predicts by a method and scores inputs by detectors."""
        check_same(model, self.model)
        factor, temperature = self.choices[method]
        changed = with_posterior(as_assessed(model), self.layers, factor) if factor else as_assessed(model)
        fitted = {name: self._relative(self.detectors[name], factor) for name in detectors}
        readout = self.readout if method == READ_OUT else None
        draws = "dropout" if method == DROPOUT else "layers" if factor else "none"
        changed = with_settings(changed, Settings(draws, readout, self.features, self.output, fitted))
        set_logit_temperature(changed, temperature)
        return changed

    @property
    def options(self) -> str:
        """The options that predictions need, as code."""
        task = "" if self.task == "classification" else f', task="{self.task}"'
        return task + ("" if self.output is logits_of else ", output=...")

    def _relative(self, detector: Detector, factor: float) -> Detector:
        """A detector for a model whose amplitudes have been multiplied by a factor."""
        if not factor or not detector.posterior.factor:
            return detector
        posterior = detector.posterior._replace(factor=detector.posterior.factor / factor)
        return replace(detector, posterior=posterior)


def layers_of(posterior: str | None) -> Any:
    """The layers that :func:`cgp.convert` converts for "last", "first", "all" or None."""
    return [0] if posterior == "first" else posterior


def drawing_model(model: nn.Module, posterior: str | None) -> nn.Module | None:
    """The model if it has stochastic layers, else a copy with a posterior, or None where it has no attention."""
    if stochastic_layers(model):
        return model
    if posterior is None or not attention_sites(model):
        return None
    try:
        return convert(model, layers=layers_of(posterior))
    except ValueError as error:
        raise ValueError(
            f"posterior: expected None, or attention that can be converted, got {posterior!r}: {error}"
        ) from error


def with_posterior(model: nn.Module, layers: Any, factor: float) -> nn.Module:
    """A copy of a model, converted unless it has stochastic layers, with amplitudes multiplied by a factor."""
    return with_amplitudes(model if stochastic_layers(model) else convert(model, layers=layers), factor)


def check_same(model: nn.Module, expected: str) -> None:
    """Raise unless a model has the fingerprint of the assessed one."""
    if fingerprint(model) != expected:
        kind = type(uncompiled(model)).__name__
        raise ValueError(f"model: expected the one that was assessed, got another {kind}")


def fingerprint(model: nn.Module) -> str:
    """Fingerprint of a model: names and shapes of its tensors."""
    model = uncompiled(model)
    return repr([(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()])
