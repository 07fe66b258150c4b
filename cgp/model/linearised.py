"""The Gaussian over logits that one stochastic layer makes, without sampling: first order in its deviations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor, nn

from cgp.attention import GaussianProcessAttention
from cgp.attention.inputs import full_precision
from cgp.functional.gaussians import DenseGaussian, LowRankGaussian, MarginalGaussian
from cgp.operators import DenseCovarianceLinearOperator

from .blocks import attention_blocks
from .blocks import sampling as sampling_mode
from .circumstances import uncompiled
from .inputs import call_model, logits_of, model_device, to_device
from .replay import SharedPrefix, replaced

__all__ = ["linearise", "linearised_logits"]


def linearised_logits(
    model: nn.Module,
    inputs: Any,
    *,
    sampling: str = "marginal",
    output: Callable[[Any], Tensor] = logits_of,
) -> MultivariateNormal:
    r"""Logits of a model with one stochastic layer, by the delta method.

    With head outputs :math:`H \sim N(M, \Sigma)` and :math:`f(H)` what the network above makes of them,

    .. math:: f \approx N\big(f(M),\; J\Sigma J^\top\big), \qquad J = \partial f/\partial H \text{ at } M

    Exact where everything above the layer's heads is affine (an output projection, residual, mean pooling and a linear
    head); with norms and perceptrons in between, correct to first order in the standard deviation of the heads.

    Args:
        model: any module in eval mode from inputs to logits, with one stochastic layer, whose columns share a
            covariance ("cgp", "scgp").
        inputs: a tensor, a tuple of arguments, or a dict of them.
        sampling: "marginal" (tokens vary on their own) or "joint", as the draws that it stands for.
        output: takes the logits ``(N, C)`` from what the model returns.

    Returns:
        Batch shape ``(N,)``, event shape ``(C,)``.

    Raises:
        ValueError: if the model is in training mode, or has not one such layer.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> model = nn.Sequential(SparseCGPAttention(8, 2), nn.Flatten(), nn.Linear(32, 3)).eval()
        >>> linearised_logits(model, torch.randn(5, 4, 8)).covariance_matrix.shape
        torch.Size([5, 3, 3])
    """
    model = uncompiled(model)
    if model.training:
        raise ValueError("model: expected one in eval mode, got one in training mode")
    inputs, prefix = to_device(inputs, model_device(model)), SharedPrefix(model)
    with torch.no_grad(), sampling_mode(model, "mean"):
        prefix.record(lambda: call_model(model, inputs))
        gaussian = linearise(model, prefix, lambda: output(call_model(model, inputs)), sampling)
    return MultivariateNormal(gaussian.mean[..., 0], DenseCovarianceLinearOperator(gaussian.covariance))


def linearise(model: nn.Module, prefix: SharedPrefix, logits: Callable[[], Tensor], mode: str) -> DenseGaussian:
    """The Gaussian over logits of a model whose run has been recorded.

    Args:
        model: with one stochastic layer.
        prefix: of the run.
        logits: runs the model, ``(N, C)``.
        mode: "marginal" or "joint".

    Returns:
        Mean ``(N, C, 1)``, covariance ``(N, C, C)``.

    Raises:
        ValueError: if there is not one such layer, or there are more dimensions than ``(N, C)``.
    """
    block = _only_block(model, prefix)
    assert prefix.tokens is not None
    with full_precision(prefix.tokens.q.device):
        posterior = block.joint(prefix.tokens) if mode == "joint" else block.marginals(prefix.tokens)
    if not isinstance(posterior, MarginalGaussian | DenseGaussian | LowRankGaussian):
        raise ValueError(f"model: expected a layer whose columns share a covariance, got {type(block).__name__}")
    with torch.enable_grad(), prefix.replaying():
        heads = posterior.mean.detach().requires_grad_()
        with replaced(block, "attend", lambda tokens: heads):
            function = logits()
        if function.dim() != 2:
            raise ValueError(f"model: expected logits (N, C), got shape {tuple(function.shape)}")
        columns = [torch.autograd.grad(column.sum(), heads, retain_graph=True)[0] for column in function.unbind(-1)]
    jacobian = torch.stack([column.detach() for column in columns], 1)  # (N, C, h, n, s)
    spread = _times_covariance(posterior, jacobian, mode)
    covariance = jacobian.flatten(2) @ spread.flatten(2).mT
    return DenseGaussian(function.detach()[..., None].to(covariance.dtype), covariance)


def _times_covariance(posterior: Any, jacobian: Tensor, mode: str) -> Tensor:
    """ΣJᵀ, laid out as J: (N, C, h, n, s)."""
    if mode == "marginal":
        return posterior.variance[:, None, ..., None] * jacobian
    if isinstance(posterior, LowRankGaussian):
        root = posterior.root[:, None]
        return root @ (root.mT @ jacobian) + posterior.diagonal[:, None, ..., None] * jacobian
    return posterior.covariance[:, None] @ jacobian


def _only_block(model: nn.Module, prefix: SharedPrefix) -> GaussianProcessAttention:
    blocks = [block for block in attention_blocks(model) if block.stochastic]
    if len(blocks) != 1 or prefix.tokens is None or not isinstance(blocks[0], GaussianProcessAttention):
        raise ValueError(f"model: expected one stochastic layer that attends once, got {len(blocks)} of them")
    return blocks[0]
