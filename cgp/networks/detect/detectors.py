"""Detectors: scores that are large for out-of-distribution inputs of a classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.networks.convert.convert import convert
from cgp.networks.guarantees.conformal import conformal_quantile
from cgp.networks.methods.amplitudes import AmplitudeSearch
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.inputs import Batch, logits_of, model_device, to_device
from cgp.networks.model.representation import Mahalanobis, pooled_features, standardised
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.predict import input_batches
from cgp.networks.predict.readout import GPReadout
from cgp.networks.predict.settings import as_assessed, settings_of, with_settings
from cgp.networks.tasks.entropies import uncertainties
from cgp.networks.tasks.labels import check_finite, labelled_batches

__all__ = ["DETECTORS", "Detector", "OutputScores", "Posterior", "with_energy"]

Array = NDArray[Any]

OF_OUTPUTS = ("1 - confidence", "entropy", "energy")
OF_DRAWS = ("widest posterior's entropy", "epistemic")
OF_FEATURES = ("Mahalanobis", "GP variance")

DETECTORS = (*OF_OUTPUTS, *OF_FEATURES, *(f"{name} + energy" for name in OF_FEATURES))
"""Scores that :class:`Detector` fits by itself; those of a posterior's draws come from :func:`cgp.assess`."""


class Posterior(NamedTuple):
    """The posterior whose draws give the entropy and its epistemic part.

    Attributes:
        layers: layers to convert if the model has no stochastic layer: "last", "all" or an index.
        factor: factor of the amplitudes, 0 without a posterior.
        temperature: temperature of the draws.
        num_samples: number S of draws.
        sampling: "marginal" or "joint".
        seed: seed of the draws.
    """

    layers: Any = "last"
    factor: float = 0.0
    temperature: float = 1.0
    num_samples: int = 2
    sampling: str = "marginal"
    seed: int = 0


class OutputScores(NamedTuple):
    """Scores of a model's outputs, with and without a posterior.

    Attributes:
        search: draws of the model.
        factor: factor of the amplitudes, 0 without a posterior.
        temperature: temperature of the draws.
    """

    search: AmplitudeSearch
    factor: float
    temperature: float

    def of_inputs(self, data: Iterable[Batch], name: str) -> dict[str, Array]:
        """Scores ``(N,)`` of inputs by name."""
        factors = sorted({0.0, self.factor})
        parts, logits, first = [], dict[float, Tensor](), 0
        for factor, _, drawn in self.search.draws(data, factors):
            if drawn.dim() != 3:
                raise ValueError(
                    f"model: expected logits (N, C), one row for every input, got {tuple(drawn.shape[1:])}"
                )
            logits[factor] = drawn
            if len(logits) == len(factors):  # of a batch
                check_finite(logits[0.0][0], first=first, name=f"{name}: model")
                parts.append(self.of_logits(logits))
                first, logits = first + drawn.shape[1], {}
        return {score: np.concatenate([part[score] for part in parts]) for score in parts[0]}

    def of_logits(self, logits: Mapping[Any, Tensor]) -> dict[str, Array]:
        """Scores ``(N,)`` of logits ``(S, N, C)`` by factor."""
        total, _, _ = uncertainties(logits[0.0].softmax(-1))
        scores = {"1 - confidence": 1 - logits[0.0][0].softmax(-1).amax(-1), "entropy": total}
        scores["energy"] = -logits[0.0][0].logsumexp(-1)
        if self.factor:
            total, _, epistemic = uncertainties((logits[self.factor] / self.temperature).softmax(-1))
            scores |= dict(zip(OF_DRAWS, (total, epistemic), strict=True))
        return {name: values.cpu().numpy() for name, values in scores.items()}


