"""What is measured of whole models: predictions by draws, the boundary to GPyTorch, seconds an epoch."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cgp.attention import (
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    SGPAttention,
    SoftmaxAttention,
    SparseCGPAttention,
)
from cgp.model.blocks import draws, sampling
from cgp.model.likelihoods import CategoricalLikelihood
from cgp.model.objective import Objective
from cgp.model.predict import predict
from experiments.benchmarks.calls import tokens
from experiments.benchmarks.cases import CENTRE, Case
from experiments.benchmarks.rows import Row, measured
from experiments.benchmarks.suites import timing_row
from experiments.benchmarks.timing import Budget, interleaved
from models import CGPT_CIFAR, DIGITS, KEP_SVGP_CIFAR, VisionTransformer

__all__ = ["prediction", "vit"]

_NUM_DRAWS = 10
_TRAIN_IMAGES = 45_000
_METHODS: Mapping[str, tuple[Callable[..., nn.Module], str]] = {
    "softmax": (SoftmaxAttention, "all"),
    "kernel": (KernelAttention, "all"),
    "sparse-direct": (SparseCGPAttention, "all"),
    "sparse-latent": (partial(SparseCGPAttention, coupling="latent"), "all"),
    "exact-latent": (partial(CGPAttention, coupling="latent"), "all"),
    "sgpa": (SGPAttention, "all"),
    "kep": (partial(KEPSVGPAttention, rank=10), "all"),
    "sparse-direct, last layer": (SparseCGPAttention, "last"),
    "kep, last layer": (partial(KEPSVGPAttention, rank=10), "last"),
}


def prediction(out: Path, quick: bool) -> None:
    """Ten draws of a transformer against one softmax pass, and `posterior` against a forward pass.

    Args:
        out: folder of the benchmark.
        quick: tiny sizes.
    """
    measured(out, "prediction-draws", lambda: _draw_rows(quick))
    measured(out, "prediction-posterior", lambda: _posterior_rows(quick))


def vit(out: Path, quick: bool) -> None:
    """Seconds of a training step of the papers' vision transformers, scaled to an epoch.

    Args:
        out: folder of the benchmark.
        quick: tiny sizes.
    """
    for name, sizes in ({"digits": DIGITS} if quick else {"cgpt": CGPT_CIFAR, "kep-svgp": KEP_SVGP_CIFAR}).items():
        measured(out, f"vit-{name}", lambda name=name, sizes=sizes: _step_rows(name, sizes, quick))


def _transformer(sizes: Any, method: str) -> VisionTransformer:
    factory, layers = _METHODS[method]
    chosen = [
        SoftmaxAttention if layers == "last" and i < sizes["depth"] - 1 else factory for i in range(sizes["depth"])
    ]
    return VisionTransformer(**sizes, num_classes=10, attention=chosen)


def _case_of(sizes: Any, batch: int) -> Case:
    count = (sizes["image_size"] // sizes["patch_size"]) ** 2
    return Case(count, batch=batch, width=sizes["embed_dim"], heads=sizes["num_heads"])


def _images(sizes: Any, batch: int) -> torch.Tensor:
    return torch.rand(batch, sizes["channels"], sizes["image_size"], sizes["image_size"])


def _draw_rows(quick: bool) -> Iterable[Row]:
    """One pass of softmax against ten draws of a last layer and of all layers."""
    torch.manual_seed(0)
    sizes, batch = (DIGITS, 2) if quick else (CGPT_CIFAR, 32)
    images, calls = _images(sizes, batch), {}
    for method in ("softmax", "sparse-direct, last layer", "kep, last layer", "sparse-direct"):
        model = _transformer(sizes, method).eval()
        calls[method] = partial(_predict, model, images, 1 if method == "softmax" else _NUM_DRAWS)
        if method.endswith("last layer"):
            calls[f"{method}, one after another"] = partial(predict, model, images, _NUM_DRAWS)
    timings = interleaved(calls, Budget(0.0, fewest=2) if quick else Budget(12.0))
    case = _case_of(sizes, batch)
    return [timing_row("prediction", name, f"{_NUM_DRAWS} draws", case, t) for name, t in timings.items()]


@torch.no_grad()
def _predict(model: nn.Module, images: torch.Tensor, count: int) -> torch.Tensor:
    if count == 1:
        return model(images).softmax(-1)
    with sampling(model, "marginal"), draws(model, count):
        return model(images).softmax(-1).mean(0)


def _posterior_rows(quick: bool) -> Iterable[Row]:
    """`posterior(x)` with its mean and variance read, against the forward pass of the same block."""
    torch.manual_seed(0)
    case = Case(9, batch=2, width=16, heads=2, inducing=4) if quick else CENTRE
    x, rows = tokens(case), []
    made = {
        "sparse-direct": SparseCGPAttention(case.width, case.heads, num_inducing=case.inducing, objective=None),
        "exact-direct": CGPAttention(case.width, case.heads, objective=None),
        "sgpa": SGPAttention(case.width, case.heads, num_inducing=case.inducing),
    }
    for name, block in made.items():
        block.eval().sampling = "marginal"
        calls = {name: partial(_forward, block, x), f"{name}, posterior": partial(_posterior, block, x)}
        timings = interleaved(calls, Budget(0.0, fewest=2) if quick else Budget(3.0))
        rows += [timing_row("posterior", label, "forward", case, t) for label, t in timings.items()]
    return rows


@torch.no_grad()
def _forward(block: nn.Module, x: torch.Tensor) -> object:
    return block(x)


@torch.no_grad()
def _posterior(block: Any, x: torch.Tensor) -> object:
    distribution = block.posterior(x)
    return distribution.mean, distribution.variance


def _step_rows(name: str, sizes: Any, quick: bool) -> Iterable[Row]:
    """Training steps: objective, backward, Adam."""
    batch = 4 if quick else 64
    images, labels = _images(sizes, batch), torch.arange(batch) % 10
    methods = [m for m in _METHODS if not (name == "kep-svgp" and m == "exact-latent")]
    calls = {method: _step(_transformer(sizes, method), images, labels) for method in methods}
    timings = interleaved(calls, Budget(0.0, fewest=2) if quick else Budget(25.0, fewest=2))
    case, steps = _case_of(sizes, batch), _TRAIN_IMAGES / batch
    return [
        timing_row(f"vit {name}", method, "step", case, timing) | {"epoch_seconds": timing.minimum * steps}
        for method, timing in timings.items()
    ]


def _step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    objective = Objective(model, CategoricalLikelihood(10), _TRAIN_IMAGES, alpha=0.1).train()
    optimiser = torch.optim.Adam(objective.parameters(), lr=1e-4)

    def call() -> None:
        optimiser.zero_grad()
        objective(images, labels).backward()
        optimiser.step()

    return call
