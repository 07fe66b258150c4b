"""Covariances of outputs and variances of noise from observations, for given kernels, in closed-form steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cgp.functional.linalg import cholesky, solve_lower

__all__ = ["Components", "Places", "Variances", "VariancesPrior", "adapted", "delay_step", "total_covariance"]


_RELAXATION = 1.8  # of a step; below 2 it converges as without, 1, in half as many steps or fewer


class Places(NamedTuple):
    """Where observations are in a table.

    Attributes:
        rows: index of the input of each, ``(n,)``.
        outputs: index of the output of each, ``(n,)``.
    """

    rows: Tensor
    outputs: Tensor


class Variances(NamedTuple):
    """Parameters in which a covariance of observations is linear.

    Attributes:
        outputs: covariance of the outputs in each component, ``(*batch, C, P, P)``.
        noise: variance of each output's noise, ``(*batch, P)``.
    """

    outputs: Tensor
    noise: Tensor


class VariancesPrior(NamedTuple):
    """Modes of the priors of :class:`Variances`, and the numbers of observations that they count for.

    Attributes:
        outputs: ``(*batch, C, P, P)``.
        correlated: 1 where a covariance of outputs is not fixed at 0, ``(*batch, C, P, P)``.
        noise: ``(*batch, P)``.
        level: variance of the mean of each output, which is not a mode, and has no prior itself.
        strength: of the covariances of outputs.
        noise_strength: of the noise.
    """

    outputs: Tensor
    correlated: Tensor
    noise: Tensor
    level: float
    strength: float
    noise_strength: float


Components = Tensor  # canonical covariances of the components at the inputs, (*batch, C, T, T)


def total_covariance(grams: Components, places: Places, variances: Variances, level: Tensor | float) -> Tensor:
    """The covariance of observations, noise and the unknown means included, ``(*batch, n, n)``."""
    total = level * (places.outputs[:, None] == places.outputs).to(grams)
    for c in range(grams.shape[-3]):
        between = _picked(variances.outputs[..., c, :, :], places.outputs)
        total = total + _picked(grams[..., c, :, :], places.rows) * between
    return total + torch.diag_embed(variances.noise[..., places.outputs])


@torch.no_grad()
def adapted(
    grams: Components, places: Places, values: Tensor, start: Variances, prior: VariancesPrior, *, num_steps: int
) -> Variances:
    r"""Raise the posterior density of the variances by steps of a minorisation, none of which lowers it.

    .. math:: B_c \leftarrow L^{-\top}\big(L^\top Q_c L\big)^{1/2}L^{-1}, \qquad
        LL^\top = Z^\top(S^{-1} \circ K_c)Z + aB_c^{-1}, \qquad
        Q_c = B_c Z^\top(\alpha\alpha^\top \circ K_c)Z B_c + a B_{0c}

    S is the covariance of the observations y, :math:`\alpha = S^{-1}y`, and Z their outputs as indicators. B solves
    :math:`B M B = Q`, the geometric mean of the inverse of M and Q; noise variances are the case of one output.

    Args:
        grams: canonical covariances of the components at the inputs.
        places: where the observations are.
        values: ``(n,)``, of mean 0.
        start: variances before the first step.
        prior: their prior.
        num_steps: number of steps.

    Returns:
        The variances after the last step.

    Source:
        Zhou, Hu, Zhou & Lange (2019), MM algorithms for variance components models.
    """
    variances, size = start, start.noise.shape[-1]
    Z = torch.nn.functional.one_hot(places.outputs, size).to(grams)
    picked = _picked(grams, places.rows)
    for _ in range(num_steps):
        L = cholesky(
            total_covariance(grams, places, variances, prior.level), name="covariance of the observations", jitter=0.0
        )
        inverse = torch.cholesky_inverse(L)
        alpha = inverse @ values
        M = Z.mT @ (inverse.unsqueeze(-3) * picked) @ Z
        weighted = alpha.unsqueeze(-1) * Z
        G = weighted.unsqueeze(-3).mT @ picked @ weighted.unsqueeze(-3)
        B = variances.outputs
        M = prior.correlated * M + prior.strength * torch.cholesky_inverse(
            cholesky(B, name="covariance of the outputs")
        )
        Q = prior.correlated * (B @ G @ B) + prior.strength * prior.outputs
        old = variances.noise
        m = inverse.diagonal(dim1=-2, dim2=-1) @ Z + prior.noise_strength / old
        q = old.square() * (alpha.square() @ Z) + prior.noise_strength * prior.noise
        variances = Variances(_geometric_mean(M, Q, B), old * (q / m / old.square()).pow(0.5 * _RELAXATION))
    return variances


@torch.no_grad()
def delay_step(
    grams: Components, slopes: Components, places: Places, values: Tensor, variances: Variances, level: float
) -> tuple[Tensor, Tensor]:
    r"""Gradient and average information of the log-density by delays of the outputs.

    .. math:: g_p = \tfrac12\big(\alpha^\top S_p \alpha - \operatorname{tr} S^{-1}S_p\big), \qquad
        A_{pr} = \tfrac12\,\alpha^\top S_p S^{-1} S_r\alpha, \qquad S_p = \frac{\partial S}{\partial\tau_p}

    Args:
        grams: canonical covariances of the components at the delayed inputs of all observations, ``(C, n, n)``.
        slopes: their derivatives by the first argument, ``(C, n, n)``.
        places: where the observations are, ``rows`` one after the other.
        values: ``(n,)``, of mean 0.
        variances: not in a batch.
        level: variance of the mean of each output.

    Returns:
        g, ``(P,)``, and A, ``(P, P)``.

    Source:
        Gilmour, Thompson & Cullis (1995), Average information REML.
    """
    Z = torch.nn.functional.one_hot(places.outputs, variances.noise.shape[-1]).to(grams)
    S = total_covariance(grams, places, variances, level)
    inverse = torch.cholesky_inverse(cholesky(S, name="covariance of the observations", jitter=0.0))
    alpha = inverse @ values
    D = (_picked(variances.outputs, places.outputs) * slopes).sum(-3)
    moved = D @ alpha
    gradient = Z.mT @ (alpha * moved - (inverse * D).sum(-1))
    U = moved.unsqueeze(-1) * Z - D @ (alpha.unsqueeze(-1) * Z)
    return gradient, 0.5 * U.mT @ inverse @ U


def _geometric_mean(M: Tensor, Q: Tensor, B: Tensor) -> Tensor:
    """The positive definite matrix X with X M X = Q, or rather a point beyond it on the geodesic from B."""
    L = cholesky(M, name="information of the outputs")
    values, vectors = torch.linalg.eigh(L.mT @ Q @ L)
    root = vectors * values.clamp(min=0.0).sqrt().sqrt().unsqueeze(-2)
    half = torch.linalg.solve_triangular(L.mT, root, upper=True)
    L = cholesky(B, name="covariance of the outputs")
    white = solve_lower(L, half)
    values, vectors = torch.linalg.eigh(white @ white.mT)
    ahead = L @ (vectors * values.clamp(min=1e-12).pow(0.5 * _RELAXATION).unsqueeze(-2))
    return ahead @ ahead.mT


def _picked(matrix: Tensor, index: Tensor) -> Tensor:
    """Rows and columns of matrices ``(*batch, T, T)`` at an index ``(n,)``, ``(*batch, n, n)``."""
    return matrix.index_select(-2, index).index_select(-1, index)
