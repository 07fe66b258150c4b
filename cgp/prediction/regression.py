"""Calibration of networks that regress: the variance of their errors, given held-out values."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from cgp.model.inputs import Batch, logits_of, model_device, to_device
from cgp.model.twin import uncompiled

from .labels import values_for
from .predict import input_batches, predict
from .prediction import Prediction
from .readout import GPReadout
from .representation import pooled_features
from .settings import Settings, as_assessed, settings_of, with_settings

__all__ = [
    "REGRESSION_METHODS",
    "Normals",
    "RegressionCalibration",
    "calibrate_regression",
    "fit_value_readout",
    "valued",
    "valued_batches",
]

REGRESSION_METHODS = ("scale", "dropout", "readout")

_PLACES = 41  # between which the factor of a noise is looked for


@dataclass(frozen=True)
class RegressionCalibration:
    """What :func:`cgp.calibrate` did to a network that regresses, and the model that predicts so.

    Attributes:
        model: a copy that shares the tensors of the one that was given.
        method: how it was calibrated.
        scale: the noise variance of each output, ``(C,)``, or the factor of the one that the model or read-out gives.
        scores: "rmse", "nll" per value and "coverage90" of the values that it was fitted to.
        num_labels: rows of values.
        seconds: in all.
    """

    model: nn.Module = field(repr=False)
    method: str
    scale: Tensor
    scores: dict[str, float]
    num_labels: int
    seconds: float

    def __str__(self) -> str:
        """A summary."""
        scales = ", ".join(f"{value:.4g}" for value in self.scale.tolist()[:8]) + ", ..." * (len(self.scale) > 8)
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        return f"{self.method}, variance × {scales}\non {self.num_labels} rows in {self.seconds:.1f} s\n{scores}"


def calibrate_regression(
    model: nn.Module,
    data: Any,
    method: str,
    *,
    train: Any = None,
    noise: Callable[[Any], Tensor] | None = None,
    num_samples: int = 8,
    sampling: str = "marginal",
    batch_size: int | None = None,
    seed: int = 0,
    output: Callable[[Any], Tensor] = logits_of,
) -> RegressionCalibration:
    r"""Fit the variance of a network's errors: as :func:`cgp.calibrate` with ``task="regression"``.

    .. math:: \min_{s^2} -\textstyle\sum_i \log N\big(y_i \mid \mu(x_i),\; e(x_i) + s^2 v(x_i)\big)

    for each output, with e the variance of the draws or of the read-out's function, 0 without, and v the variance that
    the network or the read-out gives, 1 without.

    Args:
        model: any network with outputs ``(N, C)``.
        data: held-out batches ``(inputs, values)``.
        method: "scale", "dropout" or "readout".
        train: batches that the model was trained on, for "readout".
        noise: takes v, ``(N, C)``, from what the model returns.
        num_samples: S draws.
        sampling: "marginal" or "joint".
        batch_size: examples at a time.
        seed: of the draws.
        output: takes the outputs ``(N, C)`` from what the model returns.

    Returns:
        What was done.

    Raises:
        ValueError: if the method is another one, or values do not fit the outputs or are not finite.
    """
    start = time.perf_counter()
    if method not in REGRESSION_METHODS:
        raise ValueError(f"method: expected one of {REGRESSION_METHODS} with task='regression', got {method!r}")
    model = uncompiled(model)
    kept = valued_batches(model, data, "data", batch_size)
    draws = {"scale": "layers", "dropout": "dropout", "readout": "none"}[method]
    readout = fit_value_readout(model, train, batch_size) if method == "readout" else None
    detectors = settings_of(model).detectors
    settings = Settings(draws=draws, readout=readout, detectors=detectors, task="regression")
    options: dict[str, Any] = {"num_samples": num_samples, "sampling": sampling, "seed": seed, "output": output}
    options |= {"keep_variance": False, "noise": noise or (1.0 if readout is None else None)}
    prediction = predict(with_settings(model, settings), iter(kept), **options)
    values = values_for(prediction.mean, [batch.labels for batch in kept])
    scale = Normals.of(prediction).fit_scale(values.double())
    assert prediction.aleatoric is not None
    noise_of = prediction.aleatoric * scale
    spread = torch.zeros(()) if prediction.epistemic is None else prediction.epistemic
    scores = replace(prediction, aleatoric=noise_of, total=noise_of + spread, labels=values).score()
    changed = with_settings(model, replace(settings, scale=scale.cpu(), has_variance_head=noise is not None))
    return RegressionCalibration(changed, method, scale.cpu(), scores, len(values), time.perf_counter() - start)


class Normals(NamedTuple):
    r"""Predictive normal distributions of values, :math:`N(\mu, e + s^2 v)`, but for the factor of the noise.

    Attributes:
        mean: μ, ``(N, C)``.
        variance: e, of draws or of a read-out's function, 0 without, ``(N, C)``.
        noise: v, ``(N, C)``.
    """

    mean: Tensor
    variance: Tensor
    noise: Tensor

    @classmethod
    def of(cls, prediction: Prediction) -> Normals:
        """The distributions of a prediction, in float64."""
        assert prediction.aleatoric is not None
        mean, noise = prediction.mean.double(), prediction.aleatoric.double()
        spread = prediction.epistemic
        return cls(mean, torch.zeros_like(mean) if spread is None else spread.double(), noise)

    def at(self, rows: Tensor) -> Normals:
        """Those of some rows."""
        return Normals(*(part[rows] for part in self))

    @property
    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(bool(part.isfinite().all()) for part in self)

    def total(self, scale: Tensor) -> Tensor:
        """The variances with factors ``(C,)``."""
        return self.variance + scale * self.noise

    def fit_scale(self, values: Tensor) -> Tensor:
        """The factor of the noise of each output, ``(C,)``, under which values ``(N, C)`` are likeliest."""
        squares = (values - self.mean).square()
        ratio = (squares / self.noise).mean(0)
        if not bool((ratio > 0).all()):
            raise ValueError("data: expected values with errors, got an output that is right everywhere")
        if not bool((self.variance > 0).any()):
            return ratio
        columns = zip(squares.T, self.variance.T, self.noise.T, strict=True)
        return torch.tensor([_likeliest(*column) for column in columns], dtype=torch.float64, device=squares.device)


def _likeliest(squares: Tensor, spread: Tensor, noise: Tensor) -> float:
    """The factor of the noise: at least a millionth of the one without a spread, and at most the largest ratio."""

    def loss(logarithm: float) -> float:
        total = spread + math.exp(logarithm) * noise
        return float((total.log() + squares / total).mean())

    ratios = squares / noise
    bounds = math.log(1e-6 * float(ratios.mean())), math.log(float(ratios.max()))  # beyond, every term rises
    places = torch.linspace(*bounds, _PLACES, dtype=torch.float64).tolist()  # the loss may have several minima
    best = min(range(_PLACES), key=lambda index: loss(places[index]))
    around = places[max(best - 1, 0)], places[min(best + 1, _PLACES - 1)]
    minimum = minimize_scalar(loss, bounds=around, method="bounded")
    return math.exp(min(float(minimum.x), places[best], key=loss))


def valued_batches(model: nn.Module, data: Any, name: str, batch_size: int | None) -> list[Batch]:
    """The batches of labelled data for a regression; values are floats."""
    kept = list(valued(model, data, name, batch_size))
    if not kept:
        raise ValueError(f"{name}: expected at least one batch, got none")
    return kept


def valued(model: nn.Module, data: Any, name: str, batch_size: int | None) -> Iterator[Batch]:
    """The batches of :func:`valued_batches`, one after the other."""
    for batch in input_batches(model, data, batch_size):
        if batch.labels is None:
            raise ValueError(f"{name}: expected batches (inputs, values) or dicts with 'labels', got some without")
        if not batch.labels.is_floating_point():
            raise ValueError(
                f"{name}: expected values that are floating-point numbers, got {batch.labels.dtype} "
                "(pass values.float())"
            )
        yield Batch(*to_device((batch.inputs, batch.labels), model_device(model)))


def fit_value_readout(model: nn.Module, train: Any, batch_size: int | None) -> GPReadout:
    """A Gaussian process from the representation of a model's training data to their values."""
    plain, seen = as_assessed(model), valued_batches(model, train, "train", batch_size)
    features = torch.cat([pooled_features(plain, batch.inputs).double().cpu() for batch in seen])
    values = torch.cat([batch.labels.double().cpu() for batch in seen if batch.labels is not None])
    return GPReadout(features, values, task="regression")
