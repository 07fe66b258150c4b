"""Attention that a host computes by hand: a product of queries and keys, a softmax, a product with values.

Some hosts call no attention function: they multiply, mask and normalise themselves. Their tensors are followed through
the functions that the forward pass calls, from the scores to the weights to the product with values:

1. a product of two tensors may be the scores of an attention: its operands are kept as queries and keys;
2. functions of the scores (scaling, biases, masks, mixtures of heads, dropout, changes of shape) pass the queries and
   keys on, and a multiplication by one number or one number per head changes the scale;
3. a softmax over the keys makes weights of the scores; a key counts as masked where its score is below ``_HIDDEN``,
   because its weight is then zero;
4. the product of weights and values is the output of attention, and the heads' output takes its place.

The host's own arithmetic is the posterior's mean, so only queries, keys, scale and mask have to be recognised.
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
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from .heads import HostAttention

__all__ = ["PRODUCTS", "SOFTMAX_ATTENTION", "ManualAttention", "Origins", "tensors_of"]

SOFTMAX_ATTENTION = "a product of queries and keys, a softmax over the keys, a product with values"
PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum")
_MATMUL = ["*is", "*sj", "*ij"]  # as of einsum: batch, rows i, summed s, columns j
_FACTORS = dict.fromkeys(("mul", "rmul", "imul", "multiply"), operator.mul)
_FACTORS |= dict.fromkeys(("div", "truediv", "itruediv", "divide"), operator.truediv)
_HIDDEN = -5e3  # no real score is as low; hosts mask with -1e4 (float16) down to minus infinity


class Origins:
    """Follows a module's floating-point arguments through the functions that its forward pass calls.

    In self-attention, queries and keys are computed from the same argument. Keys computed from another argument (a
    context, whatever its name) or from none (a cache) are other tokens.

    Args:
        arguments: arguments of the call, in tuples, lists and dicts.

    Example:
        >>> x, y = torch.ones(2), torch.ones(2)
        >>> origins = Origins(x, {"context": [y]})
        >>> z = x + y
        >>> origins.follow([x, y], z)
        >>> origins.cover(z, x), origins.cover(x, z)
        (True, False)
    """

    def __init__(self, *arguments: Any) -> None:
        self._known = WeakIdKeyDictionary()  # weak, so that intermediate tensors are freed as usual
        for x in pytree.tree_leaves(arguments):
            if isinstance(x, Tensor) and x.is_floating_point():
                self._known[x] = frozenset({id(x)})

    def follow(self, inputs: list[Tensor], output: Any) -> None:
        """Record that a function computed the output, one tensor or several, from the inputs."""
        origins = frozenset().union(*(self._of(x) for x in inputs))
        if origins:
            for x in output if isinstance(output, list | tuple) else (output,):
                if isinstance(x, Tensor):
                    self._known[x] = origins

    def cover(self, tensor: Tensor, other: Tensor) -> bool:
        """Whether a tensor is computed from every argument that the other is computed from, and there is any."""
        return bool(self._of(other)) and self._of(other) <= self._of(tensor)

    def _of(self, x: Tensor) -> frozenset[int]:
        return self._known.get(x, frozenset())


class _Scores(NamedTuple):
    """Queries and keys, ``(*batch, N, s)`` each, of which a tensor is the scores or (after the softmax) the weights."""

    q: Tensor
    k: Tensor
    scale: Any = 1.0  # product of all factors applied to the scores so far: a number, or (h, 1, 1)
    seen: Tensor | None = None  # None before the softmax; then which keys are not masked, (*, Nq, Nk or more)
    is_self: bool = False  # see HostAttention


class ManualAttention:
    """Follows the functions that one forward pass of a host's attention calls, and lets the heads attend."""

    def __init__(self, attend: Callable[[HostAttention], Tensor], origins: Origins) -> None:
        self.attend, self.origins = attend, origins
        # By id. The tensors are kept with them: Python reuses the id of a freed tensor.
        self._known: dict[int, tuple[Tensor, _Scores]] = {}

    def __call__(self, func: Any, args: Any, options: dict[str, Any]) -> Any:
        """Call the function; in place of a product of attention weights and values, return the heads' output."""
        name, tensors = getattr(func, "__name__", "").strip("_"), tensors_of(args, options)
        known = [(x, self._known[id(x)][1]) for x in tensors if id(x) in self._known]
        product = _read_product(name, args, tensors) if name in PRODUCTS else None
        weights = [(x, scores) for x, scores in known if scores.seen is not None]
        if product is not None and weights:
            closed = self._close(product, functools.partial(func, *args, **options), *weights[0])
            if closed is not None:
                return closed
        output = func(*args, **options)
        if isinstance(output, Tensor):
            scores = None if product is None else product.scores(output, self.origins)
            if scores is not None:
                self._known[id(output)] = output, scores._replace(scale=options.get("alpha", 1.0))
            elif known:
                # Two scores may be added, of content and of relative positions: follow the one of the output's shape,
                # and the first one if both have it.
                given, scores = min(
                    known, key=lambda pair: (pair[1].q.shape[-2], pair[1].k.shape[-2]) != output.shape[-2:]
                )
                self._known[id(output)] = output, _followed(scores, name, given, args, options)
        return output

    def _close(self, product: _Product, call: Callable[[], Tensor], weights: Tensor, scores: _Scores) -> Tensor | None:
        """The heads' output in place of a product of weights and values; None if the other operand is no values."""
        order, (q, k, scale, seen, is_self) = product.order(weights), scores
        assert seen is not None
        mask, pairs = seen[..., : k.shape[-2]], (*q.shape[:-1], k.shape[-2])
        fits = mask.shape[-2:] == pairs[-2:] and mask.numel() == weights.numel() == math.prod(pairs)
        if order is None or not fits:
            return None
        trail = tuple(tensor for tensor, _ in self._known.values())
        self._known.clear()  # this attention is finished: what the host multiplies next is another one
        out = torch.einsum(f"{order[0]}->{order[1]}", call())
        mean = out.reshape(*q.shape[:-1], -1)
        inputs = HostAttention(lambda: mean, q, k, mask.reshape(pairs), scale=scale, is_self=is_self, trail=trail)
        drawn = self.attend(inputs)
        return torch.einsum(f"{order[1]}->{order[0]}", drawn.reshape(out.shape))


