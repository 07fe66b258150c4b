"""The three ways in which a block is run: forward, forward and backward, and for predictions with their variance."""

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from cgp.attention import GaussianProcessAttention
from cgp.attention.inputs import full_precision
from cgp.model.blocks import added_losses, clear_added_losses, freeze
from experiments.benchmarks.cases import Case

__all__ = [
    "MEASURES",
    "backward_call",
    "block_calls",
    "evaluation_call",
    "forward_call",
    "precision",
    "prediction_call",
    "tokens",
]

MEASURES: Mapping[str, str] = {
    "forward": "mean, variance and one draw",
    "backward": "the same and its gradients",
    "evaluation": "mean and variance in eval, factors of the weights computed beforehand",
    "prediction": "mean, variance and one draw in eval, factors of the weights computed beforehand",
}

# Inductor's own normal numbers take six times as long on a CPU as PyTorch's.
_COMPILER: dict[str, str | int | bool | Callable[..., object]] = {"fallback_random": True}


def tokens(case: Case) -> Tensor:
    """Unit-variance tokens that take a gradient.

    Args:
        case: the size.
    """
    return torch.randn(case.batch, case.tokens, case.width, requires_grad=True)


def precision(case: Case) -> AbstractContextManager[object]:
    """The precision of a case as a context.

    Args:
        case: which precision.
    """
    return torch.autocast("cpu", dtype=torch.bfloat16) if case.precision == "bfloat16" else nullcontext()


def block_calls(block: nn.Module, x: Tensor, case: Case) -> dict[str, Callable[[], object]]:
    """The measures of one block, ready to be timed.

    Args:
        block: the block.
        x: tokens that take a gradient.
        case: precision and execution.
    """
    run = torch.compile(block, options=_COMPILER) if case.execution == "compiled" else block
    calls = {"forward": forward_call(run, x, case), "backward": backward_call(run, block, x, case)}
    if case.execution == "eager":
        calls["evaluation"] = evaluation_call(block, x, case)
        calls["prediction"] = prediction_call(block, x, case)
    return calls


def forward_call(run: Callable[[Tensor], Tensor], x: Tensor, case: Case) -> Callable[[], object]:
    """Forward without a graph.

    Args:
        run: the block, compiled or not.
        x: tokens.
        case: which precision.
    """

    def call() -> Tensor:
        with torch.no_grad(), precision(case):
            return run(x)

    return call


def backward_call(run: Callable[[Tensor], Tensor], block: nn.Module, x: Tensor, case: Case) -> Callable[[], object]:
    """Forward and backward to the tokens and the weights; what the block adds to the loss is part of it.

    Args:
        run: the block, compiled or not.
        block: whose gradients are cleared.
        x: tokens that take a gradient.
        case: which precision.
    """
    cotangent = torch.randn_like(x)

    def call() -> None:
        x.grad = None
        block.zero_grad(set_to_none=True)
        with precision(case):
            y = run(x)
        terms = list(added_losses(block).values())
        torch.autograd.backward([y, *terms], [cotangent.to(y.dtype), *(torch.ones_like(term) for term in terms)])
        clear_added_losses(block)

    return call


def evaluation_call(block: nn.Module, x: Tensor, case: Case) -> Callable[[], object]:
    """Mean and variance of each token, no draw, on a frozen copy; deterministic blocks give what they have.

    Args:
        block: the block.
        x: tokens.
        case: which precision.
    """
    twin = freeze(copy.deepcopy(block).eval())

    def call() -> object:
        with torch.no_grad(), precision(case):
            if not isinstance(twin, GaussianProcessAttention):
                return twin(x)
            projected = twin.project(x)
            with full_precision(x.device):
                posterior = twin.marginals(projected)
                variance = posterior.variance
            return twin.merge(posterior.mean, x.dtype), variance

    return call


def prediction_call(block: nn.Module, x: Tensor, case: Case) -> Callable[[], object]:
    """One draw on a frozen copy in eval, without a graph: what a draw costs at prediction time.

    Args:
        block: the block.
        x: tokens.
        case: which precision.
    """
    twin = freeze(copy.deepcopy(block).eval())
    if isinstance(twin, GaussianProcessAttention) and twin.sampling == "mean":
        twin.sampling = "marginal"
    return forward_call(twin, x, case)
