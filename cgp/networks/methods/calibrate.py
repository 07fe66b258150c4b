"""Calibration of a classifier on held-out labels: a posterior's width, a temperature, dropout, a read-out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from cgp.networks.model.inputs import logits_of, model_device
from cgp.networks.model.representation import Features, pooled_features
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.settings import settings_of, with_settings
from cgp.networks.tasks.classification import CLASSIFICATIONS, task_output
from cgp.networks.tasks.labels import labelled_batches

from .calibration import Calibration
from .posterior_width import amplitudes_of, calibrate_posterior
from .regression import RegressionCalibration, calibrate_regression
from .scaling import calibrate_outputs, fit_readout

__all__ = ["Calibration", "calibrate"]

TASKS = (*CLASSIFICATIONS, "regression")
METHODS = ("posterior", "temperature", "dropout", "readout")
CRITERIA = ("widest", "likelihood")


@overload
def calibrate(
    model: nn.Module,
    data: Iterable[Any],
    *,
    method: str = ...,
    task: Literal["classification", "tokens", "multilabel", "dense"] = ...,
    train: Any = ...,
    features: Features = ...,
    criterion: str = ...,
    temperature: bool = ...,
    num_samples: int = ...,
    sampling: str = ...,
    batch_size: int | None = ...,
    seed: int = ...,
    progress: Callable[[int, int], None] | None = ...,
    output: Callable[[Any], Tensor] = ...,
) -> Calibration: ...


@overload
def calibrate(
    model: nn.Module,
    data: Iterable[Any],
    *,
    method: str = ...,
    task: Literal["regression"],
    train: Any = ...,
    features: Features = ...,
    noise: Callable[[Any], Tensor] | None = ...,
    criterion: str = ...,
    num_samples: int = ...,
    sampling: str = ...,
    batch_size: int | None = ...,
    seed: int = ...,
    output: Callable[[Any], Tensor] = ...,
) -> RegressionCalibration: ...


@overload
def calibrate(
    model: nn.Module,
    data: Iterable[Any],
    *,
    method: str = ...,
    task: str,
    train: Any = ...,
    features: Features = ...,
    noise: Callable[[Any], Tensor] | None = ...,
    criterion: str = ...,
    temperature: bool = ...,
    num_samples: int = ...,
    sampling: str = ...,
    batch_size: int | None = ...,
    seed: int = ...,
    progress: Callable[[int, int], None] | None = ...,
    output: Callable[[Any], Tensor] = ...,
) -> Calibration | RegressionCalibration: ...


@torch.no_grad()
def calibrate(
    model: nn.Module,
    data: Iterable[Any],
    *,
    method: str = "posterior",
    task: str = "classification",
    train: Any = None,
    features: Features = pooled_features,
    noise: Callable[[Any], Tensor] | None = None,
    criterion: str = "widest",
    temperature: bool = True,
    num_samples: int = 8,
    sampling: str = "marginal",
    batch_size: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    output: Callable[[Any], Tensor] = logits_of,
) -> Calibration | RegressionCalibration:
    r"""Calibrate a classifier, or a regression, on held-out labels.

    - "posterior": the width of a converted model's posterior, and a temperature.
    - "temperature": one number, by which the logits of any classifier are divided.
    - "dropout": the model's dropout stays on in prediction, with a temperature.
    - "readout": a Gaussian process on the inputs of the last linear layer, fitted to ``train`` in closed form
      (:class:`cgp.GPReadout`), replaces that layer, with a temperature.

    With ``task="regression"`` of a network with outputs ``(N, C)``: "scale" fits the variance of each output's errors,
    or the factor of the variance that the network returns (``noise``); "dropout", "posterior" and "readout" add one to
    the variance of the draws or of the process (:func:`cgp.networks.methods.regression.calibrate_regression`).

    **Temperature**: the one under which the labels are likeliest, :math:`p = \operatorname{softmax}(f / T)`.

    **Posterior**: one factor for all amplitudes. Held-out data of the training distribution bound the width of the
    posterior from above but not from below: their likelihood is often largest without any variance, and a posterior
    fitted by it is uninformative about other inputs. "widest" therefore takes the largest amplitude that is compatible
    with the data,

    .. math:: \max\{c : \min_T \mathrm{NLL}(c, T) \le \mathrm{NLL}^* + \mathrm{SE}(\mathrm{NLL}^*)\}, \qquad
        \mathrm{NLL}(c, T) = -\tfrac1N\textstyle\sum_i
        \log\tfrac1S\sum_s \operatorname{softmax}\big(f_{c,s}(x_i) / T\big)_{y_i}

    with :math:`\mathrm{NLL}^*` the smallest of all amplitudes, zero included, and T at least 1, or the best without
    draws if that is smaller: sharpened draws would compensate any amplitude. "likelihood" takes the best one. The
    amplitudes c are tried on a grid, with the same noise for each; what lies below the first stochastic layer, and
    that layer's posterior, is computed once. The mean does not depend on the amplitude: predictions without draws stay
    as they are.

    The scales of a classifier's posterior lie in the model: its amplitudes are multiplied in place when all is done,
    and until then it may be used. All else leaves the model as it is; ``calibration.model`` is a copy that shares its
    tensors.

    Args:
        model: any classifier; for "posterior" converted by :func:`cgp.convert` with softmax's mean ("cgp" or
            "sparse_cgp").
        data: batches ``(inputs, labels)``, or dicts with "labels", or a data set of such examples; labels −100 are left
            out. A few hundred labels do. It is read once, and kept.
        method: "posterior", "temperature", "dropout" or "readout"; for a regression "scale", "dropout", "posterior"
            or "readout".
        task: "classification" (of inputs or "tokens"), "multilabel" (labels ``(N, C)`` in {0, 1}), "dense" (logits
            ``(N, C, H, W)``, labels ``(N, H, W)``), or "regression", whose labels are values ``(N, C)``.
        train: labelled data that the model was trained on, for "readout".
        features: representation ``(N, d)`` of inputs, for "readout": a function of the model and inputs. By default the
            inputs of the linear layer whose output the model returns, or else of the last one that it calls.
        noise: for a regression, function that takes the variance ``(N, C)`` from the model's output, such as
            ``lambda out: out[1]``.
        criterion: "widest" or "likelihood", for a posterior.
        temperature: whether to fit the temperature; otherwise it is not changed.
        num_samples: number S of draws.
        sampling: "marginal" or "joint", the kind of draws of later predictions.
        batch_size: examples per batch; None is all at once for tensors, 32 for data sets.
        seed: seed of the draws; the global generators are not affected.
        progress: of "posterior": called with the number of runs of the layers above done, and of all, such as a
            progress bar's.
        output: function that takes the logits from the model's output.

    Returns:
        The result, with the calibrated model: a :class:`cgp.Calibration`, or for a regression a
        :class:`cgp.networks.methods.regression.RegressionCalibration`.

    Raises:
        ValueError: if the model has nothing that the method needs, labels are missing or no class indices, logits are
            not finite or not logits, or an argument is off. The model is left as it was.

    Note:
        Temperature scaling: Guo et al., On Calibration of Modern Neural Networks (ICML 2017). Dropout: Gal &
        Ghahramani (ICML 2016). The one-standard-error rule: Breiman et al., Classification and Regression Trees (1984),
        section 3.4.3.

    Example:
        >>> from cgp import convert
        >>> host = nn.Sequential(nn.TransformerEncoderLayer(8, 2, batch_first=True), nn.Flatten(), nn.Linear(32, 3))
        >>> model = convert(host.eval())
        >>> report = calibrate(model, [(torch.randn(20, 4, 8), torch.arange(20) % 3)])
        >>> report.nll <= report.nll_best + report.standard_error
        True
        >>> scaled = calibrate(nn.Linear(2, 3), [(torch.randn(30, 2), torch.arange(30) % 3)], method="temperature")
        >>> scaled.nll <= scaled.nll_mean
        True
    """
    _check_draws(task, method, num_samples, sampling, train)
    model = uncompiled(model)
    _check_choices(method, criterion, features)
    if task == "regression":
        if method == "posterior":
            amplitudes_of(model)
        options: dict[str, Any] = {"num_samples": num_samples, "sampling": sampling, "seed": seed, "output": output}
        options |= {"train": train, "features": features, "noise": noise, "criterion": criterion}
        return calibrate_regression(model, data, method, batch_size=batch_size, **options)
    _check(method, noise, temperature=temperature)
    draws = (num_samples, sampling, seed, task_output(task, output))
    if method == "posterior":
        amplitudes_of(model)
        kept = labelled_batches(data, model_device(model), batch_size=batch_size, task=task)
        return calibrate_posterior(model, kept, criterion, draws, progress, temperature=temperature)
    if method == "readout" and task != "classification":
        raise ValueError(f"method: expected one of {METHODS[:-1]} with task={task!r}, got 'readout'")
    changed = _prepared(model, method, (train, batch_size, features), output)
    kept = labelled_batches(data, model_device(model), batch_size=batch_size, task=task)
    return calibrate_outputs(model, changed, method, kept, draws, temperature=temperature)


def _prepared(
    model: nn.Module, method: str, seen: tuple[Any, int | None, Features], output: Callable[[Any], Tensor]
) -> nn.Module:
    """The model prepared for a method, without a temperature yet."""
    settings = replace(
        settings_of(model), draws="dropout" if method == "dropout" else "none", readout=None, held_out=None
    )
    if method == "readout":
        settings = replace(settings, readout=fit_readout(model, *seen), features=seen[-1], output=output)
    return with_settings(model, settings)


def _check(method: str, noise: Any, *, temperature: bool) -> None:
    if method not in METHODS:
        raise ValueError(f"method: expected one of {METHODS}, got {method!r}")
    if method == "temperature" and not temperature:
        raise ValueError("temperature: expected True with method='temperature', got False")
    if noise is not None:
        raise ValueError(f"noise: expected None with task='classification', got {type(noise).__name__}")


def _check_choices(method: str, criterion: str, features: Features) -> None:
    if criterion not in CRITERIA:
        raise ValueError(f"criterion: expected one of {CRITERIA}, got {criterion!r}")
    if features is not pooled_features and method != "readout":
        raise ValueError(f"features: expected the default with method={method!r}, got {features!r}")


def _check_draws(task: str, method: str, num_samples: int, mode: str, train: Any) -> None:
    if task not in TASKS:
        raise ValueError(f"task: expected one of {TASKS}, got {task!r}")
    if (train is not None) != (method == "readout"):
        wanted = "labelled training data" if method == "readout" else "None"
        raise ValueError(f"train: expected {wanted} with method={method!r}, got {type(train).__name__}")
    if num_samples < 2:
        raise ValueError(f"num_samples: expected at least 2, got {num_samples}")
    if mode not in ("marginal", "joint"):
        raise ValueError(f"sampling: expected 'marginal' or 'joint', got {mode!r}")
