"""Labelled batches of a set of any size: kept where they are few, and else read again in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cgp.networks.model.inputs import Batch
from cgp.networks.model.progress import Progress, progressing

__all__ = ["KEPT_BYTES", "ValidationData"]

KEPT_BYTES = 2**28
"""Inputs of more bytes are not kept."""


class ValidationData:
    """Labelled batches that can be read several times.

    Args:
        source: loader, data set, list of batches or iterator. What can only be read once is kept, whatever its size.
        read: reads checked batches from it.
        progress: whether progress is shown, or a function (:data:`cgp.networks.model.progress.Progress`).

    Raises:
        ValueError: when it is read again, if the labels are others.
    """

    def __init__(self, source: Any, read: Callable[[Any], Iterator[Batch]], progress: Progress = None) -> None:
        self.source, self.read, self.progress = source, read, progress
        self.kept: list[Batch] | None = []
        self.labels: list[Tensor] = []
        size, is_read_once = 0, isinstance(source, Iterator)
        for batch in progressing(read(source), "read", progress):
            assert batch.labels is not None
            self.labels.append(batch.labels)
            size += _bytes(batch.inputs)
            if size > KEPT_BYTES and not is_read_once:
                self.kept = None
            if self.kept is not None:
                self.kept.append(batch)

    def __iter__(self) -> Iterator[Batch]:
        """The batches, in the same order every time."""
        batches = self._again() if self.kept is None else self.kept
        yield from progressing(batches, "assess", self.progress, len(self.labels))

    def _again(self) -> Iterator[Batch]:
        number = 0
        for number, batch in enumerate(self.read(self.source), 1):
            labels = self.labels[number - 1] if number <= len(self.labels) else None
            if batch.labels is None or labels is None or not torch.equal(batch.labels, labels):
                raise ValueError(
                    "validation: expected a set this large to have the same batches in every pass, got others in batch "
                    f"{number - 1} (pass a loader with shuffle=False)"
                )
            yield batch
        if number < len(self.labels):
            raise ValueError(f"validation: expected {len(self.labels)} batches in every pass, got {number}")


def _bytes(inputs: Any) -> int:
    tensors = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
