"""Disjoint parts of a set, the same for the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from experiments.configuration import DataConfig
from experiments.data.examples import Examples
from experiments.data.seeding import generator_for

__all__ = ["limited", "partition", "some", "stratified_partition"]


def partition(count: int, shares: Sequence[float], *names: str | int) -> tuple[Tensor, ...]:
    """Divide a set at random.

    Args:
        count: its size.
        shares: of the parts but the first, which takes what is left.
        names: what it is for, and its seed.

    Returns:
        Sorted positions, int64, a tensor a part.

    Example:
        >>> [len(part) for part in partition(10, [0.1, 0.2], "example", 0)]
        [7, 1, 2]
    """
    order = torch.randperm(count, generator=generator_for("partition", *names))
    sizes = [round(count * share) for share in shares]
    return tuple(part.sort().values for part in order.split([count - sum(sizes), *sizes]))


def stratified_partition(labels: Tensor, shares: Sequence[float], *names: str | int) -> tuple[Tensor, ...]:
    """Divide a set at random, so that each part has its share of every class, to within one example.

    Args:
        labels: `(N,)` int64.
        shares: of the parts but the first, which takes what is left.
        names: what it is for, and its seed.

    Returns:
        Sorted positions, int64, a tensor a part.

    Example:
        >>> parts = stratified_partition(torch.tensor([0, 1] * 10), [0.1, 0.2], "example", 0)
        >>> [(part % 2).bincount().tolist() for part in parts]
        [[7, 7], [1, 1], [2, 2]]
    """
    generator = generator_for("stratified partition", *names)
    # Each class is laid out evenly over [0, 1); any stretch of it then holds its share of every class.
    place = torch.empty(len(labels), dtype=torch.float64)
    for label in labels.unique():
        members = (labels == label).nonzero()[:, 0]
        first = torch.rand((), generator=generator, dtype=torch.float64)
        place[members] = (torch.randperm(len(members), generator=generator) + first) / len(members)
    sizes = [round(len(labels) * share) for share in shares]
    *held_out, rest = place.argsort().split([*sizes, len(labels) - sum(sizes)])
    return tuple(part.sort().values for part in (rest, *held_out))


def some(count: int, limit: int | None, *names: str | int) -> Tensor:
    """Take some positions at random; a smaller limit takes some of what a larger one does.

    Args:
        count: how many positions there are.
        limit: how many to take at most; None for all.
        names: what it is for, and its seed.

    Returns:
        Sorted positions, `(min(count, limit),)`.

    Example:
        >>> some(100, 3, "example").shape, some(2, 3, "example")
        (torch.Size([3]), tensor([0, 1]))
    """
    if limit is None or limit >= count:
        return torch.arange(count)
    order = torch.randperm(count, generator=generator_for("some", *names))
    return order[:limit].sort().values


def limited(parts: Mapping[str, Examples], data: DataConfig) -> tuple[dict[str, Examples], tuple[str, ...]]:
    """Cut parts down to the limits of a configuration.

    Args:
        parts: by the names train, validation, test; others are left as they are.
        data: the configuration.

    Returns:
        The parts, and in words what was left out.
    """
    small, left_out = {}, []
    for name, part in parts.items():
        limit = getattr(data, f"limit_{name}", None)
        small[name] = part.chosen(some(len(part), limit, data.name, name))
        if len(small[name]) < len(part):
            left_out.append(f"{len(small[name]):,} of {len(part):,} {name} examples")
    return small, tuple(left_out)
