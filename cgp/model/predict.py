"""Predictions with their uncertainty: Monte Carlo over the stochastic layers of any model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import AttentionInputs, GaussianProcessAttention
from cgp.attention.inputs import full_precision
from cgp.conversion.layout import TokenLayout, token_layout
from cgp.functional.gaussians import DenseGaussian

from .antithetic import antithetic_draws
from .blocks import attention_blocks
from .blocks import sampling as sampling_mode
from .circumstances import eval_mode, seeded, uncompiled
from .inputs import call_model, logits_of, model_device, split_inputs, to_device
from .linearised import linearise
from .replay import SharedPrefix, replaced
from .temperature import logit_temperature

__all__ = ["Prediction", "predict", "uncertainties"]

PROPAGATIONS = ("sampling", "linearised")


@dataclass(frozen=True)
class Prediction:
    """What a model predicts, and how sure it is.

    Attributes:
        probabilities: averaged over the draws, ``(N, ..., C)``.
        logits: averaged over the draws, ``(N, ..., C)``.
        total: entropy of ``probabilities``, ``(N, ...)``, in nats.
        aleatoric: average of the entropies of the draws, ``(N, ...)``, in nats.
        epistemic: their difference, the mutual information of label and draw, ``(N, ...)``, in nats.
        draws: probabilities of each draw, ``(S, N, ..., C)``, or None unless asked for.
        token_variance: for each stochastic layer, by its name in the model, the predictive variance of each head and
            token given the mean of the layers below, ``(N, h, n)``, in units of the head outputs squared; empty if it
            was not kept.
        layout: which tokens are patches, and where.
    """

    probabilities: Tensor
    logits: Tensor
    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    draws: Tensor | None
    token_variance: dict[str, Tensor]
    layout: TokenLayout

    def patch_variance(self, layer: int | str = -1, grid: tuple[int, int] | None = None) -> Tensor:
        """The variance of the patches of an image, one map a head.

        Args:
            layer: name of a stochastic layer, or its position among them.
            grid: rows and columns of the patches; None is the model's, or a square.

        Returns:
            ``(N, h, rows, columns)``; class and register tokens are left out.

        Raises:
            ValueError: if there is no such layer, or the patches do not fill the grid.
        """
        names = list(self.token_variance)
        if isinstance(layer, int) and -len(names) <= layer < len(names):
            layer = names[layer]
        if layer not in self.token_variance:
            raise ValueError(f"layer: expected one of {names} or its position, got {layer!r}")
        return self.layout.patches(self.token_variance[layer], grid)


def uncertainties(draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Total, aleatoric and epistemic uncertainty of probabilities under several draws.

    .. math:: H\big[\tfrac1S\textstyle\sum_s p_s\big], \qquad \tfrac1S\sum_s H[p_s], \qquad \text{their difference}

    Args:
        draws: ``(S, ..., C)``.

    Returns:
        Each ``(...)``, in nats.

    Example:
        >>> total, aleatoric, epistemic = uncertainties(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        >>> round(total.item(), 4), aleatoric.item(), round(epistemic.item(), 4)
        (0.6931, 0.0, 0.6931)
    """
    total = torch.special.entr(draws.mean(0)).sum(-1)
    aleatoric = torch.special.entr(draws).sum(-1).mean(0)
    return total, aleatoric, (total - aleatoric).clamp(min=0.0)  # below zero by rounding alone: entropy is concave


@torch.no_grad()
def predict(
    model: nn.Module,
    inputs: Any,
    num_samples: int = 16,
    *,
    sampling: str = "marginal",
    propagation: str = "sampling",
    antithetic: bool = True,
    batch_size: int | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    autocast: torch.dtype | None = None,
    keep_draws: bool = False,
    keep_variance: bool = True,
    output: Callable[[Any], Tensor] = logits_of,
) -> Prediction:
    r"""Predict by S draws of the stochastic layers.

    .. math:: p(y \mid x) = \tfrac1S\textstyle\sum_s \operatorname{softmax}(f_s(x) / T)

    T is 1 unless a calibration fitted a temperature; what is returned is made of the divided logits. What lies below
    the first stochastic layer is computed once for all draws, and so is that layer's posterior; the model is put into
    eval mode meanwhile. A model without stochastic layers makes one draw.

    Args:
        model: any module from inputs to logits.
        inputs: a tensor, a tuple of arguments, or a dict of them (masks included).
        num_samples: S draws.
        sampling: "marginal" (each token on its own) or "joint" (tokens of a sequence together).
        propagation: "sampling", or "linearised": the logits are drawn from the Gaussian that
            :func:`~cgp.model.linearised.linearised_logits` gives, and the network above the one stochastic layer runs once.
        antithetic: whether the draws come in pairs of opposite noise (:mod:`cgp.model.antithetic`), 0 with 1, 2 with 3; the
            last of an odd number stands alone. The same distribution, an average with less noise, at the same cost.
        batch_size: how many examples at a time; None is all at once.
        seed: of the draws; the global generators are left as they were. The same seed and ``batch_size`` give the same
            draws.
        generator: from which a seed is drawn, instead.
        autocast: precision inside, such as ``torch.bfloat16``; None leaves it.
        keep_draws: whether to keep the probabilities of each draw.
        keep_variance: whether to keep the variance of each token in each stochastic layer.
        output: takes the logits ``(N, ..., C)`` from what the model returns.

    Returns:
        The prediction, on the model's device.

    Raises:
        ValueError: if an argument is off, or the model has fewer than two classes.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> model = nn.Sequential(SparseCGPAttention(8, 2), nn.Flatten(), nn.Linear(32, 3))
        >>> prediction = predict(model, torch.randn(5, 4, 8), 8, seed=0)
        >>> prediction.probabilities.shape, prediction.patch_variance().shape
        (torch.Size([5, 3]), torch.Size([5, 2, 2, 2]))
    """
    _check(num_samples, sampling, propagation, seed, generator)
    model = uncompiled(model)
    device = model_device(model)
    if generator is not None:
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    run = _Run(model, num_samples, sampling, propagation, antithetic, keep_variance, output)
    precision = torch.autocast(device.type, dtype=autocast) if autocast is not None else nullcontext()
    with eval_mode(model), seeded(seed, device), precision:
        parts = [run.batch(to_device(part, device)) for part in split_inputs(inputs, batch_size)]
    logits = torch.cat([part[0] for part in parts], 1)
    variances = {name: torch.cat([part[1][name] for part in parts]) for name in (parts[0][1] if parts else {})}
    probabilities = logits.softmax(-1)
    return Prediction(
        probabilities.mean(0),
        logits.mean(0),
        *uncertainties(probabilities),
        probabilities if keep_draws else None,
        variances,
        token_layout(model),
    )


