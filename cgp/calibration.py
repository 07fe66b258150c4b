"""The scales of a converted model, fitted on a small validation set."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp.attention.softmax_posterior import SoftmaxPosterior

from .circumstances import eval_mode, seeded, uncompiled
from .deep_gp import attention_blocks
from .deep_gp import sampling as sampling_mode
from .inputs import call_model, logits_of, model_device, to_device
from .replay import SharedPrefix

__all__ = ["Calibration", "calibrate", "mixture_nll"]

_FACTORS = (1.0, 0.1, 0.3, 3.0, 10.0)


@dataclass(frozen=True)
class Calibration:
    r"""What :func:`calibrate` did.

    Attributes:
        nll_mean: negative log-likelihood in mean mode, which is the original model's, in nats per example.
        nll_before: of the draws with the scales as they were.
        nll_after: of the draws with the scales as they are, under the same seed.
        num_data: examples.
        steps: of the optimiser.
        seconds: in all.
        scales: for each layer, by its name, :math:`\tau` and :math:`\sigma^2` of each head.
        lengthscales: for each layer with "bounded" statistics, by its name, :math:`\ell` of each head.
        losses: of each step, on its batch.
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

    def __str__(self) -> str:
        """Two lines for a reader, and one a layer."""
        head = (
            f"{self.steps} steps on {self.num_data} examples in {self.seconds:.1f} s",
            f"NLL {self.nll_mean:.4f} (mean alone), {self.nll_before:.4f} before, {self.nll_after:.4f} after",
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
    learning_rate: float = 0.05,
    sampling: str = "marginal",
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] = mixture_nll,
    output: Callable[[Any], Tensor] = logits_of,
) -> Calibration:
    r"""Fit the amplitude :math:`\tau` and noise :math:`\sigma^2` of every head of a converted model, and nothing else.

    With "bounded" statistics the lengthscale :math:`\ell` is fitted, too. Minimises the loss of reparametrised draws by
    Adam, from the best of a few multiples of the amplitudes. The mean does not depend on the scales, so the predictions
    in mean mode stay as they are. What lies below the first stochastic layer is computed once for each batch and kept;
    if the loss has not fallen at the end, the scales are put back. Frozen factors are dropped.

    Args:
        model: with softmax's mean: what :func:`cgp.convert` makes by "cgp" or "scgp".
        loader: batches ``(inputs, targets)``, or dicts with "labels"; a few hundred examples do. It is read once and
            kept.
        steps: of Adam, one batch each, the batches in turn.
        num_samples: S draws a step, and twice as many for the figures reported.
        learning_rate: of Adam, on the unconstrained scales.
        sampling: "marginal" or "joint", as the predictions will be drawn.
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
    if steps < 1 or num_samples < 1:
        raise ValueError(f"steps, num_samples: expected at least 1, got {steps} and {num_samples}")
    if not learning_rate > 0:
        raise ValueError(f"learning_rate: expected a positive number, got {learning_rate!r}")
    start, model = time.perf_counter(), uncompiled(model)
    posteriors = {name: m for name, m in model.named_modules() if isinstance(m, SoftmaxPosterior)}
    if not posteriors:
        raise ValueError("model: expected layers with softmax's mean (convert by 'cgp' or 'scgp'), got none")
    scales = [parameter for m in posteriors.values() for parameter in m.scales()]
    for block in attention_blocks(model):
        block.train(block.training)  # drops frozen factors: they depend on the lengthscale
    with eval_mode(model), _only(model, scales), seeded(seed, model_device(model)):
        fit = _Fit(model, sampling, num_samples, loss, output)
        batches = [fit.prepare(batch) for batch in loader]
        if not batches:
            raise ValueError("loader: expected at least one batch, got none")
        nll_mean = _average([(b.mean_loss, b.size) for b in batches])
        kept, before = [p.detach().clone() for p in scales], fit.evaluate(batches, seed)
        fit.start(batches[0], [m.log_amplitude for m in posteriors.values()], seed)
        losses = fit.optimise(batches, scales, steps, learning_rate)
        after = fit.evaluate(batches, seed)
        if not after <= before:
            _put_back(scales, kept)
            after = before
    count = sum(batch.size for batch in batches)
    seconds = time.perf_counter() - start
    lengthscales = {n: m.log_lengthscale.detach().exp() for n, m in posteriors.items() if m.log_lengthscale is not None}
    scales_found = _scales(posteriors)
    return Calibration(nll_mean, before, after, count, steps, seconds, scales_found, losses, lengthscales)


def _range(values: Tensor) -> str:
    return f"{float(values.min()):.3g} to {float(values.max()):.3g}"


class _Batch(NamedTuple):
    inputs: Any
    targets: Tensor
    prefix: SharedPrefix
    mean_loss: float
    size: int


class _Fit:
    """Draws of the batches, and their loss."""

    def __init__(
        self,
        model: nn.Module,
        mode: str,
        num_samples: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        output: Callable[[Any], Tensor],
    ) -> None:
        self.model, self.mode, self.num_samples, self.loss, self.output = model, mode, num_samples, loss, output
        self.device = model_device(model)

    @torch.no_grad()
    def prepare(self, batch: Any) -> _Batch:
        """A batch on the model's device, with what lies below the first stochastic layer."""
        inputs, targets = to_device(_inputs_and_targets(batch), self.device)
        prefix = SharedPrefix(self.model)
        with sampling_mode(self.model, "mean"):
            logits = self.output(prefix.record(lambda: call_model(self.model, inputs)))
        return _Batch(inputs, targets, prefix, float(self.loss(logits[None], targets)), len(targets))

    def draw_loss(self, batch: _Batch, num_samples: int) -> Tensor:
        """The loss of S draws."""
        with sampling_mode(self.model, self.mode), batch.prefix.replaying(posterior=True):
            draws = [self.output(call_model(self.model, batch.inputs)) for _ in range(num_samples)]
        return self.loss(torch.stack(draws).float(), batch.targets)

    @torch.no_grad()
    def evaluate(self, batches: list[_Batch], seed: int) -> float:
        """The loss of all batches, under one seed."""
        with seeded(seed, self.device):
            return _average([(float(self.draw_loss(b, 2 * self.num_samples)), b.size) for b in batches])

    @torch.no_grad()
    def start(self, batch: _Batch, log_amplitudes: list[nn.Parameter], seed: int) -> None:
        """Multiply all amplitudes by what suits one batch best: far from it, the loss is flat or steep."""
        given = [parameter.clone() for parameter in log_amplitudes]
        found = {}
        for factor in _FACTORS:
            _put_back(log_amplitudes, [value + math.log(factor) for value in given])
            found[factor] = self.evaluate([batch], seed)
        best = min(found, key=found.__getitem__)
        _put_back(log_amplitudes, [value + math.log(best) for value in given])

    @torch.enable_grad()
    def optimise(
        self, batches: list[_Batch], scales: list[nn.Parameter], steps: int, learning_rate: float
    ) -> tuple[float, ...]:
        """Steps of Adam over the batches in turn."""
        optimiser, losses = torch.optim.Adam(scales, lr=learning_rate), []
        for step in range(steps):
            optimiser.zero_grad()
            loss = self.draw_loss(batches[step % len(batches)], self.num_samples)
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        return tuple(losses)


def _inputs_and_targets(batch: Any) -> tuple[Any, Tensor]:
    if isinstance(batch, Mapping) and "labels" in batch:
        return {name: value for name, value in batch.items() if name != "labels"}, batch["labels"]
    if isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor):
        return batch[0], batch[1]
    raise ValueError(f"loader: expected batches (inputs, targets) or dicts with 'labels', got {type(batch).__name__}")


@contextmanager
def _only(model: nn.Module, parameters: list[nn.Parameter]) -> Iterator[None]:
    """Gradients for some parameters alone, for the time of a ``with``."""
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    for parameter, _ in before:
        parameter.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.grad = None
        for parameter, flag in before:
            parameter.requires_grad_(flag)


def _average(parts: list[tuple[float, int]]) -> float:
    return sum(value * count for value, count in parts) / sum(count for _, count in parts)


@torch.no_grad()
def _put_back(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)


def _scales(posteriors: dict[str, SoftmaxPosterior]) -> dict[str, tuple[Tensor, Tensor]]:
    return {name: (m.log_amplitude.detach().exp(), m.noise.detach()) for name, m in posteriors.items()}
