"""Which uncertainty of a classifier to use: the comparison on held-out folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.conversion.convert import convert
from cgp.model import metrics
from cgp.model.amplitudes import COARSE, TEMPERATURES, AmplitudeSearch, LabelScores, chosen, has_amplitude, tune
from cgp.model.blocks import attention_blocks
from cgp.model.inputs import Batch, batches, logits_of, model_device, to_device
from cgp.model.prediction import uncertainties
from cgp.model.twin import twin, uncompiled

from .assessment import ADVISED, Assessment, Detection, Difference
from .detectors import Mahalanobis, pooled_features, standardised

__all__ = ["assess"]

Array = NDArray[Any]

POSTERIORS = ("last", "first", "all", None)


@torch.inference_mode(False)
@torch.no_grad()
def assess(
    model: nn.Module,
    validation: Any,
    *,
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
    r"""Score what a classifier says of its uncertainty, and what could be made of it.

    The methods are compared on the same held-out labels: the model as trained; with a temperature; with the likeliest
    Gaussian-process posterior; with both; and with the widest posterior and a temperature, which :func:`cgp.calibrate`
    would choose. Temperatures and amplitudes are chosen on all folds but the one that is scored, and differences
    between methods are paired, example by example.

    With ``train``, a Gaussian-process read-out of the representation (:class:`cgp.regression.GPReadout`) with a
    temperature is one of them.

    On inputs of other kinds, the scores that detect them are compared: one minus the largest probability, the entropy,
    the energy :math:`-\log\sum_c e^{f_c}`, the widest posterior's entropy and its epistemic part, and with ``train``
    two of the representation: the class-conditional Mahalanobis distance and the read-out's variance, each by itself
    and in a sum with the energy (both in standard deviations over the validation data).

    Args:
        model: any classifier with logits ``(N, C)``, converted or not. It is not changed.
        validation: labelled data that the model was not trained on: a loader or data set (see
            :func:`cgp.model.inputs.batches`), or a list of batches ``(inputs, labels)``.
        train: labelled data that it was trained on, likewise; None leaves the scores of the representation out.
        corrupt: corrupted inputs of the known kind, by name: functions of a batch's inputs, which are applied to the
            validation data, or inputs. They are scored as ``ood`` is.
        ood: inputs of other kinds, by further names. A list of dicts is read as a list of examples: pass batches
            that are dicts as an iterator.
        posterior: which layers of the model get a posterior: "last", "first", "all", or None. A model that is converted
            or has other stochastic layers keeps those.
        folds: K, at least 2.
        num_samples: S draws.
        sampling: "marginal" or "joint".
        batch_size: examples at a time; None is all at once for tensors, 32 for data sets.
        seed: of the folds and the draws.
        features: the representation ``(N, d)`` of inputs; the default takes what the last linear layer reads.
        output: takes the logits from what the model returns.

    Returns:
        The comparison, ending in a sentence.

    Raises:
        ValueError: if there are no labels, or an argument is off.

    Note:
        Liu et al., Energy-based Out-of-distribution Detection (NeurIPS 2020); Lee et al., as in
        :class:`cgp.assessment.detectors.Mahalanobis`.

    Example:
        >>> x = torch.linspace(-2, 2, 60)[:, None]
        >>> report = assess(nn.Linear(1, 2), [(x, (x[:, 0] > 0).long())], posterior=None)
        >>> list(report.scores)
        ['as trained', 'temperature']
    """
    if folds < 2:
        raise ValueError(f"folds: expected at least 2, got {folds}")
    if posterior not in POSTERIORS:
        raise ValueError(f"posterior: expected one of {POSTERIORS}, got {posterior!r}")
    model = twin(uncompiled(model)).eval()
    known = _read(validation, batch_size, model)
    labels = torch.cat([_labels(batch) for batch in known])
    generator = torch.Generator().manual_seed(seed)
    fold_of = torch.randperm(len(labels), generator=generator) % folds
    drawing = _drawing(model, posterior)
    search = AmplitudeSearch(drawing or model, num_samples, sampling, seed, output)
    tuned = _Tuned(search, known, labels, fold_of, draws=drawing is not None)
    y = labels.cpu().numpy()
    representation = _Representation(model, features, train, batch_size)
    said, far = representation.of(known)
    methods = tuned.methods() | representation.methods(said, tuned)
    probabilities = {name: p.cpu().numpy() for name, p in methods.items()}
    if twice := sorted(set(corrupt or ()) & set(ood or ())):
        raise ValueError(f"ood: expected names that corrupt does not have, got {', '.join(twice)} in both")
    others = {}
    for name, data in {**(corrupt or {}), **(ood or {})}.items():
        applied = [Batch(data(batch.inputs), batch.labels) for batch in known] if callable(data) else None
        others[name] = _read(data, batch_size, model) if applied is None else applied
    scaled = probabilities["temperature"]
    beyond = {name: probabilities[name] for name in ADVISED if name in probabilities}
    return Assessment(
        scores={name: metrics.classification_scores(p, y) for name, p in probabilities.items()},
        differences={name: _differences(p, probabilities["as trained"], y) for name, p in probabilities.items()},
        beyond_temperature={name: _differences(p, scaled, y)["nll"] for name, p in beyond.items()},
        detection=_Scores(tuned, representation).compare(far, others) if others else {},
        num_labels=len(y),
        confidences={name: p.max(-1) for name, p in probabilities.items()},
        correct={name: p.argmax(-1) == y for name, p in probabilities.items()},
    )


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
        for factor, _, logits in self.search.draws(self.known, self.factors):
            parts[factor].append(logits)
        self.logits = {factor: torch.cat(found, 1) for factor, found in parts.items()}  # (S, N, C)
        self.scores = {f: LabelScores.of(logits, self.labels, TEMPERATURES) for f, logits in self.logits.items()}
        self.whole = self.best(None, "widest")

    def methods(self) -> dict[str, Tensor]:
        """Probabilities ``(N, C)`` by method."""
        found = {"as trained": self.logits[0.0].softmax(-1)[0], "temperature": self.scaled(self.logits[0.0])}
        if self.draws:
            found["posterior"] = self._drawn("likelihood", fits=False)
            found["posterior + temperature"] = self._drawn("likelihood")
            found["widest posterior"] = self._drawn("widest")
        return found

    def scaled(self, logits: Tensor) -> Tensor:
        """Probabilities ``(N, C)`` of logits ``(1, N, C)``, divided by the temperature that the other folds choose."""
        scores = LabelScores.of(logits, self.labels, TEMPERATURES)
        return self._folds(lambda rows: (logits, scores.best(0.0, rows=rows).temperature))

    def best(self, rows: Tensor | None, criterion: str, *, fits: bool = True) -> tuple[float, float]:
        """The factor of the amplitudes (0: no posterior) and the temperature that some labels choose."""
        tried = tune(self.scores if fits else {f: scores.at(1.0) for f, scores in self.scores.items()}, rows)
        found = chosen(tried, criterion) if self.draws else tried[0.0]
        return found.factor, found.temperature

    def _drawn(self, criterion: str, *, fits: bool = True) -> Tensor:
        def choose(rows: Tensor) -> tuple[Tensor, float]:
            factor, temperature = self.best(rows, criterion, fits=fits)
            return self.logits[factor], temperature

        return self._folds(choose)

    def _folds(self, choose: Callable[[Tensor], tuple[Tensor, float]]) -> Tensor:
        found = torch.zeros_like(self.logits[0.0][0])
        for fold in self.fold_of.unique():
            rows = (self.fold_of == fold).to(found.device)
            logits, temperature = choose(~rows)
            found[rows] = (logits[:, rows] / temperature).softmax(-1).mean(0)
        return found


class _Representation:
    """What the training set's representation says of inputs; nothing without a training set."""

    def __init__(
        self, model: nn.Module, features: Callable[[nn.Module, Any], Tensor], train: Any, batch_size: int | None
    ) -> None:
        self.model, self.features = model, features
        self.readout: Any = None
        self.distance: Mahalanobis | None = None
        if train is not None:
            from cgp.regression.readout import GPReadout  # scikit-learn is slow to import

            data = _read(train, batch_size, model)
            z, labels = self._features_of(data), torch.cat([_labels(batch) for batch in data]).cpu()
            self.readout, self.distance = GPReadout(z, labels), Mahalanobis(z, labels.numpy())

    def of(self, data: list[Batch]) -> tuple[Tensor | None, dict[str, Array]]:
        """The read-out's probabilities ``(N, C)``, and scores ``(N,)`` that are large where the inputs are foreign."""
        if self.readout is None or self.distance is None:
            return None, {}
        z = self._features_of(data)
        said = self.readout(z)
        return said.probabilities, {"Mahalanobis": self.distance(z), "GP variance": said.variance.numpy()}

    def methods(self, said: Tensor | None, tuned: _Tuned) -> dict[str, Tensor]:
        """Class probabilities ``(N, C)`` of the read-out with a temperature, by method."""
        if said is None:
            return {}
        logits = torch.full_like(tuned.logits[0.0], -torch.inf)  # of classes that the training set does not have
        logits[0][:, self.readout.classes] = said.log().to(logits)
        return {"GP read-out + temperature": tuned.scaled(logits)}

    def _features_of(self, data: list[Batch]) -> Array:
        return np.concatenate([self.features(self.model, batch.inputs).double().cpu().numpy() for batch in data])


