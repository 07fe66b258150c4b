"""Inputs of one set of data that are those of another, such as held-out ones among those of the training."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cgp.comparisons import LEVEL

from .inputs import Batch
from .structural_copy import uncompiled

__all__ = ["MOST_REPEATED", "check_apart", "check_unseen", "keep_keys", "kept_keys", "keys_of"]

MOST_REPEATED = 0.05
"""Share of repeated inputs that is refused: such move a difference between methods by its standard error and more."""

_KEPT = "cgp_fitted_to"
_ROUNDED = 8  # numbers of an input from which on they are rounded: fewer may be alike by chance


def keys_of(batch: Batch) -> list[int]:
    """A number for each example of a batch, the same where all its tensors are.

    Args:
        batch: N examples. What an ``attention_mask`` leaves out does not count, and eight and more floating-point
            numbers count to three digits: what a network returns depends on the size of a batch in the last ones.

    Returns:
        N numbers of 64 bits, the same in every process; none where no tensor has N rows.

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
    return [_digest(b"|".join(row)) for row in zip(*columns, strict=True)]


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


def keep_keys(model: nn.Module, keys: Iterable[int]) -> None:
    """Let a model keep keys of inputs whose labels it was fitted to, beside those that it keeps already.

    Args:
        model: any module; its copies keep them, too.
        keys: by :func:`keys_of`; eight bytes each are kept.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> keep_keys(model, [3, 3, 5])
        >>> keep_keys(model, [3, 7])
        >>> kept_keys(model).tolist()
        [3, 3, 5, 7]
    """
    times = Counter[int](kept_keys(model).tolist())
    times |= Counter(keys)  # the larger number of each: an input that is fitted to twice has no twin by that
    setattr(uncompiled(model), _KEPT, np.array(sorted(times.elements()), np.int64))


def kept_keys(model: nn.Module) -> NDArray[np.int64]:
    """The keys that :func:`keep_keys` lets a model keep."""
    kept: Any = vars(uncompiled(model)).get(_KEPT)
    return np.zeros(0, np.int64) if kept is None else kept


def _bytes(tensor: Tensor, kept: Tensor | None) -> list[bytes]:
    """What each row of a tensor holds, where it is kept."""
    if tensor.is_floating_point():
        wide = tensor[:1].numel() >= _ROUNDED
        tensor = (tensor.to(torch.bfloat16) if wide else tensor).float() + 0.0  # no zero has a sign
    rows = tensor.cpu()
    if kept is not None and rows.shape[:2] == kept.shape:
        return [row[each].numpy().tobytes() for row, each in zip(rows, kept, strict=True)]
    return [row.tobytes() for row in rows.numpy()]


def check_apart(
    name: str,
    given: Sequence[int],
    known: Sequence[int],
    *,
    others: str = "the held-out inputs",
    advice: str = "leave them out of one of the two",
) -> None:
    r"""Refuse inputs of which many are among others, where there should be none, and warn of few.

    Inputs of few values, such as short texts, are alike by chance: as often as :math:`t`, the share of the others that
    have one alike among them. Of n inputs, k repeated ones are too many where

    .. math:: P(\mathrm{Bin}(n, t) \ge k) < 0.05

    which a single one is where none are alike by chance.

    Args:
        name: of the argument.
        given: keys of inputs by :func:`keys_of`.
        known: keys of the others.
        others: what they are called.
        advice: what to do.

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
    words = f"{name}: expected none of {others}, got {repeated} of {count}: {advice}"
    if repeated / count - alike > MOST_REPEATED:
        raise ValueError(words)
    warnings.warn(words, stacklevel=3)


check_unseen = partial(
    check_apart,
    others="the inputs that the model was fitted to",
    advice="take others, as a guarantee holds by labels that have chosen nothing of the model",
)
"""Refuse labels for a guarantee where many of them have fitted the model, and warn of few: :func:`check_apart`."""
