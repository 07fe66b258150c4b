"""The configurations whose numbers are kept, and what is measured of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cgp import attention

EMBED_DIM, NUM_HEADS, NUM_TOKENS = 8, 2, 6


class BlockCase(NamedTuple):
    """A block and how it is called: "self", "padded", "causal" or "cross"."""

    name: str
    options: dict[str, Any]
    calls: tuple[str, ...] = ("self", "padded")


_CROSS = ("self", "padded", "cross")
_CAUSAL = (*_CROSS, "causal")
BLOCKS: dict[str, BlockCase] = {
    "exact_direct": BlockCase("CGPAttention", {"objective": "marginal"}, _CAUSAL),
    "exact_direct_joint": BlockCase("CGPAttention", {"objective": "joint", "kernel": "matern52"}),
    "exact_direct_plain": BlockCase("CGPAttention", {"objective": None, "kernel": "rq", "noise": 0.1}),
    "exact_latent": BlockCase("CGPAttention", {"coupling": "latent", "objective": "marginal"}, _CROSS),
    "exact_latent_joint": BlockCase("CGPAttention", {"coupling": "latent", "objective": "joint", "kernel": "matern32"}),
    "sparse_direct": BlockCase("SparseCGPAttention", {"num_inducing": 4, "objective": "marginal"}, _CAUSAL),
    "sparse_direct_joint": BlockCase("SparseCGPAttention", {"num_inducing": 4, "objective": "joint"}),
    "sparse_direct_plain": BlockCase(
        "SparseCGPAttention", {"num_inducing": 4, "objective": None, "kernel": "matern12"}
    ),
    "sparse_direct_sor": BlockCase(
        "SparseCGPAttention", {"num_inducing": 4, "objective": "marginal", "approximation": "sor"}, _CAUSAL
    ),
    "sparse_latent": BlockCase(
        "SparseCGPAttention", {"num_inducing": 4, "coupling": "latent", "objective": "marginal"}, _CROSS
    ),
    "sparse_latent_joint": BlockCase(
        "SparseCGPAttention", {"num_inducing": 4, "coupling": "latent", "objective": "joint"}
    ),
    "sparse_latent_sor": BlockCase(
        "SparseCGPAttention",
        {"num_inducing": 4, "coupling": "latent", "objective": "marginal", "approximation": "sor"},
    ),
    "softmax_exact": BlockCase("CGPAttention", {"mean": "softmax", "objective": None}, _CAUSAL),
    "softmax_sparse": BlockCase(
        "SparseCGPAttention", {"mean": "softmax", "num_inducing": 4, "objective": None}, _CAUSAL
    ),
    "kernel_rbf": BlockCase("KernelAttention", {"kernel": "rbf"}, _CAUSAL),
    "kernel_exponential": BlockCase("KernelAttention", {"kernel": "exponential", "symmetric": True}, _CAUSAL),
    "sgpa_standard": BlockCase("StandardSGPAttention", {}),
    "sgpa_decoupled": BlockCase("SGPAttention", {"num_inducing": 4}, _CROSS),
    "sgpa_exponential": BlockCase("SGPAttention", {"num_inducing": 4, "kernel": "exponential"}),
    "kep_addition": BlockCase("KEPSVGPAttention", {"rank": 3}),
    "kep_concatenation": BlockCase("KEPSVGPAttention", {"rank": 3, "merge": "concatenation", "num_tokens": NUM_TOKENS}),
    "kep_residual": BlockCase("KEPSVGPAttention", {"rank": 3, "branches": "e", "residual": True}),
    "primal": BlockCase("PrimalAttention", {"rank": 3}),
}


def build_block(case: BlockCase, options: dict[str, Any]) -> attention.Attention:
    """The block of a case, in float64."""
    return getattr(attention, case.name)(EMBED_DIM, NUM_HEADS, **options).double()


def disturb(module: nn.Module, seed: int, size: float = 0.1) -> None:
    """Move every parameter a little, so that none stays at a special value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))


