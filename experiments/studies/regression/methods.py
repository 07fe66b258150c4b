"""The compared methods: our regressors and GPyTorch's, with one signature."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from cgp.regression import CorrelatedGPRegressor, Inference, Laplace, Minibatches
from experiments.studies.regression.peers import coregionalised, exact, independent, sgpr, svgp
from experiments.studies.regression.problems import Answer, Array, Problem

__all__ = ["MULTIOUTPUT", "PEERS", "SPARSE", "Method", "Outputs", "chosen", "ours", "outputs", "stochastic"]

Method = Callable[..., Answer]
Outputs = Callable[..., tuple[Array, Array]]


def outputs(inputs: Array, targets: Array, **arguments: Any) -> tuple[Array, Array]:
    """Means and standard deviations (n, P) of all outputs at all inputs by our regressor."""
    mean, sd = _fitted(inputs, targets, **arguments).predict(inputs, return_std=True)
    return mean, sd


def ours(problem: Problem, **arguments: Any) -> Answer:
    """Our regressor of one output."""
    regressor = _fitted(problem.inputs, problem.targets, **arguments)
    evidence = (
        math.nan if isinstance(arguments.get("inference"), Minibatches) else float(regressor.model_.log_evidence())
    )
    mean, sd = regressor.predict(problem.test_inputs, return_std=True)
    return Answer(mean, sd, evidence)


def stochastic(problem: Problem, *, num_steps: int | None = None, **arguments: Any) -> Answer:
    """Our regressor on minibatches of 1024, initialised by the closed form on some rows; 20 epochs or 500 steps."""
    batches = -(-len(problem.inputs) // 1024)
    epochs = max(20, -(-500 // batches)) if num_steps is None else -(-num_steps // batches)
    return ours(problem, inference=Minibatches(batch_size=1024, num_epochs=epochs), **arguments)


def _fitted(
    inputs: Array, targets: Array, *, inference: str | Inference = "map", **arguments: Any
) -> CorrelatedGPRegressor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return CorrelatedGPRegressor(random_state=0, inference=inference, **arguments).fit(inputs, targets)


MULTIOUTPUT: Mapping[str, Outputs] = {
    "cgp": outputs,
    "cgp, laplace": partial(outputs, inference=Laplace(num_mixture=20)),
    "GPyTorch ICM": coregionalised,
    "GPyTorch LMC, 2 components": partial(coregionalised, num_components=2),
    "GPyTorch ExactGP, independent": independent,
}

SPARSE: Mapping[str, Method] = {
    "cgp exact": ours,
    "GPyTorch ExactGP": exact,
    "cgp sparse": ours,
    "GPyTorch SGPR": sgpr,
    "cgp stochastic": stochastic,
    "GPyTorch SVGP": svgp,
}

PEERS: Mapping[str, str] = {
    "cgp exact": "GPyTorch ExactGP",
    "cgp sparse": "GPyTorch SGPR",
    "cgp stochastic": "GPyTorch SVGP",
}


def chosen(methods: Mapping[str, Method], names: Sequence[str] | None) -> dict[str, Method]:
    """The methods of these names."""
    unknown = [name for name in names or () if name not in methods]
    if unknown:
        raise ValueError(f"methods: expected some of {list(methods)}, got {unknown}")
    return {name: method for name, method in methods.items() if names is None or name in names}
