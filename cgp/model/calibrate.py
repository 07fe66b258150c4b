"""The scales of a converted model, fitted on a small validation set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention.softmax_posterior import SoftmaxPosterior

from .blocks import attention_blocks
from .circumstances import eval_mode, seeded, uncompiled
from .inputs import logits_of
from .scale_fit import ScaleFit, only, put_back
from .temperature import logit_temperature, set_logit_temperature

__all__ = ["Calibration", "calibrate", "mixture_nll"]


@dataclass(frozen=True)
class Calibration:
    r"""What :func:`calibrate` did.

    Attributes:
        nll_mean: negative log-likelihood in mean mode, which is the original model's, in nats per example; at the
            temperature that the model had.
        nll_before: of the draws with the scales as they were.
        nll_after: of the draws with the scales as they are, under the same seed.
        num_data: examples.
        steps: of the optimiser.
        seconds: in all.
        scales: for each layer, by its name, :math:`\tau` and :math:`\sigma^2` of each head.
        lengthscales: for each layer with "bounded" statistics, by its name, :math:`\ell` of each head.
        losses: of each step, on its batch.
        temperature: by which :func:`cgp.predict` divides the logits from now on.
    """

    nll_mean: float
    nll_before: float
    nll_after: float
    num_data: int
    steps: int
    seconds: float
    scales: dict[str, tuple[Tensor, Tensor]]
    losses: tuple[float, ...]
    lengthscales: dict[str, Tensor] = field(default_factory=dict)
    temperature: float = 1.0

    def __str__(self) -> str:
        """Two lines for a reader, one for a temperature, one a layer."""
        head = (
            f"{self.steps} steps on {self.num_data} examples in {self.seconds:.1f} s",
            f"NLL {self.nll_mean:.4f} (mean alone), {self.nll_before:.4f} before, {self.nll_after:.4f} after",
            *([f"temperature {self.temperature:.3f}"] if self.temperature != 1.0 else []),
        )
        layers = (
            f"{name}: amplitude {_range(amplitude)}, noise {_range(noise)}{self._lengthscale(name)}"
            for name, (amplitude, noise) in self.scales.items()
        )
        return "\n".join((*head, *layers))

    def _lengthscale(self, name: str) -> str:
        return f", lengthscale {_range(self.lengthscales[name])}" if name in self.lengthscales else ""


def mixture_nll(logits: Tensor, targets: Tensor) -> Tensor:
    r"""Negative log-likelihood of the averaged prediction, :math:`-\log\tfrac1S\sum_s p_s(y)`.

    Args:
        logits: of S draws, ``(S, ..., C)``.
        targets: labels, ``(...)``; −100 is left out.

    Returns:
        ``()``, in nats per label.

    Example:
        >>> round(mixture_nll(torch.zeros(4, 1, 2), torch.tensor([0])).item(), 4)
        0.6931
    """
    log_mean = logits.log_softmax(-1).logsumexp(0) - torch.tensor(float(len(logits))).log().to(logits)
    return nn.functional.nll_loss(log_mean.flatten(0, -2), targets.flatten(), ignore_index=-100)


def calibrate(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    steps: int = 200,
    num_samples: int = 8,
    learning_rate: float = 0.1,
    sampling: str = "marginal",
    temperature: bool = False,
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] = mixture_nll,
    output: Callable[[Any], Tensor] = logits_of,
) -> Calibration:
    r"""Fit the amplitude :math:`\tau` and noise :math:`\sigma^2` of every head of a converted model, and nothing else.

    .. math:: \min_{\tau, \sigma^2 (, \ell, T)} -\textstyle\sum_i
        \log\tfrac1S\sum_s \operatorname{softmax}\big(f_s(x_i) / T\big)_{y_i}

    With "bounded" statistics the lengthscale :math:`\ell` is fitted, too, and the temperature T if asked for: then T
    takes the average overconfidence, and the covariance what depends on the input. By Adam on reparametrised,
    antithetic draws, its rate falling to zero by a cosine, from the best of a few multiples of the amplitudes and the
    temperature of the mean mode. The mean does not depend on the scales, so the predictions in mean mode stay as they
    are. What lies below the first stochastic layer is computed once for each batch and kept; if the loss has not fallen
    at the end, the scales are put back. Frozen factors are dropped.

    Args:
        model: with softmax's mean: what :func:`cgp.convert` makes by "cgp" or "scgp".
        loader: batches ``(inputs, targets)``, or dicts with "labels"; a few hundred examples do. It is read once and
            kept.
        steps: of Adam, one batch each, the batches in turn.
        num_samples: S draws a step, and twice as many for the figures reported.
        learning_rate: of Adam at the start, on the unconstrained scales.
        sampling: "marginal" or "joint", as the predictions will be drawn.
        temperature: whether T is fitted; :func:`cgp.predict` divides by it (:mod:`cgp.model.temperature`). Without, it stays
            what it was.
        seed: of the draws; the global generators are left as they were.
        loss: ``(logits (S, B, ..., C), targets) -> ()``.
        output: takes the logits from what the model returns.

    Returns:
        What was done; the model is changed in place.

    Raises:
        ValueError: if the model has no such scales, the loader is empty, or an argument is off.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> model = nn.Sequential(SparseCGPAttention(8, 2, mean="softmax"), nn.Flatten(), nn.Linear(32, 3))
        >>> report = calibrate(model, [(torch.randn(5, 4, 8), torch.tensor([0, 1, 2, 0, 1]))], steps=2)
        >>> report.steps, report.nll_after <= report.nll_before
        (2, True)
    """
    _check(steps, num_samples, learning_rate)
    start, model = time.perf_counter(), uncompiled(model)
    posteriors = _posteriors(model)
    fit = ScaleFit(model, sampling, num_samples, loss, output, temperature)
    scales = [parameter for m in posteriors.values() for parameter in m.scales()] + fit.log_temperatures
    with eval_mode(model), only(model, scales), seeded(seed, fit.device):
        batches = [fit.prepare(batch) for batch in loader]
        if not batches:
            raise ValueError("loader: expected at least one batch, got none")
        nll_mean = float(fit.mean_loss(batches).detach())
        kept, before = [p.detach().clone() for p in scales], fit.evaluate(batches, seed)
        fit.start(batches, [m.log_amplitude for m in posteriors.values()], seed)
        losses = fit.optimise(batches, scales, steps, learning_rate)
        after = fit.evaluate(batches, seed)
        if not after <= before:
            put_back(scales, kept)
            after = before
    if temperature:
        set_logit_temperature(model, fit.temperature)
    count, seconds = sum(batch.size for batch in batches), time.perf_counter() - start
    found = _scales(posteriors), losses, _lengthscales(posteriors)
    return Calibration(nll_mean, before, after, count, steps, seconds, *found, logit_temperature(model))


def _check(steps: int, num_samples: int, learning_rate: float) -> None:
    if steps < 1 or num_samples < 1:
        raise ValueError(f"steps, num_samples: expected at least 1, got {steps} and {num_samples}")
    if not learning_rate > 0:
        raise ValueError(f"learning_rate: expected a positive number, got {learning_rate!r}")


def _posteriors(model: nn.Module) -> dict[str, SoftmaxPosterior]:
    """What has scales, by its name; frozen factors are dropped: they depend on the lengthscale."""
    posteriors = {name: m for name, m in model.named_modules() if isinstance(m, SoftmaxPosterior)}
    if not posteriors:
        raise ValueError("model: expected layers with softmax's mean (convert by 'cgp' or 'scgp'), got none")
    for block in attention_blocks(model):
        block.train(block.training)
    return posteriors


def _range(values: Tensor) -> str:
    return f"{float(values.min()):.3g} to {float(values.max()):.3g}"


def _scales(posteriors: dict[str, SoftmaxPosterior]) -> dict[str, tuple[Tensor, Tensor]]:
    return {name: (m.log_amplitude.detach().exp(), m.noise.detach()) for name, m in posteriors.items()}


def _lengthscales(posteriors: dict[str, SoftmaxPosterior]) -> dict[str, Tensor]:
    kept = ((name, m.log_lengthscale) for name, m in posteriors.items())
    return {name: value.detach().exp() for name, value in kept if value is not None}