class _Product(NamedTuple):
    """Two operands, and the ``einsum`` subscripts of both and of the result; "*" is any number of dimensions."""

    left: Tensor
    right: Tensor
    subscripts: list[str]

    def scores(self, output: Tensor, origins: Origins) -> _Scores | None:
        """Queries and keys, ``(*batch, N, s)`` each, if the product can be their scores; otherwise None."""
        first, second, out = self.subscripts
        summed = (set(first) & set(second)) - set(out)
        if len(summed) != 1 or len(out) < 2:
            return None
        s, batch, i, j = summed.pop(), out[:-2], out[-2], out[-1]
        pairs = (self.left, first), (self.right, second)
        (q, of_q), (k, of_k) = pairs if i in first else pairs[::-1]
        if not {i, s} <= set(of_q) <= {*batch, i, s} or not {j, s} <= set(of_k) <= {*batch, j, s}:
            return None
        is_self = origins.cover(k, q)
        q, k = _arranged(q, of_q, batch, i + s), _arranged(k, of_k, batch, j + s)
        q, k = (x.expand(*output.shape[:-2], *x.shape[-2:]) for x in (q, k))
        return _Scores(q, k, is_self=is_self)

    def order(self, weights: Tensor) -> tuple[str, str] | None:
        """Subscripts of the result, as it is and in the order (*batch, queries, width); None unless keys are summed."""
        of_weights, of_values, out = (
            self.subscripts if weights is self.left else [*self.subscripts[1::-1], self.subscripts[2]]
        )
        keys, queries = (
            (of_weights[-2], of_weights[-1]) if of_weights == _MATMUL[1] else (of_weights[-1], of_weights[-2])
        )
        widths = set(of_values) - set(of_weights)
        if keys not in of_values or keys in out or queries not in out or queries in of_values or len(widths) != 1:
            return None
        batch = of_weights.replace(queries, "").replace(keys, "")
        return out.replace("*", "..."), f"{batch}{queries}{widths.pop()}".replace("*", "...")


def _arranged(x: Tensor, subscripts: str, batch: str, last: str) -> Tensor:
    """``x`` with the dimensions ``batch`` and ``last`` in this order, of size one where it has none."""
    present = "".join(letter for letter in batch if letter in subscripts)
    x = torch.einsum(f"{subscripts}->{present}{last}".replace("*", "..."), x)
    places = {letter: slice(None) for letter in present} | {"*": ...}
    return x[(*(places.get(letter) for letter in batch), slice(None), slice(None))]


def _read_product(name: str, args: Any, tensors: list[Tensor]) -> _Product | None:
    """Operands and subscripts of a call of one of ``PRODUCTS``; None unless it has two operands."""
    operands, subscripts = tensors[name == "baddbmm" :], _MATMUL  # the first argument of baddbmm is added
    if name == "einsum":
        subscripts = re.split(",|->", args[0].replace(" ", "").replace("...", "*"))
    if len(operands) != 2 or len(subscripts) != 3 or min(x.dim() for x in operands) < 2:
        return None
    return _Product(operands[0], operands[1], subscripts)


def _followed(scores: _Scores, name: str, given: Tensor, args: Any, options: dict[str, Any]) -> _Scores:
    """The record of a function's output, from the record of the scores ``given`` to it."""
    if scores.seen is not None:  # weights: dropout and mixtures of heads are part of the mean
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
    """The tensors among arguments and in lists or tuples of them."""
    flat = [y for x in (*args, *options.values()) for y in (x if isinstance(x, list | tuple) else (x,))]
    return [x for x in flat if isinstance(x, Tensor)]
