"""What a model keeps for :func:`cgp.predict`: by which method it predicts, detectors, held-out labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from cgp.networks.model.structural_copy import structural_copy, uncompiled

if TYPE_CHECKING:
    from .method import Method
    from .prediction import Prediction

__all__ = ["Settings", "as_assessed", "forget_held_out", "has_settings", "settings_of", "with_settings"]

_SETTINGS = "cgp_settings"


@dataclass(frozen=True)
class Settings:
    """Settings of a model for :func:`cgp.predict`, besides its temperature.

    Attributes:
        method: how it predicts; None is as it is, with its stochastic layers.
        detectors: :class:`cgp.Detector` by name.
        held_out: the prediction of labelled inputs, or None.
        scale: of a regression, the noise variance of each output, ``(C,)``, or the factor of the one that the model or
            read-out gives.
        task: "regression" where the model was calibrated for one, or None.
        has_variance_head: whether ``scale`` is the factor of a variance that the model returns.
    """

    method: Method | None = None
    detectors: Mapping[str, Any] = field(default_factory=dict)
    held_out: Prediction | None = None
    scale: Tensor | None = None
    task: str | None = None
    has_variance_head: bool = False


def settings_of(model: nn.Module) -> Settings:
    """The settings of a model; the defaults unless :func:`with_settings` made it."""
    return getattr(uncompiled(model), _SETTINGS, Settings())


def has_settings(model: nn.Module) -> bool:
    """Whether :func:`with_settings` made the model."""
    return hasattr(uncompiled(model), _SETTINGS)


def forget_held_out(model: nn.Module) -> None:
    """Drop the held-out prediction that a model keeps, which a new calibration outdates."""
    if settings_of(model).held_out is not None:
        vars(uncompiled(model))[_SETTINGS] = replace(settings_of(model), held_out=None)


def with_settings(model: nn.Module, settings: Settings) -> nn.Module:
    """A copy of a model that shares its tensors, with other settings.

    Args:
        model: any module.
        settings: settings of the copy.

    Returns:
        The copy, of the same class and with the same state dict.

    Raises:
        ValueError: if the method cannot be applied to the model.
    """
    changed = as_assessed(model)
    changed = changed if settings.method is None else settings.method.apply(changed)
    vars(changed)[_SETTINGS] = settings
    return changed


def as_assessed(model: nn.Module) -> nn.Module:
    """A copy of a model, which shares its tensors, without its settings."""
    changed, method = structural_copy(model), settings_of(model).method
    if method is not None:
        method.undo(changed)
    vars(changed).pop(_SETTINGS, None)
    return changed
