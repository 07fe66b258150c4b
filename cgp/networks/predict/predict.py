"""Predictions with their uncertainty: Monte Carlo over the stochastic layers of any model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, Never

import torch
from torch import Tensor, nn

from cgp.networks.guarantees.guarantees import Source
from cgp.networks.model.fingerprints import (
    check_calibrated,
    fingerprint,
    logit_temperature,
    modules_with_temperature,
)
from cgp.networks.model.inputs import Batch, check_labelled, input_batches, model_device, refuse_labels_apart, to_device
from cgp.networks.model.progress import Progress, progressing
from cgp.networks.model.repeated import check_unseen, kept_keys, keys_of
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.tasks import Task, as_task

from .drawing import Draws, check_samples, checked_labels, draw_noises, seeds_from
from .method import has_settings, method_of, settings_of, source_of, with_settings
from .prediction import Prediction, joined, token_layout

__all__ = ["predict", "predict_batches", "with_held_out"]

_DRAWS = 16  # where no other number is asked for
_START_AMPLITUDE = 0.1  # of cgp.convert
_CALLER = 6  # frames from a warning to predict's caller: two of torch's decorators lie between them


@torch.inference_mode(False)
@torch.no_grad()
def predict(
    model: nn.Module,
    inputs: Any,
    num_samples: int = _DRAWS,
    *,
    task: str | Task | None = "classification",
    noise: Tensor | float | Callable[[Any], Tensor] | None = None,
    sampling: str = "marginal",
    antithetic: bool = True,
    batch_size: int | None = None,
    seed: int | None = None,
    autocast: torch.dtype | None = None,
    keep_draws: bool = False,
    keep_variance: bool = True,
    output: Callable[[Any], Tensor] | str | None = None,
    progress: Progress = None,
    **others: Never,
) -> Prediction:
    r"""Predict by S draws of the stochastic layers.

    .. math:: p(y \mid x) = \tfrac1S\textstyle\sum_s \operatorname{softmax}(f_s(x) / T)

    T is 1 unless :func:`cgp.calibrate` fitted a temperature; one below 1 keeps a hundredth of the probabilities
    without it (:func:`cgp.networks.model.tempering.probabilities`). The layers below the first stochastic one, and its
    posterior, are computed once for all draws.
    Models that :func:`cgp.calibrate` or :meth:`cgp.Assessment.apply` returned also bring a read-out, dropout or
    detectors. The model runs in eval mode, as a copy that shares its
    tensors: the model itself is never changed, and any number of threads may predict at once.

    Args:
        model: any module.
        inputs: a tensor, a NumPy array, a tuple of arguments, a dict of them (masks included), a list of dicts (one
            per example), a list of batches ``(inputs, labels)`` or of transformers, a data set or a loader (see
            :func:`cgp.networks.model.inputs.batches`).
        num_samples: number S of draws.
        task: "classification" of inputs or "tokens" (softmax over the last dimension), "dense" (of pixels: logits
            ``(N, C, H, W)``, classes last in the prediction), "multilabel" (a sigmoid for each), "regression", or None
            for embeddings. A model calibrated for a regression predicts one.
        noise: variance of the observations around the function, for "regression": a number, ``(C,)``, or a
            function that takes it, ``(N, C)``, from the model's output, such as ``lambda out: out[1]``. None is the
            variance fitted by :func:`cgp.calibrate` (which can also fit a factor of the model's variance), or 0.
        sampling: "marginal" (tokens independently) or "joint" (tokens of a sequence together).
        antithetic: whether the draws come in pairs of opposite noise, 0 with 1, 2 with 3; the last of an odd number
            stands alone. The same distribution, an average with less noise, at the same cost.
        batch_size: examples per batch; None is all at once for tensors, 32 for lists and data sets.
        seed: of the draws; None takes one from torch's global generator. The same seed and batches give the same
            draws.
        autocast: autocast dtype of the computation, such as ``torch.bfloat16``; None for no autocast.
        keep_draws: whether to keep the probabilities (or outputs) of each draw.
        keep_variance: whether to keep the variance of each token in each stochastic layer.
        output: takes the tensor ``(N, ..., C)`` from what the model returns; None finds a tensor or ``.logits``, for
            embeddings also ``.pooler_output`` or ``.last_hidden_state``; "probabilities" takes their logarithms.
        progress: whether progress is shown (None: on a terminal, from ten seconds on, elsewhere in one line then), or
            what is called with the number of batches done and of all.
        **others: none: another name is refused, with the nearest of these.

    Returns:
        The prediction, on the model's device.

    Raises:
        TypeError: if an argument has none of these names.
        ValueError: if an argument is off, the model's outputs do not fit the task (one logit, images of logits,
            probabilities instead of logits), inputs have NaN or infinity and the model makes the same of them, labels
            that come with the inputs are no class indices, or the weights of a calibrated model have changed since.

    Warns:
        UserWarning: if draws were asked for (another number than 16, or ``keep_draws``) of a model without a stochastic
            layer, or a single one of another that was not calibrated, or the posterior is as wide as
            :func:`cgp.convert` made it, so that its uncertainty means nothing yet.

    Note:
        Antithetic pairs: Hammersley & Morton, A new Monte Carlo technique: antithetic variates (1956).

    Example:
        >>> from cgp import SparseCGPAttention
        >>> model = nn.Sequential(SparseCGPAttention(8, 2), nn.Flatten(), nn.Linear(32, 3))
        >>> prediction = predict(model, torch.randn(5, 4, 8), 8, seed=0)
        >>> prediction.probabilities.shape, prediction.patch_variance().shape
        (torch.Size([5, 3]), torch.Size([5, 2, 2, 2]))
    """
    refuse_labels_apart("predict", [], others, predict)
    how = {"sampling": sampling, "antithetic": antithetic, "autocast": autocast}
    kept = {"keep_draws": keep_draws, "keep_variance": keep_variance}
    asked = {"task": task, "noise": noise, "output": output}
    options: dict[str, Any] = {**how, **kept, **asked, "batch_size": batch_size, "seed": seed, "progress": progress}
    return joined(list(_predictions(model, inputs, _Options(num_samples, **options))))


@torch.inference_mode(False)
@torch.no_grad()
def predict_batches(model: nn.Module, inputs: Any, num_samples: int = _DRAWS, **options: Any) -> Iterator[Prediction]:
    """Predict batch by batch, of any number of inputs: what :func:`predict` returns, in parts.

    No more than a batch is in memory, if the inputs are a loader or iterator.

    Args:
        model: any module.
        inputs: inputs as for :func:`predict`.
        num_samples: number S of draws.
        **options: options of :func:`predict`.

    Yields:
        The prediction of each batch. With the same seed, they are the parts of :func:`predict`'s.

    Raises:
        ValueError: as :func:`predict` does.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> model = nn.Sequential(SparseCGPAttention(8, 2), nn.Flatten(), nn.Linear(32, 3))
        >>> x = torch.randn(10, 4, 8)
        >>> [part.classes.shape for part in predict_batches(model, iter([x[:6], x[6:]]), 4)]
        [torch.Size([6]), torch.Size([4])]
    """
    yield from _predictions(model, inputs, _Options(num_samples, **options))


@dataclass(frozen=True)
class _Options:
    """The options of :func:`predict`."""

    num_samples: int
    task: str | Task | None = "classification"
    noise: Tensor | float | Callable[[Any], Tensor] | None = None
    sampling: str = "marginal"
    antithetic: bool = True
    batch_size: int | None = None
    seed: int | None = None
    autocast: torch.dtype | None = None
    keep_draws: bool = False
    keep_variance: bool = True
    output: Callable[[Any], Tensor] | str | None = None
    progress: Progress = None

    def __post_init__(self) -> None:
        check_samples(self.num_samples, 1)
        if self.sampling not in ("marginal", "joint"):
            raise ValueError(f"sampling: expected 'marginal' or 'joint', got {self.sampling!r}")

    def asked(self, model: nn.Module) -> Task:
        """The task, with what takes outputs and variances; a model calibrated for a regression predicts one."""
        given: dict[str, Any] = {"output": self.output, "noise": self.noise}
        name: str | None
        if isinstance(self.task, Task):
            as_task(self.task, **given)
            name, given = self.task.name, {field.name: getattr(self.task, field.name) for field in fields(self.task)}
        else:
            name = self.task
        name = settings_of(model).task or name
        if name != "regression" and given.pop("noise", None) is not None:
            got = f"task={self.task!r}, got a variance (that is of task='regression')"
            raise ValueError(f"noise: expected None with {got}")
        return as_task(name, **given)


def _predictions(model: nn.Module, inputs: Any, options: _Options) -> Iterator[Prediction]:
    """The predictions of the batches."""
    model, device, autocast = uncompiled(model), model_device(model), options.autocast
    task = options.asked(model)
    temperature = logit_temperature(model) if task.has_classes else 1.0
    seeds, part, source, method = seeds_from(options.seed), None, None, ""
    weights, detectors = fingerprint(model), settings_of(model).detectors
    limits = settings_of(model).limits
    check_calibrated(model, weights)
    _warn_of_amplitudes(model)
    for batch in progressing(input_batches(model, inputs, options.batch_size), "predict", options.progress):
        labels = checked_labels(task, batch.labels)
        noises = list(draw_noises(options.num_samples, seeds, antithetic=options.antithetic))
        is_first = part is None
        kept = options.keep_draws, options.keep_variance, options.antithetic
        part = Draws(task, temperature, labels, *_noise_of(model, task), *kept)
        inside = to_device(batch.inputs, device)
        with torch.autocast(device.type, dtype=autocast) if autocast is not None else nullcontext():
            part.run(model, inside, noises, options.sampling, warns=_CALLER if is_first else None)
            ood = {name: detector.score(model, inside) for name, detector in detectors.items()}
        if is_first:
            _warn_of_one_draw(model, part, options.num_samples)
            how = ("sampling", "antithetic", "autocast") if part.is_stochastic else ("autocast",)
            method = method_of(model, task)
            source = source_of(model, weights.whole, task, {name: getattr(options, name) for name in how})
        yield _prediction(part, ood, limits, model, source, method)
    if part is None:
        raise ValueError("inputs: expected at least one batch, got none")


def _warn_of_amplitudes(model: nn.Module) -> None:
    converted = [module._parameters for module in modules_with_temperature(model)]
    amplitudes = [parameters["log_amplitude"] for parameters in converted if "log_amplitude" in parameters]
    start = math.log(_START_AMPLITUDE)
    if amplitudes and all(a is not None and torch.equal(a, torch.full_like(a, start)) for a in amplitudes):
        warnings.warn(
            f"predict: the posterior has the amplitude that cgp.convert starts from ({_START_AMPLITUDE}), so its "
            "uncertainty means nothing yet: cgp.calibrate(model, held-out data) or training sets it",
            stacklevel=_CALLER,
        )


def _noise_of(model: nn.Module, task: Task) -> tuple[Tensor, Callable[[Any], Tensor] | None]:
    """The factor of a regression's noise variance, and what takes that variance from what the model returns."""
    fitted, needs_head = settings_of(model).scale, settings_of(model).has_variance_head
    noise = getattr(task, "noise", None)  # of a regression
    if needs_head and not callable(noise):
        raise ValueError(
            "noise: expected what takes the variance from what the model returns, as calibrate was given it, "
            f"got {noise!r}"
        )
    if callable(noise):
        return torch.ones(()) if fitted is None else fitted, noise
    if noise is not None:
        return torch.as_tensor(noise), None
    return torch.zeros(()) if fitted is None else fitted, None


