"""Inputs of one set of data that are those of another, such as held-out ones among those of the training."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from scipy.stats import binom
from torch import Tensor
from torch.utils import _pytree as pytree

from cgp.comparisons import LEVEL

from .inputs import Batch

__all__ = ["MOST_REPEATED", "check_apart", "keys_of"]

MOST_REPEATED = 0.05
"""Share of repeated inputs that is refused: such move a difference between methods by its standard error and more."""

_ROUNDED = 8  # numbers of an input from which on they are rounded: fewer may be alike by chance


def keys_of(batch: Batch) -> list[int]:
    """A number for each example of a batch, the same where all its tensors are.

    Args:
        batch: N examples. What an ``attention_mask`` leaves out does not count, and eight and more floating-point
            numbers count to three digits: what a network returns depends on the size of a batch in the last ones.

    Returns:
        N numbers, for this process; none where no tensor has N rows.

    Example:
        >>> known, given = (keys_of(Batch(torch.tensor(x), None)) for x in ([[1, 2], [3, 4]], [[3, 4]]))
        >>> given[0] == known[1], given[0] == known[0]
        (True, False)
    """
    inputs, labels = batch
    leaves = [leaf.detach() for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    tensors = [leaf for leaf in leaves if leaf.dim() and leaf.layout == torch.strided]
    if not tensors:
        return []
    count = len(tensors[0] if labels is None or not labels.dim() else labels)
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    kept = mask.bool().cpu() if isinstance(mask, Tensor) and mask.dim() == 2 else None
    columns = [_bytes(tensor, kept) for tensor in tensors if len(tensor) == count]
    return [hash(row) for row in zip(*columns, strict=True)]


def _bytes(tensor: Tensor, kept: Tensor | None) -> list[bytes]:
    """What each row of a tensor holds, where it is kept."""
    if tensor.is_floating_point():
        wide = tensor[:1].numel() >= _ROUNDED
        tensor = (tensor.to(torch.bfloat16) if wide else tensor).float() + 0.0  # no zero has a sign
    rows = tensor.cpu()
    if kept is not None and rows.shape[:2] == kept.shape:
        return [row[each].numpy().tobytes() for row, each in zip(rows, kept, strict=True)]
    return [row.tobytes() for row in rows.numpy()]


def check_apart(name: str, given: Sequence[int], known: Sequence[int]) -> None:
    r"""Refuse inputs of which many are among others, where there should be none, and warn of few.

    Inputs of few values, such as short texts, are alike by chance: as often as :math:`t`, the share of the others that
    have one alike among them. Of n inputs, k repeated ones are too many where

    .. math:: P(\mathrm{Bin}(n, t) \ge k) < 0.05

    which a single one is where none are alike by chance.

    Args:
        name: of the argument.
        given: keys of inputs by :func:`keys_of`.
        known: keys of the others.

    Raises:
        ValueError: if those above t are more than 5 % of them.

    Warns:
        UserWarning: if they are fewer.

    Example:
        >>> check_apart("train", range(100), range(50, 150))
        Traceback (most recent call last):
        ValueError: train: expected none of the held-out inputs, got 50 of 100: leave them out of one of the two
    """
    times = Counter(known)
    repeated, count = sum(key in times for key in given), len(given)
    alike = sum(number for number in times.values() if number > 1) / max(len(known), 1)
    if not repeated or binom.sf(repeated - 1, count, alike) >= LEVEL:
        return
    words = f"{name}: expected none of the held-out inputs, got {repeated} of {count}: leave them out of one of the two"
    if repeated / count - alike > MOST_REPEATED:
        raise ValueError(words)
    warnings.warn(words, stacklevel=3)
