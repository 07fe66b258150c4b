"""Training objective: the evidence lower bound of any module with Gaussian-process blocks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import Likelihood
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from cgp.attention import StochasticHeads
from cgp.functional.linalg import may_read

from .blocks import REPLACED, added_losses, clear_added_losses, draws, global_kl, sampling, stochastic_layers
from .inputs import call_model, logits_of
from .labels import class_indices
from .shared_prefix import SharedPrefix
from .structural_copy import structural_copy, with_own_buffers

__all__ = ["CategoricalLikelihood", "HomoscedasticLikelihood", "Objective"]


class CategoricalLikelihood(Likelihood):
    r"""Classes from logits, :math:`p(y = c \mid f) = \operatorname{softmax}(f)_c`.

    Args:
        num_classes: C, at least 2.

    Raises:
        ValueError: if there are fewer than two classes.

    Example:
        >>> CategoricalLikelihood(2).expected_log_prob(torch.tensor([0]), torch.zeros(4, 1, 2))
        tensor([-0.6931])
    """

    _is_checked = False  # whether labels were read, which is done once on an accelerator: a reading waits for it

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        if getattr(num_classes, "__index__", None) is None or num_classes < 2:  # a string, say
            raise ValueError(f"num_classes: expected at least 2, got {num_classes!r}")
        self.num_classes = num_classes

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Categorical:
        """The distribution of labels given logits ``(*sample, *batch, C)``; further arguments are GPyTorch's."""
        return Categorical(logits=function_samples)

    def expected_log_prob(self, observations: Tensor, function_samples: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        r"""Monte Carlo average for class indices ``(*batch,)``, :math:`\tfrac1S\sum_s \log p(y \mid f_s)`, in nats."""
        if function_samples.shape[-1] != self.num_classes:
            got, fitting = tuple(function_samples.shape), _fitting(self, self.num_classes, function_samples.shape[-1])
            raise ValueError(f"function_samples: expected (..., {self.num_classes}), got {got}{fitting}")
        _check_batch(observations, function_samples.shape[:-1])
        labels = self._checked(observations).expand(function_samples.shape[:-1])
        log_prob = function_samples.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        return _average_draws(log_prob, observations.dim())

    def _checked(self, labels: Tensor) -> Tensor:
        """The labels as class indices; ValueError for those that are none."""
        reads = may_read(labels) and (labels.device.type == "cpu" or not self._is_checked)
        indices = class_indices(labels, (*labels.shape, self.num_classes), name="observations", every=True, reads=reads)
        if reads:
            self._is_checked = True
        return indices


class HomoscedasticLikelihood(Likelihood):
    r"""Real outputs with Gaussian noise, :math:`y \sim N(f, \sigma^2)`, one learned variance per output.

    Args:
        num_outputs: number of outputs E.
        initial_noise: initial noise variance, in units of y squared.

    Raises:
        ValueError: if there is no output or the noise is not positive.

    Example:
        >>> HomoscedasticLikelihood(1, initial_noise=1.0).expected_log_prob(torch.zeros(3, 1), torch.zeros(5, 3, 1))
        tensor([-0.9189, -0.9189, -0.9189], grad_fn=<...>)
    """

    def __init__(self, num_outputs: int = 1, *, initial_noise: float = 0.1) -> None:
        super().__init__()
        if num_outputs < 1 or not initial_noise > 1e-4:
            raise ValueError(
                f"num_outputs, initial_noise: expected at least 1 and above 1e-4, got {num_outputs} and {initial_noise}"
            )
        self.num_outputs = num_outputs
        self.register_parameter("raw_noise", nn.Parameter(torch.zeros(num_outputs)))
        self.register_constraint("raw_noise", GreaterThan(1e-4))
        self.noise = torch.full((num_outputs,), float(initial_noise))

    @property
    def noise(self) -> Tensor:
        """Noise variance of each output, ``(E,)``."""
        return self.raw_noise_constraint.transform(self.raw_noise)

    @noise.setter
    def noise(self, value: Tensor) -> None:
        self.initialize(raw_noise=self.raw_noise_constraint.inverse_transform(value.to(self.raw_noise)))

    def forward(self, function_samples: Tensor, *args: Any, **kwargs: Any) -> Normal:
        """The distribution of outputs given the function ``(*sample, *batch, E)``; further arguments are GPyTorch's."""
        return Normal(function_samples, self.noise.sqrt())

    def expected_log_prob(self, observations: Tensor, function_samples: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        r"""Monte Carlo average, :math:`-\tfrac1{2S}\sum_{se}[(y_e - f_{se})^2/\sigma_e^2 + \log 2\pi\sigma_e^2]`."""
        if function_samples.shape[-1] != self.num_outputs or observations.shape[-1:] != function_samples.shape[-1:]:
            got = tuple(observations.shape), tuple(function_samples.shape)
            raise ValueError(
                f"observations, function_samples: expected (..., {self.num_outputs}) both, "
                f"got {got[0]} and {got[1]}{_fitting(self, self.num_outputs, got[1][-1])}"
            )
        _check_batch(observations[..., 0], function_samples.shape[:-1])
        squared = (observations - function_samples).square() / self.noise
        log_prob = -0.5 * (squared + self.noise.log() + math.log(2.0 * math.pi)).sum(-1)
        return _average_draws(log_prob, observations.dim() - 1)


def _fitting(likelihood: Likelihood, expected: int, got: int) -> str:
    """The end of a message about a model of another number of outputs: the two ways to make them one."""
    if expected == got:
        return ""
    return f" (take {type(likelihood).__name__}({got}), or a model whose last layer has {expected} outputs)"


def _check_batch(observations: Tensor, sample_shape: torch.Size) -> None:
    batch = observations.shape
    if len(batch) > len(sample_shape) or sample_shape[len(sample_shape) - len(batch) :] != batch:
        raise ValueError(
            f"observations: expected the batch shape of the samples, (*sample, *batch) = {tuple(sample_shape)}, "
            f"got {tuple(batch)}"
        )


def _average_draws(log_prob: Tensor, batch_dims: int) -> Tensor:
    draws = log_prob.dim() - batch_dims
    return log_prob.mean(tuple(range(draws))) if draws else log_prob


class _Copies:
    """A hook after which a layer gives S copies of its outputs, once: in a further call its inputs are copies."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples: int | None = num_samples

    def __call__(self, layer: nn.Module, inputs: Any, outputs: Any) -> Any:
        count, self.num_samples = self.num_samples, None
        if count is None:
            return outputs
        first, *rest = outputs if isinstance(outputs, tuple) else (outputs,)
        return (first.expand(count, *first.shape), *rest) if rest else first.expand(count, *first.shape)


def _are_close(x: Tensor, y: Tensor) -> bool:
    """Whether outputs are the same but for rounding, which is far below 1 % of the largest of them."""
    if x.shape != y.shape:
        return False
    is_coarse = torch.is_autocast_enabled(x.device.type) or x.dtype in (torch.float16, torch.bfloat16)
    error, scale = (x - y).abs().max(), y.abs().max()
    return not bool(error > (0.1 if is_coarse else 0.01) * scale)


_NO_REGULARISER = (
    "alpha: it weighs a regulariser, and no block has added one (objective='marginal' or 'joint' of a correlated "
    "block, which has none under a causal mask)"
)
_RECOMPUTES = ("gradient_checkpointing", "grad_checkpointing")  # what transformers and timm call it


class Objective(nn.Module):
    r"""Training loss per datum of a transformer with Gaussian-process attention.

    .. math::
        -\frac1B\sum_b \frac1S\sum_s \log p(y_b \mid f_{sb}) \;-\; \alpha\,\mathcal{R}
        \;+\; \beta\Big[\frac{\mathrm{KL}_{\text{global}}}{N} + \mathrm{KL}_{\text{sequences}}\Big] \;+\; \mathrm{KSVD}

    As in GPyTorch's ``VariationalELBO``, divergences of variables shared by the whole data set are divided by its size
    N; terms that belong to the sequences of the batch are not. R is the log-density of CGPT (26)-(29), summed over
    layers and heads.

    It is a module, so that it can be compiled and wrapped for data-parallel training as a whole.

    Models must accept a leading dimension S, as the reference models do: all draws are made in one pass, and one that
    counts dimensions from the front is refused at the first step of ``num_samples`` above 1. Models made
    by :func:`cgp.convert` or :func:`cgp.replace_attention` run once per draw; the layers below their first stochastic
    layer, with their dropout, run once per step and are shared by the draws, unless the model changes their outputs in
    place, recomputes them (gradient checkpointing) or is compiled.

    A model in eval mode has neither draws nor terms of sequences: the loss is that of its means, so ``train()`` it.

    Args:
        model: maps inputs to function values: logits or outputs, ``(*batch, C)``, or ``(S, *batch, C)`` with draws.
        likelihood: a likelihood with ``expected_log_prob(observations, function_samples)``.
        num_data: size N of the training set.
        alpha: weight of the log-density, which blocks with an ``objective`` add; :meth:`set_weights` changes it during
            training.
        beta: weight of the divergences; likewise.
        num_samples: number S of draws per step.
        output: function that takes the function values from the model's output.

    Raises:
        ValueError: if a size is not positive, or the likelihood is none.

    Example:
        >>> from cgp import CGPAttention, CategoricalLikelihood
        >>> model = nn.Sequential(CGPAttention(8, 2), nn.Flatten(-2), nn.Linear(40, 3))
        >>> loss = Objective(model, CategoricalLikelihood(3), num_data=100, num_samples=4)
        >>> loss(torch.zeros(4, 5, 8), torch.zeros(4, dtype=torch.long)).shape
        torch.Size([])
    """

    alpha: Tensor
    beta: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        num_data: int,
        *,
        alpha: float = 0.0,
        beta: float = 1.0,
        num_samples: int = 1,
        output: Callable[[Any], Tensor] = logits_of,
    ) -> None:
        super().__init__()
        if num_data < 1 or num_samples < 1:
            raise ValueError(f"num_data, num_samples: expected at least 1, got {num_data} and {num_samples}")
        if not hasattr(likelihood, "expected_log_prob"):
            raise ValueError(
                "likelihood: expected one with expected_log_prob, such as cgp.CategoricalLikelihood(num_classes), "
                f"got {likelihood!r}"
            )
        if likelihood.expected_log_prob.__module__.startswith("gpytorch."):
            raise ValueError(
                "likelihood: expected one whose expected_log_prob takes draws of the outputs, "
                "cgp.CategoricalLikelihood(num_classes) or cgp.HomoscedasticLikelihood(num_outputs), got GPyTorch's "
                f"{type(likelihood).__name__}, which takes their distribution"
            )
        self.model, self.likelihood = model, likelihood
        self.num_data, self.num_samples = num_data, num_samples
        self.output = output
        hosted = (isinstance(module, StochasticHeads) or hasattr(module, REPLACED) for module in model.modules())
        self._carries_draws, self._is_checked, self._asks_regulariser = not any(hosted), False, alpha != 0
        self.register_buffer("alpha", torch.tensor(float(alpha)), persistent=False)  # tensors: no recompilation
        self.register_buffer("beta", torch.tensor(float(beta)), persistent=False)

    def set_weights(self, *, alpha: float | None = None, beta: float | None = None) -> None:
        """Change the weights of the regulariser and of the divergences.

        Args:
            alpha: weight of the log-density; None keeps the current one.
            beta: weight of the divergences; None keeps the current one.
        """
        for buffer, value in ((self.alpha, alpha), (self.beta, beta)):
            if value is not None:
                buffer.fill_(value)

    def forward(self, inputs: Any, targets: Tensor, **model_options: Any) -> Tensor:
        """The loss of a batch.

        Args:
            inputs: arguments of the model: a tensor, a tuple, or a dict of keyword arguments.
            targets: labels ``(*batch,)`` or outputs ``(*batch, E)``.
            **model_options: passed to the model (masks).

        Returns:
            ``()``, in nats per datum; per-sequence terms are part of it in training mode.

        Raises:
            ValueError: if targets do not fit (on an accelerator, classes are checked in the first call only), or the
                model takes the draws for its batch.
        """
        return self.parts(inputs, targets, **model_options)["loss"]

    def parts(self, inputs: Any, targets: Tensor, **model_options: Any) -> dict[str, Tensor]:
        """The loss and its parts, before the weights of the objective; arguments of :meth:`forward`.

        Returns:
            "loss", "nll" (per datum), "global_kl" (not divided by N), and the per-sequence terms of the model's
            blocks: "log_density" (negative), "kl" and "ksvd", times the blocks' own ``sequence_weight`` and
            ``ksvd_weight``.
        """
        clear_added_losses(self.model)
        function, terms = self._draws(inputs, model_options)
        clear_added_losses(self.model)
        if function.dtype in (torch.float16, torch.bfloat16):
            function = function.float()
        nll, kl = -self.likelihood.expected_log_prob(targets, function).mean(), global_kl(self.model)
        weights: dict[str, Tensor | float] = {"log_density": self.alpha, "kl": self.beta, "ksvd": 1.0}
        loss = nll + self.beta * kl / self.num_data
        for kind, value in terms.items():
            loss = loss + weights[kind] * value
        if self._asks_regulariser and self.model.training and not torch.compiler.is_compiling():
            self._asks_regulariser = False
            if "log_density" not in terms:
                warnings.warn(_NO_REGULARISER, stacklevel=2)
        return {"loss": loss, "nll": nll, "global_kl": kl, **terms}

    def _draws(self, inputs: Any, options: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Function values (S, *batch, C), or (*batch, C), and the per-sequence terms."""

        def run(model: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
            return self.output(call_model(model, inputs, **options)), added_losses(model)

        is_stochastic = any(layer.sampling != "mean" for layer in stochastic_layers(self.model))
        if self._carries_draws or self.num_samples == 1 or not is_stochastic:
            if self.num_samples > 1 and is_stochastic:
                self._check_leading(lambda model: run(model)[0])
            with draws(self.model, self.num_samples):
                return run(self.model)
        functions, terms = zip(*self._passes(run), strict=True)
        return torch.stack(functions), {kind: torch.stack([t[kind] for t in terms]).mean() for kind in terms[0]}

    def _check_leading(self, run: Callable[[nn.Module], Tensor]) -> None:
        """Once, before the first step: whether the model takes the dimension of draws for that of the batch.

        One pass of the means is compared with one in which they are copied at the first layer that draws.

        Raises:
            OutOfMemoryError: if there is no memory for the copies.
            ValueError: if it does.
        """
        if self._is_checked or torch.compiler.is_compiling():
            return
        model = with_own_buffers(structural_copy(self.model))
        first = next(layer for layer in stochastic_layers(model) if layer.sampling != "mean")
        for module in model.modules():
            if not isinstance(module, torch.jit.ScriptModule):
                module.training = False
        with torch.no_grad(), torch.random.fork_rng(devices=[]), sampling(model, "mean"):
            state = torch.get_rng_state()
            alone = run(model)
            if not may_read(alone):
                return
            torch.set_rng_state(state)
            hook = first.register_forward_hook(_Copies(self.num_samples))
            try:
                is_right = _are_close(run(model), alone.expand(self.num_samples, *alone.shape))
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
                clear_added_losses(self.model)
                raise self._counts_from_front(f"one that fails then ({error.__cause__ or error})") from error
            finally:
                hook.remove()
            is_right = is_right or not _are_close(run(model), alone)  # it draws in ways of its own
        clear_added_losses(self.model)
        if not is_right:
            raise self._counts_from_front("one whose outputs are others then")
        self._is_checked = True

    def _counts_from_front(self, got: str) -> ValueError:
        return ValueError(
            f"model: expected one that takes draws in a leading dimension, as num_samples={self.num_samples}, got "
            f"{got}: it counts dimensions from the front. Count them from the end, x.mean(-2), x[..., 0, :] or "
            "nn.Flatten(-2) in place of x.mean(1), x[:, 0] or nn.Flatten(), or set num_samples=1"
        )

    def _passes(self, run: Callable[[nn.Module], Any]) -> Iterator[Any]:
        """One draw after the other."""
        recomputes = any(getattr(module, name, False) for module in self.model.modules() for name in _RECOMPUTES)
        if recomputes or torch.compiler.is_compiling():
            yield from (run(self.model) for _ in range(self.num_samples))
            return
        prefix = SharedPrefix(self.model, training=True)
        yield from (prefix.run(run) for _ in range(self.num_samples))
