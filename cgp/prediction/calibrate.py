"""Calibration of a classifier on held-out labels: a posterior's width, a temperature, dropout, a read-out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from cgp.model.blocks import used_modules
from cgp.model.inputs import Batch, logits_of, model_device
from cgp.model.temperature import logit_temperature, set_logit_temperature
from cgp.model.twin import uncompiled

from .amplitudes import COARSE, TEMPERATURES, AmplitudeSearch, chosen, has_amplitude, tune
from .calibration import Calibration
from .labels import labelled_batches
from .regression import calibrate_regression
from .representation import Features, pooled_features
from .scaling import Draws, calibrate_outputs, fit_readout
from .settings import forget_held_out, settings_of, with_settings
from .tasks import CLASSIFICATIONS, task_output

__all__ = ["Calibration", "calibrate"]

TASKS = (*CLASSIFICATIONS, "regression")
METHODS = ("posterior", "temperature", "dropout", "readout")
CRITERIA = ("widest", "likelihood")

_FINE = tuple(2.0 ** (k / 4) for k in range(1, 4))


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
) -> Any:
    r"""Calibrate a classifier, or a regression, on held-out labels.

    - "posterior": the width of a converted model's posterior, and a temperature.
    - "temperature": one number, by which the logits of any classifier are divided.
    - "dropout": the model's dropout stays on in prediction, with a temperature.
    - "readout": a Gaussian process on the inputs of the last linear layer, fitted to ``train`` in closed form
      (:class:`cgp.GPReadout`), replaces that layer, with a temperature.

    With ``task="regression"`` of a network with outputs ``(N, C)``: "scale" fits the variance of each output's errors,
    or the factor of the variance that the network returns (``noise``); "dropout", "posterior" and "readout" add one to
    the variance of the draws or of the process (:func:`cgp.prediction.regression.calibrate_regression`).

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
        :class:`cgp.prediction.regression.RegressionCalibration`.

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
            _amplitudes(model)
        options: dict[str, Any] = {"num_samples": num_samples, "sampling": sampling, "seed": seed, "output": output}
        options |= {"train": train, "features": features, "noise": noise, "criterion": criterion}
        return calibrate_regression(model, data, method, batch_size=batch_size, **options)
    _check(method, noise, temperature=temperature)
    draws = (num_samples, sampling, seed, task_output(task, output))
    if method == "posterior":
        _amplitudes(model)
        kept = labelled_batches(data, model_device(model), batch_size=batch_size, task=task)
        return _calibrate_posterior(model, kept, criterion, draws, progress, temperature=temperature)
    if method == "readout" and task != "classification":
        raise ValueError(f"method: expected one of {METHODS[:-1]} with task={task!r}, got 'readout'")
    changed = _prepared(model, method, (train, batch_size, features), output)
    kept = labelled_batches(data, model_device(model), batch_size=batch_size, task=task)
    return calibrate_outputs(model, changed, method, kept, draws, temperature=temperature)


def _calibrate_posterior(
    model: nn.Module,
    kept: list[Batch],
    criterion: str,
    draws: Draws,
    progress: Callable[[int, int], None] | None,
    *,
    temperature: bool,
) -> Calibration:
    start = time.perf_counter()
    num_samples, sampling, seed, output = draws
    amplitudes = _amplitudes(model)
    given = logit_temperature(model)
    ticks = _Ticks(progress, len(kept) * num_samples * (len(COARSE) + len(_FINE) + 3 * temperature))
    search = AmplitudeSearch(model, num_samples, sampling, seed, output, ticks)
    search.check(kept)

    temperatures = TEMPERATURES if temperature else (given,)
    scores = search.scores(kept, (0.0, *COARSE), temperatures)
    edge = chosen(tune(scores), criterion).factor
    near = [edge * step for step in _FINE]
    near = near if criterion == "widest" else [*(f / 2 for f in near[1:]), *near[:2]]
    tried = tune(scores | search.scores(kept, near, temperatures))
    best, taken, plain = min(tried.values(), key=lambda trial: trial.nll), chosen(tried, criterion), tried[0.0]
    if temperature:
        taken = search.fit_temperature(kept, taken, least=min(plain.temperature, 1.0))
        plain = search.fit_temperature(kept, plain)
    as_it_was = search.scores(kept, (0.0,), (given,))[0.0].best(0.0)
    if not math.isfinite(taken.nll):
        raise ValueError("data: expected labels of classes that the model allows, got some whose logit is -inf")
    scaled = {name: owner + math.log(taken.factor) for name, owner in amplitudes.items()}
    report = Calibration(
        model,
        "posterior",
        criterion,
        taken.factor,
        {name: logarithm.exp() for name, logarithm in scaled.items()},
        taken.temperature,
        as_it_was.nll,
        plain.nll,
        best.nll,
        taken.nll,
        best.standard_error,
        as_it_was.accuracy,
        taken.accuracy,
        taken.disagreement,
        len(taken.losses),
        time.perf_counter() - start,
    )
    ticks.finish()
    for name, parameter in amplitudes.items():  # only now, after everything that can fail
        parameter.copy_(scaled[name])
    set_logit_temperature(model, taken.temperature)
    forget_held_out(model)
    return report


class _Ticks:
    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    def finish(self) -> None:
        """Report the steps that Newton's method did not need."""
        self(max(self.total - self.done, 0))


def _amplitudes(model: nn.Module) -> dict[str, Any]:
    owners: dict[str, Any] = {name: module for name, module in used_modules(model).items() if has_amplitude(module)}
    amplitudes = {name: owner.log_amplitude for name, owner in owners.items()}
    is_adapted = any(hasattr(module, "peft_config") for module in model.modules())
    if is_adapted and any(f".{name}".endswith(".gp") for name in amplitudes):
        raise ValueError(
            "model: expected an adapter that saves the posterior's scales with its weights, got one that leaves them "
            "out: convert the model first, and give peft's configuration modules_to_save=['gp']"
        )
    if not amplitudes:
        raise ValueError(
            "model: expected layers with softmax's mean (convert by 'cgp' or 'sparse_cgp'), got none "
            "(method='temperature' takes any classifier, 'scale' any regression)"
        )
    return amplitudes


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
