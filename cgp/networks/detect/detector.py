"""Detectors: scores that are large for out-of-distribution inputs of a classifier, with a threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cgp.networks.guarantees.conformal import conformal_quantile
from cgp.networks.model.fingerprints import fingerprint
from cgp.networks.model.inputs import input_batches, model_device, to_device
from cgp.networks.model.named import State
from cgp.networks.model.shared_prefix import SharedPrefix
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.predict.method import RATE, Training, as_assessed, settings_of, with_settings
from cgp.networks.tasks import Classification, Task
from cgp.weights import part_of

from .further import GradNorm, KernelPCA
from .scores import DrawnScore, InputScore, Seen, Widest, numbers

__all__ = ["DETECTORS", "FURTHER", "Detector", "standardised", "units_of"]

Array = NDArray[Any]

_BY_TRAINING = ("Mahalanobis", "GP variance")

DETECTORS = ("1 - confidence", "entropy", "energy", *_BY_TRAINING, *(f"{name} + energy" for name in _BY_TRAINING))
"""Scores of every report that :class:`Detector` fits by itself; those of draws come from :func:`cgp.assess`."""

FURTHER = (GradNorm.name, KernelPCA.name)
"""Scores that are compared if they are named, in ``compare=``."""


@dataclass(eq=False, repr=False)
class Detector:
    r"""A score that is large for out-of-distribution inputs of a classifier.

    "1 - confidence", "entropy" and "energy", :math:`-\log\sum_c e^{f_c}`, are of the logits; "Mahalanobis" and
    "GP variance" of the representation that the last layer reads, which they know from training data; "GradNorm" of
    both, and "kernel PCA" of the representation, are compared by :func:`cgp.assess` where they are named. A name with a
    plus, such as "Mahalanobis + energy", is the sum of two in standard deviations over the data given to :meth:`fit`.

    Args:
        scores: a score, by its name or as an object, such as a :class:`cgp.networks.detect.scores.InputScore` of your
            own; or several, whose sum it is.
        task: takes logits ``(N, C)`` and the representation from what the model returns.
        known: the scores of the data given to :meth:`fit`, ``(N,)``, which sets them.
        parts: the scores of a sum, of the same data.
        weights: fingerprint of the weights of the model that it was fitted for; None is any.

    Raises:
        ValueError: if there is no such score.

    Example:
        >>> x, model = torch.linspace(-2, 2, 60)[:, None], nn.Linear(1, 2)
        >>> known = [(x, (x[:, 0] > 0).long())]
        >>> detector = Detector("Mahalanobis").fit(model, known, train=known)
        >>> bool(detector.score(model, torch.tensor([[30.0]])) > detector.threshold(0.05))
        True
    """

    scores: str | InputScore | Sequence[InputScore]
    task: Task = field(default_factory=Classification)
    known: Array | None = field(default=None, repr=False)
    parts: dict[str, Array] = field(default_factory=dict, repr=False)  # of a sum, over known inputs
    weights: int | None = field(default=None, repr=False)  # fingerprint of those of the host that it was fitted for

    def __post_init__(self) -> None:
        given = self.scores.split(" + ") if isinstance(self.scores, str) else self.scores
        self.scores = tuple(map(InputScore.named, given)) if isinstance(given, Sequence) else (given,)

    def __repr__(self) -> str:
        """Its name, and the score that predictions flag an input above if it is the only detector."""
        fitted = "not fitted" if self.known is None else f"flags above {self.threshold(RATE):.4g}"
        return f"Detector({self.name}, {fitted})"

    @property
    def name(self) -> str:
        """Its name, or those of its parts."""
        return " + ".join(score.name for score in self.terms)

    @property
    def words(self) -> str:
        """What it is, in a sentence."""
        return " + ".join(score.words or score.name for score in self.terms)

    @property
    def needs_train(self) -> bool:
        """Whether it is fitted to training data."""
        return any(score.needs_train for score in self.terms)

    @property
    def draws(self) -> bool:
        """Whether it needs a posterior, which :func:`cgp.assess` fits."""
        return any(isinstance(score, DrawnScore) for score in self.terms)

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
        if self.needs_train and train is None:
            raise ValueError(f"train: expected labelled training data for {self.name!r}, got None")
        if self.needs_train:
            self.scores = self.trained(Training(model, self.task, train)).scores
        self.weights = fingerprint(model).host
        return self.knowing(self._raw(model, data, batch_size))

    def trained(self, training: Training) -> Detector:
        """A detector whose scores know the training data."""
        scores = [score.fit(training) if score.needs_train else score for score in self.terms]
        return replace(self, scores=scores)

    def drawn_by(self, posterior: Widest) -> Detector:
        """A detector whose scores are of the draws of a posterior, where they are of draws."""
        scores = [replace(each, posterior=posterior) if isinstance(each, DrawnScore) else each for each in self.terms]
        return replace(self, scores=scores)

    def knowing(self, raw: dict[str, Array]) -> Self:
        """Take the scores of known inputs by name; returns itself."""
        self.parts = {score.name: raw[score.name] for score in self.terms} if len(self.terms) > 1 else {}
        self.known = np.sort(self.combined(raw))
        return self

    def combined(self, raw: dict[str, Array]) -> Array:
        """The score, or the sum of its parts in standard deviations, from scores ``(N,)`` by name."""
        if len(self.terms) == 1:
            return raw[self.name].astype(np.float64)
        scaled = np.stack([standardised(self.parts[score.name])(raw[score.name]) for score in self.terms])
        return np.asarray(scaled.sum(0), np.float64)

    def of(self, seen: Seen) -> dict[str, Array]:
        """The scores of a batch that are added, by name."""
        return {score.name: numbers(score.of(seen)) for score in self.terms}

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
            ValueError: before :meth:`fit`, if there are no inputs, or the model's weights are not those of the fit.
        """
        self._check_fitted()
        if self.weights not in (None, fingerprint(model).host):
            raise ValueError(
                f"model: expected the weights that the detector {self.name!r} was fitted for, got others (trained on "
                "since, or another model): fit and attach it again"
            )
        return torch.from_numpy(self.combined(self._raw(model, inputs, batch_size)))

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

    def state(self) -> State:
        """What :meth:`of_state` makes the same detector of; a task with functions of its own is not written."""
        if self.task != Classification():
            raise ValueError(
                "model: expected detectors with the default features and output, which can be written, got "
                f"{self.name!r} with other functions (fit and attach it again after loading)"
            )
        self._check_fitted()
        tensors, config = {"known": torch.from_numpy(np.asarray(self.known))}, []
        for number, score in enumerate(self.terms):
            options, of_score = score.saved()
            config.append(options)
            tensors |= {f"{number}.{name}": tensor for name, tensor in of_score.items()}
            if self.parts:
                tensors[f"{number}.parts"] = torch.from_numpy(self.parts[score.name])
        return {"scores": config, "weights": self.weights}, tensors

    @classmethod
    def of_state(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Detector:
        """The detector of what :meth:`state` returned."""
        scores, parts = [], {}
        for number, each in enumerate(config["scores"]):
            own = part_of(tensors, f"{number}.")
            if "parts" in own:
                parts[each["name"]] = own.pop("parts").numpy()
            scores.append(InputScore.of_saved(each, own))
        return cls(scores, known=tensors["known"].numpy(), parts=parts, weights=config["weights"])

    @property
    def terms(self) -> tuple[InputScore, ...]:
        """The scores that are added."""
        assert isinstance(self.scores, tuple)
        return self.scores

    def _check_fitted(self) -> None:
        if self.known is None:
            raise ValueError("Detector: expected fit(model, data) before it is used, got none")

    def _raw(self, model: nn.Module, inputs: Any, batch_size: int | None) -> dict[str, Array]:
        """The scores that are added."""
        model = SharedPrefix(as_assessed(uncompiled(model))).model  # in eval mode, whatever mode the model was left in
        parts, first = list[dict[str, Array]](), 0
        for number, batch in enumerate(input_batches(model, inputs, batch_size)):
            given = to_device(batch.inputs, model_device(model))
            parts.append(self.of(Seen(model, self.task, given, number=number, first=first)))
            first += len(next(iter(parts[-1].values())))
        if not parts:
            raise ValueError("inputs: expected at least one batch, got none")
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def units_of(known: Array) -> tuple[np.floating[Any], float]:
    """The mean and the standard deviation of scores of known inputs, by which others are standardised."""
    return known.mean(), max(float(known.std()), 1e-12)


def standardised(known: Array) -> Callable[[Array], Array]:
    """A map to standard deviations above the mean over known inputs."""
    mean, deviation = units_of(known)
    return lambda scores: (scores - mean) / deviation