@dataclass(frozen=True)
class _Run:
    """The draws of one batch after another."""

    model: nn.Module
    num_samples: int
    mode: str
    propagation: str
    antithetic: bool
    keep_variance: bool
    output: Callable[[Any], Tensor]

    @cached_property
    def temperature(self) -> float:
        """By which the logits are divided."""
        return logit_temperature(self.model)

    @cached_property
    def blocks(self) -> dict[str, nn.Module]:
        """The stochastic blocks, by their names in the model."""
        blocks = {id(b) for b in attention_blocks(self.model) if b.stochastic}
        return {name: m for name, m in self.model.named_modules() if id(m) in blocks}

    def batch(self, inputs: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits (S, N, ..., C) and the variances of each stochastic layer."""
        prefix = SharedPrefix(self.model)
        variances: dict[str, Tensor] = {}
        with ExitStack() as stack:
            stack.enter_context(sampling_mode(self.model, "mean"))
            for name, block in self.blocks.items() if self.keep_variance else ():
                stack.enter_context(replaced(block, "attend", _Measured(block, name, variances)))
            mean = self._logits(prefix.record(lambda: call_model(self.model, inputs)))
        if not self.blocks:
            return mean[None], variances
        ordered = {name: variances[name] for name in self.blocks if name in variances}
        if self.propagation == "linearised":
            gaussian = linearise(self.model, prefix, lambda: self._logits(call_model(self.model, inputs)), self.mode)
            return _gaussian_draws(gaussian, self.num_samples, self.antithetic), ordered
        with sampling_mode(self.model, self.mode), prefix.replaying(posterior=True):
            draws = self._draws(lambda: self._logits(call_model(self.model, inputs)))
        return torch.stack(draws), ordered

    def _draws(self, run: Callable[[], Tensor]) -> list[Tensor]:
        if self.antithetic:
            return antithetic_draws(self.model, run, self.num_samples)
        return [run() for _ in range(self.num_samples)]

    def _logits(self, output: Any) -> Tensor:
        logits = self.output(output)
        if logits.dim() < 2 or logits.shape[-1] < 2:
            raise ValueError(f"model: expected logits (N, ..., C >= 2), got shape {tuple(logits.shape)}")
        logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        return logits if self.temperature == 1.0 else logits / self.temperature


class _Measured:
    """A block's ``attend`` that returns the mean and keeps the variance beside it."""

    def __init__(self, block: nn.Module, name: str, variances: dict[str, Tensor]) -> None:
        assert isinstance(block, GaussianProcessAttention)
        self.block, self.name, self.variances = block, name, variances

    def __call__(self, tokens: AttentionInputs) -> Tensor:
        with full_precision(tokens.q.device):
            posterior = self.block.marginals(tokens)
            self.variances[self.name] = posterior.variance
            return posterior.mean


def _gaussian_draws(gaussian: DenseGaussian, num_samples: int, antithetic: bool) -> Tensor:
    """Draws (S, N, C) by an eigenvalue root: where the layer moves no logit, the covariance has no Cholesky factor."""
    with full_precision(gaussian.covariance.device):
        values, vectors = torch.linalg.eigh(gaussian.covariance)
        root = vectors * values.clamp(min=0.0).sqrt()[..., None, :]
        count = (num_samples + 1) // 2 if antithetic else num_samples
        noise = torch.randn((count, *gaussian.mean.shape), dtype=root.dtype, device=root.device)
        if antithetic:
            noise = torch.stack([noise, -noise], 1).flatten(0, 1)[:num_samples]
        return (gaussian.mean + root @ noise)[..., 0]


def _check(num_samples: int, mode: str, propagation: str, seed: int | None, generator: torch.Generator | None) -> None:
    if num_samples < 1:
        raise ValueError(f"num_samples: expected at least 1, got {num_samples}")
    if mode not in ("marginal", "joint"):
        raise ValueError(f"sampling: expected 'marginal' or 'joint', got {mode!r}")
    if propagation not in PROPAGATIONS:
        raise ValueError(f"propagation: expected one of {PROPAGATIONS}, got {propagation!r}")
    if seed is not None and generator is not None:
        raise ValueError("seed, generator: expected one of them, got both")
