"""Entropies of predicted probabilities, and their parts."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["decomposed", "entropy", "uncertainties"]


def uncertainties(draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Total, aleatoric and epistemic uncertainty of probabilities under several draws.

    .. math:: H\big[\tfrac1S\textstyle\sum_s p_s\big], \qquad \tfrac1S\sum_s H[p_s], \qquad \text{their difference}

    Args:
        draws: ``(S, ..., C)``.

    Returns:
        Each ``(...)``, in nats.

    Example:
        >>> total, aleatoric, epistemic = uncertainties(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> round(total.item(), 4), aleatoric.item(), round(epistemic.item(), 4)
        (0.6931, 0.0, 0.6931)
    """
    return decomposed(draws.mean(0), entropy(draws).mean(0))


def entropy(p: Tensor, *, binary: bool = False) -> Tensor:
    """Entropy in nats of class probabilities ``(..., C)``, or of each of C labels that are probable or not."""
    parts = torch.special.entr(p)
    return parts + torch.special.entr(1.0 - p) if binary else parts.sum(-1)


def decomposed(mean: Tensor, aleatoric: Tensor, *, binary: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Total, aleatoric and epistemic uncertainty from the draws' mean probabilities and their mean entropy."""
    total = entropy(mean, binary=binary)
    return total, aleatoric, (total - aleatoric).clamp(min=0.0)  # below zero by rounding alone: entropy is concave
