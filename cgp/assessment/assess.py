"""Comparison of the uncertainties of a classifier on held-out folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.comparisons import Difference
from cgp.conversion.convert import convert
from cgp.conversion.sites import attention_sites
from cgp.model.blocks import attention_blocks
from cgp.model.inputs import Batch, batches, logits_of, model_device, to_device
from cgp.model.twin import uncompiled
from cgp.prediction import metrics
from cgp.prediction.amplitudes import COARSE, TEMPERATURES, AmplitudeSearch, LabelScores, chosen, has_amplitude, tune
from cgp.prediction.detectors import Detector, OutputScores, Posterior, with_energy
from cgp.prediction.labels import NO_LABEL, class_indices, labelled_batches
from cgp.prediction.representation import pooled_features, standardised
from cgp.prediction.settings import as_assessed
from cgp.prediction.tasks import CLASSIFICATIONS, DIMENSIONS, task_output
from cgp.prediction.temperature_scaling import fit_temperature, with_labels

from .assessment import ADVISED, Assessment
from .claims import Detection
from .detection import Representation, compare_detectors
from .recipe import READ_OUT, Recipe, fingerprint

__all__ = ["assess"]

Array = NDArray[Any]

POSTERIORS = ("last", "first", "all", None)


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
) -> Assessment:
    r"""Score the uncertainty of a classifier, and the alternatives to it.

    The methods are compared on the same held-out labels: the model as trained; with a temperature; with the likeliest
    Gaussian-process posterior; with both; and with the widest posterior and a temperature, which :func:`cgp.calibrate`
    would choose. Temperatures and amplitudes are chosen on all folds except the scored one, and differences
    between methods are paired, example by example.

    With ``train``, a Gaussian-process read-out of the representation (:class:`cgp.GPReadout`) with a
    temperature is one of them.

    On out-of-distribution inputs, detection scores are compared: one minus the largest probability, the entropy,
    the energy :math:`-\log\sum_c e^{f_c}`, the widest posterior's entropy and its epistemic part, and with ``train``
    two of the representation: the class-conditional Mahalanobis distance and the read-out's variance, each alone
    and in a sum with the energy (both in standard deviations over the validation data).

    Args:
        model: any classifier with logits ``(N, C)`` (or those of the task), converted or not. It is not changed.
        validation: labelled data that the model was not trained on: a loader or data set (see
            :func:`cgp.model.inputs.batches`), or a list of batches ``(inputs, labels)``.
        task: "classification" of inputs; "tokens", one label for each, ``(N, n)``, where −100 is ignored;
            "multilabel", labels ``(N, C)`` in {0, 1}; or "dense", logits ``(N, C, H, W)`` and labels ``(N, H, W)``.
            Except for the first, folds and errors are of whole inputs, as their labels are dependent, and only the
            methods are compared: ``train``, ``corrupt`` and ``ood`` are None.
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
        features: representation ``(N, d)`` of inputs; by default the inputs of the last linear layer.
        output: function that takes the logits from the model's output.

    Returns:
        The comparison, with a recommendation in a sentence.

    Raises:
        ValueError: if there are no labels, or an argument is out of range.

    Note:
        Liu et al., Energy-based Out-of-distribution Detection (NeurIPS 2020); Lee et al., as in
        :class:`cgp.prediction.representation.Mahalanobis`.

    Example:
        >>> x = torch.linspace(-2, 2, 60)[:, None]
        >>> report = assess(nn.Linear(1, 2), [(x, (x[:, 0] > 0).long())], posterior=None)
        >>> list(report.scores)
        ['as trained', 'temperature']
    """
    _check(folds, posterior, corrupt, ood)
    _check_task(task, {"train": train, "corrupt": corrupt, "ood": ood})
    model = as_assessed(uncompiled(model)).eval()
    device = model_device(model)
    each = task == "classification"
    known = labelled_batches(validation, device, name="validation", batch_size=batch_size, every=each, task=task)
    seen = None if train is None else labelled_batches(train, device, name="train", batch_size=batch_size, every=True)
    drawing = _drawing(model, posterior)
    search = AmplitudeSearch(drawing or model, num_samples, sampling, seed, task_output(task, output))
    labels, input_of = _check_labels(search, known, seen, folds, task)
    generator = torch.Generator().manual_seed(seed)
    fold_of = (torch.randperm(int(input_of.max()) + 1, generator=generator) % folds)[input_of]
    tuned = _Tuned(search, known, labels, fold_of, draws=drawing is not None)
    representation = Representation(model, features, seen)
    read, far = representation.of(known)
    methods, choices = tuned.methods(), tuned.choices()
    if read is not None and representation.readout is not None:
        logits = tuned.read(read, representation.readout.classes)
        methods[READ_OUT], choices[READ_OUT] = tuned.scaled(logits), (0.0, tuned.temperature(logits, None))
    widest = tuned.best(None, "widest")
    outputs = OutputScores(search, *widest)
    others = {
        name: (outputs.of_inputs(batch_list, name), representation.of(batch_list)[1])
        for name, batch_list in _other_inputs(known, {**(corrupt or {}), **(ood or {})}, batch_size, model)
    }
    inside = outputs.of_logits(tuned.logits), far
    detection = compare_detectors(inside, others) if others else {}
    layers = [0] if posterior == "first" else posterior
    drawn = Posterior(layers, *widest, num_samples, sampling, seed)
    detectors = _detectors(*inside, representation, drawn, (features, output)) if each else {}
    recipe = Recipe(fingerprint(model), layers, choices, representation.readout, detectors)
    probabilities = {name: p.cpu().numpy() for name, p in methods.items()}
    return _comparison(probabilities, labels.cpu().numpy(), input_of.numpy(), detection, recipe)


def _detectors(
    outputs: dict[str, Array],
    far: dict[str, Array],
    representation: Representation,
    posterior: Posterior,
    functions: tuple[Callable[[nn.Module, Any], Tensor], Callable[[Any], Tensor]],
) -> dict[str, Detector]:
    """Every score of the tables as a detector with its values on the validation data."""
    parts = {**outputs, **far}
    fitted, scales = representation.fitted(), {name: standardised(values) for name, values in parts.items()}
    detectors = {}
    for name, known in with_energy(outputs, far, scales).items():
        base = name.removesuffix(" + energy")
        summed = {part: parts[part] for part in (base, "energy")} if base != name else {}
        detectors[name] = Detector(name, *functions, posterior, fitted.get(base), np.sort(known), summed)
    return detectors


@dataclass
class _Tuned:
    """Probabilities of the validation data by methods that are tuned on the other folds."""

    search: AmplitudeSearch
    known: list[Batch]
    labels: Tensor
    fold_of: Tensor
    draws: bool

    def __post_init__(self) -> None:
        scaled = any(has_amplitude(module) for module in self.search.model.modules())
        self.factors = (0.0, *(COARSE if scaled else (1.0,))) if self.draws else (0.0,)
        parts: dict[float, list[Tensor]] = {factor: [] for factor in self.factors}
        for factor, batch, logits in self.search.draws(self.known, self.factors):
            assert batch.labels is not None
            parts[factor].append(with_labels(logits, batch.labels)[0])
        self.logits = {factor: torch.cat(drawn, 1) for factor, drawn in parts.items()}  # (S, N, C)
        self.scores = {f: LabelScores.of(logits, self.labels, TEMPERATURES) for f, logits in self.logits.items()}

    def methods(self) -> dict[str, Tensor]:
        """Probabilities ``(N, C)`` by method."""
        by_method = {"as trained": self.logits[0.0].softmax(-1)[0], "temperature": self.scaled(self.logits[0.0])}
        if self.draws:
            by_method["posterior"] = self._drawn("likelihood", fits=False)
            by_method["posterior + temperature"] = self._drawn("likelihood")
            by_method["widest posterior"] = self._drawn("widest")
        return by_method

    def choices(self) -> dict[str, tuple[float, float]]:
        """The factor of the amplitudes (0: no draws) and the temperature of each method, by all labels."""
        chosen_by_all = {"as trained": (0.0, 1.0), "temperature": (0.0, self.temperature(self.logits[0.0], None))}
        if self.draws:
            chosen_by_all["posterior"] = self.best(None, "likelihood", fits=False)
            chosen_by_all["posterior + temperature"] = self.best(None, "likelihood")
            chosen_by_all["widest posterior"] = self.best(None, "widest")
        return chosen_by_all

    def read(self, probabilities: Tensor, classes: Tensor) -> Tensor:
        """Logits ``(1, N, C)`` of a read-out of some of the classes."""
        logits = torch.full_like(self.logits[0.0], -torch.inf)  # for classes that are not in the training set
        logits[0][:, classes] = probabilities.log().to(logits)
        return logits

    def scaled(self, logits: Tensor) -> Tensor:
        """Probabilities ``(N, C)`` of logits ``(1, N, C)``, with the temperature fitted to the other folds."""
        return self._folds(lambda rows: (logits, self.temperature(logits, rows)))

    def best(self, rows: Tensor | None, criterion: str, *, fits: bool = True) -> tuple[float, float]:
        """The factor of the amplitudes (0: no posterior) and the temperature selected by some labels."""
        tried = tune(self.scores if fits else {f: scores.at(1.0) for f, scores in self.scores.items()}, rows)
        trial = chosen(tried, criterion) if self.draws else tried[0.0]
        if not fits:
            return trial.factor, trial.temperature
        least = min(tried[0.0].temperature, 1.0) if trial.factor else TEMPERATURES[0]
        return trial.factor, self.temperature(self.logits[trial.factor], rows, least=least)

    def temperature(self, logits: Tensor, rows: Tensor | None, *, least: float = TEMPERATURES[0]) -> float:
        """The temperature of logits ``(S, N, C)`` fitted to some labels; the smallest if all predictions are right."""
        kept = slice(None) if rows is None else rows
        return fit_temperature(logits[:, kept], self.labels[kept], least=least)

    def _drawn(self, criterion: str, *, fits: bool = True) -> Tensor:
        def choose(rows: Tensor) -> tuple[Tensor, float]:
            factor, temperature = self.best(rows, criterion, fits=fits)
            return self.logits[factor], temperature

        return self._folds(choose)

    def _folds(self, choose: Callable[[Tensor], tuple[Tensor, float]]) -> Tensor:
        probabilities = torch.zeros_like(self.logits[0.0][0])
        for fold in self.fold_of.unique():
            rows = (self.fold_of == fold).to(probabilities.device)
            logits, temperature = choose(~rows)
            probabilities[rows] = (logits[:, rows] / temperature).softmax(-1).mean(0)
        return probabilities


def _drawing(model: nn.Module, posterior: str | None) -> nn.Module | None:
    """The model with stochastic layers, or None without."""
    if any(block.stochastic for block in attention_blocks(model)):
        return model
    if posterior is None or not attention_sites(model):
        return None
    try:
        return convert(model, layers=[0] if posterior == "first" else posterior)
    except ValueError as error:
        raise ValueError(
            f"posterior: expected None, or attention that can be converted, got {posterior!r}: {error}"
        ) from error


def _check(folds: int, posterior: str | None, corrupt: Mapping[str, Any] | None, ood: Mapping[str, Any] | None) -> None:
    if folds < 2:
        raise ValueError(f"folds: expected at least 2, got {folds}")
    if posterior not in POSTERIORS:
        raise ValueError(f"posterior: expected one of {POSTERIORS}, got {posterior!r}")
    if twice := sorted(set(corrupt or ()) & set(ood or ())):
        raise ValueError(f"ood: expected names that corrupt does not have, got {', '.join(twice)} in both")


def _check_task(task: str, others: Mapping[str, Any]) -> None:
    if task not in CLASSIFICATIONS:
        advice = " (cgp.calibrate takes networks that regress)" if task == "regression" else ""
        raise ValueError(f"task: expected one of {CLASSIFICATIONS}, got {task!r}{advice}")
    for name, value in others.items() if task != "classification" else ():
        if value is not None:
            raise ValueError(f"{name}: expected None with task={task!r}, got {type(value).__name__}")


def _check_labels(
    search: AmplitudeSearch, known: list[Batch], seen: list[Batch] | None, folds: int, task: str
) -> tuple[Tensor, Tensor]:
    """The labels of the validation data and the inputs that they belong to, checked against the model's logits."""
    shape = search.check(known, "validation")
    dims, wanted = DIMENSIONS[task]
    if len(shape) != dims:
        advice = " (task='tokens' takes a label for every token)" if len(shape) == 3 else ""
        raise ValueError(f"model: expected logits {wanted}, got shape {shape}{advice}")
    for batch in seen or ():
        assert batch.labels is not None
        class_indices(batch.labels, (*batch.labels.shape[:1], shape[-1]), name="train", every=True)
    labels, input_of, first = [], [], 0
    for batch in known:
        assert batch.labels is not None
        real = batch.labels != NO_LABEL
        labels.append(batch.labels[real])
        input_of.append(first + real.nonzero()[:, 0].cpu())
        first += len(real)
    inputs, input_of_label = torch.cat(input_of).unique(return_inverse=True)
    if len(inputs) < folds:
        what = "labels" if task == "classification" else "inputs with labels"
        raise ValueError(f"validation: expected at least {folds} {what}, one a fold, got {len(inputs)}")
    return torch.cat(labels), input_of_label


