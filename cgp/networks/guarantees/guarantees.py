"""Guarantees of a prediction by held-out labels: sets, intervals, and a threshold for abstaining."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple, Never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.networks.tasks import Task, as_task
from cgp.spelling import as_share
from cgp.warning import warn_user

from .conformal import (
    SetScore,
    check_labels,
    conformal_quantile,
    conformal_sets,
    risk_threshold,
    values_needed,
    why_none,
)

__all__ = ["Guarantees", "Source"]

Array = NDArray[Any]

_CALLER = 4  # frames from _threshold to the caller of abstain


class Source(NamedTuple):
    """What made a prediction: a fingerprint of weights, a calibration and options of predict, in words."""

    weights: int
    calibration: str
    asked: dict[str, str]

    def check_same(self, known: Source) -> None:
        """Raise unless a held-out prediction was made as the one that this is the source of."""
        if known.weights != self.weights:
            raise ValueError(
                "held_out: expected a prediction by the weights of this one, got one by others (a model trained on "
                "since, or another): predict the held-out data again, or cgp.with_held_out(model, data)"
            )
        if known.calibration != self.calibration:
            raise ValueError(
                f"held_out: expected a prediction by the model as it is calibrated ({self.calibration}), got "
                f"({known.calibration}): predict the held-out data again, or cgp.with_held_out(model, data)"
            )
        for name, value in self.asked.items():
            if known.asked.get(name, value) != value:
                raise ValueError(
                    f"held_out: expected a prediction with {name}={value} as this one, got {name}={known.asked[name]} "
                    "(predict both alike)"
                )


class Guarantees:
    """Methods of a prediction that use held-out labels: :class:`cgp.Prediction` says what its attributes are."""

    task: str | None
    mean: Tensor
    probabilities: Tensor | None
    total: Tensor | None
    num_samples: int
    labels: Tensor | None
    held_out: Guarantees | None
    source: Source | None

    @property
    def _task(self) -> Task:
        return as_task(self.task)

    def sets(
        self,
        level: float = 0.9,
        *,
        method: str | SetScore = "lac",
        per_class: bool = False,
        held_out: Guarantees | None = None,
    ) -> Tensor:
        r"""Sets of classes that contain the true one with at least the probability ``level``.

        .. math:: P\big(y \in \{c : s_c(x) \le q\} \cup \{\hat c(x)\}\big) \ge \text{level}

        where q knows that the likeliest class ĉ is in every set, so that they hold no more classes than that takes. The
        probability is over the draw of the held-out labels and of the input, which are exchangeable: no order or shift
        between them, and the labels have chosen nothing of the model, its temperature included
        (:func:`cgp.networks.guarantees.conformal.conformal_sets`).

        Args:
            level: the probability, in (0, 1).
            method: "lac" (one threshold for the probability: the smallest on average), "aps" (adaptive: somewhat larger
                sets, that hold more evenly over easy and hard inputs), "raps" (the same, regularised: smaller sets of
                many classes), or an object, such as :class:`cgp.networks.guarantees.conformal.Regularised` with
                options, or a score of your own.
            per_class: whether the probability holds given the true class, too.
            held_out: a prediction, by the same model in the same way, of inputs with labels ``(n,)``; None takes those
                that the model keeps (:func:`cgp.with_held_out`, which refuses labels that fitted the model: here that
                is not checked).

        Returns:
            ``(N, C)`` bool; no set is empty, and that of an input whose probabilities are NaN has every class.

        Raises:
            ValueError: if there are no held-out labels, or an argument is out of range.

        Warns:
            UserWarning: if there are too few held-out labels (of a class, with ``per_class``), so that every set holds
                all classes (that class), or if the inputs are the held-out ones themselves.
        """
        known, labels = self._known(held_out, level, "classification")
        assert self.probabilities is not None
        assert known.probabilities is not None
        score = SetScore.named(method)
        scores, of_known = (score(_numbers(p)) for p in (self.probabilities, known.probabilities))
        sets = conformal_sets(scores, of_known, labels.cpu().numpy(), 1.0 - level, per_class=per_class)
        real = labels[torch.from_numpy(~np.isnan(of_known).any(-1)).to(labels.device)]
        counts = torch.bincount(real, minlength=sets.shape[1]) if per_class else torch.tensor([len(real)])
        few = (counts < values_needed(1.0 - level)).nonzero()[:, 0].tolist()
        classes = f"classes {', '.join(map(str, few))} are" if len(few) > 1 else f"class {few[0]} is" if few else ""
        what = f"sets: {classes} in every set" if per_class else "sets: every set has all classes"
        _say_few(what, "labels of each class" if per_class else "labels", int(counts.min()), level)
        return torch.from_numpy(sets).to(self.mean.device)

    def intervals(self, level: float = 0.9, *, held_out: Guarantees | None = None) -> Tensor:
        r"""Intervals of each output of a regression that contain the true value with at least that probability.

        .. math:: \mu(x) \pm q\,\sigma(x), \qquad q = \text{conformal quantile of } |y - \mu| / \sigma

        over the draw of the held-out values and of the input, which are exchangeable (see :meth:`sets`). σ is the
        prediction's own standard deviation, or 1 everywhere if one of either prediction is missing, or 0.

        Args:
            level: the probability, in (0, 1), for each output by itself.
            held_out: a prediction, by the same model in the same way, of inputs with values ``(n, C)``; None takes
                those that the model keeps (:func:`cgp.with_held_out`, which refuses values that fitted the model: here
                that is not checked).

        Returns:
            Lower and upper ends, ``(N, C, 2)``; infinite if there are too few held-out values, or where the prediction
            is not finite.

        Raises:
            ValueError: if there are no held-out values, or an argument is out of range.

        Warns:
            UserWarning: if there are too few held-out values, so that every interval is infinite, or if the inputs are
                the held-out ones themselves.
        """
        known, values = self._known(held_out, level, "regression")
        _say_few("intervals: every interval is infinite", "values", len(values), level)
        deviations, of_known = _deviations(self, known)
        scores = np.abs(_numbers(values) - _numbers(known.mean)) / of_known
        quantiles = np.array([conformal_quantile(column, 1.0 - level) for column in scores.T])
        half = torch.from_numpy(quantiles * deviations).to(self.mean)
        half = half.masked_fill(~(self.mean + half).isfinite(), torch.inf)
        mean = self.mean.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        return torch.stack([mean - half, mean + half], -1)

    def abstain(
        self,
        *unnamed: Never,
        risk: float | None = None,
        coverage: float | None = None,
        level: float | None = None,
        tolerance: float | None = None,
        held_out: Guarantees | None = None,
    ) -> Tensor:
        r"""Withhold the answers with the lowest confidence (largest class probability).

        By ``coverage``, as many are kept as that share of all. By ``risk``, as many as the model itself expects to be
        wrong at that rate: the largest set whose average of :math:`1 - \max_c p_c` is at most the risk. That holds as
        far as the model is calibrated (:func:`cgp.calibrate`).

        By ``risk`` and ``level``, a threshold is tested on held-out labels: of the answers that are kept, now and
        later, at most that share is wrong, with at least that probability over the draw of those labels
        (:func:`cgp.networks.guarantees.conformal.risk_threshold`). It holds for inputs that are independent draws from
        where the held-out ones came from, and for labels that have chosen nothing of the model, its temperature
        included. An answer that is NaN is always withheld.

        An answer of a regression is wrong if it is off by more than ``tolerance``, which has the confidence

        .. math:: P(|y - \mu| \le \tau) = 2\Phi(\tau / \sigma) - 1

        and each output is withheld by itself. By ``coverage`` it needs no tolerance: the smallest variances are kept.

        Args:
            *unnamed: none: it is said whether a share is of errors or of answers.
            risk: error rate to keep to, in [0, 1].
            coverage: share of the answers to keep, in [0, 1].
            level: probability with which the risk is kept to, in (0, 1).
            tolerance: of a regression, the largest error that counts as right, in units of the values.
            held_out: a prediction, by the same model in the same way, of inputs with labels ``(n,)`` or values
                ``(n, C)``; None takes those that the model keeps (:func:`cgp.with_held_out`, which refuses labels that
                fitted the model: here that is not checked).

        Returns:
            ``(N, ...)`` bool, True = withhold; for a regression ``(N, C)``.

        Raises:
            TypeError: if an argument has no name.
            ValueError: unless exactly one of risk and coverage is given, in [0, 1]; for a regression with ``risk``,
                unless there is a tolerance, or if it has no variance, or by ``coverage`` the same one everywhere; with
                ``level``, if there are no held-out labels, or too few for any answer: the message says how many
                are needed.

        Warns:
            UserWarning: if no answer can be given at that risk, so that all are withheld, or if the inputs are the
                held-out ones themselves.
        """
        if unnamed:
            raise TypeError(
                "abstain: expected coverage=, the share of answers to keep, or risk=, the share that may be wrong, "
                f"got {unnamed[0]!r} without a name"
            )
        named = {name: value for name, value in (("risk", risk), ("coverage", coverage)) if value is not None}
        given = [*named.values()]
        if len(given) != 1 or not 0.0 <= given[0] <= 1.0:
            near = "".join(map(as_share, given[:1])) if len(given) == 1 else ""
            beside = "" if level is None else f" (risk= beside level={level:g})"
            got = " and ".join(f"{name}={value!r}" for name, value in named.items()) or "neither"
            raise ValueError(f"risk, coverage: expected one of them in [0, 1]{beside}, got {got}{near}")
        sureness = self._task.sureness(self, tolerance, ranks=coverage is not None)
        by_output = not self._task.has_classes
        if level is not None:
            return ~(sureness > self.thresholds(risk, level, tolerance, held_out).to(sureness.device))
        columns = sureness.T if by_output else sureness.flatten()[None]
        withheld = torch.stack([_withheld(column, risk, coverage) for column in columns])
        return withheld.T if by_output else withheld.view(sureness.shape)

    def thresholds(
        self, risk: float | None, level: float, tolerance: float | None = None, held_out: Guarantees | None = None
    ) -> Tensor:
        """The confidence above which :meth:`abstain` keeps an answer, ∞ where none: a scalar, of values ``(C,)``."""
        if risk is None or not 0.0 < risk < 1.0 or not 0.0 < level < 1.0:
            near = as_share(level) if risk is not None and 0.0 < risk < 1.0 else ""
            raise ValueError(f"risk, level: expected both in (0, 1), got risk={risk!r} and level={level!r}{near}")
        kind = "classification" if self._task.has_classes else self.task
        known, labels = self._known(held_out, level, kind)
        check_labels(len(labels), risk, level)
        sureness = _numbers(self._task.sureness(known, tolerance))
        right = self._task.right(known, labels, tolerance).cpu().numpy()
        if right.ndim == 1:
            return torch.tensor(_threshold(sureness, right, risk, level), dtype=torch.float64)
        found = [_threshold(*column, risk, level) for column in zip(sureness.T, right.T, strict=True)]
        return torch.tensor(found, dtype=torch.float64)

    def _known(self, held_out: Guarantees | None, level: float, task: str | None) -> tuple[Guarantees, Tensor]:
        """The held-out prediction and its labels, none of them missing."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level: expected a probability in (0, 1), got {level!r}{as_share(level)}")
        if self.task != task:
            raise ValueError(f"task: expected {task!r}, got {self.task!r}")
        known = self.held_out if held_out is None else held_out
        if known is None or known.labels is None:
            raise ValueError(
                "held_out: expected a prediction of labelled inputs that neither trained nor calibrated the model, got "
                "none: model = cgp.with_held_out(model, [(inputs, labels)]) before cgp.predict, or "
                "held_out=cgp.predict(model, [(inputs, labels)]) here"
            )
        for name in ("task", "num_samples"):
            if getattr(known, name) != getattr(self, name):
                raise ValueError(
                    f"held_out: expected {name} {getattr(self, name)!r} as of the prediction, "
                    f"got {getattr(known, name)!r}"
                )
        if known.source is not None and self.source is not None:
            self.source.check_same(known.source)
        if known.mean.dim() != 2 or known.mean.shape[1:] != self.mean.shape[1:]:
            raise ValueError(
                "held_out: expected one answer for every input, (n, C) of as many outputs (parts of one input, such as "
                f"tokens, are not exchangeable), got {tuple(known.mean.shape)} and {tuple(self.mean.shape)}"
            )
        _warn_of_same(known.mean, self.mean)
        return known, self._task.truth(known, known.labels, "held_out")