@dataclass(eq=False)
class Detector:
    r"""A score that is large for out-of-distribution inputs of a classifier.

    "1 - confidence", "entropy" and "energy", :math:`-\log\sum_c e^{f_c}`, are of the logits; "Mahalanobis" and
    "GP variance" of the representation that the last layer reads, which they know from training data; the sums
    "Mahalanobis + energy" and "GP variance + energy" are in standard deviations over the data given to :meth:`fit`.

    Args:
        name: one of ``DETECTORS``.
        features: representation ``(N, d)`` of inputs; by default the inputs of the linear layer whose output the
            model returns, or else of the last one that it calls.
        output: function that takes the logits ``(N, C)`` from the model's output.
        posterior: posterior whose draws are scored, if :func:`cgp.assess` fitted one.
        fitted: model of the training data's representation; :meth:`fit` sets it.
        known: the scores of the data given to :meth:`fit`, ``(N,)``, which sets them.
        parts: scores whose sum it is, of the same data.

    Raises:
        ValueError: if there is no such score.

    Note:
        Liu et al., Energy-based Out-of-distribution Detection (NeurIPS 2020); the others as in
        :class:`cgp.networks.model.representation.Mahalanobis` and :class:`cgp.GPReadout`.

    Example:
        >>> x, model = torch.linspace(-2, 2, 60)[:, None], nn.Linear(1, 2)
        >>> known = [(x, (x[:, 0] > 0).long())]
        >>> detector = Detector("Mahalanobis").fit(model, known, train=known)
        >>> bool(detector.score(model, torch.tensor([[30.0]])) > detector.threshold(0.05))
        True
    """

    name: str
    features: Callable[[nn.Module, Any], Tensor] = pooled_features
    output: Callable[[Any], Tensor] = logits_of
    posterior: Posterior = field(default_factory=Posterior)
    fitted: Mahalanobis | GPReadout | None = None
    known: Array | None = field(default=None, repr=False)
    parts: dict[str, Array] = field(default_factory=dict, repr=False)  # of a sum, over known inputs

    def __post_init__(self) -> None:
        if self.name not in (*DETECTORS, *OF_DRAWS):
            raise ValueError(f"name: expected one of {DETECTORS}, got {self.name!r}")

    @property
    def base(self) -> str:
        """The score that the energy is added to, or the score itself."""
        return self.name.removesuffix(" + energy")

    @torch.no_grad()
    def fit(self, model: nn.Module, data: Any, *, train: Any = None, batch_size: int | None = None) -> Self:
        """Fit the score to in-distribution data.

        Args:
            model: any classifier with logits ``(N, C)``. It is not changed.
            data: inputs that it was not trained on, with or without labels, as :func:`cgp.predict` takes them.
            train: its labelled training data, for the scores of the representation.
            batch_size: examples per batch; None is all at once for tensors, 32 for data sets.

        Returns:
            The detector.

        Raises:
            ValueError: if the score needs training data and there are none, or a posterior's draws.
        """
        if self.name in OF_DRAWS:
            raise ValueError(f"name: expected one of {DETECTORS}, got {self.name!r} (cgp.assess fits its posterior)")
        if self.base in OF_FEATURES:
            if train is None:
                raise ValueError(f"train: expected labelled training data for {self.name!r}, got None")
            seen = labelled_batches(train, model_device(model), name="train", batch_size=batch_size, every=True)
            labels = torch.cat([batch.labels for batch in seen if batch.labels is not None]).cpu().numpy()
            fit = Mahalanobis().fit if self.base == "Mahalanobis" else GPReadout
            self.fitted = fit(self._features_of(as_assessed(model), seen), labels)
        raw = self._raw(model, data, batch_size)
        self.parts = raw if len(raw) > 1 else {}
        self.known = np.sort(self._combined(raw))
        return self

    @torch.no_grad()
    def score(self, model: nn.Module, inputs: Any, *, batch_size: int | None = None) -> Tensor:
        """Score inputs.

        Args:
            model: the classifier that the detector was fitted for.
            inputs: inputs as for :func:`cgp.predict`; labels are ignored.
            batch_size: as in :meth:`fit`.

        Returns:
            ``(N,)``, on the CPU; larger means more likely out of distribution.

        Raises:
            ValueError: before :meth:`fit`, or if there are no inputs.
        """
        self._check_fitted()
        return torch.from_numpy(self._combined(self._raw(model, inputs, batch_size)))

    def threshold(self, rate: float) -> float:
        r"""The score that at most a share ``rate`` of in-distribution inputs exceeds, in expectation (conformal).

        .. math:: P(s(x) > s_{(\lceil (n + 1)(1 - \alpha) \rceil)}) \le \alpha

        where x is exchangeable with the n inputs given to :meth:`fit`.

        Args:
            rate: :math:`\\alpha`, in (0, 1).

        Returns:
            The threshold; infinite where n is below :math:`1 / \\alpha - 1`.

        Raises:
            ValueError: before :meth:`fit`, or if the rate is out of range.
        """
        self._check_fitted()
        if not 0.0 < rate < 1.0:
            raise ValueError(f"rate: expected a share in (0, 1), got {rate!r}")
        return conformal_quantile(np.asarray(self.known), rate)

    def attach(self, model: nn.Module) -> nn.Module:
        """A copy of a model, which shares its tensors, whose predictions hold the score (:attr:`Prediction.ood`)."""
        self._check_fitted()
        settings = settings_of(model)
        return with_settings(model, replace(settings, detectors={**settings.detectors, self.name: self}))

    def _check_fitted(self) -> None:
        if self.known is None:
            raise ValueError("Detector: expected fit(model, data) before it is used, got none")

    def _raw(self, model: nn.Module, inputs: Any, batch_size: int | None) -> dict[str, Array]:
        """The scores that are added."""
        model = as_assessed(uncompiled(model))
        device = model_device(model)
        data = [Batch(*to_device((batch.inputs, None), device)) for batch in input_batches(model, inputs, batch_size)]
        if not data:
            raise ValueError("inputs: expected at least one batch, got none")
        raw = {}
        if self.base in OF_FEATURES:
            z = self._features_of(model, data)
            raw[self.base] = representation_scores(self.fitted, z)
        if self.base not in OF_FEATURES or self.base != self.name:
            name = "energy" if self.base in OF_FEATURES else self.name
            raw[name] = self._outputs(model).of_inputs(data, "inputs")[name]
        return raw

    def _combined(self, raw: dict[str, Array]) -> Array:
        if len(raw) == 1:
            return next(iter(raw.values())).astype(np.float64)
        scaled = np.stack([standardised(self.parts[name])(values) for name, values in raw.items()])
        return np.asarray(scaled.sum(0), np.float64)

    def _outputs(self, model: nn.Module) -> OutputScores:
        layers, factor, temperature, num_samples, sampling, seed = self.posterior
        drawn = self.name in OF_DRAWS
        if drawn and not stochastic_layers(model):
            model = convert(model, layers=layers)
        search = AmplitudeSearch(model, num_samples, sampling, seed, self.output)
        return OutputScores(search, factor if drawn else 0.0, temperature)

    def _features_of(self, model: nn.Module, data: Sequence[Batch]) -> Array:
        parts = [self.features(model, batch.inputs).double().cpu().numpy() for batch in data]
        return np.concatenate(parts)


def representation_scores(fitted: Mahalanobis | GPReadout | None, features: Array) -> Array:
    """Scores ``(N,)`` of features ``(N, d)`` by a model of the training data."""
    assert fitted is not None
    return fitted.score(features) if isinstance(fitted, Mahalanobis) else fitted(features).variance.numpy()


def with_energy(
    outputs: dict[str, Array], far: dict[str, Array], scales: dict[str, Callable[[Array], Array]]
) -> dict[str, Array]:
    """Scores of the outputs, of the representation, and of the latter in a sum with the energy."""
    energy = scales["energy"](outputs["energy"])
    return outputs | far | {f"{name} + energy": scales[name](values) + energy for name, values in far.items()}