def make_inputs(call: str, seed: int) -> tuple[list[Tensor], dict[str, Any]]:
    """Tokens and masks of a call."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, NUM_TOKENS, EMBED_DIM, generator=generator, dtype=torch.float64)
    padding = torch.zeros(2, NUM_TOKENS, dtype=torch.bool)
    padding[1, -2:] = True
    if call == "cross":
        memory = torch.randn(2, NUM_TOKENS - 1, EMBED_DIM, generator=generator, dtype=torch.float64)
        return [x, memory], {"key_padding_mask": padding[:, 1:]}
    masks = {"self": {}, "padded": {"key_padding_mask": padding}, "causal": {"is_causal": True}}[call]
    return [x], masks


def measure_block(block: attention.Attention, tokens: list[Tensor], masks: dict[str, Any]) -> dict[str, Tensor]:
    """Mean, variance, covariance, loss terms, and the gradient of their sum."""
    tokens = [x.clone().requires_grad_() for x in tokens]
    found: dict[str, Tensor] = {}
    block.eval()
    block.sampling = "mean"
    found["mean"] = block(*tokens, **masks)
    if isinstance(block, attention.GaussianProcessAttention):
        found["variance"] = block.token_variance(*tokens, **masks)
        if not masks.get("is_causal"):
            posterior = block.posterior(*tokens, **masks)
            found["head_mean"], found["covariance"] = posterior.mean, posterior.covariance_matrix
        strategy = getattr(block, "variational_strategy", None)
        if strategy is not None:
            found["kl"] = strategy.kl_divergence()
    block.train()
    block(*tokens, **masks)
    terms = [term.loss() for term in block.added_loss_terms() if term is not None]
    if terms:
        found["loss"] = torch.stack(terms).sum()
    weights = torch.linspace(0.5, 1.5, found["mean"].numel(), dtype=torch.float64).view_as(found["mean"])
    scalar = (weights * found["mean"]).sum() + sum(x.sum() for name, x in found.items() if name != "mean")
    parameters = dict(block.named_parameters())
    gradients = torch.autograd.grad(scalar, [*tokens, *parameters.values()], allow_unused=True)
    names = [*(f"tokens{i}" for i in range(len(tokens))), *parameters]
    found |= {f"gradient/{name}": g for name, g in zip(names, gradients, strict=True) if g is not None}
    block.sampling = None
    return {name: x.detach() for name, x in found.items()}


STRATEGIES = ("dtc", "dtc_correlated", "sgpa", "sgpa_decoupled", "kernel_eigen")


def strategy_data() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and places of prediction."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    return x, x.sum(-1).sin(), torch.randn(5, 2, generator=generator, dtype=torch.float64)


def build_strategy(name: str) -> nn.Module:
    """A variational strategy with parameters off their start."""
    from gpytorch.kernels import RBFKernel
    from gpytorch.likelihoods import GaussianLikelihood
    from gpytorch.means import ConstantMean

    from cgp import variational
    from cgp.kernels import CorrelatedKernel

    torch.manual_seed(3)
    x, y, _ = strategy_data()
    builders: dict[str, Callable[[], nn.Module]] = {
        "dtc": lambda: variational.DTCVariationalStrategy(
            RBFKernel(), x[:4], x, y, GaussianLikelihood(), ConstantMean()
        ),
        "dtc_correlated": lambda: variational.DTCVariationalStrategy(
            CorrelatedKernel("matern32", 2, 2).process("key"), x[:4], x, y, GaussianLikelihood()
        ),
        "sgpa": lambda: variational.SGPAVariationalStrategy(RBFKernel(), x[:4]),
        "sgpa_decoupled": lambda: variational.DecoupledSGPAVariationalStrategy(RBFKernel(), x[:4], x[4:9]),
        "kernel_eigen": lambda: variational.KernelEigenVariationalStrategy(
            nn.Linear(2, 6), nn.Linear(2, 6), num_features=6, rank=3
        ),
    }
    strategy = builders[name]().double().eval()
    if hasattr(strategy, "likelihood"):
        strategy.likelihood.double()
    return strategy


def measure_strategy(strategy: Any) -> dict[str, Tensor]:
    """Mean and covariance of the posterior, and the divergence."""
    *_, places = strategy_data()
    posterior = strategy(places)
    found = {"mean": posterior.mean, "covariance": posterior.covariance_matrix, "kl": strategy.kl_divergence()}
    return {name: x.detach() for name, x in found.items()}


def regression_data() -> tuple[Tensor, Tensor, Tensor]:
    """Rows (input, process) of two processes, targets, and rows to predict."""
    generator = torch.Generator().manual_seed(11)
    x = torch.rand(14, 2, generator=generator, dtype=torch.float64)
    process = torch.arange(14, dtype=torch.float64)[:, None] % 2
    rows = torch.cat([x, process], -1)
    new = torch.cat([torch.rand(4, 2, generator=generator, dtype=torch.float64), process[:4]], -1)
    return rows, (3.0 * x).sum(-1).sin() + 0.2 * process[:, 0], new


def build_regressor() -> Any:
    """The exact regressor in float64."""
    from cgp import regression

    torch.manual_seed(5)
    rows, targets, _ = regression_data()
    return regression.CorrelatedGPRegression(rows, targets, 2)


def measure_regressor(model: Any) -> dict[str, Tensor]:
    """The log marginal likelihood and predictions."""
    posterior = model.eval().posterior(regression_data()[2])
    found = {"mean": posterior.mean, "covariance": posterior.covariance_matrix, "objective": model.log_evidence()}
    return {name: x.detach() for name, x in found.items()}
