"""A regressor in a folder, with structures, inferences and kernels that the package does not know of itself."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from safetensors import safe_open

import cgp
from cgp.kernels import BASE_KERNELS
from cgp.regression import (
    MAP,
    CorrelatedGPRegressor,
    Factors,
    Inference,
    Laplace,
    Minibatches,
    MultiScale,
    Shared,
    Structure,
    Windows,
)
from cgp.regression.covariances.rows import ProcessLoadings, RowKernel
from cgp.regression.inference.maximum import closed_form
from cgp.regression.solvers.choice import SOLVERS, Cost
from cgp.statespace.kernels import MarkovKernel
from cgp.statespace.processes import MarkovProcess

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class Exponential(Kernel):
    """A stranger's kernel: its covariance for GPyTorch, and which Markov process it is."""

    class Form(MarkovKernel):
        def process(self, steps):
            A = torch.exp(-steps.lags)[..., None, None]
            return MarkovProcess(A, 1.0 - A**2, torch.ones(1, 1).to(A))

    def markov_form(self):
        return self.Form()

    def forward(self, x1, x2, diag=False, **params):
        return torch.exp(-self.covar_dist(x1, x2, diag=diag))


class Contrast(ProcessLoadings):
    """A common process and one that has the sign of the output's half."""

    def __init__(self, num_processes):
        super().__init__()
        self.num_processes = num_processes
        self.register_normal("weights", torch.ones(2), 0.0, 1.0)

    def forward(self):
        signs = torch.where(torch.arange(self.num_processes) % 2 == 0, 1.0, -1.0).to(self.weights)
        ones = torch.ones_like(signs)
        return torch.stack([ones, signs], dim=-1) * self.weights.unsqueeze(-2)


@dataclass(frozen=True)
class Contrasts(Structure):
    """A stranger's structure: one class, and one of loadings."""

    name = "contrasts"
    scale: float = 1.0

    def covariance(self, observations, kernel):
        P, d = observations.num_outputs, observations.input_dim
        component = RowKernel(kernel, P, d, loadings=Contrast(P)).double()
        with torch.no_grad():
            component.input_maps.log_scales -= np.log(self.scale)
        return AdditiveKernel(component)


@dataclass(frozen=True, kw_only=True)
class OneStart(Inference):
    """A stranger's inference."""

    name = "one start"
    max_steps: int = 5

    def cost(self, setting):
        return Cost(0.0, 0.0)

    def fit(self, setting, seed, progress=None):
        return closed_form(setting, seed, num_starts=1, max_steps=self.max_steps, progress=progress)


