"""From arguments and rows to a fitted model: what the estimator does between checking and answering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .adam import fit_adam, fit_minibatches
from .base import ProcessRegression
from .bayesian import Samples, batch_model, fit_svi, sample_nuts
from .diagnostics import Diagnostics
from .exact import CorrelatedGPRegression
from .fitting import ProgressLine, fit_lbfgs
from .quasi_newton import Fit
from .sparse import SparseCorrelatedGPRegression
from .variational import StochasticCorrelatedGPRegression
from .warm_start import warm_start

__all__ = ["INFERENCES", "OPTIMIZERS", "Fitted", "build_model", "condition_model", "fit_model"]

INFERENCES = ("map", "nuts", "svi", "stochastic")
OPTIMIZERS = ("auto", "lbfgs", "adam")
_ADAM_ABOVE = 100_000
_WARM_RATE = 0.01  # of minibatches: larger steps first leave the start that the closed form has found
_COVARIANCE = ("kernel", "maps", "canonical_dim", "embedding_dim", "num_components", "shift")

Model = ProcessRegression | StochasticCorrelatedGPRegression


class Fitted(NamedTuple):
    """A fitted model and what it was fitted to.

    Attributes:
        model: at the parameters that were found.
        inputs: ``(n, d + 1)``.
        targets: ``(n,)``.
        fit: how the optimiser did.
        samples: of the parameters, or None.
    """

    model: Model
    inputs: Tensor
    targets: Tensor
    fit: Fit
    samples: Samples | None

    def packed(self) -> dict[str, Any]:
        """Everything as tensors and plain values.

        Returns:
            For :meth:`unpacked`.
        """
        samples = self.samples
        return {
            "inputs": self.inputs,
            "targets": self.targets,
            "state": {name: value.detach().clone() for name, value in self.model.state_dict().items()},
            "fit": tuple(self.fit),
            "chains": None if samples is None else dict(samples.chains),
            "diagnostics": None if samples is None or samples.diagnostics is None else tuple(samples.diagnostics),
        }

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any], arguments: Mapping[str, Any], signs: NDArray[Any]) -> Fitted:
        """The same model again.

        Args:
            packed: what :meth:`packed` gave.
            arguments: of the estimator.
            signs: of the processes.

        Returns:
            A model that predicts the same to the bit.
        """
        model = build_model(arguments, packed["inputs"], packed["targets"], signs, 0)
        model.load_state_dict(packed["state"])
        samples = None
        if packed["chains"] is not None:
            found = packed["diagnostics"]
            samples = Samples(dict(packed["chains"]), None if found is None else Diagnostics(*found))
        return cls(model.eval(), packed["inputs"], packed["targets"], Fit(*packed["fit"]), samples)


def build_model(arguments: Mapping[str, Any], inputs: Tensor, targets: Tensor, signs: NDArray[Any], seed: int) -> Model:
    """The model that the estimator's arguments ask for, not yet fitted.

    Args:
        arguments: of the estimator.
        inputs: ``(n, d + 1)``.
        targets: ``(n,)``.
        signs: of the processes.
        seed: of the inducing inputs.

    Returns:
        An exact, sparse or stochastic model.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        covariance = {name: arguments[name] for name in _COVARIANCE} | {"signs": np.asarray(signs).tolist()}
        if arguments["num_inducing"] is None:
            return CorrelatedGPRegression(inputs, targets, len(signs), **covariance)
        sparse = {"num_inducing": arguments["num_inducing"], "seed": seed % 2**32} | covariance
        if arguments["inference"] == "stochastic":
            return StochasticCorrelatedGPRegression(inputs, targets, len(signs), **sparse)
        return SparseCorrelatedGPRegression(inputs, targets, len(signs), objective=arguments["objective"], **sparse)


def fit_model(model: Model, arguments: Mapping[str, Any], seed: int) -> Fitted:
    """Fit as the estimator's arguments say.

    Args:
        model: what :func:`build_model` gave.
        arguments: of the estimator.
        seed: of everything random.

    Returns:
        The fitted model.
    """
    line = ProgressLine(str(arguments["inference"])) if arguments["verbose"] else None
    try:
        if isinstance(model, StochasticCorrelatedGPRegression):
            inputs, targets = model.train_inputs, model.train_targets
            options = {"batch_size": arguments["batch_size"], "num_epochs": arguments["max_steps"]}
            warm_start(model, inputs, targets, seed=seed)
            fit = fit_minibatches(model, inputs, targets, learning_rate=_WARM_RATE, seed=seed, progress=line, **options)
            return Fitted(model, inputs, targets, fit, None)
        fit = _point_fit(model, arguments, seed, line)
    finally:
        if line is not None:
            line.close()
    return Fitted(model, model.train_inputs[0], model.train_targets, fit, _samples(model, arguments, seed))


def condition_model(fitted: Fitted, num_mixture: int) -> tuple[Model, Any]:
    """The model that answers, and what it needs of the observations.

    Args:
        fitted: a fit.
        num_mixture: samples to average over, at most.

    Returns:
        The model, one batch member a sample if there are samples, and its condition.
    """
    model = fitted.model
    if fitted.samples is not None and isinstance(model, ProcessRegression):
        model = batch_model(model, fitted.samples.thinned(num_mixture))
    with torch.no_grad():
        return model, model.condition()


def _point_fit(model: ProcessRegression, arguments: Mapping[str, Any], seed: int, line: ProgressLine | None) -> Fit:
    optimizer = arguments["optimizer"]
    if optimizer == "auto":
        optimizer = "adam" if len(model.train_targets) > _ADAM_ABOVE else "lbfgs"
    if optimizer == "adam":
        return fit_adam(model, max_steps=arguments["max_steps"], progress=line)
    return fit_lbfgs(
        model, num_starts=arguments["num_starts"], max_steps=arguments["max_steps"], seed=seed, progress=line
    )


def _samples(model: ProcessRegression, arguments: Mapping[str, Any], seed: int) -> Samples | None:
    if arguments["inference"] == "nuts":
        counts = {name: arguments[name] for name in ("num_samples", "num_warmup", "num_chains")}
        return sample_nuts(model, seed=seed, progress=arguments["verbose"], **counts)
    if arguments["inference"] == "svi":
        return fit_svi(model, num_samples=arguments["num_samples"], seed=seed)
    return None
