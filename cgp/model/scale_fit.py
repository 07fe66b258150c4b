"""Scales of a model fitted by the loss of its draws: what :func:`cgp.calibrate` is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .antithetic import antithetic_draws
from .blocks import sampling as sampling_mode
from .circumstances import seeded
from .inputs import call_model, model_device, to_device
from .replay import SharedPrefix
from .temperature import logit_temperature

__all__ = ["Batch", "ScaleFit", "only", "put_back"]

_FACTORS = (1.0, 0.1, 0.3, 3.0, 10.0)


class Batch(NamedTuple):
    """A batch that is run many times.

    Attributes:
        inputs: what the model takes.
        targets: labels.
        prefix: what lies below the first stochastic layer.
        logits: in mean mode, ``(B, ..., C)``.
        size: examples.
    """

    inputs: Any
    targets: Tensor
    prefix: SharedPrefix
    logits: Tensor
    size: int


class ScaleFit:
    """Draws of batches, their loss, and steps down it.

    Args:
        model: in eval mode.
        mode: "marginal" or "joint".
        num_samples: S draws a step.
        loss: ``(logits (S, B, ..., C), targets) -> ()``.
        output: takes the logits from what the model returns.
        fits_temperature: whether a temperature of the logits is to be fitted, from the model's on.
    """

    def __init__(
        self,
        model: nn.Module,
        mode: str,
        num_samples: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        output: Callable[[Any], Tensor],
        fits_temperature: bool,
    ) -> None:
        self.model, self.mode, self.num_samples, self.loss, self.output = model, mode, num_samples, loss, output
        self.device = model_device(model)
        start = torch.tensor(math.log(logit_temperature(model)), device=self.device)
        self.log_temperature = nn.Parameter(start, requires_grad=fits_temperature)

    @property
    def log_temperatures(self) -> list[nn.Parameter]:
        """The temperature if it is to be fitted."""
        return [self.log_temperature] if self.log_temperature.requires_grad else []

    @property
    def temperature(self) -> float:
        """By which the logits are divided."""
        return math.exp(float(self.log_temperature.detach()))

    @torch.no_grad()
    def prepare(self, batch: Any) -> Batch:
        """Put a batch on the model's device, and run it once in mean mode.

        Args:
            batch: ``(inputs, targets)``, or a dict with "labels".

        Returns:
            What is kept of it.
        """
        inputs, targets = to_device(_inputs_and_targets(batch), self.device)
        prefix = SharedPrefix(self.model)
        with sampling_mode(self.model, "mean"):
            logits = self.output(prefix.record(lambda: call_model(self.model, inputs)))
        return Batch(inputs, targets, prefix, logits, len(targets))

    def mean_loss(self, batches: list[Batch]) -> Tensor:
        """The loss in mean mode, at the temperature as it is.

        Args:
            batches: of :meth:`prepare`.

        Returns:
            ``()``, the average over the examples.
        """
        losses = torch.stack([self._loss([batch.logits], batch.targets) * batch.size for batch in batches])
        return losses.sum() / sum(batch.size for batch in batches)

    def draw_loss(self, batch: Batch, num_samples: int) -> Tensor:
        """The loss of antithetic draws.

        Args:
            batch: of :meth:`prepare`.
            num_samples: S.

        Returns:
            ``()``.
        """
        with sampling_mode(self.model, self.mode), batch.prefix.replaying(posterior=True):
            draws = antithetic_draws(self.model, lambda: self.output(call_model(self.model, batch.inputs)), num_samples)
        return self._loss(draws, batch.targets)

    def _loss(self, logits: list[Tensor], targets: Tensor) -> Tensor:
        return self.loss(torch.stack(logits).float() * (-self.log_temperature).exp(), targets)

    @torch.no_grad()
    def evaluate(self, batches: list[Batch], seed: int) -> float:
        """The loss of batches by twice as many draws, under one seed.

        Args:
            batches: of :meth:`prepare`.
            seed: of the draws.

        Returns:
            The average over the examples.
        """
        with seeded(seed, self.device):
            losses = [float(self.draw_loss(batch, 2 * self.num_samples)) * batch.size for batch in batches]
        return sum(losses) / sum(batch.size for batch in batches)

    def start(self, batches: list[Batch], log_amplitudes: list[nn.Parameter], seed: int) -> None:
        """Begin well: the temperature of the mean mode, all amplitudes multiplied by what suits one batch best.

        Far from that multiple the loss is flat or steep; and without a temperature of its own first, the covariance
        would begin with what a temperature does at less noise.

        Args:
            batches: of :meth:`prepare`.
            log_amplitudes: of every layer.
            seed: of the draws.
        """
        if self.log_temperatures:
            self._start_temperature(batches)
        given = [parameter.detach().clone() for parameter in log_amplitudes]
        found = {}
        for factor in _FACTORS:
            put_back(log_amplitudes, [value + math.log(factor) for value in given])
            found[factor] = self.evaluate(batches[:1], seed)
        best = min(found, key=found.__getitem__)
        put_back(log_amplitudes, [value + math.log(best) for value in given])

    @torch.enable_grad()
    def _start_temperature(self, batches: list[Batch]) -> None:
        optimiser = torch.optim.LBFGS(self.log_temperatures, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimiser.zero_grad()
            loss = self.mean_loss(batches)
            loss.backward()
            return loss

        optimiser.step(closure)

    @torch.enable_grad()
    def optimise(
        self, batches: list[Batch], scales: list[nn.Parameter], steps: int, learning_rate: float
    ) -> tuple[float, ...]:
        """Steps of Adam over the batches in turn, the rate falling to zero by a cosine.

        Args:
            batches: of :meth:`prepare`.
            scales: what is fitted.
            steps: how many.
            learning_rate: of the first step.

        Returns:
            The loss of each step, on its batch.
        """
        optimiser, losses = torch.optim.Adam(scales, lr=learning_rate), []
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        for step in range(steps):
            optimiser.zero_grad()
            loss = self.draw_loss(batches[step % len(batches)], self.num_samples)
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
        return tuple(losses)


def _inputs_and_targets(batch: Any) -> tuple[Any, Tensor]:
    if isinstance(batch, Mapping) and "labels" in batch:
        return {name: value for name, value in batch.items() if name != "labels"}, batch["labels"]
    if isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor):
        return batch[0], batch[1]
    raise ValueError(f"loader: expected batches (inputs, targets) or dicts with 'labels', got {type(batch).__name__}")


@contextmanager
def only(model: nn.Module, parameters: list[nn.Parameter]) -> Iterator[None]:
    """Gradients for some parameters alone, for the time of a ``with``.

    Args:
        model: whose other parameters have none.
        parameters: of the model, or not.
    """
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


@torch.no_grad()
def put_back(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    """Overwrite parameters.

    Args:
        parameters: to be overwritten.
        values: one for each.
    """
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
