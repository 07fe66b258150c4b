"""A fitted regressor as tensors and plain values, in one file of a folder, without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from cgp.weights import load_content, part_of, save_content

from .conventions import Accepted, Framing
from .covariances.structure import Structure
from .inference.fitting import Fit
from .inference.setting import OF_SUMS, Inference, Setting
from .observations import Observations, Parts, Scaling, Units
from .posterior import Posterior
from .solvers.choice import SOLVERS
from .solvers.model import RegressionModel, first_member
from .sums import Sums

if TYPE_CHECKING:
    from .estimator import CorrelatedGPRegressor

    Regressor = TypeVar("Regressor", bound=CorrelatedGPRegressor)

__all__ = ["read_regressor", "regressor_content", "restored_regressor", "settings_content", "write_regressor"]

_FILE = "regressor.safetensors"
_SCALED = ("inputs", "outputs")
_STAND_INS = ("train_targets", "further_noise")  # of a model whose observations are censored
_PLAIN = ("inference_", "criteria_", "n_features_in_", "_single")


def settings_content(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator as values for JSON; the random state is not kept."""
    objects = {name: settings[name] for name in ("structure", "inference")}
    plain = {name: value if isinstance(value, str) else value.content() for name, value in objects.items()}
    return {**settings, **plain, "random_state": None}


def restored_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of :func:`settings_content`."""
    families = {"structure": Structure, "inference": Inference}
    given = {name: content[name] for name in families if not isinstance(content[name], str)}
    return {**content, **{name: families[name].of_content(value) for name, value in given.items()}}


def write_regressor(
    folder: str | Path, regressor: CorrelatedGPRegressor, plain: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Write a regressor's arguments and its content to a folder."""
    content = {"settings": settings_content(regressor.get_params(deep=False)), "regressor": plain}
    save_content(Path(folder) / _FILE, content, tensors)


def read_regressor(folder: str | Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Tensor]]:
    """The arguments and the content that :func:`write_regressor` wrote."""
    plain, tensors = load_content(Path(folder) / _FILE)
    return restored_settings(plain["settings"]), plain["regressor"], tensors


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
    posterior, kinds = regressor.posterior_, regressor._structures
    plain = {name: getattr(regressor, name) for name in _PLAIN} | {"fit_": regressor.fit_._asdict()}
    sums = posterior.models[0].totals
    # the default of the version that reads it may be another
    plain["kernel"] = regressor.kernel or (kinds[0].kernel if sums is None else OF_SUMS)
    models = zip(posterior.models, kinds, strict=True)
    plain["models"] = [{"structure": kind.content(), "solver": model.name} for model, kind in models]
    rows, targets = first_member(posterior.models[0])
    tensors = {"rows": rows, "targets": targets}
    tensors["observed"] = posterior.observed.whole.byte()
    tensors["gross_errors"] = torch.as_tensor(regressor.gross_errors_).byte()
    tensors |= {f"accepted.{name}": torch.as_tensor(value) for name, value in regressor._accepted._asdict().items()}
    if sums is not None:
        plain["sums"] = list(sums.names)
        tensors |= sums.tensors("sums.")
    tensors["numbers"] = torch.as_tensor(posterior.units.numbers)
    for name in _SCALED:
        scaling = getattr(posterior.units, name)
        tensors |= {f"{name}.{field}": torch.as_tensor(np.asarray(value)) for field, value in scaling._asdict().items()}
    for number, model in enumerate(posterior.models):
        tensors |= {f"model{number}.{name}": value for name, value in _tensors_of(model).items()}
        if model.further_noise is not None:
            tensors |= {f"stand-ins{number}.{name}": getattr(model, name) for name in _STAND_INS}
    tensors["lower"] = torch.as_tensor(regressor._lower)
    return plain, {name: value.detach().clone() for name, value in tensors.items()}


def restored_regressor(
    regressor: Regressor, plain: dict[str, Any], tensors: dict[str, Tensor], y: Any = None
) -> Regressor:
    """The regressor that :func:`regressor_content` was taken from.

    Args:
        regressor: with the same arguments, not fitted.
        plain: plain values.
        tensors: tensors.
        y: outputs, in the format of those of the fit; None is an array.

    Returns:
        The same regressor, fitted.

    Raises:
        ValueError: if the parameters are not those of its models, or a structure or a solver is not known.
    """
    for name in _PLAIN:
        setattr(regressor, name, plain[name])
    regressor.fit_, regressor.samples_, regressor._compared = Fit(**plain["fit_"]), None, {}
    regressor._framing, regressor.gross_errors_ = Framing.of(y), tensors["gross_errors"].bool().numpy()
    none = torch.full((tensors["observed"].shape[-1],), torch.nan, dtype=torch.float64)
    regressor._lower = tensors.get("lower", none).numpy()  # files of before have none
    regressor._accepted = Accepted(*(tensors[f"accepted.{name}"].numpy() for name in Accepted._fields))
    inputs, outputs = (Scaling(*(tensors[f"{name}.{each}"].numpy() for each in Scaling._fields)) for name in _SCALED)
    units = Units(inputs, outputs, tensors["numbers"].numpy())
    observed = tensors["observed"].bool()
    sums = Sums.of_tensors(plain.get("sums", ()), part_of(tensors, "sums."))
    observations = Observations.of_rows(tensors["rows"], tensors["targets"], observed.shape[-1], units, sums)
    regressor._structures = [Structure.of_content(each["structure"]) for each in plain["models"]]
    models = []
    for number, (each, structure) in enumerate(zip(plain["models"], regressor._structures, strict=True)):
        setting = Setting(observations, structure, plain["kernel"], regressor.num_inducing)
        model = setting.built(SOLVERS[each["solver"]], setting.covariance(structure))
        models.append(_loaded(model, part_of(tensors, f"model{number}.")))
        for name, value in part_of(tensors, f"stand-ins{number}.").items():
            setattr(models[-1], name, value)
    regressor.posterior_ = Posterior(models, units, Parts.of(observed, dim=0))
    return regressor


def _tensors_of(model: RegressionModel) -> dict[str, Tensor]:
    """The parameters of a model, samples of them, and what it learned besides."""
    tensors = dict(model.named_parameters()) | {name: getattr(model, name) for name in model.learned_buffers}
    if model.batch():
        tensors |= {f"samples.{name}": closure(module) for name, module, _, closure, _ in model.named_priors()}
    return tensors


def _loaded(model: RegressionModel, tensors: dict[str, Tensor]) -> RegressionModel:
    """The model with the tensors of :func:`_tensors_of`."""
    samples = part_of(tensors, "samples.")
    parameters = {name: value for name, value in tensors.items() if not name.startswith("samples.")}
    for name in model.learned_buffers:
        setattr(model, name, parameters.pop(name))
    expected = dict(model.named_parameters())
    if expected.keys() != parameters.keys():
        raise ValueError(f"parameters: expected {sorted(expected)}, got {sorted(parameters)}")
    with torch.no_grad():
        for name, value in expected.items():
            if parameters[name].shape == value.shape:
                value.copy_(parameters[name])
            elif not samples:
                raise ValueError(f"{name}: expected shape {tuple(value.shape)}, got {tuple(parameters[name].shape)}")
    return model.with_samples(samples) if samples else model.eval()
