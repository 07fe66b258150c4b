"""The draws of one batch: their sums, so that large outputs need not be kept, and the variances of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention.inputs import full_precision
from cgp.functional.noise import noise as noise_source
from cgp.networks.model.inputs import call_model, model_device
from cgp.networks.model.shared_prefix import SharedPrefix
from cgp.networks.tasks.metrics import decomposed, entropy
from cgp.networks.tasks.regression import check_variance
from cgp.networks.tasks.task import Task

from .draws import DrawVariance
from .method import settings_of
from .readout import ReadoutPrediction

__all__ = ["Draws", "checked_labels"]


def _zero() -> Tensor:
    return torch.zeros(())


@dataclass
class Draws:
    """Sums over the draws of one batch.

    Args:
        task: takes outputs from what the model returns.
        temperature: divides logits.
        labels: of the batch, or None.
        scale: of a regression, its noise variance, or the factor of the one that ``noise_of`` takes.
        noise_of: takes a variance from what the model returns, or None.
        keep_draws: whether the draws themselves are kept.
        keep_variance: whether the variances of tokens are.
        antithetic: whether the draws come in pairs of opposite noise.
    """

    task: Task
    temperature: float
    labels: Tensor | None
    scale: Tensor
    noise_of: Callable[[Any], Tensor] | None
    keep_draws: bool
    keep_variance: bool
    antithetic: bool
    noise: Tensor = field(default_factory=_zero)
    function_variance: Tensor | None = None  # of a read-out
    variances: dict[str, Tensor] = field(default_factory=dict)  # of tokens, by layer
    is_stochastic: bool = False
    count: int = 0
    mean: Tensor = field(default_factory=_zero)
    probabilities: Tensor = field(default_factory=_zero)
    entropy: Tensor = field(default_factory=_zero)
    kept: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.variance = DrawVariance(antithetic=self.antithetic)  # of the outputs

    def run(
        self, model: nn.Module, inputs: Any, noises: list[tuple[int, float]], mode: str, *, warns: int | None = None
    ) -> None:
        """Draw in mode "marginal" or "joint", by the seed and sign of each draw's noise, or take a read-out's moments.

        With ``warns``, the frames from here to the caller who is warned, the first draw is looked at for layers that
        did not run and for a model that is random by itself.
        """
        settings = settings_of(model)
        read = None if settings.method is None else settings.method.read(model, inputs)
        if read is not None:
            self._set_read(read, torch.ones(()) if settings.scale is None else settings.scale)
            return

        def call(model: nn.Module) -> Any:
            return call_model(model, inputs)

        def draw(prefix: SharedPrefix, seed: int, sign: float) -> Any:
            prefix.set_sampling(mode)
            with noise_source(seed, sign):
                return prefix.run(call)

        prefix = SharedPrefix(model)
        self.is_stochastic = bool(prefix.blocks)
        if self.keep_variance and len(prefix.blocks) > 1:
            self.variances = _variances(prefix, call)
        first, *others = noises if prefix.blocks else noises[:1]
        self._add(returned := draw(prefix, *first))
        if warns is not None:
            outputs = self.task.outputs
            prefix.warn(outputs(returned), lambda: outputs(draw(SharedPrefix(model), *first)), warns)
        for noise in others:
            self._add(draw(prefix, *noise))
        if self.keep_variance and prefix.blocks and not self.variances:
            self.variances = _variances(prefix, call)

    def results(self) -> dict[str, Tensor | None]:
        """Attributes of :class:`Prediction` for this batch, by name."""
        several, parts = self.count > 1, dict[str, Tensor | None](mean=self.mean)
        parts["draws"] = torch.stack(self.kept) if self.kept else None
        if self.task.has_classes:
            p, binary = self.probabilities / self.count, self.task.is_binary
            total, aleatoric, epistemic = decomposed(p, self.entropy / self.count, binary=binary)
            parts |= {"probabilities": p, "total": total}
            return parts | {"aleatoric": aleatoric if several else None, "epistemic": epistemic if several else None}
        spread = self.variance.value() if several else self.function_variance
        if self.task.kind is None:
            return parts | {"epistemic": spread}
        aleatoric = self.noise / self.count if several and self.noise_of is not None else self.noise
        total = aleatoric if spread is None else aleatoric + spread
        return parts | {"aleatoric": aleatoric, "total": total, "epistemic": spread}

    def _set_read(self, read: ReadoutPrediction, scale: Tensor) -> None:
        """Take a read-out's prediction of a regression, without draws."""
        noise = (read.noise * scale).expand_as(read.mean)
        self.mean, self.function_variance, self.noise = (part.float() for part in (read.mean, read.variance, noise))
        self.count = 1

    def _add(self, returned: Any) -> None:
        """Add what the model returned in one draw."""
        outputs = self.task.outputs(returned)
        if self.count == 0:
            self.task.check(outputs)
            checked_labels(self.task, self.labels, tuple(outputs.shape))
        outputs = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
        outputs = outputs if self.temperature == 1.0 else outputs / self.temperature
        self.count += 1
        self.mean = self.mean + (outputs - self.mean) / self.count
        if self.task.has_classes:
            p = outputs.sigmoid() if self.task.is_binary else outputs.softmax(-1)
            self.probabilities = self.probabilities + p
            self.entropy = self.entropy + entropy(p, binary=self.task.is_binary)
        else:
            p = outputs
            self.variance.add(outputs)
            if self.noise_of is None:  # the noise variance is given, or else averaged over the draws
                self.noise = self.scale.to(outputs).expand_as(outputs)
            else:
                self.noise = self.noise + self.scale.to(outputs) * check_variance(self.noise_of(returned), outputs)
        if self.keep_draws:
            self.kept.append(p)


def checked_labels(task: Task, labels: Tensor | None, shape: tuple[int, ...] | None = None) -> Tensor | None:
    """Class indices given with the inputs, or None; other labels as they are."""
    if labels is None or task.kind != "classification":
        return labels
    try:
        return task.labels(labels, shape)
    except ValueError as error:
        raise ValueError(f"{error}; or leave out the labels: pass the inputs by themselves") from error


def _variances(prefix: SharedPrefix, call: Callable[[nn.Module], Any]) -> dict[str, Tensor]:
    """Variance of each token in each stochastic block, given the mean of the layers below."""
    kept = prefix.posterior
    if kept is not None and kept.posterior is not None and len(prefix.blocks) == 1:  # no random layer below
        with full_precision(model_device(prefix.model)):
            return dict.fromkeys(prefix.blocks, kept.posterior.variance)
    measured = {name: _Measured(block) for name, block in prefix.blocks.items() if hasattr(block, "gaussian")}
    if not measured:  # dropout alone
        return {}
    prefix.set_sampling("mean")
    for attend in measured.values():
        vars(attend.block)["attend"] = attend
    prefix.run(call)
    for attend in measured.values():
        vars(attend.block).pop("attend")
    return {name: entry.variance for name, entry in measured.items() if entry.variance is not None}


class _Measured:
    """A block's ``attend`` that returns the mean and records the variance."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self.variance: Tensor | None = None  # of the last call

    def __call__(self, tokens: Any) -> Tensor:
        with full_precision(next(self.block.parameters()).device):
            posterior = self.block.gaussian(tokens)
            self.variance = posterior.variance
            return posterior.mean.to(tokens.q.dtype)
