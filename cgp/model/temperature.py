"""The temperature by which a model's logits are divided, where calibration fitted one."""

from __future__ import annotations

from torch import nn

from .circumstances import uncompiled

__all__ = ["logit_temperature", "set_logit_temperature"]

_NAME = "cgp_temperature"


def logit_temperature(model: nn.Module) -> float:
    """By what :func:`cgp.predict` divides the logits of a model.

    Args:
        model: any module.

    Returns:
        The temperature; 1 unless one was set.

    Example:
        >>> logit_temperature(nn.Linear(2, 2))
        1.0
    """
    return float(getattr(uncompiled(model), _NAME, 1.0))


def set_logit_temperature(model: nn.Module, temperature: float) -> None:
    r"""Let :func:`cgp.predict` divide the logits of a model, :math:`p = \operatorname{softmax}(f / T)`.

    What the model itself returns stays as it is. Copies keep the temperature, and so does
    :func:`cgp.conversion.save_pretrained`; a bare ``state_dict`` does not.

    Args:
        model: any module.
        temperature: T, positive.

    Raises:
        ValueError: if the temperature is not positive and finite.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> set_logit_temperature(model, 1.5)
        >>> logit_temperature(model)
        1.5
    """
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"temperature: expected a positive number, got {temperature!r}")
    setattr(uncompiled(model), _NAME, float(temperature))