def data(outputs=3, rows=24):
    generator = np.random.default_rng(0)
    x = np.linspace(0, 6, rows)[:, None]
    y = np.sin(x + 0.3 * np.arange(outputs)) + 0.1 * generator.standard_normal((rows, outputs))
    y[rows // 3 : rows // 2, 1] = np.nan
    return x, y


FEW = {"max_steps": 5}
KINDS = {
    "averaged": {"structure": "auto", "kernel": "matern32", "inference": MAP(**FEW)},
    "components": {"structure": Shared(2), "inference": MAP(**FEW)},
    "samples": {"structure": "auto", "inference": Laplace(num_mixture=6, **FEW)},
    "factors": {"structure": Factors(2), "inference": MAP(**FEW)},
    "sparse": {"structure": "coregionalised", "num_inducing": 8, "inference": MAP(**FEW)},
    "stochastic": {"structure": "shifted", "num_inducing": 8, "inference": Minibatches(num_epochs=2)},
    "multiscale": {"structure": MultiScale(num_scales=2, periods=[3.0]), "inference": Windows(num_steps=3)},
    "a stranger's structure": {"structure": Contrasts(scale=2.0), "inference": MAP(**FEW)},
    "a stranger's name": {"structure": "contrasts", "kernel": "matern52", "inference": "one start"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_predicts_alike(kind, tmp_path):
    x, y = data()
    fitted = cgp.CorrelatedGPRegressor(random_state=0, **KINDS[kind]).fit(x, y).partial_fit(x[-1:] + 0.2, y[-1:])
    fitted.save(tmp_path)
    again = cgp.CorrelatedGPRegressor.load(tmp_path)
    for ask in (lambda r: r.predict(x + 0.1, return_std=True), lambda r: r.leave_one_out()):
        for result, expected in zip(ask(again), ask(fitted), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(again.sample_y(x, 2), fitted.sample_y(x, 2), atol=1e-6)
    assert again.summary() == fitted.summary()
    assert again.inference_ == fitted.inference_
    assert again.get_params() == fitted.get_params() | {"random_state": None}
    later = [each.conditioned(x[-1:] + 1.0, y[-1:]).predict(x[-1:] + 1.1) for each in (again, fitted)]
    np.testing.assert_allclose(*later, atol=1e-7)


def test_a_stranger_is_one_of_the_structures():
    x, y = data()
    fitted = CorrelatedGPRegressor(structure="contrasts", inference="one start").fit(x, y)
    assert (fitted.structure_, fitted.inference_) == ("contrasts", "one start")
    torch.testing.assert_close(fitted.model_.covar_module.kernels[0].loadings().shape, torch.Size([3, 2]))
    assert fitted.predict(x).shape == (24, 3)
    with pytest.raises(ValueError, match="structure: expected a new name, got 'contrasts', which Contrasts has"):
        type("Other", (Structure,), {"name": "contrasts"})


@pytest.mark.parametrize("structure", ["coregionalised", MultiScale(num_scales=2, periods=())])
def test_a_stranger_s_kernel_has_a_name(structure, tmp_path, monkeypatch):
    monkeypatch.setitem(BASE_KERNELS, "exponential", Exponential)
    monkeypatch.setattr("cgp.regression.solvers.choice.SOLVERS", {"linear": SOLVERS["linear"]})
    x, y = data()
    inference = MAP(**FEW) if isinstance(structure, str) else Windows(num_steps=3)
    options = {"structure": structure, "inference": inference, "random_state": 0}
    fitted, known = (CorrelatedGPRegressor(kernel, **options).fit(x, y) for kernel in ("exponential", "matern12"))
    assert isinstance(fitted.model_, SOLVERS["linear"])
    np.testing.assert_allclose(fitted.predict(x + 0.1), known.predict(x + 0.1), atol=1e-5)
    fitted.save(tmp_path)
    again = CorrelatedGPRegressor.load(tmp_path)
    np.testing.assert_allclose(again.predict(x + 0.1), fitted.predict(x + 0.1), atol=1e-9)


def test_what_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    x, y = data()
    fitted = CorrelatedGPRegressor(structure="contrasts", inference=MAP(**FEW)).fit(x, y)
    fitted.save(tmp_path)
    with safe_open(tmp_path / "regressor.safetensors", "pt") as content:
        assert '"name": "contrasts", "scale": 1.0' in content.metadata()["cgp"]
    monkeypatch.delitem(Structure._kinds, "contrasts")
    with pytest.raises(ValueError, match="structure: expected one of .*, got 'contrasts': import the module"):
        CorrelatedGPRegressor.load(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("cgp.weights._VERSION", 1)
    fitted.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="expected a file of format_version 2, got 1"):
        CorrelatedGPRegressor.load(tmp_path)


def test_a_kernel_object_is_for_pickle(tmp_path):
    from gpytorch.kernels import RBFKernel

    x, y = data()
    fitted = CorrelatedGPRegressor(RBFKernel(), structure="coregionalised", inference=MAP(**FEW)).fit(x, y)
    with pytest.raises(ValueError, match="kernel: expected a name, got RBFKernel: joblib.dump keeps"):
        fitted.save(tmp_path)


def test_results_of_frames_are_arrays_afterwards(tmp_path):
    import pandas as pd

    x, y = data()
    frame = pd.DataFrame(y, columns=["a", "b", "c"])
    fitted = CorrelatedGPRegressor(structure="coregionalised", inference=MAP(**FEW)).fit(
        pd.DataFrame({"x": x[:, 0]}), frame
    )
    fitted.save(tmp_path)
    again = CorrelatedGPRegressor.load(tmp_path)
    np.testing.assert_allclose(again.predict(x), fitted.predict(pd.DataFrame({"x": x[:, 0]})).to_numpy(), atol=1e-8)
