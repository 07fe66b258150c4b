"""Mean-field variational inference: an independent Gaussian for every weight of the linear layers."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from cgp.attention import SamplingMixin

__all__ = ["MeanFieldLinear", "mean_field"]

Module = TypeVar("Module", bound=nn.Module)


class MeanFieldLinear(SamplingMixin, nn.Module):
    r"""A linear layer with a Gaussian over weights and biases.

    .. math:: q(W) = \prod_{ij} N(W_{ij};\, \mu_{ij}, \sigma_{ij}^2), \qquad p(W) = \prod_{ij} N(W_{ij};\, 0, s^2)

    with `prior_deviation` s; the means are initialised by the linear layer's parameters, which are reused. All tokens
    of a sequence share a draw of the weights, by random signs per sequence (flipout).

    Source:
        Blundell et al. (2015), Weight Uncertainty in Neural Networks, section 3.2; Wen et al. (2018), Flipout,
        equation (4).
    """

    def __init__(self, linear: nn.Linear, *, prior_deviation: float = 0.1, initial_deviation: float = 0.01) -> None:
        super().__init__()
        for name, value in {"prior_deviation": prior_deviation, "initial_deviation": initial_deviation}.items():
            if not value > 0:
                raise ValueError(f"{name}: expected above 0, got {value}")
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.prior_deviation = prior_deviation
        self.weight, self.bias = linear.weight, linear.bias
        raw = math.log(math.expm1(initial_deviation))  # the inverse of softplus
        self.raw_weight_deviation = nn.Parameter(torch.full_like(linear.weight, raw))
        bias: Tensor | None = linear.bias
        self.raw_bias_deviation = None if bias is None else nn.Parameter(torch.full_like(bias, raw))

    @property
    def weight_deviation(self) -> Tensor:  # shape: (out, in)
        """σ of the weights."""
        return F.softplus(self.raw_weight_deviation)

    @property
    def bias_deviation(self) -> Tensor | None:  # shape: (out,)
        """σ of the biases, or None."""
        raw: Tensor | None = self.raw_bias_deviation
        return None if raw is None else F.softplus(raw)

    @property
    def variational_strategy(self) -> MeanFieldLinear:
        """The layer itself, whose `kl_divergence` `Objective` adds."""
        return self

    def kl_divergence(self) -> Tensor:
        """Divergence of the posterior from the prior, `()`, in nats."""
        prior = Normal(self.weight.new_zeros(()), self.weight.new_tensor(self.prior_deviation))
        total = kl_divergence(Normal(self.weight, self.weight_deviation), prior).sum()
        if self.bias_deviation is not None:
            total = total + kl_divergence(Normal(self.bias, self.bias_deviation), prior).sum()
        return total

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to `(*batch, in)`; with three dimensions or more, the last but one is that of tokens."""
        x = x.expand(*self.draw_shape, *x.shape)
        mean = F.linear(x, self.weight, self.bias)
        if self.sampling == "mean":
            return mean
        rows = x.shape[:-1] if x.dim() < 3 else (*x.shape[:-2], 1)  # one draw of the weights for each of these
        signs_in, signs_out = _signs(rows, self.in_features, x), _signs(rows, self.out_features, x)
        perturbation = self.weight_deviation * torch.randn_like(self.weight)
        noise = F.linear(x * signs_in, perturbation) * signs_out
        if self.bias_deviation is not None:
            noise = noise + self.bias_deviation * torch.randn(*rows, self.out_features, device=x.device, dtype=x.dtype)
        return mean + noise

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"{self.in_features}, {self.out_features}"


def mean_field(model: Module, *, prior_deviation: float = 0.1, initial_deviation: float = 0.01) -> Module:
    """Replace every linear layer by a mean-field layer, in place.

    Embeddings of symbols, positions and normalisations are not changed. Options of `MeanFieldLinear`.
    """
    if any(isinstance(module, nn.MultiheadAttention) for module in model.modules()):
        raise ValueError("model: expected linear layers that are called, got torch's MultiheadAttention")
    places = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    if not places:
        raise ValueError("model: expected linear layers inside, got none")
    for parent, name in places:
        linear = getattr(parent, name)
        layer = MeanFieldLinear(linear, prior_deviation=prior_deviation, initial_deviation=initial_deviation)
        setattr(parent, name, layer.train(parent.training))
    return model


def _signs(rows: tuple[int, ...], width: int, like: Tensor) -> Tensor:
    return torch.randint(0, 2, (*rows, width), device=like.device).to(like.dtype).mul_(2.0).sub_(1.0)
