"""Training objective: the evidence lower bound of any module with Gaussian-process blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpytorch.likelihoods import Likelihood
from torch import Tensor, nn

from cgp.attention import StochasticHeads

from .blocks import added_losses, clear_added_losses, draws, global_kl, stochastic_layers
from .inputs import call_model, logits_of
from .shared_prefix import SharedPrefix

__all__ = ["Objective"]

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

    Models must accept a leading dimension S, as the reference models do: all draws are made in one pass. Models made
    by :func:`cgp.convert` run once per draw; the layers below their first stochastic layer, with their dropout, run
    once per step and are shared by the draws, unless the model changes their outputs in place, recomputes them
    (gradient checkpointing) or is compiled.

    Args:
        model: maps inputs to function values: logits or outputs, ``(*batch, C)``, or ``(S, *batch, C)`` with draws.
        likelihood: a likelihood with ``expected_log_prob(observations, function_samples)``.
        num_data: size N of the training set.
        alpha: weight of the log-density; :meth:`set_weights` changes it during training.
        beta: weight of the divergences; likewise.
        num_samples: number S of draws per step.
        output: function that takes the function values from the model's output.

    Raises:
        ValueError: if a size is not positive.

    Example:
        >>> from cgp import CGPAttention, CategoricalLikelihood
        >>> model = nn.Sequential(CGPAttention(8, 2), nn.Flatten(), nn.Linear(40, 3))
        >>> loss = Objective(model, CategoricalLikelihood(3), num_data=100, alpha=0.1)
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
        self.model, self.likelihood = model, likelihood
        self.num_data, self.num_samples = num_data, num_samples
        self.output = output
        self._carries_draws = not any(isinstance(module, StochasticHeads) for module in model.modules())
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
        """
        return self.parts(inputs, targets, **model_options)["loss"]

    def parts(self, inputs: Any, targets: Tensor, **model_options: Any) -> dict[str, Tensor]:
        """The loss and its unweighted parts; arguments of :meth:`forward`.

        Returns:
            "loss", "nll" (per datum), "global_kl" (not divided by N), and the per-sequence terms of the model's
            blocks: "log_density" (negative), "kl", "ksvd".
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
        return {"loss": loss, "nll": nll, "global_kl": kl, **terms}

    def _draws(self, inputs: Any, options: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Function values (S, *batch, C), or (*batch, C), and the per-sequence terms."""

        def run(model: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
            return self.output(call_model(model, inputs, **options)), added_losses(model)

        is_stochastic = any(layer.sampling != "mean" for layer in stochastic_layers(self.model))
        if self._carries_draws or self.num_samples == 1 or not is_stochastic:
            with draws(self.model, self.num_samples):
                return run(self.model)
        functions, terms = zip(*self._passes(run), strict=True)
        return torch.stack(functions), {kind: torch.stack([t[kind] for t in terms]).mean() for kind in terms[0]}

    def _passes(self, run: Callable[[nn.Module], Any]) -> Iterator[Any]:
        """One draw after the other."""
        recomputes = any(getattr(module, name, False) for module in self.model.modules() for name in _RECOMPUTES)
        if recomputes or torch.compiler.is_compiling():
            yield from (run(self.model) for _ in range(self.num_samples))
            return
        prefix = SharedPrefix(self.model, training=True)
        yield from (prefix.run(run) for _ in range(self.num_samples))