def _other_inputs(
    known: list[Batch], sets: Mapping[str, Any], batch_size: int | None, model: nn.Module
) -> Iterator[tuple[str, list[Batch]]]:
    """Each set of other inputs by its name: corrupted validation data, or given data."""
    for name, data in sets.items():
        if callable(data):
            yield name, [Batch(data(batch.inputs), None) for batch in known]
            continue
        are_batches = isinstance(data, list) and not (data and isinstance(data[0], Mapping))
        read = batches(iter(data) if are_batches else data, batch_size)
        moved = [Batch(*to_device(tuple(batch), model_device(model))) for batch in read]
        if not moved:
            raise ValueError(f"{name}: expected at least one batch, got none")
        yield name, moved


def _comparison(
    probabilities: dict[str, Array],
    y: Array,
    input_of: NDArray[np.int64],
    detection: dict[str, dict[str, Detection]],
    recipe: Recipe,
) -> Assessment:
    plain, scaled = probabilities["as trained"], probabilities["temperature"]
    beyond = {name: probabilities[name] for name in ADVISED if name in probabilities}
    return Assessment(
        scores={name: metrics.classification_scores(p, y) for name, p in probabilities.items()},
        differences={name: _differences(p, plain, y, input_of) for name, p in probabilities.items()},
        beyond_temperature={name: _differences(p, scaled, y, input_of)["nll"] for name, p in beyond.items()},
        detection=detection,
        num_labels=len(y),
        num_inputs=int(input_of.max()) + 1,
        confidences={name: p.max(-1) for name, p in probabilities.items()},
        correct={name: p.argmax(-1) == y for name, p in probabilities.items()},
        recipe=recipe,
    )


def _differences(p: Array, reference: Array, labels: Array, input_of: NDArray[np.int64]) -> dict[str, Difference]:
    pairs = {
        "nll": metrics.log_losses(p, labels) - metrics.log_losses(reference, labels),
        "brier": metrics.brier_scores(p, labels) - metrics.brier_scores(reference, labels),
        "accuracy": 1.0 * (p.argmax(-1) == labels) - (reference.argmax(-1) == labels),
    }
    return {name: Difference.of_groups(values, input_of) for name, values in pairs.items()}
