r"""The covariance around softmax attention that leaves the scale b out: tokens enter the features as they are.

.. math:: \tau^2\,[R_q - R_{qk}(R_k + \sigma^2I)^{-1}R_{kq}]
"""

from __future__ import annotations

from torch import Tensor

from .covariances import canonical
from .differentiation import may_own_backward
from .padding import mask_gram
from .shared_features import shared_features
from .sparse_hop import unit_variances
from .sparse_terms import features_of

__all__ = ["bounded_marginals"]


def bounded_marginals(
    sets: tuple[Tensor, Tensor],
    whitened_inducing: tuple[Tensor, Tensor],
    *,
    scale: Tensor,
    shift: Tensor,
    noise: Tensor | float,
    query_padding: Tensor | None = None,
    key_padding: Tensor | None = None,
) -> Tensor:
    """Diagonal of the bracket by one DTC hop, of points that are a scale and a shift away from the tokens.

    Args:
        sets: queries and keys, each ``(*batch, h, N, s)``.
        whitened_inducing: inducing inputs ``(h, m, s)`` and the inverse factor of their covariance ``(h, m, m)``.
        scale: of the tokens, ``(h, 1, 1)``.
        shift: of queries and of keys, ``(2, h, 1, s)``.
        noise: the variance of the keys relative to their scale.
        query_padding: ``(*batch, h, Nq)`` or broadcastable, or None.
        key_padding: ``(*batch, h, Nk)`` or broadcastable, or None.

    Returns:
        ``(*batch, h, Nq)``.

    Example:
        >>> import torch
        >>> x, one = torch.zeros(1, 1, 2), torch.ones(1, 1, 1)
        >>> bounded_marginals((x, x), (x, one), scale=one, shift=torch.zeros(2, 1, 1, 2), noise=1.0)
        tensor([[0.5000]])
    """
    inducing, whitening = whitened_inducing
    if may_own_backward():
        A_q, A_k = shared_features(inducing, whitening, *sets, scale=scale, shift=shift)
    else:
        moved = (scale * x + own for x, own in zip(sets, shift, strict=True))
        A_q, A_k = features_of(canonical("rbf"), inducing, whitening, *moved)
    A_q, A_k = mask_gram(A_q, None, query_padding), mask_gram(A_k, None, key_padding)
    return unit_variances(A_q, A_k, noise, query_padding)