def _warn_of_same(known: Tensor, new: Tensor) -> None:
    """Warn where the inputs are the held-out ones, as their outputs say."""
    if known.shape == new.shape and torch.allclose(known.to(new), new, rtol=1e-4):
        warn_user(
            "held_out: expected other inputs than those that are predicted, got the same ones: a guarantee is of "
            "inputs that have found no threshold"
        )


def _say_few(what: str, of: str, count: int, level: float) -> None:
    """Warn where there are fewer held-out labels or values than a finite conformal quantile takes."""
    if count < (needed := values_needed(1.0 - level)):
        words = f"{what}: a level of {level:g} needs at least {needed} held-out {of}, got {count}"
        warnings.warn(words, stacklevel=3)


def _threshold(sureness: Array, right: Array, risk: float, level: float) -> float:
    """The threshold by held-out answers; infinite, with a warning, where all have to be withheld."""
    threshold = risk_threshold(sureness, right, risk, level)
    if threshold is None:
        warnings.warn(f"abstain: {why_none(sureness, right, risk, level)}", stacklevel=_CALLER)
    return math.inf if threshold is None else threshold


def _withheld(sureness: Tensor, risk: float | None, coverage: float | None) -> Tensor:
    """The answers to withhold of ``(N,)``, by the share to keep or by the error rate that the sureness expects."""
    order = sureness.argsort(descending=True, stable=True)
    kept = len(order)
    if coverage is not None:
        kept = round(coverage * len(order))
    elif risk is not None:
        expected = (1.0 - sureness[order]).cumsum(0) / torch.arange(1, len(order) + 1).to(order.device)
        kept = int((expected <= risk).sum())  # the average rises with every answer
    kept = min(kept, int((sureness > -torch.inf).sum()))
    withheld = torch.ones(len(order), dtype=torch.bool, device=order.device)
    withheld[order[:kept]] = False
    return withheld


def _deviations(*predictions: Guarantees) -> list[Array]:
    """Standard deviations in each of several predictions, 1 in all of them where one of them has none."""
    usable = all(each.total is not None and not bool((each.total <= 0).any()) for each in predictions)
    return [np.sqrt(_numbers(each.total)) if usable else np.ones(each.mean.shape) for each in predictions]


def _numbers(values: Tensor | None) -> Array:
    assert values is not None
    return values.detach().cpu().double().numpy()
