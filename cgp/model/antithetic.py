"""Draws in pairs whose noise is opposite, so that what is odd in the noise cancels from their average."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from cgp.attention import AttentionInputs, GaussianProcessAttention
from cgp.attention.inputs import full_precision

from .blocks import attention_blocks
from .circumstances import noise_again
from .inputs import model_device
from .replay import replaced

__all__ = ["antithetic_draws", "reflected"]


def antithetic_draws(model: nn.Module, run: Callable[[], Tensor], num_samples: int) -> list[Tensor]:
    r"""Run a model S times, the draws of its blocks in pairs around each block's mean.

    .. math:: H_{2p} = \mu + L\epsilon_p, \qquad H_{2p+1} = \mu - L\epsilon_p

    Both have the distribution of a draw. In their average whatever is odd in :math:`\epsilon` is gone: all of the noise
    where the network above is affine, the first order of it elsewhere. In a block above the first stochastic one the
    noise is opposite, too, and the mean and covariance are those of its own input.

    Args:
        model: whose stochastic blocks draw.
        run: calls the model.
        num_samples: S; the last draw of an odd S has no partner.

    Returns:
        What the S runs returned.

    Note:
        Hammersley & Morton, A new Monte Carlo technique: antithetic variates (1956).
    """
    draws, device = [], model_device(model)
    for _ in range(num_samples // 2):
        with noise_again(device):
            draws.append(run())
        with reflected(model):
            draws.append(run())
    return draws + [run() for _ in range(num_samples % 2)]


@contextmanager
def reflected(model: nn.Module) -> Iterator[None]:
    r"""Let every stochastic block draw :math:`2\mu - H` where it would have drawn H, for the time of a ``with``.

    Args:
        model: any module.

    Example:
        >>> import torch
        >>> from cgp import SparseCGPAttention
        >>> block, x = SparseCGPAttention(8, 2).eval(), torch.randn(1, 3, 8)
        >>> mean, block.sampling = block(x), "marginal"
        >>> with torch.random.fork_rng():
        ...     draw = block(x)
        >>> with reflected(block):
        ...     torch.allclose(0.5 * (draw + block(x)), mean, atol=1e-5)
        True
    """
    with ExitStack() as stack:
        for block in attention_blocks(model):
            if isinstance(block, GaussianProcessAttention):
                stack.enter_context(replaced(block, "attend", _Reflected(block)))
        yield


class _Reflected:
    """A block's ``attend``, its draws reflected at their mean."""

    def __init__(self, block: GaussianProcessAttention) -> None:
        self.block, self.attend = block, block.attend

    def __call__(self, tokens: AttentionInputs) -> Tensor:
        if self.block.sampling == "mean":
            return self.attend(tokens)
        with full_precision(tokens.q.device):
            if not self.block.draws_from_gaussian:
                return 2 * self.block.mean(tokens) - self.attend(tokens)
            posterior = self.block.gaussian(tokens)  # once for both: it is what costs
            return 2 * posterior.mean - posterior.rsample(self.block.sampling, self.block.draw_shape)
