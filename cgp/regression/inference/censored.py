"""Observations that are known to be at most a bound: what stands for them, by expectation propagation."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.regression.covariances.wide import WIDE
from cgp.regression.observations import Units
from cgp.regression.posterior import Posterior
from cgp.regression.solvers.compressed import CompressedCorrelatedGPRegression
from cgp.regression.solvers.exact import CorrelatedGPRegression
from cgp.regression.solvers.model import RegressionModel
from cgp.regression.solvers.series import SeriesCorrelatedGPRegression
from cgp.regression.solvers.uncertain_loadings import UncertainLoadingsRegression

from .fitting import fit_model
from .setting import Fits
from .windows import fit_windows

__all__ = [
    "LEARNED_ANEW",
    "Truncated",
    "censored_evidence",
    "censored_fits",
    "censored_model",
    "censored_posterior",
    "truncated_below",
]

Array = NDArray[np.float64]

LEARNED_ANEW = 2.0  # times a fit whose values at a bound are taken for values: 1.6 where one structure is averaged
_SOLVERS = CorrelatedGPRegression, CompressedCorrelatedGPRegression, SeriesCorrelatedGPRegression
_PASSES = 40
_DAMPING = 0.7
_SETTLED, _ROUGHLY = 1e-4, 1e-2  # of a deviation; while parameters are learned, to which it is of second order
_LARGEST = 1e4  # variances of a site in units of that of what it is about: beyond that it says nothing
_ROUNDING = 1e-9
_ROUNDS, _STEPS = 2, 200  # of learning, and windows in each


class Truncated(NamedTuple):
    """A Gaussian below a bound.

    Attributes:
        log_mass: the logarithm of its probability.
        mean: of what is left.
        variance: likewise.
    """

    log_mass: Tensor
    mean: Tensor
    variance: Tensor


def truncated_below(mean: Tensor, variance: Tensor, bound: Tensor) -> Truncated:
    r"""Moments of a Gaussian that is known to be at most b.

    .. math:: Z = \Phi(\beta), \quad \beta = \frac{b - \mu}{s}, \quad h = \frac{\phi(\beta)}{\Phi(\beta)}, \qquad
        \mu - s h, \quad s^2 (1 - \beta h - h^2)

    Args:
        mean: of any shape.
        variance: likewise.
        bound: likewise.

    Returns:
        Its logarithmic mass, mean and variance.

    Source:
        Johnson, Kotz & Balakrishnan (1994), Continuous univariate distributions, volume 1, section 13.10.1.

    Example:
        >>> truncated_below(torch.zeros(1), torch.ones(1), torch.zeros(1)).mean
        tensor([-0.7979])
    """
    sd = variance.sqrt()
    place = (bound - mean) / sd
    log_mass = torch.special.log_ndtr(place)
    slope = (-0.5 * place.square() - 0.5 * math.log(2.0 * math.pi) - log_mass).exp()
    return Truncated(log_mass, mean - sd * slope, variance * (1.0 - slope * (slope + place)).clamp(min=1e-12))


@torch.no_grad()
def censored_model(model: RegressionModel, bounds: Tensor, *, settled: float = _SETTLED) -> RegressionModel:
    r"""A model in which Gaussian pseudo-observations stand for observations that are known to be at most b.

    .. math:: 1\{y_i \le b_i\} \approx Z_i\, N(y_i; \tilde y_i, e_i), \qquad
        \tilde y_i = z_{p_i}(x_i) + m_{p_i} + \epsilon_i, \quad \epsilon_i \sim N(0, \sigma^2_{p_i} + e_i)

    A pseudo-observation is what gives the reading, beside all others (its mean and variance without it, by
    :meth:`.RegressionModel.leave_one_out`), the moments of a Gaussian that is truncated at b. All are changed at once,
    by part of what they lack, until means stand still.

    Args:
        model: not in batches; its parameters are kept.
        bounds: of each observation, infinite for one that is what it is, ``(n,)``.
        settled: deviations by which means may move still.

    Returns:
        Another model with the same parameters.

    Source:
        Minka (2001), Expectation propagation for approximate Bayesian inference; Groot & Lucas (2012), Gaussian
        process regression with censored data using expectation propagation.
    """
    other, which = copy.deepcopy(model).eval(), bounds.isfinite()
    bound, (mean, variance) = bounds[which], (part[which] for part in other.leave_one_out())
    targets, further = other.train_targets.clone(), torch.zeros_like(other.train_targets)
    cavity = variance if other.further_noise is None else variance - other.further_noise[which]
    precision, shift, before = None, None, mean
    for _ in range(_PASSES):
        law = truncated_below(mean, cavity, bound)
        wanted = (law.variance.reciprocal() - cavity.reciprocal()).clamp(min=(_LARGEST * cavity).reciprocal())
        towards = law.mean * (wanted + cavity.reciprocal()) - mean / cavity
        precision = wanted if precision is None else torch.lerp(precision, wanted, _DAMPING)
        shift = towards if shift is None else torch.lerp(shift, towards, _DAMPING)
        targets[which], further[which] = shift / precision, precision.reciprocal()
        other.set_train_data(other.train_inputs[0], targets.clone(), strict=False)
        other.further_noise = further.clone()
        moved = ((law.mean - before).abs() / cavity.sqrt()).max()
        mean, variance = (part[which] for part in other.leave_one_out())
        cavity, before = variance - further[which], law.mean
        if moved < settled:
            break
    return other


def censored_evidence(model: RegressionModel, bounds: Tensor) -> Tensor:
    r"""The log marginal likelihood of a :func:`censored_model`, in nats, a scalar.

    .. math:: \log N(\tilde y; m, K + \Sigma + E) + \sum_i \log Z_i + \tfrac12 \log(2\pi v_i)
        + \frac{(\tilde y_i - \mu_i)^2}{2 v_i}, \qquad Z_i = \Phi\Big(\frac{b_i - \mu_i}{\sqrt{v_i - e_i}}\Big)

    Args:
        model: the result of :func:`censored_model`.
        bounds: those that it was given.

    Returns:
        The evidence, by the mean and the variance v of each pseudo-observation given all others.

    Source:
        Rasmussen & Williams (2006), equation (3.65).
    """
    which = bounds.isfinite()
    mean, variance = (part[which] for part in model.leave_one_out())
    assert model.further_noise is not None
    mass = truncated_below(mean, variance - model.further_noise[which], bounds[which]).log_mass
    away = (model.train_targets[which] - mean).square() / variance
    return model.log_evidence() + (mass + 0.5 * (2.0 * torch.pi * variance).log() + 0.5 * away).sum()


def censored_fits(fits: Fits, units: Units, lower: Array, *, windows: bool, seed: int = 0) -> Fits:
    """Fits whose parameters are learned anew from pseudo-observations (:func:`censored_model`), twice.

    What pseudo-observations are changes the evidence in second order only, so that they are fixed while parameters are
    learned. Structures that were compared, and are not averaged, keep their fits.

    Args:
        fits: to observations, those at the lower end of their output taken for values.
        units: the user's.
        lower: end of each output in them, NaN for one that has none, ``(P,)``.
        windows: whether parameters are learned from windows.
        seed: of all random numbers.

    Returns:
        Other fits; the same where nothing is censored, or a model has samples of its parameters, or many outputs.

    Source:
        Seeger (2005), Expectation propagation for exponential families, on the gradient of the evidence.
    """
    learned = {
        id(model): _learned(model, bounds, windows, seed) if bounds.isfinite().any() else model
        for model, bounds in ((model, _bounds(model, units, lower)) for model in fits.models)
    }
    compared = {name: (learned.get(id(model), model), kind) for name, (model, kind) in fits.compared.items()}
    return fits._replace(models=[learned[id(model)] for model in fits.models], compared=compared)


def censored_posterior(posterior: Posterior, lower: NDArray[np.float64]) -> Posterior:
    """A posterior with pseudo-observations for further observations that are censored, and for those of before anew.

    Args:
        posterior: of models with further observations; parameters are kept.
        lower: as in :func:`censored_fits`.

    Returns:
        Another one, or the same where no further one is censored.
    """
    bounds = [_bounds(model, posterior.units, lower) for model in posterior.models]
    pairs = list(zip(posterior.models, bounds, strict=True))
    if not any((each.isfinite() & (_further(model) == 0.0)).any() for model, each in pairs):
        return posterior
    return Posterior([censored_model(*pair) for pair in pairs], posterior.units, posterior.observed)


def _bounds(model: RegressionModel, units: Units, lower: Array) -> Tensor:
    """The bounds of observations that are at the lower end of their output, infinite for all others, ``(n,)``."""
    rows, targets = model.train_inputs[0], model.train_targets
    is_one = isinstance(model, _SOLVERS) and not model.batch() and model.totals is None
    if not is_one or model.num_processes > WIDE or np.isnan(lower).all():
        return torch.full_like(targets, torch.inf)
    ends = torch.full((len(lower),), -torch.inf, dtype=torch.float64)
    ends[torch.as_tensor(units.numbers)] = torch.as_tensor(units.outputs.apply(lower[None])[0]).nan_to_num(-torch.inf)
    bounds = ends.to(targets)[rows[:, -1].long()]
    return torch.where((targets <= bounds + _ROUNDING) | (_further(model) > 0.0), bounds, torch.inf)


def _further(model: RegressionModel) -> Tensor:
    return torch.zeros_like(model.train_targets) if model.further_noise is None else model.further_noise


def _learned(model: RegressionModel, bounds: Tensor, windows: bool, seed: int) -> RegressionModel:
    for _ in range(_ROUNDS):
        model = censored_model(model, bounds, settled=_ROUGHLY)
        if windows:
            fit_windows(model, num_steps=_STEPS, seed=seed)
        else:
            fit_model(model, race=False, seed=seed)
        if isinstance(model, UncertainLoadingsRegression):
            model.learn_uncertainty()
    return censored_model(model, bounds)
