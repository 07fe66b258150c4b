"""Comparison of the uncertainties of a classifier on held-out folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.networks.detect.detectors import Posterior
from cgp.networks.methods.amplitudes import AmplitudeSearch
from cgp.networks.model.inputs import Batch, batches, logits_of, model_device, to_device
from cgp.networks.model.representation import pooled_features
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.settings import as_assessed
from cgp.networks.tasks.classification import CLASSIFICATIONS, DIMENSIONS, task_output
from cgp.networks.tasks.labels import NO_LABEL, class_indices, labelled, labelled_batches

from .assessment import Assessment
from .classification import compare_methods
from .comparing_variances import assess_regression
from .detection import Representation
from .recipe import drawing_model, layers_of
from .regression_report import RegressionAssessment
from .validation_data import ValidationData

__all__ = ["assess"]

Array = NDArray[Any]

TASKS = (*CLASSIFICATIONS, "regression")
POSTERIORS = ("last", "first", "all", None)


@overload
def assess(
    model: nn.Module,
    validation: Any,
    *,
    task: Literal["classification", "tokens", "multilabel", "dense"] = ...,
    train: Any = ...,
    corrupt: Mapping[str, Any] | None = ...,
    ood: Mapping[str, Any] | None = ...,
    posterior: str | None = ...,
    folds: int = ...,
    num_samples: int = ...,
    sampling: str = ...,
    batch_size: int | None = ...,
    seed: int = ...,
    features: Callable[[nn.Module, Any], Tensor] = ...,
    output: Callable[[Any], Tensor] = ...,
    verbose: bool | None = ...,
) -> Assessment: ...


@overload
def assess(
    model: nn.Module,
    validation: Any,
    *,
    task: Literal["regression"],
    train: Any = ...,
    posterior: str | None = ...,
    folds: int = ...,
    num_samples: int = ...,
    sampling: str = ...,
    batch_size: int | None = ...,
    seed: int = ...,
    features: Callable[[nn.Module, Any], Tensor] = ...,
    output: Callable[[Any], Tensor] = ...,
    noise: Callable[[Any], Tensor] | None = ...,
    verbose: bool | None = ...,
) -> RegressionAssessment: ...


@overload
def assess(
    model: nn.Module,
    validation: Any,
    *,
    task: str,
    train: Any = ...,
    corrupt: Mapping[str, Any] | None = ...,
    ood: Mapping[str, Any] | None = ...,
    posterior: str | None = ...,
    folds: int = ...,
    num_samples: int = ...,
    sampling: str = ...,
    batch_size: int | None = ...,
    seed: int = ...,
    features: Callable[[nn.Module, Any], Tensor] = ...,
    output: Callable[[Any], Tensor] = ...,
    noise: Callable[[Any], Tensor] | None = ...,
    verbose: bool | None = ...,
) -> Assessment | RegressionAssessment: ...


@torch.inference_mode(False)
@torch.no_grad()
def assess(
    model: nn.Module,
    validation: Any,
    *,
    task: str = "classification",
    train: Any = None,
    corrupt: Mapping[str, Any] | None = None,
    ood: Mapping[str, Any] | None = None,
    posterior: str | None = "last",
    folds: int = 5,
    num_samples: int = 8,
    sampling: str = "marginal",
    batch_size: int | None = None,
    seed: int = 0,
    features: Callable[[nn.Module, Any], Tensor] = pooled_features,
    output: Callable[[Any], Tensor] = logits_of,
    noise: Callable[[Any], Tensor] | None = None,
    verbose: bool | None = None,
) -> Assessment | RegressionAssessment:
    r"""Score the uncertainty of a classifier, or of a regression, and the alternatives to it.

    The methods are compared on the same held-out labels: the model as trained; with a temperature; with the likeliest
    Gaussian-process posterior; with both; and with the widest posterior and a temperature, which :func:`cgp.calibrate`
    would choose. Temperatures and amplitudes are chosen on all folds except the scored one, and differences
    between methods are paired, example by example.

    With ``train``, a Gaussian-process read-out of the representation (:class:`cgp.GPReadout`) with a
    temperature is one of them; of a model with dropout, and without stochastic layers, its dropout left on.

    With ``task="regression"`` the variances of a network's errors are compared
    (:func:`cgp.networks.assess.comparing_variances.assess_regression`).

    On out-of-distribution inputs, detection scores are compared: one minus the largest probability, the entropy,
    the energy :math:`-\log\sum_c e^{f_c}`, the widest posterior's entropy and its epistemic part, and with ``train``
    two of the representation: the class-conditional Mahalanobis distance and the read-out's variance, each alone
    and in a sum with the energy (both in standard deviations over the validation data).

    Args:
        model: any classifier with logits ``(N, C)`` (or those of the task), or a regression network with outputs
            ``(N, C)``, converted or not. It is not changed.
        validation: labelled data that the model was not trained on: a loader or data set (see
            :func:`cgp.networks.model.inputs.batches`), or a list of batches ``(inputs, labels)``. A loader or data set
            of more than 256 MiB is not kept but read in every pass, in the same order.
        task: "classification" of inputs; "tokens", one label for each, ``(N, n)``, where −100 is ignored;
            "multilabel", labels ``(N, C)`` in {0, 1}; or "dense", logits ``(N, C, H, W)`` and labels ``(N, H, W)``.
            Except for the first, folds and errors are of whole inputs, as their labels are dependent, and only the
            methods are compared: ``train``, ``corrupt`` and ``ood`` are None. "regression": values ``(N, C)``, without
            ``corrupt`` and ``ood``.
        train: its labelled training data, likewise; None omits the scores of the representation.
        corrupt: corrupted inputs of the known kind, by name: functions of a batch's inputs, which are applied to the
            validation data, or inputs. They are scored as ``ood`` is.
        ood: out-of-distribution inputs, by other names. A list of dicts is read as a list of examples: pass batches
            that are dicts as an iterator.
        posterior: layers of the model that get a posterior: "last", "first", "all", or None. A converted model, or one
            with other stochastic layers, keeps those; one without attention has none.
        folds: number K of folds, at least 2.
        num_samples: number S of draws.
        sampling: "marginal" or "joint".
        batch_size: examples per batch; None is all at once for tensors, 32 for data sets.
        seed: seed of the folds and the draws.
        features: representation ``(N, d)`` of inputs; by default the inputs of the linear layer whose output the
            model returns, or else of the last one that it calls.
        output: function that takes the logits from the model's output.
        noise: for a regression, function that takes the variance ``(N, C)`` from the model's output, such as
            ``lambda out: out[1]``.
        verbose: whether progress is shown; None shows it on a terminal, in passes of more than ten seconds.

    Returns:
        The comparison, with a recommendation in a sentence: a :class:`cgp.Assessment`, or for a regression a
        :class:`cgp.networks.assess.RegressionAssessment`.

    Raises:
        ValueError: if there are no labels, or an argument is out of range.

    Note:
        Liu et al., Energy-based Out-of-distribution Detection (NeurIPS 2020); Lee et al., as in
        :class:`cgp.networks.model.representation.Mahalanobis`.

    Example:
        >>> x = torch.linspace(-2, 2, 60)[:, None]
        >>> report = assess(nn.Linear(1, 2), [(x, (x[:, 0] > 0).long())], posterior=None)
        >>> list(report.scores)
        ['as trained', 'temperature']
    """
    _check(folds, posterior, corrupt, ood)
    _check_task(task, {"train": train, "corrupt": corrupt, "ood": ood, "noise": noise})
    if task == "regression":
        options: dict[str, Any] = {"num_samples": num_samples, "sampling": sampling, "batch_size": batch_size}
        options |= {"train": train, "posterior": posterior, "folds": folds, "seed": seed, "verbose": verbose}
        return assess_regression(model, validation, features=features, output=output, noise=noise, **options)
    model = as_assessed(uncompiled(model)).eval()
    device, drawing = model_device(model), drawing_model(model, posterior)
    search = AmplitudeSearch(drawing or model, num_samples, sampling, seed, task_output(task, output))
    each = task == "classification"
    read = partial(labelled, device=device, name="validation", batch_size=batch_size, every=each, task=task)
    held = ValidationData(validation, read, verbose)
    seen = None if train is None else labelled_batches(train, device, name="train", batch_size=batch_size, every=True)
    input_of, num_classes = _check_labels(search, held, seen, folds, task)
    representation = Representation(model, features, seen, num_classes)
    others = _other_inputs(held, {**(corrupt or {}), **(ood or {})}, batch_size, model)
    drawn = Posterior(layers_of(posterior), 0.0, 1.0, num_samples, sampling, seed)
    data = held, input_of, folds
    fitted = drawn, (features, output)
    return compare_methods(model, search, data, representation, others, fitted, draws=drawing is not None, task=task)


def _check(folds: int, posterior: str | None, corrupt: Mapping[str, Any] | None, ood: Mapping[str, Any] | None) -> None:
    if folds < 2:
        raise ValueError(f"folds: expected at least 2, got {folds}")
    if posterior not in POSTERIORS:
        raise ValueError(f"posterior: expected one of {POSTERIORS}, got {posterior!r}")
    if twice := sorted(set(corrupt or ()) & set(ood or ())):
        raise ValueError(f"ood: expected names that corrupt does not have, got {', '.join(twice)} in both")


def _check_task(task: str, given: Mapping[str, Any]) -> None:
    if task not in TASKS:
        raise ValueError(f"task: expected one of {TASKS}, got {task!r}")
    allowed = {"classification": ("train", "corrupt", "ood"), "regression": ("train", "noise")}.get(task, ())
    for name, value in given.items():
        if value is not None and name not in allowed:
            raise ValueError(f"{name}: expected None with task={task!r}, got {type(value).__name__}")


def _check_labels(
    search: AmplitudeSearch, held: ValidationData, seen: list[Batch] | None, folds: int, task: str
) -> tuple[NDArray[np.int64], int]:
    """The input that each label belongs to, checked against the model's logits, and the number of classes."""
    if not held.labels:
        raise ValueError("validation: expected at least one batch, got none")
    shape = search.check(held, "validation")
    dims, wanted = DIMENSIONS[task]
    if len(shape) != dims:
        advice = " (task='tokens' takes a label for every token)" if len(shape) == 3 else ""
        raise ValueError(f"model: expected logits {wanted}, got shape {shape}{advice}")
    for batch in seen or ():
        assert batch.labels is not None
        class_indices(batch.labels, (*batch.labels.shape[:1], shape[-1]), name="train", every=True)
    input_of, first = [], 0
    for labels in held.labels:
        input_of.append(first + (labels != NO_LABEL).nonzero()[:, 0].cpu())
        first += len(labels)
    inputs, input_of_label = torch.cat(input_of).unique(return_inverse=True)
    if len(inputs) < folds:
        what = "labels" if task == "classification" else "inputs with labels"
        raise ValueError(f"validation: expected at least {folds} {what}, one a fold, got {len(inputs)}")
    return input_of_label.numpy(), shape[-1]


def _other_inputs(
    known: Iterable[Batch], sets: Mapping[str, Any], batch_size: int | None, model: nn.Module
) -> Iterator[tuple[str, Iterator[Batch]]]:
    """Each set of other inputs by its name: corrupted validation data, or given data."""
    for name, data in sets.items():
        if callable(data):
            yield name, (Batch(data(batch.inputs), None) for batch in known)
            continue
        are_batches = isinstance(data, list) and not (data and isinstance(data[0], Mapping))
        yield name, _moved(name, iter(data) if are_batches else data, batch_size, model)


def _moved(name: str, data: Any, batch_size: int | None, model: nn.Module) -> Iterator[Batch]:
    is_empty = True
    for batch in batches(data, batch_size):
        is_empty = False
        yield Batch(*to_device(tuple(batch), model_device(model)))
    if is_empty:
        raise ValueError(f"{name}: expected at least one batch, got none")
