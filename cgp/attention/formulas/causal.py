r"""Causal forms of the direct posterior: row t is conditioned only on the keys up to t.

Rows are conditioned on different keys, so there are means and marginal variances but no joint covariance over rows.
The factor of a leading block is the leading block of the factor, so one Cholesky factorisation serves every prefix.

Shapes: Grams ``K_qk`` ``(*batch, n, n)`` and ``K_k`` ``(*batch, n, n)``; features A, ``features_q`` ``(*batch, m, n)``
and ``features_k`` ``(*batch, m, n)``; ``values`` V ``(*batch, n, s)``; ``prior_variance`` (the diagonal of K_q)
``(*batch, n)``; ``padding`` ``(*batch, n)``; ``noise`` a number or broadcastable to ``(*batch, n)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cgp.functional.gaussians import MarginalGaussian
from cgp.functional.linalg import cholesky, in_double, may_read, solve_lower
from cgp.functional.padding import add_noise, mask_gram, mask_tokens, mask_variances

__all__ = [
    "causal_product",
    "explained_by_prefixes",
    "in_enough_digits",
    "prefix_posterior",
    "remaining_of_prefixes",
    "sparse_prefix_posterior",
    "up_to",
]

CHUNK = 32
_MOST_ROUNDING = 0.005  # of a variance: of 1,200 measured, those below it were within 0.0018


def up_to(rows: int, columns: int, offset: int = 0, device: torch.device | None = None) -> Tensor:
    """True where column j is at most row t + offset, ``(rows, columns)``."""
    return torch.ones(rows, columns, dtype=torch.bool, device=device).tril(offset)


def explained_by_prefixes(K_qk: Tensor, L_k: Tensor, offset: int = 0) -> Tensor:
    r"""Prior variance of query t explained by the keys up to t + offset, for every t by one Cholesky factor.

    .. math:: \sum_{j \le t} \big([L_k^{-1}K_{kq}]_{jt}\big)^2, \qquad L_k = \operatorname{chol}(K_k + \sigma^2I)

    Args:
        K_qk: covariance of queries and keys, ``(*batch, Nq, Nk)``, zero in the columns of padded keys.
        L_k: Cholesky factor of the noisy keys, ``(*batch, Nk, Nk)``.
        offset: index of the last key that query t sees, minus t.

    Returns:
        ``(*batch, Nq)``.
    """
    whitened = solve_lower(L_k, K_qk.mT)  # (*batch, key, query)
    return (whitened.square() * up_to(K_qk.shape[-2], K_qk.shape[-1], offset, K_qk.device).mT).sum(-2)


def prefix_posterior(
    K_qk: Tensor,
    K_k: Tensor,
    values: Tensor,
    prior_variance: Tensor,
    *,
    noise: Tensor | float,
    padding: Tensor | None = None,
    observed: bool = False,
) -> MarginalGaussian:
    r"""Marginals of exact causal correlated attention, with values as weights, or ``observed`` at the keys.

    .. math:: \mu_t = K_{t,\le t}V_{\le t} \;\text{ or }\; K_{t,\le t}(K_{\le t} + \sigma^2I)^{-1}V_{\le t}, \qquad
        v_t = [K_q]_{tt} - K_{t,\le t}(K_{\le t} + \sigma^2I)^{-1}K_{\le t,t}

    Returns:
        Mean ``(*batch, n, s)`` and variances ``(*batch, n)``.
    """
    K_qk, K_k = mask_gram(K_qk, padding, padding), mask_gram(K_k, padding, padding)
    values, visible = mask_tokens(values, padding), up_to(K_qk.shape[-2], K_qk.shape[-1], device=K_qk.device)
    L_k = cholesky(add_noise(K_k, noise, padding), name="K_k + noise", jitter=0.0)
    whitened = solve_lower(L_k, K_qk.mT) * visible.mT  # (*batch, key, query): of each query what its prefix whitens
    mean = whitened.mT @ solve_lower(L_k, values) if observed else (K_qk * visible) @ values
    variance = (prior_variance - whitened.square().sum(-2)).clamp(min=0.0)
    return MarginalGaussian(mean, mask_variances(variance, padding))


def causal_product(features_q: Tensor, features_k: Tensor, values: Tensor) -> Tensor:
    r"""Causal attention of rank m without an n × n matrix, :math:`\mu_t = A_{q,t}^\top \sum_{j\le t} A_{k,j}V_j^\top`.

    A running sum is carried from chunk to chunk; within a chunk, later pairs are masked.

    Returns:
        ``(*batch, n, s)``.
    """
    n = values.shape[-2]
    q, k = _chunks(features_q.mT), _chunks(features_k.mT)  # (*batch, c, CHUNK, m)
    v = _chunks(values)
    before = _running_sum(k.mT @ v)  # (*batch, c, m, s)
    within = (q @ k.mT) * up_to(CHUNK, CHUNK, device=q.device)
    return (q @ before + within @ v).flatten(-3, -2)[..., :n, :]


def sparse_prefix_posterior(
    features_q: Tensor,
    features_k: Tensor,
    values: Tensor,
    prior_variance: Tensor,
    *,
    noise: Tensor | float,
    padding: Tensor | None = None,
    approximation: str = "dtc",
    observed: bool = False,
) -> MarginalGaussian:
    r"""Marginals of sparse causal correlated attention, with values as weights, or ``observed`` at the keys.

    The capacitance is a running sum, :math:`\Lambda_t = I + \sum_{j\le t} b_jb_j^\top` with :math:`b = A_k/\sigma`:

    .. math:: \mu_t = a_t^\top\sum_{j\le t}A_{k,j}V_j^\top \;\text{ or }\;
        \sigma^{-1}a_t^\top\Lambda_t^{-1}\sum_{j\le t}b_jV_j^\top, \qquad v_t = \delta_t + a_t^\top \Lambda_t^{-1}a_t

    with :math:`\delta_t` the unexplained prior variance ("dtc") or the noise ("sor"). Within a chunk the prefixes
    share one Cholesky factorisation.

    Returns:
        Mean ``(*batch, n, s)`` and variances ``(*batch, n)``.
    """
    features_q, features_k = mask_gram(features_q, None, padding), mask_gram(features_k, None, padding)
    values = mask_tokens(values, padding)
    deviation = (noise[..., None] if isinstance(noise, Tensor) else noise) ** 0.5
    a, b = features_q.mT, features_k.mT / deviation
    if observed:
        mean, remaining = regression_of_prefixes(a, b, values / deviation)
    else:
        mean, remaining = causal_product(features_q, features_k, values), remaining_of_prefixes(a, b)
    unexplained = (prior_variance - features_q.square().sum(-2)).clamp(min=0.0) if approximation == "dtc" else noise
    variance = unexplained + remaining
    return MarginalGaussian(mean, mask_variances(variance, padding))


def remaining_of_prefixes(a: Tensor, b: Tensor, offset: int = 0) -> Tensor:
    r"""Variance of queries through inducing variables given the keys up to t + offset, in O(n m (m + CHUNK)).

    .. math:: a_t^\top\big(I + \textstyle\sum_{j \le t + \text{offset}} b_jb_j^\top\big)^{-1}a_t

    Queries are processed in chunks: whitened by the sum up to the start of their chunk, then conditioned on the keys
    within it.

    Args:
        a: whitened features of the queries, ``(*batch, Nq, m)``.
        b: whitened features of the keys, divided by their noise's standard deviation, ``(*batch, Nk, m)``, zero where
            padded.
        offset: index of the last key that query t sees, minus t.

    Returns:
        ``(*batch, Nq)``.
    """
    dtype, n, seen = a.dtype, a.shape[-2], max(min(offset, b.shape[-2]), 0)
    a, b = in_enough_digits(a, b)
    before, b = b[..., :seen, :], b[..., seen : max(n + offset, 0), :]
    b = torch.nn.functional.pad(b, (0, 0, max(-offset, 0), 0))  # the key at t + offset beside query t
    b = torch.nn.functional.pad(b, (0, 0, 0, n - b.shape[-2]))
    return _Prefixes(a, b, before).remaining.to(dtype)


def regression_of_prefixes(a: Tensor, b: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    r"""Mean and variance through inducing variables of query t given the observations up to t.

    .. math:: a_t^\top\Lambda_t^{-1}\textstyle\sum_{j \le t} b_jy_j^\top, \qquad a_t^\top\Lambda_t^{-1}a_t, \qquad
        \Lambda_t = I + \textstyle\sum_{j \le t} b_jb_j^\top

    Args:
        a: whitened features of the queries, ``(*batch, n, m)``.
        b: whitened features of the keys, divided by their noise's standard deviation, ``(*batch, n, m)``, zero where
            padded.
        targets: observations y, likewise divided, ``(*batch, n, s)``.

    Returns:
        ``(*batch, n, s)`` and ``(*batch, n)``.
    """
    dtype = targets.dtype
    a, b = in_enough_digits(a, b)
    prefixes = _Prefixes(a, b, b[..., :0, :])
    return prefixes.mean(targets.to(a.dtype)).to(dtype), prefixes.remaining.to(dtype)


class _Prefixes:
    """Inducing variables given growing prefixes: up to the start of the chunk of a query, then within it."""

    def __init__(self, a: Tensor, b: Tensor, before: Tensor) -> None:
        self.n, self.size = a.shape[-2], _length(a.shape[-1])
        a, self.b = _chunks(a, self.size), _chunks(b, self.size)  # (*batch, c, size, m)
        sums = _running_sum(self.b.mT @ self.b) + (before.mT @ before)[..., None, :, :]
        self.start = cholesky(add_noise(sums, 1.0), name="running I + bb'", jitter=0.0)
        self.white_a, self.white_b = solve_lower(self.start, torch.cat([a, self.b], -2).mT).mT.split(self.size, -2)
        within = add_noise(self.white_b @ self.white_b.mT, 1.0)
        self.factor = cholesky(within, name="I + bb' of a chunk", jitter=0.0)
        cross = solve_lower(self.factor, self.white_b @ self.white_a.mT)  # (*batch, c, key, query)
        self.cross = cross * up_to(self.size, self.size, device=a.device).mT

    @property
    def remaining(self) -> Tensor:
        """Variance of each query, ``(*batch, n)``."""
        variance = self.white_a.square().sum(-1) - self.cross.square().sum(-2)
        return variance.flatten(-2)[..., : self.n].clamp(min=0.0)

    def mean(self, targets: Tensor) -> Tensor:
        """Mean of each query, ``(*batch, n, s)``."""
        y = _chunks(targets, self.size)
        location = solve_lower(self.start, _running_sum(self.b.mT @ y))  # given what lies before the chunk
        surprise = solve_lower(self.factor, y - self.white_b @ location)
        mean = self.white_a @ location + self.cross.mT @ surprise
        return mean.flatten(-3, -2)[..., : self.n, :]


def in_enough_digits(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    r"""Features in float64 where variances through them are lost in float32.

    With :math:`\Lambda = I + \sum_j b_jb_j^\top`, whose eigenvalues are at least one, rounding changes
    :math:`a^\top\Lambda^{-1}a` by at most about :math:`\epsilon\operatorname{tr}\Lambda` of itself, as measured a
    fifth of that; the difference within a chunk loses a few :math:`\epsilon` times the trace of the chunk's part.

    Args:
        a: of queries, ``(*batch, Nq, m)``.
        b: of keys, divided by their noise's deviation, ``(*batch, Nk, m)``.

    Returns:
        ``(*batch, Nq, m)`` and ``(*batch, Nk, m)``, in the same precision.
    """
    traces = _chunks(b.detach(), _length(b.shape[-1])).square().sum((-2, -1))  # (*batch, c)
    rounding = torch.finfo(b.dtype).eps * (5.0 * traces.amax(-1) + 0.2 * traces.sum(-1))
    if may_read(rounding) and bool((rounding <= _MOST_ROUNDING).all()):
        return a, b
    return in_double(a), in_double(b)


def _length(num_features: int) -> int:
    """Positions of a chunk: about as many as features, so that its two factorisations cost alike."""
    return CHUNK // 2 if num_features <= CHUNK // 2 else CHUNK


def _chunks(x: Tensor, size: int = CHUNK) -> Tensor:
    """(*batch, n, d) → (*batch, c, size, d), padded with zeros at the end."""
    missing = -x.shape[-2] % size
    return torch.nn.functional.pad(x, (0, 0, 0, missing)).unflatten(-2, (-1, size))


def _running_sum(x: Tensor) -> Tensor:
    """Sum of all previous chunks, for each chunk, ``(*batch, c, ...)`` over dimension −3."""
    return x.cumsum(-3) - x
