"""What is compared: our regressors and GPyTorch's, under one signature."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from cgp.regression import CorrelatedGPRegressor
from experiments.studies.regression.peers import (
    coregionalised,
    coregionalised_outputs,
    exact,
    independent_outputs,
    sgpr,
    svgp,
)
from experiments.studies.regression.problems import Answer, Problem

__all__ = ["CORRELATED", "MULTIOUTPUT", "PEERS", "SAMPLED", "SPARSE", "Method", "chosen", "ours", "stochastic"]

Array = NDArray[Any]
Method = Callable[..., Answer]


def ours(problem: Problem, *, alone: bool = False, **arguments: Any) -> Answer:
    """Our regressor.

    Args:
        problem: what is asked.
        alone: whether the other processes are left out.
        arguments: of the regressor.
    """
    used = problem.alone if alone else problem
    targets = used.targets[:, 0] if used.targets.shape[1] == 1 else used.targets
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor = CorrelatedGPRegressor(random_state=0, **arguments).fit(used.inputs, targets)
    mean, sd = regressor.predict(used.test_inputs, return_std=True)
    notes = _notes(regressor)
    return Answer(mean, sd, notes) if mean.ndim == 1 else Answer(mean[:, 0], sd[:, 0], notes)


def _notes(regressor: CorrelatedGPRegressor) -> dict[str, float]:
    """What the chains say of themselves: the worst of all parameters."""
    found = None if regressor.samples_ is None else regressor.samples_.diagnostics
    if found is None:
        return {}
    return {
        "r_hat": max(found.r_hat.values()),
        "effective_size": min(found.effective_size.values()),
        "divergences": found.divergences,
    }


def stochastic(problem: Problem, *, num_epochs: int = 20, **arguments: Any) -> Answer:
    """Our regressor on minibatches of 1024, from the closed form on some rows; half as many steps as SVGP.

    Args:
        problem: what is asked.
        num_epochs: passes through the data, and at least 500 steps.
        arguments: of the regressor.
    """
    batches = -(-len(problem.inputs) // 1024)
    epochs = max(num_epochs, -(-500 // batches))
    return ours(problem, inference="stochastic", batch_size=1024, num_epochs=epochs, **arguments)


def outputs(inputs: Array, targets: Array, **arguments: Any) -> tuple[Array, Array]:
    """Means and standard deviations of all outputs at all inputs by our regressor.

    Args:
        inputs: (n, d).
        targets: (n, P), NaN where not observed.
        arguments: of the regressor.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor = CorrelatedGPRegressor(random_state=0, **arguments).fit(inputs, targets)
    return regressor.predict(inputs, return_std=True)


CORRELATED: Mapping[str, Method] = {
    "cgp independent": partial(ours, alone=True),
    "GPyTorch ExactGP, independent": exact,
    "GPyTorch ICM": partial(coregionalised, num_components=1),
    "GPyTorch LMC, 2 components": partial(coregionalised, num_components=2),
    "cgp correlated": ours,
    "cgp correlated, shifted": partial(ours, structure="shifted"),
    "cgp correlated, 2 components": partial(ours, num_components=2),
}

MULTIOUTPUT: Mapping[str, Callable[..., tuple[Array, Array]]] = {
    "cgp": outputs,
    "cgp, shifted": partial(outputs, structure="shifted"),
    "GPyTorch ICM": coregionalised_outputs,
    "GPyTorch LMC, 2 components": partial(coregionalised_outputs, num_components=2),
    "GPyTorch ExactGP, independent": independent_outputs,
}

SAMPLED: Mapping[str, Method] = {
    "cgp correlated, NUTS": partial(ours, inference="nuts", num_chains=2, num_warmup=50, num_samples=50),
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
    "cgp independent": "GPyTorch ExactGP, independent",
    "cgp correlated": "GPyTorch ICM",
    "cgp correlated, shifted": "GPyTorch ICM",
    "cgp correlated, NUTS": "GPyTorch ICM",
    "cgp correlated, 2 components": "GPyTorch LMC, 2 components",
}


def chosen(methods: Mapping[str, Method], names: Sequence[str] | None) -> dict[str, Method]:
    """The methods of these names.

    Args:
        methods: by name.
        names: which of them; None means all.

    Raises:
        ValueError: if there is no such method.
    """
    unknown = [name for name in names or () if name not in methods]
    if unknown:
        raise ValueError(f"methods: expected some of {list(methods)}, got {unknown}")
    return {name: method for name, method in methods.items() if names is None or name in names}
