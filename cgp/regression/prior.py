"""Priors learned from many tables: weighted sets of parameters, in a file of a few kilobytes."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from cgp.atomic_files import write_aside
from cgp.functional.kernels import canonical

__all__ = ["PRIOR_KERNELS", "LearnedPrior", "ParameterSet", "PriorComponent", "check_prior", "gram_of", "period_of"]

PRIOR_KERNELS = ("rbf", "matern12", "matern32", "matern52", "periodic")
_VERSION = 1
_ROUNDING = 1e-6  # of a sum of weights


class PriorComponent(NamedTuple):
    """A component of a parameter set.

    Attributes:
        kernel: "rbf", "matern12", "matern32", "matern52" or "periodic".
        lengthscale: in units of the inputs, for several inputs times the root of their number; of a periodic
            component in units of the distance between points on a circle of radius 1.
        share: expected variance.
        period: of a periodic component, in units of the inputs; None for others.
        correlated: whether the outputs may be correlated in it.
    """

    kernel: str
    lengthscale: float
    share: float
    period: float | None = None
    correlated: bool = True


class ParameterSet(NamedTuple):
    """Covariance parameters that a table may have, up to the correlations of its outputs.

    Attributes:
        components: independent components that are summed.
        weight: prior probability of the set.
    """

    components: tuple[PriorComponent, ...]
    weight: float

    def content(self) -> dict[str, Any]:
        """The set as plain values."""
        return {"weight": self.weight, "components": [component._asdict() for component in self.components]}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> Self:
        """The set of :meth:`content`."""
        return cls(tuple(PriorComponent(**component) for component in content["components"]), content["weight"])


class LearnedPrior(NamedTuple):
    r"""Parameter sets with probabilities, learned from tables by :func:`learn_prior`.

    .. math:: p(\theta) = \sum_k w_k \sum_j v_j\;
        p(\sigma^2 \mid \nu_j) \prod_c p(B_c \mid b_{kc}), \qquad
        \log p(B_c \mid b) = -\tfrac a2\big(\log|B_c| + b \operatorname{tr} B_c^{-1}\big) + \text{const}

    A set has the kernel and lengthscale of every component and its expected variance b; B is the covariance of the
    outputs, with the mode bI. The noise variance of every output has the same form of density, its mode one of several
    levels ν.

    Attributes:
        sets: parameter sets; their weights sum to 1.
        noises: levels of the noise variance, ascending.
        noise_weights: probability of each level; they sum to 1.
        level: variance of the mean of an output.
        strength: a for as many covariances of outputs as there are observations; it is in proportion to their ratio.
        noise_strength: the same as a in the prior of a noise variance.
        standardised: whether all of this is in units of inputs and outputs that are standardised table by table,
            or in the units of the tables.

    Example:
        >>> component = PriorComponent("matern32", lengthscale=0.5, share=1.0)
        >>> prior = LearnedPrior((ParameterSet((component,), 1.0),), (0.01, 0.1), (0.5, 0.5))
        >>> LearnedPrior.from_json(prior.to_json()) == prior
        True
    """

    sets: tuple[ParameterSet, ...]
    noises: tuple[float, ...]
    noise_weights: tuple[float, ...]
    level: float = 1.0
    strength: float = 4.0
    noise_strength: float = 2.0
    standardised: bool = True

    def to_json(self) -> str:
        """The prior as JSON, with the version of the format."""
        sets = [each.content() for each in self.sets]
        return json.dumps({"version": _VERSION, **self._asdict(), "sets": sets}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The prior of :meth:`to_json`.

        Args:
            text: JSON.

        Returns:
            An equal prior.

        Raises:
            ValueError: if the text is not that of a prior, or of another version of the format.
        """
        try:
            content = json.loads(text)
        except ValueError as error:
            raise ValueError(f"prior: expected JSON, got a damaged text ({error})") from error
        version = content.get("version") if isinstance(content, dict) else None
        if version != _VERSION:
            raise ValueError(f"prior: expected a prior of format version {_VERSION}, got version {version!r}")
        try:
            prior = cls._of_content(content)
            check_prior(prior)
        except (KeyError, TypeError) as error:
            raise ValueError(f"prior: expected the fields of a prior, got {error!r}") from error
        return prior

    @classmethod
    def _of_content(cls, content: Mapping[str, Any]) -> Self:
        sets = tuple(ParameterSet.of_content(each) for each in content["sets"])
        return cls(
            sets,
            tuple(content["noises"]),
            tuple(content["noise_weights"]),
            **{name: content[name] for name in ("level", "strength", "noise_strength", "standardised")},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the prior to a JSON file.

        Args:
            path: file.
        """
        write_aside(Path(path), lambda aside: aside.write_text(self.to_json(), encoding="utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of :meth:`save`.

        Args:
            path: file.

        Returns:
            The prior.

        Raises:
            ValueError: if the file is not that of a prior.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def of_kernel(self, kernel: str | None) -> Self:
        """The sets whose components all have this kernel, with their weights normalised.

        Args:
            kernel: a name; None stands for all sets.

        Returns:
            Another prior.

        Raises:
            ValueError: if there is none.
        """
        sets = [each for each in self.sets if kernel is None or {c.kernel for c in each.components} == {kernel}]
        if not sets:
            known = sorted({c.kernel for each in self.sets for c in each.components})
            raise ValueError(f"kernel: expected None or one of the prior's, {known}, got {kernel!r}")
        return self.of_sets(sets)

    def of_sets(self, sets: Sequence[ParameterSet]) -> Self:
        """The prior with some of its sets, their weights normalised."""
        total = sum(each.weight for each in sets)
        return self._replace(sets=tuple(each._replace(weight=each.weight / total) for each in sets))


def gram_of(
    component: PriorComponent, x: Tensor, other: Tensor | None = None, *, lengthscale: Tensor | float | None = None
) -> Tensor:
    """The correlations of a component at inputs, with gradients by the lengthscale.

    Args:
        component: kernel, period, and the lengthscale if none is given.
        x: ``(T, d)``.
        other: further inputs, ``(U, d)``; None stands for the same.
        lengthscale: in place of that of the component, a scalar.

    Returns:
        ``(T, U)``.
    """
    length = component.lengthscale if lengthscale is None else lengthscale
    if component.kernel == "periodic":  # a squared exponential on a circle
        angles = [None if each is None else each * (2.0 * math.pi / period_of(component)) for each in (x, other)]
        points = [None if a is None else torch.cat([a.cos(), a.sin()], dim=-1) / length for a in angles]
        return canonical("rbf").gram(*points)
    unit = length * x.shape[-1] ** 0.5
    return canonical(component.kernel).gram(x / unit, None if other is None else other / unit)


def period_of(component: PriorComponent) -> float:
    """The period of a periodic component."""
    if component.period is None:
        raise ValueError("period: expected a number for a periodic component, got None")
    return component.period


def check_prior(prior: LearnedPrior) -> None:
    """Refuse a prior whose values are out of range."""
    components = [component for each in prior.sets for component in each.components]
    numbers = {
        "lengthscale": [component.lengthscale for component in components],
        "share": [component.share for component in components],
        "period": [period_of(component) for component in components if component.kernel == "periodic"],
        "noises": prior.noises,
        "level, strength, noise_strength": (prior.level, prior.strength, prior.noise_strength),
        "weights": [each.weight for each in prior.sets] + list(prior.noise_weights),
    }
    for name, values in numbers.items():
        wrong = [value for value in values if not 0.0 < value < math.inf]
        if wrong:
            raise ValueError(f"prior: expected positive numbers as {name}, got {wrong}")
    unknown = sorted({component.kernel for component in components} - set(PRIOR_KERNELS))
    if unknown or not components or not all(each.components for each in prior.sets):
        raise ValueError(f"prior: expected sets of components with kernels among {PRIOR_KERNELS}, got {unknown}")
    if len(prior.noises) != len(prior.noise_weights):
        raise ValueError(f"prior: expected a weight of each of {len(prior.noises)} noises")
    for name, weights in (("sets", [each.weight for each in prior.sets]), ("noises", prior.noise_weights)):
        if abs(sum(weights) - 1.0) > _ROUNDING:
            raise ValueError(f"prior: expected weights of {name} that sum to 1, got {sum(weights):g}")
