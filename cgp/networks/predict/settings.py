"""Settings of a model for :func:`cgp.predict`: source of draws, a read-out in place of its logits, detectors."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cgp.attention import SamplingMixin
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.dropout import restore_dropout, with_dropout
from cgp.networks.model.inputs import logits_of
from cgp.networks.model.representation import Features, call_with_features, pooled_features
from cgp.networks.model.structural_copy import structural_copy, uncompiled

if TYPE_CHECKING:
    from .prediction import Prediction
    from .readout import GPReadout

__all__ = ["DRAWS", "Settings", "as_assessed", "forget_held_out", "has_settings", "settings_of", "with_settings"]

DRAWS = ("layers", "dropout", "none")

_SETTINGS = "cgp_settings"


@dataclass(frozen=True)
class Settings:
    """Settings of a model for :func:`cgp.predict`, besides its temperature.

    Attributes:
        draws: source of draws: the model's stochastic "layers", these and its "dropout", or "none".
        readout: a Gaussian process on the representation that replaces the last layer, or None.
        features: function that computes the representation ``(N, d)`` that the read-out reads.
        output: function that takes the logits, in whose place the read-out's come, from what the model returns.
        detectors: :class:`cgp.Detector` by name.
        held_out: the prediction of labelled inputs, or None.
        scale: of a regression, the noise variance of each output, ``(C,)``, or the factor of the one that the model or
            read-out gives.
        task: "regression" where the model was calibrated for one, or None.
        has_variance_head: whether ``scale`` is the factor of a variance that the model returns.
    """

    draws: str = "layers"
    readout: GPReadout | None = None
    features: Features = pooled_features
    output: Callable[[Any], Tensor] = logits_of
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
        ValueError: if the model has no dropout that could draw.
    """
    changed = as_assessed(model)
    if settings.draws == "dropout":
        changed = with_dropout(changed)
    elif settings.draws == "none":
        for layer in stochastic_layers(changed):
            vars(layer)["stochastic"] = False
    if settings.readout is not None and settings.readout.task == "classification":
        reading = changed if settings.features is pooled_features else as_assessed(changed)
        vars(changed)["forward"] = functools.partial(_read, changed.forward, reading, settings)
    vars(changed)[_SETTINGS] = settings
    return changed


def as_assessed(model: nn.Module) -> nn.Module:
    """A copy of a model, which shares its tensors, without its settings."""
    changed, settings = structural_copy(model), settings_of(model)
    restore_dropout(changed)
    if settings.readout is not None and settings.readout.task == "classification":
        vars(changed)["forward"] = vars(changed)["forward"].args[0]
    if settings.draws == "none":
        for module in changed.modules():
            if isinstance(module, SamplingMixin):
                vars(module).pop("stochastic", None)
    vars(changed).pop(_SETTINGS, None)
    return changed


def _read(forward: Callable[..., Any], model: nn.Module, settings: Settings, *args: Any, **options: Any) -> Any:
    """The output of a model, with a read-out's log-probabilities in place of its logits.

    Args:
        forward: the model's own.
        model: the model, or for another representation a copy without the read-out, of which that is computed.
        settings: with a read-out.
        *args: arguments of the model.
        **options: likewise.

    Returns:
        What the model returns, but for the logits.

    Raises:
        ValueError: if its logits are none of the tensors that it returns, or not ``(N, C)``.
    """
    readout = settings.readout
    assert readout is not None
    if settings.features is pooled_features:
        given = next(iter((*args, *options.values()))) if isinstance(model, nn.Linear) else None
        returned, features = call_with_features(model, lambda: forward(*args, **options), given)
    else:
        inputs = args[0] if len(args) == 1 and not options else args or options
        returned, features = forward(*args, **options), settings.features(model, inputs)
    logits = settings.output(returned)
    if logits.dim() != 2:
        raise ValueError(f"model: expected logits (N, C) for a read-out to replace, got shape {tuple(logits.shape)}")
    return _with_logits(returned, logits, readout.log_probabilities(features.cpu(), logits.shape[-1]).to(logits))


def _with_logits(returned: Any, logits: Tensor, read: Tensor) -> Any:
    """What a model returned, with other logits."""
    leaves, structure = pytree.tree_flatten(returned)
    if any(leaf is logits for leaf in leaves):
        return pytree.tree_unflatten([read if leaf is logits else leaf for leaf in leaves], structure)
    if isinstance(returned, Mapping) and returned.get("logits") is logits:
        return {**returned, "logits": read}
    if getattr(returned, "logits", None) is not logits:
        raise ValueError(
            "output: expected a function that takes one of the tensors that the model returns, which a read-out "
            "replaces, got one that computes another (let the model's forward compute it)"
        )
    changed = copy.copy(returned)
    changed.logits = read
    return changed
