"""Dropout that goes on in prediction: its masks are draws, from the noise of the other stochastic layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from cgp.attention import SamplingMixin
from cgp.functional.noise import standard_normal
from cgp.networks.predict.method import Method
from cgp.networks.tasks import Task

__all__ = ["Dropout", "SampledDropout"]

_DIMS: dict[type, int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}


class Dropout(Method):
    """The model's own dropout, left on in prediction.

    It is that of layers, ``nn.Dropout`` (or 1d, 2d, 3d) with a probability above 0: dropout that is a function call (of
    attention weights inside ``scaled_dot_product_attention``) and stochastic depth stay off.

    Note:
        Gal & Ghahramani, Dropout as a Bayesian Approximation (ICML 2016).
    """

    name, draws = "dropout", True
    words = "the model's own dropout, left on,"

    def obstacle(self, model: nn.Module, task: Task) -> str | None:
        """It needs layers that drop."""
        if next(_dropout_layers(model), None) is not None:
            return None
        return "model: expected dropout layers (nn.Dropout) with a probability above 0, got a model without any"

    def apply(self, model: nn.Module) -> nn.Module:
        """A network whose dropout draws."""
        owners = list(_dropout_layers(model))
        layers = {module: SampledDropout(module.p, _DIMS[type(module)], module).eval() for _, _, module in owners}
        for parent, name, module in owners:
            parent._modules[name] = layers[module]
        for module in model.modules():  # the fused path in eval mode passes the layers inside by
            if isinstance(module, nn.TransformerEncoder | nn.TransformerEncoderLayer):
                vars(module).update(use_nested_tensor=False, activation_relu_or_gelu=0)
        return model

    def undo(self, model: nn.Module) -> None:
        """Put the layers back."""
        for parent in list(model.modules()):
            for name, module in parent._modules.items():
                if isinstance(module, SampledDropout):
                    parent._modules[name] = module.replaced[0]


class SampledDropout(SamplingMixin, nn.Module):
    r"""Dropout whose mask is a draw, :math:`x \odot m / (1 - p)` with :math:`m_i = [\Phi(z_i) > p]`, z standard normal.

    In mode "mean" it returns x. Reflected noise gives the antithetic mask, in which what was dropped is kept.

    Args:
        p: probability of dropping, in (0, 1).
        dims: trailing dimensions that are dropped together: 0 for ``nn.Dropout``, 1 to 3 for ``nn.Dropout1d`` to 3d.
        replaced: the layer that it stands for.

    Note:
        Gal & Ghahramani, Dropout as a Bayesian Approximation (ICML 2016), equation (6).

    Example:
        >>> dropout = SampledDropout(0.5).eval()
        >>> dropout(torch.ones(3))
        tensor([1., 1., 1.])
        >>> dropout.sampling = "marginal"
        >>> sorted({0.0, 2.0} | set(dropout(torch.ones(100)).tolist()))
        [0.0, 2.0]
    """

    def __init__(self, p: float, dims: int = 0, replaced: nn.Module | None = None) -> None:
        super().__init__()
        self.p, self.dims = p, dims
        self.replaced = (replaced,)  # in a tuple, so that it is no submodule

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements (or channels) of x."""
        if self.sampling == "mean":
            return x
        quantile = float(torch.special.ndtri(torch.tensor(self.p, dtype=torch.float64)))
        mask = standard_normal(x.flatten(x.dim() - self.dims)[..., 0] if self.dims else x) > quantile
        return x * mask[(..., *(None,) * self.dims)] / (1.0 - self.p)


def _dropout_layers(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """Each layer that drops, with its parent and its name there."""
    for parent in model.modules():
        for name, module in parent._modules.items():
            if type(module) in _DIMS and 0.0 < float(getattr(module, "p", 0.0)) < 1.0:
                yield parent, name, module
