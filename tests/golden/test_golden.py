"""The numbers of the code before the rebuild: same weights, same posteriors, objectives and gradients."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.golden.cases import (
    BLOCKS,
    STRATEGIES,
    build_block,
    build_regressor,
    build_strategy,
    make_inputs,
    measure_block,
    measure_regressor,
    measure_strategy,
)

RENAMED = {  # parts of parameters' names, then and now
    "inducing.points": "inducing_points",
    "softmax.gauge": "softmax.key_shift",
    "form.variables.": "variational_strategy.",
    "form.diagonal_": "precision_",
    "kernel.log_outputscale": "log_outputscale",
    "variational_strategy.log_singular_values": "ksvd.log_singular_values",
    "primal/state/log_singular_values": "primal/state/ksvd.log_singular_values",
    "gradient/log_singular_values": "gradient/ksvd.log_singular_values",
    "variables.log_singular_values": "log_singular_values",
    "variational_strategy.variables.": "variational_strategy.",
    "variables.variables.": "variables.",
}


@cache
def golden() -> dict[str, Tensor]:
    """Every array of the file by name."""
    file = np.load(Path(__file__).with_name("blocks.npz"))
    shapes = [tuple(int(size) for size in text.split(",") if size) for text in file["shapes"]]
    parts = np.split(file["values"], np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    pairs = zip(file["names"], parts, shapes, strict=True)
    return {_today(str(name)): torch.from_numpy(part.reshape(shape)) for name, part, shape in pairs}


def _today(name: str) -> str:
    for then, now in RENAMED.items():
        name = name.replace(then, now)
    return name


def expected(prefix: str) -> dict[str, Tensor]:
    """The arrays below a prefix."""
    return {name.removeprefix(f"{prefix}/"): x for name, x in golden().items() if name.startswith(f"{prefix}/")}


def compare(found: dict[str, Tensor], prefix: str) -> None:
    """Everything that was measured then is what is measured now."""
    wanted = expected(prefix)
    missing = {name for name in wanted if name not in found and bool(wanted[name].any())}
    assert not missing, f"{prefix}: not measured any more: {sorted(missing)}"
    for name, value in found.items():
        if name in wanted:
            torch.testing.assert_close(
                value.double(), wanted[name], rtol=1e-6, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
            )


def restore(module: nn.Module, prefix: str) -> None:
    """Load the weights that were stored."""
    state = expected(f"{prefix}/state")
    of_likelihood = {
        name.removeprefix("likelihood."): state.pop(name) for name in list(state) if _is_foreign(module, name)
    }
    module.load_state_dict(state)
    if of_likelihood:
        module.likelihood.load_state_dict(of_likelihood)


def _is_foreign(module: nn.Module, name: str) -> bool:
    """Whether a weight belongs to the likelihood of a strategy, which is no part of it any more."""
    return name.startswith("likelihood.") and name not in module.state_dict()


@pytest.mark.parametrize(("name", "call"), [(name, call) for name, case in BLOCKS.items() for call in case.calls])
def test_block(name: str, call: str) -> None:
    block = build_block(BLOCKS[name], BLOCKS[name].options)
    restore(block, name)
    tokens, masks = make_inputs(call, list(BLOCKS).index(name))
    compare(measure_block(block, tokens, masks), f"{name}/{call}")


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy(name: str) -> None:
    strategy = build_strategy(name)
    restore(strategy, f"strategy_{name}")
    compare(measure_strategy(strategy), f"strategy_{name}/found")


def restore_regressor(model: nn.Module) -> None:
    """Two processes' coordinates, at a distance h, were their correlation exp(-h²/2); the rest is renamed."""
    kernel, then = model.covar_module.kernels[0], expected("regressor_exact/state")
    old = "covar_module.kernels.0.correlated"
    maps = f"{old}.input_maps"
    kernel.covar_module.initialize(raw_lengthscale=then[f"{old}.covar_module.raw_lengthscale"])
    height = then[f"{maps}.1.raw_height"].exp() / kernel.covar_module.lengthscale.detach().squeeze()
    correlation = (-0.5 * height.square()).exp()
    kernel.input_maps.initialize(
        log_scales=then[f"{maps}.0.linear.raw_scales"],
        log_ratios=then[f"{maps}.1.linear.raw_ratio"][None],
        shifts=then[f"{maps}.1.linear.bias"][None],
    )
    kernel.loadings.initialize(log_scales=then[f"{old}.raw_scales"], partials=correlation.atanh())
    model.mean_module.initialize(constants=then["mean_module.constants"])
    model.likelihood.noise_covar.initialize(log_noise=then["likelihood.noise_covar.raw_noise"])


def test_regressor() -> None:
    """The exact one: inducing inputs at coordinates between the processes have no counterpart today."""
    model = build_regressor()
    restore_regressor(model)
    compare(measure_regressor(model), "regressor_exact/found")
