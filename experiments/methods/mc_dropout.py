"""MC dropout: dropout stays on in prediction, and its masks are draws of a posterior."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from experiments.data import generator_for
from experiments.training.drawing import called, eval_mode

__all__ = ["active_dropout", "mc_dropout_logits"]


@contextmanager
def active_dropout(model: nn.Module) -> Iterator[None]:
    """Context in which the dropout of a model is switched on, and nothing else.

    This covers dropout layers, and the dropout inside softmax attention (torch's MultiheadAttention, and any module
    called ...Attention, as in timm and transformers). All other modules keep their modes: Gaussian-process blocks
    are not affected, normalisations use their averages, stochastic depth and augmentation stay off.

    ValueError for a model without dropout, whose draws would be equal.
    """
    modules = [module for module in model.modules() if _drops(module)]
    if not any(_probability(module) > 0 for module in modules):
        raise ValueError("model: expected dropout with a probability above 0, got a model without any")
    before = [module.training for module in modules]
    for module in modules:
        module.training = True  # only its own flag: train() would also change the modules inside
    try:
        yield
    finally:
        for module, mode in zip(modules, before, strict=True):
            module.training = mode


def mc_dropout_logits(
    model: nn.Module, batches: Iterable[Any], num_samples: int = 10, *, seed: int = 0
) -> Tensor:  # shape: (S, N, C)
    r"""Logits under S random dropout masks.

    .. math:: p(y \mid x) \approx \frac1S \sum_s \mathrm{softmax}(f(x; m_s)), \qquad m_s \sim \mathrm{Bernoulli}(1 - p)

    The same seed and batches give the same draws; fewer draws are the first ones of more.

    Source:
        Gal and Ghahramani (2016), Dropout as a Bayesian Approximation, equation (6).
    """
    parts = []
    with eval_mode(model), active_dropout(model), torch.random.fork_rng():
        for number, part in enumerate(batches):
            draws = []
            for draw in range(num_samples):
                torch.manual_seed(generator_for("mc-dropout", seed, number, draw).initial_seed())
                draws.append(called(model, part).float())
            parts.append(torch.stack(draws))
    return torch.cat(parts, 1)


def _probability(module: nn.Module) -> float:
    """Dropout probability of a module itself, by the attribute names of torch and transformers."""
    values = (getattr(module, name, None) for name in ("p", "dropout", "dropout_prob", "attention_dropout"))
    return max((float(value) for value in values if isinstance(value, float)), default=0.0)


def _drops(module: nn.Module) -> bool:
    """Whether dropout is the only effect of a module's training mode."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if type(module).__module__.startswith("cgp."):
        return False
    # In eval mode this layer takes a fused path that bypasses its dropout layers.
    return isinstance(module, nn.TransformerEncoderLayer) or type(module).__name__.endswith("Attention")