@dataclass
class _Scores:
    """Scores of inputs that are large where the inputs are foreign."""

    tuned: _Tuned
    representation: _Representation

    def compare(self, far: dict[str, Array], others: dict[str, list[Batch]]) -> dict[str, dict[str, Detection]]:
        """AUROC and FPR95 of every score on every set of other inputs; ``far`` is the representation's, inside."""
        plain = self._of_logits(self.tuned.logits)
        scales = {name: standardised(values) for name, values in {**plain, **far}.items()}
        inside = {**plain, **far, **_with_energy(plain, far, scales)}
        found: dict[str, dict[str, Detection]] = {}
        for name, data in others.items():
            (_, far), plain = self.representation.of(data), self._of_outputs(data)
            outside = {**plain, **far, **_with_energy(plain, far, scales)}
            found[name] = _detections({score: (inside[score], outside[score]) for score in inside})
        return found

    def _of_outputs(self, data: list[Batch]) -> dict[str, Array]:
        factors = sorted({0.0, self.tuned.whole[0]})
        parts, logits = [], dict[float, Tensor]()
        for factor, _, drawn in self.tuned.search.draws(data, factors):
            logits[factor] = drawn
            if len(logits) == len(factors):  # of a batch
                parts.append(self._of_logits(logits))
                logits = {}
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _of_logits(self, logits: dict[float, Tensor]) -> dict[str, Array]:
        """Scores ``(N,)`` of logits ``(S, N, C)`` by factor."""
        factor, temperature = self.tuned.whole
        p = logits[0.0][0].softmax(-1)
        found = {"1 - confidence": 1 - p.amax(-1), "entropy": torch.special.entr(p).sum(-1)}
        found["energy"] = -logits[0.0][0].logsumexp(-1)
        if factor:
            total, _, epistemic = uncertainties((logits[factor] / temperature).softmax(-1))
            found["widest posterior's entropy"], found["epistemic"] = total, epistemic
        return {name: values.cpu().numpy() for name, values in found.items()}


