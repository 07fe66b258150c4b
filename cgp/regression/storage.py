"""A fitted regressor as tensors and plain values, without pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .appendable import Parts
from .covariances.factors import FACTORS, MixingLoadings
from .estimator import CorrelatedGPRegressor
from .frames import Framing
from .inference.bayesian import batch_model
from .inference.comparison import COMPARED
from .inference.fitting import Fit
from .inference.long_series import LongSeries, long_covariance
from .inference.windows import table_of
from .scaling import Scaling
from .solvers.choice import choose_form
from .solvers.model import RegressionModel
from .solvers.series import SeriesCorrelatedGPRegression
from .solvers.uncertain_loadings import UncertainLoadingsRegression

__all__ = ["regressor_content", "restored_regressor"]

_ROOTS = "loading_roots"
_PLAIN = ("structure_", "inference_", "criteria_", "n_outputs_", "n_features_in_", "_single", "_long")


def regressor_content(regressor: CorrelatedGPRegressor) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The learned state of a fitted regressor, including its observations.

    Args:
        regressor: fitted, with a kernel by its name.

    Returns:
        Values for JSON, and tensors; samples of the parameters without their chains.

    Raises:
        ValueError: if the kernel is an object.
    """
    if not isinstance(regressor.kernel, str | None):
        raise ValueError(
            f"kernel: expected a name, got {type(regressor.kernel).__name__}: joblib.dump keeps kernels of GPyTorch"
        )
    plain = {name: getattr(regressor, name) for name in _PLAIN} | {"fit_": regressor.fit_._asdict()}
    # Defaults may differ in the version that reads it.
    scales = regressor._scales() if regressor._long else LongSeries("rbf", 1)
    plain["kernel"] = regressor._base or scales.kernel
    plain["num_components"] = regressor.num_components or scales.num_components
    plain["periods_"] = [float(period) for period in getattr(regressor, "periods_", ())]
    plain["models"] = [_structure_of(regressor, model) for model in regressor.models_]
    model = regressor.model_
    rows, targets = model.train_inputs[0], model.train_targets
    tensors = {"rows": rows.reshape(-1, *rows.shape[-2:])[0], "targets": targets.reshape(-1, targets.shape[-1])[0]}
    tensors["observed"] = regressor._observed.whole.byte()
    tensors["gross_errors"] = torch.as_tensor(regressor.gross_errors_).byte()
    for name in ("x_scaling_", "y_scaling_"):
        fields = getattr(regressor, name)._asdict().items()
        tensors |= {f"{name}.{field}": torch.as_tensor(np.asarray(value)) for field, value in fields}
    for number, each in enumerate(regressor.models_):
        tensors |= {f"model{number}.{name}": value.detach() for name, value in each.named_parameters()}
        if isinstance(each, UncertainLoadingsRegression):
            tensors[f"model{number}.{_ROOTS}"] = each.loading_roots
        if each.batch():
            priors = {name: closure(module) for name, module, _, closure, _ in each.named_priors()}
            tensors |= {f"samples{number}.{name}": value.detach() for name, value in priors.items()}
    return plain, {name: value.clone() for name, value in tensors.items()}


def restored_regressor(
    regressor: CorrelatedGPRegressor, plain: dict[str, Any], tensors: dict[str, Tensor], y: Any
) -> CorrelatedGPRegressor:
    """The regressor that :func:`regressor_content` was taken from.

    Args:
        regressor: with the same arguments, not fitted.
        plain: plain values.
        tensors: tensors.
        y: outputs, in the format of those of the fit.

    Returns:
        The same regressor, fitted.

    Raises:
        ValueError: if the parameters are not those of its models.
    """
    for name in (*_PLAIN, "kernel", "num_components"):
        setattr(regressor, name, plain[name])
    regressor.fit_, regressor.samples_, regressor.periods_ = Fit(**plain["fit_"]), None, plain["periods_"]
    regressor._framing, regressor._observed = Framing.of(y), Parts.of(tensors["observed"].bool(), dim=0)
    none = torch.zeros(0, plain["n_outputs_"])  # folders of older versions do not say
    regressor.gross_errors_ = tensors.get("gross_errors", none).bool().numpy()
    for name in ("x_scaling_", "y_scaling_"):
        setattr(regressor, name, Scaling(*(tensors[f"{name}.{field}"].numpy() for field in Scaling._fields)))
    regressor._base, models = regressor.kernel, []
    for number, structure in enumerate(plain["models"]):
        parameters = _part(tensors, f"model{number}.")
        roots = parameters.pop(_ROOTS, None)
        model = _built(regressor, structure, tensors["rows"], tensors["targets"], roots)
        models.append(_loaded(model, parameters, _part(tensors, f"samples{number}.")))
    regressor._keep(models)
    regressor._compared = {}
    return regressor


def _structure_of(regressor: CorrelatedGPRegressor, model: RegressionModel) -> str:
    """The structure of a model, by the names of its parameters if several structures are averaged."""
    if isinstance(model.covar_module.kernels[0].loadings, MixingLoadings):
        return f"{FACTORS} {len(model.covar_module.kernels)}"
    if regressor._long or len(regressor.models_) == 1:
        return regressor.structure_
    names = model.covar_module.state_dict().keys()
    rows = model.train_inputs[0].reshape(-1, *model.train_inputs[0].shape[-2:])[0]
    of = {
        name: regressor._task(rows, name).covariance.state_dict().keys()
        for name in {regressor.structure_, *COMPARED} - {FACTORS}
    }
    return next(name for name, keys in of.items() if keys == names)


def _built(
    regressor: CorrelatedGPRegressor, structure: str, rows: Tensor, targets: Tensor, roots: Tensor | None
) -> RegressionModel:
    """A model whose parameters are not loaded yet."""
    if regressor._long:
        inputs = table_of(rows, regressor.n_outputs_).inputs
        covariance = long_covariance(inputs, regressor.n_outputs_, regressor._scales())
        if roots is None:
            return SeriesCorrelatedGPRegression(rows, targets, regressor.n_outputs_, covar_module=covariance)
        model = UncertainLoadingsRegression(rows, targets, regressor.n_outputs_, covar_module=covariance)
        model.loading_roots = roots
        return model
    task = regressor._task(rows, structure)._replace(is_stochastic=regressor.inference_ == "stochastic")
    inducing = {} if regressor.num_inducing is None else {"num_inducing": regressor.num_inducing, "seed": 0}
    return choose_form(task).model(rows, targets, regressor.n_outputs_, covar_module=task.covariance, **inducing)


def _loaded(model: RegressionModel, parameters: dict[str, Tensor], samples: dict[str, Tensor]) -> RegressionModel:
    expected = dict(model.named_parameters())
    if expected.keys() != parameters.keys():
        raise ValueError(f"parameters: expected {sorted(expected)}, got {sorted(parameters)}")
    with torch.no_grad():
        for name, value in expected.items():
            if parameters[name].shape == value.shape:
                value.copy_(parameters[name])
            elif not samples:
                raise ValueError(f"{name}: expected shape {tuple(value.shape)}, got {tuple(parameters[name].shape)}")
    return batch_model(model, samples) if samples else model.eval()


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
