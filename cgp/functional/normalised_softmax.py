r"""Softmax attention that gives its normaliser out beside the mean.

PyTorch's attention computes :math:`\log\sum_j e^{q_i^\top k_j/\sqrt s}` of each query and keeps it to itself; computed
again it costs an n × n matrix, which is all of the time of a sparse covariance and all of its memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .differentiation import may_own_backward

__all__ = ["has_normaliser", "normalised_softmax"]

_FORWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
_BACKWARD: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)


def has_normaliser(q: Tensor) -> bool:
    """Whether PyTorch's attention can be asked for its normaliser here: on the CPU, in ordinary eager execution.

    Args:
        q: the queries.

    Returns:
        True if :func:`normalised_softmax` can be called.
    """
    return _FORWARD is not None and _BACKWARD is not None and q.device.type == "cpu" and may_own_backward()


def normalised_softmax(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    r"""Softmax attention and the logarithm of its normaliser, :math:`\log\sum_j e^{q_i^\top k_j/\sqrt s}`.

    Args:
        q: ``(*batch, h, Nq, s)``.
        k: ``(*batch, h, Nk, s)``.
        v: ``(*batch, h, Nk, s)``.

    Returns:
        The mean ``(*batch, h, Nq, s)`` and ``(*batch, h, Nq)``.

    Example:
        >>> mean, normaliser = normalised_softmax(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.ones(1, 4, 2))
        >>> mean.shape, normaliser
        (torch.Size([1, 3, 2]), tensor([[1.3863, 1.3863, 1.3863]]))
    """
    batch = q.shape[:-3]
    mean, normaliser = _NormalisedSoftmax.apply(*(x.reshape(-1, *x.shape[-3:]) for x in (q, k, v)))
    return mean.reshape(*batch, *mean.shape[-3:]), normaliser.reshape(*batch, *normaliser.shape[-2:])


class _NormalisedSoftmax(torch.autograd.Function):
    r"""PyTorch's kernels, forwards and backwards, with a gradient of the normaliser as well.

    The backward kernel forms :math:`P\circ(\bar OV^\top - \operatorname{rowsum}(\bar O\circ O))`. One more column
    of ones in :math:`\bar O`, of zeros in V and of minus the normaliser's gradient in O adds that gradient to each row.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        mean, normaliser = _FORWARD(q, k, v)
        ctx.save_for_backward(q, k, v, mean, normaliser)
        ctx.set_materialize_grads(False)
        return mean, normaliser

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        q, k, v, mean, normaliser = ctx.saved_tensors
        of_mean, of_normaliser = gradients
        if of_normaliser is None:
            return (None, None, None) if of_mean is None else _BACKWARD(of_mean, q, k, v, mean, normaliser, 0.0, False)
        of_mean = torch.zeros_like(mean) if of_mean is None else of_mean
        one, pad = torch.ones_like(of_mean[..., :1]), torch.nn.functional.pad
        of_q, of_k, of_v = _BACKWARD(
            torch.cat([of_mean, one], -1),
            *(pad(x, (0, 1)) for x in (q, k, v)),
            torch.cat([mean, -of_normaliser[..., None]], -1),
            normaliser,
            0.0,
            False,
            scale=q.shape[-1] ** -0.5,
        )
        return of_q[..., :-1], of_k[..., :-1], of_v[..., :-1]
