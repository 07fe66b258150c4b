"""Attention that a host computes by hand: a product of queries and keys, a softmax, a product with values.

What comes of the first product is followed from function to function: scales, biases, masks, mixtures of heads, dropout
and changes of shape belong to the mean, which is whatever the host makes of it. A key is hidden where the softmax is
given so little that its weight is zero.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .heads import HostAttention
from .origins import Origins

__all__ = ["PRODUCTS", "SOFTMAX_ATTENTION", "HandAttention", "tensors_of"]

SOFTMAX_ATTENTION = "a product of queries and keys, a softmax over the keys, a product with values"
PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum")
_MATMUL = ["*is", "*sj", "*ij"]  # subscripts
_FACTORS = dict.fromkeys(("mul", "rmul", "imul", "multiply"), operator.mul)
_FACTORS |= dict.fromkeys(("div", "truediv", "itruediv", "divide"), operator.truediv)
_HIDDEN = -5e3  # below any score; masks are -1e4 to minus infinity


class _Scores(NamedTuple):
    """What a tensor comes from: a product of queries and keys, ``(*batch, N, s)`` each."""

    q: Tensor
    k: Tensor
    scale: Any = 1.0  # by which the product has been multiplied since: a number, or (h, 1, 1)
    seen: Tensor | None = None  # behind the softmax: which keys have a weight, (*, Nq, Nk or more)
    is_self: bool = False  # as of HostAttention


class HandAttention:
    """Follows the functions that one forward pass of a host's attention module calls.

    Args:
        attend: stands for a call of attention.
        origins: of the tensors of this pass.
    """

    def __init__(self, attend: Callable[[HostAttention], Tensor], origins: Origins) -> None:
        self.attend, self.origins = attend, origins
        self._known: dict[int, tuple[Tensor, _Scores]] = {}  # the tensors are kept: ids are given away again

    def __call__(self, func: Any, args: Any, options: dict[str, Any]) -> Any:
        """What the function returns; for the product with values, what stands for it."""
        name, tensors = getattr(func, "__name__", "").strip("_"), tensors_of(args, options)
        found = [(x, self._known[id(x)][1]) for x in tensors if id(x) in self._known]
        product = _read_product(name, args, tensors) if name in PRODUCTS else None
        weights = [(x, scores) for x, scores in found if scores.seen is not None]
        if product is not None and weights:
            closed = self._close(product, functools.partial(func, *args, **options), *weights[0])
            if closed is not None:
                return closed
        output = func(*args, **options)
        if isinstance(output, Tensor):
            scores = None if product is None else product.scores(output, self.origins)
            if scores is not None:
                self._known[id(output)] = output, scores._replace(scale=options.get("alpha", 1.0))
            elif found:  # of several, one that fits; what is added to scores (of positions, say) stands behind them
                given, scores = min(
                    found, key=lambda pair: (pair[1].q.shape[-2], pair[1].k.shape[-2]) != output.shape[-2:]
                )
                self._known[id(output)] = output, _followed(scores, name, given, args, options)
        return output

    def _close(self, product: _Product, call: Callable[[], Tensor], weights: Tensor, scores: _Scores) -> Tensor | None:
        """The product with values through the heads; None if it is another one."""
        order, (q, k, scale, seen, is_self) = product.order(weights), scores
        assert seen is not None
        mask, pairs = seen[..., : k.shape[-2]], (*q.shape[:-1], k.shape[-2])
        fits = mask.shape[-2:] == pairs[-2:] and mask.numel() == weights.numel() == math.prod(pairs)
        if order is None or not fits:
            return None
        trail = tuple(tensor for tensor, _ in self._known.values())
        self._known.clear()
        out = torch.einsum(f"{order[0]}->{order[1]}", call())
        mean = out.reshape(*q.shape[:-1], -1)
        inputs = HostAttention(lambda: mean, q, k, mask.reshape(pairs), scale=scale, is_self=is_self, trail=trail)
        drawn = self.attend(inputs)
        return torch.einsum(f"{order[1]}->{order[0]}", drawn.reshape(out.shape))


class _Product(NamedTuple):
    """Two operands, and the subscripts of theirs and of the result as of ``einsum``; "*" is any number of them."""

    left: Tensor
    right: Tensor
    subscripts: list[str]

    def scores(self, output: Tensor, origins: Origins) -> _Scores | None:
        """Queries and keys, ``(*batch, N, s)`` each, if the product can be one of both."""
        one, other, out = self.subscripts
        summed = (set(one) & set(other)) - set(out)
        if len(summed) != 1 or len(out) < 2:
            return None
        s, batch, i, j = summed.pop(), out[:-2], out[-2], out[-1]
        pairs = (self.left, one), (self.right, other)
        (q, of_q), (k, of_k) = pairs if i in one else pairs[::-1]
        if not {i, s} <= set(of_q) <= {*batch, i, s} or not {j, s} <= set(of_k) <= {*batch, j, s}:
            return None
        is_self = origins.cover(k, q)
        q, k = _arranged(q, of_q, batch, i + s), _arranged(k, of_k, batch, j + s)
        q, k = (x.expand(*output.shape[:-2], *x.shape[-2:]) for x in (q, k))
        return _Scores(q, k, is_self=is_self)

    def order(self, weights: Tensor) -> tuple[str, str] | None:
        """Subscripts of the result, and those in the order (*batch, queries, width), if the sum is over keys."""
        one, other, out = self.subscripts if weights is self.left else [*self.subscripts[1::-1], self.subscripts[2]]
        keys, queries = (one[-2], one[-1]) if one == _MATMUL[1] else (one[-1], one[-2])
        widths = set(other) - set(one)
        if keys not in other or keys in out or queries not in out or queries in other or len(widths) != 1:
            return None
        batch = one.replace(queries, "").replace(keys, "")
        return out.replace("*", "..."), f"{batch}{queries}{widths.pop()}".replace("*", "...")


def _arranged(x: Tensor, subscripts: str, batch: str, last: str) -> Tensor:
    """Dimensions in another order, of size one where a subscript is missing."""
    present = "".join(letter for letter in batch if letter in subscripts)
    x = torch.einsum(f"{subscripts}->{present}{last}".replace("*", "..."), x)
    places = {letter: slice(None) for letter in present} | {"*": ...}
    return x[(*(places.get(letter) for letter in batch), slice(None), slice(None))]


def _read_product(name: str, args: Any, tensors: list[Tensor]) -> _Product | None:
    """A call of one of ``PRODUCTS`` if it has two operands."""
    operands, subscripts = tensors[name == "baddbmm" :], _MATMUL
    if name == "einsum":
        subscripts = re.split(",|->", args[0].replace(" ", "").replace("...", "*"))
    if len(operands) != 2 or len(subscripts) != 3 or min(x.dim() for x in operands) < 2:
        return None
    return _Product(operands[0], operands[1], subscripts)


def _followed(scores: _Scores, name: str, given: Tensor, args: Any, options: dict[str, Any]) -> _Scores:
    """What a function makes of scores that it is given."""
    if scores.seen is not None:
        return scores
    other = next((x for x in args if x is not given), None)
    if name == "softmax" and options.get("dim", other) in (-1, given.dim() - 1):
        return scores._replace(seen=given > _HIDDEN)
    is_number = isinstance(other, int | float) or (isinstance(other, Tensor) and other.dim() == 0)
    is_per_head = isinstance(other, Tensor) and other.dim() > 2 and other.numel() == other.shape[-3]
    if name in _FACTORS and (is_number or is_per_head):
        return scores._replace(scale=_FACTORS[name](scores.scale, other))
    return scores


def tensors_of(args: Any, options: dict[str, Any]) -> list[Tensor]:
    """The tensors among arguments, in lists too."""
    flat = [y for x in (*args, *options.values()) for y in (x if isinstance(x, list | tuple) else (x,))]
    return [x for x in flat if isinstance(x, Tensor)]
