"""Disjoint parts of a set, and random generators, both determined by names."""

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from experiments.configuration import DataConfig

__all__ = ["generator_for", "limited", "partition", "some", "stratified_partition"]


def generator_for(*names: str | int) -> torch.Generator:
    """Return a CPU generator that depends only on the names, not on earlier draws."""
    return torch.Generator().manual_seed(zlib.crc32(repr(names).encode()))


def partition(count: int, shares: Sequence[float], *names: str | int) -> tuple[Tensor, ...]:
    """Divide a set at random into sorted positions: a first part with the remaining examples, and one per share."""
    order = torch.randperm(count, generator=generator_for("partition", *names))
    sizes = [round(count * share) for share in shares]
    return tuple(part.sort().values for part in order.split([count - sum(sizes), *sizes]))


def stratified_partition(labels: Tensor, shares: Sequence[float], *names: str | int) -> tuple[Tensor, ...]:
    """Divide a set at random as `partition` does; each part has its share of every class, to within one example."""
    generator = generator_for("stratified partition", *names)
    sizes = [round(len(labels) * share) for share in shares]
    classes, counts = labels.unique(return_counts=True)
    parts: list[list[Tensor]] = [[] for _ in range(len(sizes) + 1)]
    for label, cuts in zip(classes, _rounded(counts, [*sizes, len(labels) - sum(sizes)]), strict=True):
        members = (labels == label).nonzero()[:, 0]
        torch.rand((), generator=generator, dtype=torch.float64)  # keeps the splits of earlier versions
        order = torch.randperm(len(members), generator=generator).argsort()
        for part, chosen in zip(parts, members[order].split(cuts), strict=True):
            part.append(chosen)
    *held_out, rest = (torch.cat(part).sort().values for part in parts)
    return rest, *held_out


def _rounded(counts: Tensor, sizes: Sequence[int]) -> list[list[int]]:
    """Round each class's share of each part to a neighbouring integer, so that rows and columns keep their sums.

    The vertices of this transport polytope are integers, so a linear programme finds such a rounding.
    """
    rows, columns = counts.numpy(), np.array(sizes)
    exact = np.outer(rows, columns) / rows.sum()
    low, high = np.floor(exact + 1e-9), np.ceil(exact - 1e-9)
    sums = np.vstack([np.kron(np.eye(len(rows)), np.ones(len(sizes))), np.kron(np.ones(len(rows)), np.eye(len(sizes)))])
    bounds = np.stack([low, np.maximum(low, high)], -1).reshape(-1, 2)
    solution = linprog((low - exact).ravel(), A_eq=sums, b_eq=[*rows, *columns], bounds=bounds, method="highs-ds")
    assert solution.status == 0  # the exact shares are feasible
    return [[int(value) for value in row] for row in solution.x.round().reshape(exact.shape)]


def some(count: int, limit: int | None, *names: str | int) -> Tensor:
    """Take sorted positions at random; a smaller limit takes a subset of a larger one's, None takes all."""
    if limit is None or limit >= count:
        return torch.arange(count)
    order = torch.randperm(count, generator=generator_for("some", *names))
    return order[:limit].sort().values


def limited(sizes: Mapping[str, int], data: DataConfig, noun: str) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Positions of the parts within the limits of a configuration, and the omissions, to be reported."""
    taken, left_out = {}, []
    for name, size in sizes.items():
        limit = getattr(data, f"limit_{name}", data.limit_test)  # further sets have the limit of the test part
        taken[name] = some(size, limit, data.name, name)
        if len(taken[name]) < size:
            left_out.append(f"{len(taken[name]):,} of {size:,} {name} {noun}")
    return taken, tuple(left_out)