def _warn_of_one_draw(model: nn.Module, part: Draws, asked: int) -> None:
    """Warn where draws were asked for and there is one, or where a stochastic layer was drawn once."""
    if (
        part.count == 1
        and not has_settings(model)
        and (part.is_stochastic or asked not in (1, _DRAWS) or part.keep_draws)
    ):
        warnings.warn(
            "predict: one draw tells no epistemic uncertainty from the rest (epistemic is None); "
            + ("the model has no stochastic layer" if not part.is_stochastic else "raise num_samples"),
            stacklevel=_CALLER,
        )


def _prediction(
    part: Draws, ood: dict[str, Tensor], limits: dict[str, float], model: nn.Module, source: Source | None, method: str
) -> Prediction:
    """The prediction of a batch."""
    results: dict[str, Any] = dict.fromkeys(("probabilities", "total", "aleatoric", "epistemic"))
    return Prediction(
        task=part.task.kind,
        **results | part.results(),
        token_variance=part.variances,
        layout=token_layout(model),
        num_samples=part.count,
        held_out=settings_of(model).held_out,
        ood=ood,
        limits=limits,
        labels=part.labels,
        source=source,
        method=method,
    )


def with_held_out(model: nn.Module, data: Any, num_samples: int = _DRAWS, **options: Any) -> nn.Module:
    """A copy of a model that shares its tensors and keeps its prediction of labelled data.

    Its predictions then offer :meth:`cgp.Prediction.sets`, :meth:`cgp.Prediction.intervals` and
    ``abstain(risk=, level=)`` without further data, also after :func:`cgp.save_pretrained`. Predict as here: by as
    many draws, of the same kind.

    Args:
        model: any model that :func:`cgp.predict` takes.
        data: labelled inputs that have chosen nothing, neither weights nor a temperature: a loader, a data set, or a
            list of batches ``(inputs, labels)``. Those that :func:`cgp.calibrate` or :func:`cgp.assess` has seen, as
            ``data`` or ``train``, are known again; what else trained the model is not.
        num_samples: number S of draws.
        **options: options of :func:`cgp.predict`.

    Returns:
        The copy.

    Raises:
        TypeError: if labels come as an argument of their own.
        ValueError: if there are no labels, or more than 5 % of the inputs have fitted the model.

    Warns:
        UserWarning: if some of them have.

    Example:
        >>> import torch
        >>> x = torch.linspace(-2, 2, 50)[:, None]
        >>> model = with_held_out(nn.Linear(1, 2), [(x, (x[:, 0] > 0).long())])
        >>> predict(model, x[:3]).sets(0.9).shape
        torch.Size([3, 2])
    """
    count: Any = num_samples
    refuse_labels_apart("with_held_out", [] if isinstance(count, Integral) else [count])
    keys, known, batch_size = list[int](), kept_keys(model), options.pop("batch_size", None)

    def read() -> Iterator[Batch]:
        for batch in input_batches(model, data, batch_size, name="data"):
            check_labelled(model, batch, "data")
            keys.extend(keys_of(batch) if len(known) else ())
            yield batch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "predict: one draw")  # guarantees need no epistemic part
        kept = predict(model, read(), num_samples, keep_variance=False, **options)
    kept = replace(kept, held_out=None, draws=None, ood={}, limits={})
    if kept.labels is None:
        raise ValueError("data: expected batches (inputs, labels) or dicts with 'labels', got some without labels")
    check_unseen("data", keys, known.tolist())
    return with_settings(model, replace(settings_of(model), held_out=kept))
