"""Inducing inputs at the centres of clusters of points."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cluster_centres"]

_CLUSTERED = 8192  # points; of more, a random subset is clustered


def cluster_centres(points: Tensor, number: int, *, seed: int = 0) -> Tensor:
    """Centres of clusters, or the distinct points if there are as many as are asked for.

    Args:
        points: ``(n, s)``; of more than 8,192 distinct ones, random ones are clustered.
        number: number of centres m, at most that of the distinct points.
        seed: seed of the clustering.

    Returns:
        ``(m, s)``.

    Raises:
        ValueError: if there are fewer distinct points.

    Example:
        >>> cluster_centres(torch.tensor([[0.0], [2.0], [9.0]]), 2).sort(0).values.flatten()
        tensor([1., 9.])
    """
    distinct = points.unique(dim=0)
    if number > len(distinct):
        raise ValueError(f"num_inducing: expected at most {len(distinct)}, the number of distinct rows, got {number}")
    if number == len(distinct):
        return distinct
    if len(distinct) > _CLUSTERED:
        order = torch.randperm(len(distinct), generator=torch.Generator().manual_seed(seed), device="cpu")
        distinct = distinct[order[:_CLUSTERED].to(distinct.device)]
    from sklearn.cluster import KMeans  # slow to import

    clusters = KMeans(number, n_init=1, max_iter=20, random_state=seed).fit(distinct.cpu().numpy())
    return torch.as_tensor(clusters.cluster_centers_).to(points)
