"""Batches in an order that depends only on seed and epoch, complete or as the share of one process."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from experiments.data.examples import Examples, Inputs, batch, text_lengths

__all__ = ["Batch", "BatchOrder", "Share", "batch_loader"]

_BUCKET = 50  # batches whose texts are sorted by length together, so that a batch holds texts of similar length


class Batch(NamedTuple):
    """The data of a training step."""

    inputs: Inputs
    labels: Tensor  # (B,)
    weight: float  # weight of the loss: the mean over the processes is the loss of the joined batch
    positions: Tensor  # (B,), positions of the examples in their set


class Share(NamedTuple):
    """One process' part of a batch: `(B,)` positions, and the weight of its loss."""

    indices: Tensor
    weight: float


class BatchOrder(Sampler[Share]):
    """Batches of shuffled examples; texts in a batch have similar lengths.

    Without a seed the examples keep their order. `batch_size` counts over all processes together.

    Example:
        >>> [share.indices.tolist() for share in BatchOrder(5, batch_size=2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        count: int,
        *,
        batch_size: int,
        seed: int | None = None,
        lengths: Tensor | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.count, self.batch_size, self.seed = count, batch_size, seed
        self.lengths = lengths
        self.rank, self.world = rank, world
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, as Lightning does at the start of each."""
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self.count / self.batch_size)

    def __iter__(self) -> Iterator[Share]:
        for indices in self._batches():
            share = indices[self.rank :: self.world]
            # A process without an example takes part with weight 0: the others wait for its gradients.
            yield Share(share if len(share) else indices[:1], len(share) * self.world / len(indices))

    def _batches(self) -> list[Tensor]:
        """The joined batches of the epoch."""
        if self.seed is None:
            return list(torch.arange(self.count).split(self.batch_size))
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.count, generator=generator)
        if self.lengths is None:
            return list(order.split(self.batch_size))
        pools = order.split(self.batch_size * _BUCKET)
        sorted_pools = [pool[self.lengths[pool].argsort(stable=True)] for pool in pools]
        batches = [part for pool in sorted_pools for part in pool.split(self.batch_size)]
        return [batches[place] for place in torch.randperm(len(batches), generator=generator).tolist()]


class _Cut(Dataset[Batch]):
    """Takes batches of examples, on the device of the examples."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples

    def __getitem__(self, share: Share) -> Batch:
        inputs, labels = batch(self.examples, share.indices)
        assert labels is not None, "one trains and validates on examples with labels"
        return Batch(inputs, labels, share.weight, share.indices)


def batch_loader(
    examples: Examples, *, batch_size: int, seed: int | None = None, rank: int = 0, world: int = 1
) -> DataLoader[Batch]:
    """Batches of examples, shuffled by a seed or in order; arguments of `BatchOrder`."""
    lengths = text_lengths(examples.inputs)
    order = BatchOrder(len(examples), batch_size=batch_size, seed=seed, lengths=lengths, rank=rank, world=world)
    return DataLoader(_Cut(examples), sampler=order, batch_size=None)
