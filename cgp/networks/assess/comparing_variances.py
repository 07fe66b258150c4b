"""Comparison of the variances of a regression network's errors on held-out folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cgp.networks.methods.amplitudes import COARSE, AmplitudeSearch, has_amplitude
from cgp.networks.methods.normals import Normals, ValueOutputs, finite, likeliest_factor, normals_by_factor
from cgp.networks.methods.regression import fit_value_readout, valued
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.dropout import has_dropout, with_dropout
from cgp.networks.model.inputs import Batch
from cgp.networks.model.representation import Features
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.readout import GPReadout
from cgp.networks.predict.settings import as_assessed
from cgp.networks.tasks.labels import values_for

from .recipe import drawing_model, fingerprint, layers_of
from .regression_recipe import AS_TRAINED, DROPOUT, POSTERIOR, READ_OUT, SCALE, RegressionRecipe
from .regression_report import RegressionAssessment, report_of
from .validation_data import ValidationData

__all__ = ["assess_regression"]


def assess_regression(
    model: nn.Module,
    validation: Any,
    *,
    train: Any,
    posterior: str | None,
    folds: int,
    num_samples: int,
    sampling: str,
    batch_size: int | None,
    seed: int,
    features: Features,
    output: Callable[[Any], Tensor],
    noise: Callable[[Any], Tensor] | None,
    verbose: bool | None = None,
) -> RegressionAssessment:
    r"""Score variances of a network's errors: as :func:`cgp.assess` with ``task="regression"``.

    .. math:: y_i \sim N\big(\mu(x_i),\; e(x_i) + s^2 v(x_i)\big)

    for each output, with a scale s² that is fitted to the other folds. Methods: "as trained", the variance v that the
    network returns, with s² = 1; "scale", that variance or a constant one, scaled; "dropout + scale", "posterior +
    scale" (of the amplitude that is likeliest on the other folds) and "GP read-out + scale" add the variance e of the
    draws or of the process, and predict their mean.

    Args:
        model: network with outputs ``(N, C)``. It is not changed.
        validation: held-out batches ``(inputs, values)``.
        train: batches that it was trained on, for the read-out, or None.
        posterior: layers of the model that get a posterior: "last", "first", "all", or None.
        folds: number K of folds, at least 2.
        num_samples: number S of draws.
        sampling: "marginal" or "joint".
        batch_size: examples per batch.
        seed: seed of the folds and the draws.
        features: representation ``(N, d)`` of inputs, for the read-out.
        output: function that takes the outputs ``(N, C)`` from what the model returns.
        noise: function that takes their variances ``(N, C)``, or None.
        verbose: whether progress is shown.

    Returns:
        The comparison.

    Raises:
        ValueError: if values do not fit the outputs, are not finite, or are fewer than the folds.
    """
    model = as_assessed(uncompiled(model)).eval()
    known = ValidationData(validation, partial(valued, model, name="validation", batch_size=batch_size), verbose)
    if not known.labels:
        raise ValueError("validation: expected at least one batch, got none")
    options = num_samples, sampling, seed, ValueOutputs(output, noise)
    candidates, readout = _candidates(model, known, posterior, options), None
    plain = candidates[SCALE][0.0]
    values = values_for(plain.mean, known.labels, "validation").double()
    if len(values) < folds:
        raise ValueError(f"validation: expected at least {folds} rows of values, one a fold, got {len(values)}")
    if train is not None:
        readout = fit_value_readout(model, train, batch_size, features)
        candidates[READ_OUT] = {0.0: _read(model, (readout, features), known, plain)}
    fold_of = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed)) % folds
    fold_of, unit = fold_of.to(values.device), torch.ones(values.shape[1], dtype=torch.float64, device=values.device)
    scored = {AS_TRAINED: (plain.mean, plain.total(unit))} if noise is not None else {}
    choices = {AS_TRAINED: (0.0, unit.cpu())} if noise is not None else {}
    for name, by_factor in candidates.items():
        scored[name] = _scored(by_factor, values, fold_of)
        factor, scale = likeliest_factor(by_factor, values)
        choices[name] = (factor, scale.cpu())
    fitted = choices, readout, features, noise is not None, output
    recipe = RegressionRecipe(fingerprint(model), layers_of(posterior), *fitted)
    return report_of(scored, values, recipe)


def _candidates(
    model: nn.Module, known: Iterable[Batch], posterior: str | None, options: tuple[int, str, int, ValueOutputs]
) -> dict[str, dict[float, Normals]]:
    """Predictions by method and factor of the amplitudes (0 without draws)."""
    drawing = drawing_model(model, posterior)
    scaled = drawing is not None and any(has_amplitude(module) for module in drawing.modules())
    factors = () if drawing is None else COARSE if scaled else (1.0,)
    by_factor = normals_by_factor(AmplitudeSearch(drawing or model, *options), known, (0.0, *factors))
    candidates = {SCALE: {0.0: by_factor.pop(0.0)}}
    if has_dropout(model) and not stochastic_layers(model):
        candidates[DROPOUT] = normals_by_factor(AmplitudeSearch(with_dropout(model), *options), known, (1.0,))
    usable = finite(by_factor)
    return candidates | ({POSTERIOR: usable} if usable else {})


def _read(model: nn.Module, reading: tuple[GPReadout, Features], known: Iterable[Batch], plain: Normals) -> Normals:
    readout, features = reading
    read = readout(torch.cat([features(model, batch.inputs).double().cpu() for batch in known]))
    if read.mean.shape != plain.mean.shape:
        shapes = f"{tuple(read.mean.shape)} and {tuple(plain.mean.shape)}"
        raise ValueError(f"train: expected values of as many outputs as the model has, got {shapes}")
    return Normals(*(part.to(plain.mean) for part in (read.mean, read.variance, read.noise.expand_as(read.mean))))


def _scored(by_factor: Mapping[float, Normals], values: Tensor, fold_of: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every value, with factor and scale by the other folds."""
    mean, variance = torch.zeros_like(values), torch.zeros_like(values)
    for fold in fold_of.unique():
        rows = fold_of == fold
        factor, scale = likeliest_factor({f: normals.at(~rows) for f, normals in by_factor.items()}, values[~rows])
        inside = by_factor[factor].at(rows)
        mean[rows], variance[rows] = inside.mean, inside.total(scale)
    return mean, variance