def _with_energy(
    plain: dict[str, Array], far: dict[str, Array], scales: dict[str, Callable[[Array], Array]]
) -> dict[str, Array]:
    energy = scales["energy"](plain["energy"])
    return {f"{name} + energy": scales[name](values) + energy for name, values in far.items()}


def _detections(pairs: dict[str, tuple[Array, Array]]) -> dict[str, Detection]:
    """What scores inside and outside are worth, each against the first one."""
    placed = {name: metrics.placements(*pair) for name, pair in pairs.items()}
    plain = next(iter(placed.values()))
    found = {}
    for name, pair in pairs.items():
        known, others = (mine - first for mine, first in zip(placed[name], plain, strict=True))
        gain = Difference(float(others.mean()), metrics.delong_error(known, others))
        found[name] = Detection(metrics.auroc(*pair), metrics.fpr95(*pair), gain)
    return found


def _drawing(model: nn.Module, posterior: str | None) -> nn.Module | None:
    """The model with stochastic layers, or None without."""
    if any(block.stochastic for block in attention_blocks(model)):
        return model
    return None if posterior is None else convert(model, layers=[0] if posterior == "first" else posterior)


def _read(data: Any, batch_size: int | None, model: nn.Module) -> list[Batch]:
    are_batches = isinstance(data, list) and not (data and isinstance(data[0], Mapping))
    found = [
        Batch(*to_device(tuple(batch), model_device(model)))
        for batch in batches(iter(data) if are_batches else data, batch_size)
    ]
    if not found:
        raise ValueError("validation, train, corrupt, ood: expected at least one batch, got none")
    return found


def _labels(batch: Batch) -> Tensor:
    if batch.labels is None or batch.labels.dim() != 1:
        raise ValueError(
            "validation, train: expected batches (inputs, labels) or dicts with 'labels', got some without"
        )
    return batch.labels.long()


def _differences(p: Array, reference: Array, labels: Array) -> dict[str, Difference]:
    pairs = {
        "nll": metrics.log_losses(p, labels) - metrics.log_losses(reference, labels),
        "brier": metrics.brier_scores(p, labels) - metrics.brier_scores(reference, labels),
        "accuracy": 1.0 * (p.argmax(-1) == labels) - (reference.argmax(-1) == labels),
    }
    return {n: Difference(float(d.mean()), float(d.std(ddof=1) / np.sqrt(len(d)))) for n, d in pairs.items()}
