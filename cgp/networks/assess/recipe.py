"""The fitted components of an assessment, from which its recommendation is applied to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from cgp.networks.detect.detector import Detector
from cgp.networks.detect.scores import DrawnScore
from cgp.networks.methods.known import Posterior
from cgp.networks.model.fingerprints import Fingerprint, fingerprint, mark_calibrated, set_logit_temperature
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.method import Method, Settings, as_assessed, with_settings
from cgp.networks.tasks import Task

__all__ = ["Choice", "Recipe"]


class Choice(NamedTuple):
    """A method with what was fitted to all labels.

    Attributes:
        method: the method, fitted to the training data where it needs some.
        factor: factor of the amplitudes of a posterior; 0 without one.
        parameter: the temperature, or the scale ``(C,)``.
    """

    method: Method
    factor: float
    parameter: Any


@dataclass(frozen=True)
class Recipe:
    """All components, fitted to all labels.

    Attributes:
        model: fingerprint of the assessed model's weights.
        task: the task.
        choices: for each method, by its name.
        detectors: detectors by name.
    """

    model: Fingerprint
    task: Task = field(repr=False)
    choices: dict[str, Choice] = field(repr=False)
    detectors: dict[str, Detector] = field(repr=False)

    @torch.no_grad()
    def apply(self, model: nn.Module, name: str, detectors: Sequence[str] = ()) -> nn.Module:
        """A copy of a model that predicts by a method and scores inputs by detectors."""
        if fingerprint(model) != self.model:
            kind = type(uncompiled(model)).__name__
            raise ValueError(
                f"model: expected the one that was assessed, got another {kind}, or one whose weights have changed "
                "since (assess it again)"
            )
        method, factor, parameter = self.choices[name]
        changed, used = as_assessed(model), None if isinstance(method, Posterior) else method
        if isinstance(method, Posterior):
            changed = method.widened(changed, factor)
        fitted = {name: _relative(self.detectors[name], factor) for name in detectors}
        settings = Settings(used, fitted)
        if not self.task.has_classes:
            head = self.task.has_distribution and not method.needs_train
            settings = replace(settings, scale=parameter.cpu(), task=self.task.name, has_variance_head=head)
        changed = with_settings(changed, settings)
        if self.task.has_classes:
            set_logit_temperature(changed, parameter)
        mark_calibrated(changed)
        return changed

    def options(self, name: str) -> str:
        """The options of :func:`cgp.predict` by a method, as code; a read-out of values needs none."""
        return "" if self.choices[name].method.needs_train and not self.task.has_classes else self.task.options


def _relative(detector: Detector, factor: float) -> Detector:
    """A detector for a model whose amplitudes have been multiplied by a factor."""
    drawn = next((score.posterior for score in detector.terms if isinstance(score, DrawnScore)), None)
    return detector if drawn is None or not factor else detector.drawn_by(drawn._replace(factor=drawn.factor / factor))
