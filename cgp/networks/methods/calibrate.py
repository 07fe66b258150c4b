"""Calibration on held-out labels, by any method of any task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Never

import torch
from torch import Tensor, nn

from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.inputs import refuse_labels_apart
from cgp.networks.model.progress import Progress
from cgp.networks.model.repeated import keep_keys, keys_of
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.drawing import check_samples
from cgp.networks.predict.method import Method, Training, settings_of, with_settings
from cgp.networks.tasks import Task, as_task

from .amplitudes import AmplitudeSearch, amplitudes_of, has_amplitude
from .calibration import Calibration, calibrate_outputs, calibrate_posterior, calibrate_values
from .known import Posterior

__all__ = ["calibrate"]


@torch.no_grad()
def calibrate(
    model: nn.Module,
    data: Any,
    *labels: Any,
    method: str | Method = "auto",
    task: str | Task = "classification",
    output: Callable[[Any], Tensor] | str | None = None,
    train: Any = None,
    num_samples: int = 8,
    seed: int = 0,
    progress: Progress = None,
    **others: Never,
) -> Calibration:
    r"""Calibrate a classifier, or a regression, on held-out labels.

    For probabilities alone take ``method="temperature"``: a posterior is as wide as the labels allow by default, to
    detect other inputs, and its probabilities are then often worse.

    A method is one of these, by its name or as an object with options (:mod:`cgp.networks.methods.known`), or your own
    (:class:`cgp.networks.predict.method.Method`):

    - "auto": "posterior" if the model has one, else "temperature", of a regression "scale"; ``calibration.method`` says
      which, and ``calibration.model`` predicts by it.
    - "posterior": the width of a converted model's posterior (:class:`Posterior`).
    - "temperature": one number, by which the logits of any classifier are divided.
    - "scale": of a regression, the variance of each output's errors, or the factor of the one that the network returns.
    - "dropout": the model's dropout stays on in prediction.
    - "readout": a Gaussian process on the inputs of the last linear layer, fitted to ``train`` in closed form
      (:class:`cgp.GPReadout`), replaces that layer.

    A name in a table of :func:`cgp.assess`, such as "GP read-out + temperature", is taken, too. All but "scale" have a
    temperature besides, of a regression all have a scale.

    **Temperature**: the one under which the labels are likeliest, :math:`p = \operatorname{softmax}(f / T)`. The
    **scale** is the factor of the noise under which the values are, beside the variance of draws or read-out.

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
        model: any classifier, or network that regresses; for a posterior converted by :func:`cgp.convert` with
            softmax's mean ("cgp" or "sparse_cgp").
        data: batches ``(inputs, labels)``, or dicts with "labels", or a data set of such examples; labels −100 are left
            out. A few hundred labels do. It is read once, and kept.
        *labels: none: they belong into ``data``.
        method: a method, by its name or as an object such as ``Posterior(criterion="likelihood")``.
        task: "classification" (of inputs or "tokens"), "multilabel" (labels ``(N, C)`` in {0, 1}), "dense" (logits
            ``(N, C, H, W)``, labels ``(N, H, W)``), or "regression", whose labels are values ``(N, C)``; an object such
            as ``Regression(noise=lambda out: out[1])`` says how outputs, variances and representation are taken.
        output: takes the logits, or the values of a regression, from what the model returns, as of :func:`cgp.predict`:
            ``lambda out: out[0]`` from a tuple; "probabilities" takes their logarithms, rounded zeros included.
        train: labelled data that the model was trained on, for "readout"; none of ``data`` is among them.
        num_samples: number S of draws.
        seed: seed of the draws; the global generators are not affected.
        progress: of a classifier's posterior: whether progress is shown (None: on a terminal, from ten seconds on,
            elsewhere in one line then), or what is called with the number of runs done, and of all.
        **others: none: another name is refused, with the nearest of these.

    Returns:
        The result, with the calibrated model.

    Raises:
        TypeError: if labels come as an argument of their own, or an argument has none of these names.
        ValueError: if the model has nothing that the method needs, labels are missing or no class indices, logits are
            not finite or not logits, or an argument is off. The model is left as it was.

    Warns:
        UserWarning: if the likeliest temperature is at its upper bound, as that of an untrained network.

    Note:
        The one-standard-error rule: Breiman et al., Classification and Regression Trees (1984), section 3.4.3.

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
    refuse_labels_apart("calibrate", labels, others, calibrate)
    asked, model = as_task(task, labelled=True, output=output), uncompiled(model)
    way = Method.named(_chosen(model, asked) if method == "auto" else method)
    _check(way, num_samples, train)
    if isinstance(way, Posterior):
        amplitudes_of(model)
    if obstacle := way.obstacle(model, asked):
        raise ValueError(obstacle)
    kept = list(asked.read(data, model))
    seen = [[key for batch in kept for key in keys_of(batch)]]
    if way.needs_train:
        training = Training(model, asked, train)
        training.check_apart(seen[0])
        seen.append(training.keys)
        way = way.fit(training)
    search = AmplitudeSearch(
        model, num_samples, way.sampling if isinstance(way, Posterior) else "marginal", seed, asked
    )
    if not asked.has_classes:
        report = calibrate_values(search, kept, way)
    elif isinstance(way, Posterior):
        report = calibrate_posterior(search, kept, way, progress)
    else:
        changed = with_settings(model, replace(settings_of(model), method=way, held_out=None))
        report = calibrate_outputs(search, changed, kept, way)
    for keys in seen:
        keep_keys(report.model, keys)
    return replace(report, is_fallback=method == "auto" and not isinstance(way, Posterior))


def _chosen(model: nn.Module, task: Task) -> str:
    """The method of a model for which none is named."""
    has_posterior = stochastic_layers(model) or any(map(has_amplitude, model.modules()))
    return Posterior.name if has_posterior else task.parameter


def _check(method: Method, num_samples: int, train: Any) -> None:
    if (train is not None) != method.needs_train:
        wanted = "labelled training data" if method.needs_train else "None"
        raise ValueError(f"train: expected {wanted} with method={method.name!r}, got {type(train).__name__}")
    check_samples(num_samples, 2)
