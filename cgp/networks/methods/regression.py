"""Calibration of networks that regress: the variance of their errors, given held-out values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.model.inputs import Batch, logits_of, model_device, to_device
from cgp.networks.model.representation import Features, pooled_features
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.predict import input_batches, predict
from cgp.networks.predict.readout import GPReadout
from cgp.networks.predict.settings import Settings, as_assessed, settings_of, with_settings
from cgp.networks.tasks.labels import values_for

from .amplitudes import COARSE, AmplitudeSearch, chosen, with_amplitudes
from .normals import Normals, ValueOutputs, finite, normals_by_factor, trials

__all__ = [
    "REGRESSION_METHODS",
    "RegressionCalibration",
    "calibrate_regression",
    "fit_value_readout",
    "valued",
    "valued_batches",
]

REGRESSION_METHODS = ("scale", "dropout", "posterior", "readout")


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


def calibrate_regression(
    model: nn.Module,
    data: Any,
    method: str,
    *,
    train: Any = None,
    features: Features = pooled_features,
    noise: Callable[[Any], Tensor] | None = None,
    criterion: str = "widest",
    num_samples: int = 8,
    sampling: str = "marginal",
    batch_size: int | None = None,
    seed: int = 0,
    output: Callable[[Any], Tensor] = logits_of,
) -> RegressionCalibration:
    r"""Fit the variance of a network's errors: as :func:`cgp.calibrate` with ``task="regression"``.

    .. math:: \min_{s^2} -\textstyle\sum_i \log N\big(y_i \mid \mu(x_i),\; e(x_i) + s^2 v(x_i)\big)

    for each output, and for "posterior" at the amplitude that :func:`cgp.calibrate` describes, with e the variance of
    the draws or of the read-out's function, 0 without, and v the variance that the network or the read-out gives, 1
    without.

    Args:
        model: any network with outputs ``(N, C)``.
        data: held-out batches ``(inputs, values)``.
        method: "scale", "dropout", "posterior" (of a converted model), or "readout".
        train: batches that the model was trained on, for "readout".
        features: representation ``(N, d)`` of inputs, for "readout".
        noise: takes v, ``(N, C)``, from what the model returns.
        criterion: "widest" or "likelihood", by which a posterior's amplitude is chosen.
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
    factor, readout = {"dropout": 1.0}.get(method, 0.0), None
    if method == "posterior":
        search = AmplitudeSearch(as_assessed(model), num_samples, sampling, seed, ValueOutputs(output, noise))
        factor = _fit_factor(search, kept, criterion)
        model = with_amplitudes(model, factor)
    elif method == "readout":
        readout = fit_value_readout(model, train, batch_size, features)
    draws = {"dropout": "dropout", "readout": "none"}.get(method, "layers")
    detectors = settings_of(model).detectors
    settings = Settings(draws, readout, features, detectors=detectors, task="regression")
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
    return RegressionCalibration(changed, method, factor, scale.cpu(), scores, len(values), time.perf_counter() - start)


def _fit_factor(search: AmplitudeSearch, kept: list[Batch], criterion: str) -> float:
    """The factor of the amplitudes that is chosen by held-out values."""
    by_factor = normals_by_factor(search, kept, (0.0, *COARSE))
    values = values_for(by_factor[0.0].mean, [batch.labels for batch in kept]).double()
    return chosen({f: trial for f, (trial, _) in trials(finite(by_factor), values).items()}, criterion).factor


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


def fit_value_readout(
    model: nn.Module, train: Any, batch_size: int | None, features: Features = pooled_features
) -> GPReadout:
    """A Gaussian process from the representation of a model's training data to their values."""
    plain, seen = as_assessed(model), valued_batches(model, train, "train", batch_size)
    z = torch.cat([features(plain, batch.inputs).double().cpu() for batch in seen])
    values = torch.cat([batch.labels.double().cpu() for batch in seen if batch.labels is not None])
    return GPReadout(z, values, task="regression")
