import pickle

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import SoftmaxLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from sklearn.datasets import load_iris, make_moons
from sklearn.metrics import log_loss

from cgp.regression import CorrelatedGPClassifier
from cgp.regression.classifier import class_posterior, softmax_bound
from cgp.regression.likelihood import every_process
from tests.cgp.regression.data import model_of, rows, shuffled

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def softmax_model(structure):
    """Three classes, four inducing inputs each, q in blocks where the classes' processes are independent."""
    x, y = rows(15)
    model = shuffled(model_of("stochastic", x, y, m=12, structure=structure))
    model.likelihood = SoftmaxLikelihood(num_classes=3, mixing_weights=False)
    if structure == "independent":
        with torch.no_grad():
            model.features.weights[0].copy_(torch.eye(3).repeat_interleave(4, dim=0))
            model.variational_strategy.raw_root.mul_(torch.block_diag(*[torch.ones(4, 4)] * 3))
    return model.train(), every_process(x[:, :-1], 3), torch.arange(15) % 3


class StockSoftmax(ApproximateGP):
    """GPyTorch's SVGP of three independent processes."""

    def __init__(self, model):
        component, strategy = model.covar_module.kernels[0], model.variational_strategy
        ratios = torch.cat([torch.zeros(1, 2), component.input_maps.log_ratios.detach()]).exp()
        scales = (component.input_maps.scales.detach() * ratios).unsqueeze(1)  # (3, 1, 2)
        points = model.inducing_points()[0].inputs.detach().reshape(3, 4, 2) / scales
        batch = torch.Size([3])
        q = CholeskyVariationalDistribution(4, batch_shape=batch)
        each = VariationalStrategy(self, points, q, learn_inducing_locations=False, jitter_val=1e-8)
        super().__init__(IndependentMultitaskVariationalStrategy(each, num_tasks=3))
        self.mean_module = ConstantMean(batch_shape=batch)
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=2, batch_shape=batch), batch_shape=batch)
        self.double()
        each.variational_params_initialized.fill_(1)
        q.variational_mean.data.copy_(strategy.variational_mean.reshape(3, 4))
        root = strategy.root.detach()
        q.chol_variational_covar.data.copy_(torch.stack([root[i : i + 4, i : i + 4] for i in (0, 4, 8)]))
        self.mean_module.constant = model.mean_module.constants.detach()
        self.covar_module.outputscale = component.loadings.scales.detach().square()
        self.covar_module.base_kernel.lengthscale = scales.reciprocal()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_softmax_bound_is_that_of_gpytorchs_svgp():
    model, x, labels = softmax_model("independent")
    stock = StockSoftmax(model).train()
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(20_000):
        expected = VariationalELBO(model.likelihood, stock, num_data=15)(stock(x[:, 0, :-1]), labels)
        result = softmax_bound(model, x, labels, 15, num_draws=20_000) - model.log_prior() / 15
    torch.testing.assert_close(result, expected, atol=0.01, rtol=0)


def test_classes_are_drawn_together():
    model, x, _ = softmax_model("coregionalised")
    joint = model.eval().posterior(x.flatten(0, 1))
    result = class_posterior(model, x)
    torch.testing.assert_close(result.mean, joint.mean.reshape(15, 3))
    blocks = joint.covariance_matrix.reshape(15, 3, 15, 3)[range(15), :, range(15)]
    torch.testing.assert_close(result.covariance_matrix, blocks)


@pytest.mark.parametrize(("data", "structure"), [("moons", "independent"), ("iris", "coregionalised")])
def test_probabilities_are_good_and_return_to_the_prior(data, structure):
    x, y = make_moons(150, noise=0.2, random_state=0) if data == "moons" else load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = CorrelatedGPClassifier(num_inducing=20, structure=structure, random_state=0).fit(x[::2], names[::2])
    result = model.predict_proba(x[1::2])
    np.testing.assert_allclose(result.sum(-1), 1.0)
    assert log_loss(names[1::2], result) < 0.3
    assert model.score(x[1::2], names[1::2]) > 0.9
    seen, far = (model.latent_variance(inputs) for inputs in (x, x + 1e3))
    assert (seen.mean(0) < 0.7 * far.mean(0)).all()
    assert model.predict_proba(x[:1] + 1e3).max() < 0.9
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(x), model.predict_proba(x))


@pytest.mark.parametrize(
    ("arguments", "y", "message"),
    [
        ({}, [1, 1, 1], "y: expected at least two classes, got one class"),
        ({"structure": "auto"}, [0, 1, 0], "structure: expected one of"),
        ({"structure": np.array([1, 2])}, [0, 1, 0], "structure: expected one of .* got array"),
        ({"structure": "share"}, [0, 1, 0], "structure: expected one of .*; did you mean 'shared'"),
        ({"num_epochs": 0}, [0, 1, 0], "num_epochs: expected an integer of at least 1, got 0"),
        ({"kernel": "cosine"}, [0, 1, 0], "kernel: expected a kernel or one of"),
    ],
)
def test_refuses(arguments, y, message):
    with pytest.raises(ValueError, match=message):
        CorrelatedGPClassifier(**arguments).fit([[0.0], [1.0], [2.0]], y)
