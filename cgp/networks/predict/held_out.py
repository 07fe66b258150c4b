"""Held-out labels kept with a model, for guarantees of its predictions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from torch import nn

from .predict import predict
from .settings import settings_of, with_settings

__all__ = ["with_held_out"]


def with_held_out(model: nn.Module, data: Any, num_samples: int = 16, **options: Any) -> nn.Module:
    """A copy of a model that shares its tensors and keeps its prediction of labelled data.

    Its predictions then offer :meth:`cgp.Prediction.sets`, :meth:`cgp.Prediction.intervals` and
    ``abstain(risk=, level=)`` without further data, also after :func:`cgp.save_pretrained`. Predict as here: by as
    many draws, of the same kind.

    Args:
        model: any model that :func:`cgp.predict` takes.
        data: labelled inputs that have chosen nothing, neither weights nor a temperature: a loader, a data set, or a
            list of batches ``(inputs, labels)``.
        num_samples: number S of draws.
        **options: options of :func:`cgp.predict`.

    Returns:
        The copy.

    Raises:
        ValueError: if there are no labels.

    Example:
        >>> import torch
        >>> x = torch.linspace(-2, 2, 50)[:, None]
        >>> model = with_held_out(nn.Linear(1, 2), [(x, (x[:, 0] > 0).long())])
        >>> predict(model, x[:3]).sets(0.9).shape
        torch.Size([3, 2])
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "predict: one draw")  # guarantees need no epistemic part
        kept = predict(model, data, num_samples, keep_variance=False, **options)
    kept = replace(kept, held_out=None, draws=None, ood={})
    if kept.labels is None:
        raise ValueError("data: expected batches (inputs, labels) or dicts with 'labels', got some without labels")
    return with_settings(model, replace(settings_of(model), held_out=kept))
