"""The Pyro program against the objective on the same weights, and training by SVI."""

import pyro
import pytest
import torch
from pyro.infer import TraceMeanField_ELBO
from torch import nn

from cgp import CategoricalLikelihood, Objective, SoftmaxAttention
from cgp.networks.model.blocks import sampling
from cgp.networks.model.pyro import to_pyro
from tests.blocks import BLOCKS
from tests.cgp.helpers import moved

NAMES = ("sgpa", "kep_svgp")


@pytest.fixture(autouse=True)
def empty_store():
    pyro.clear_param_store()
    yield
    pyro.clear_param_store()


def problem(name: str, beta: float = 1.0) -> tuple[Objective, torch.Tensor, torch.Tensor]:
    model = moved(nn.Sequential(BLOCKS[name](8, 2), nn.Flatten(), nn.Linear(40, 3)).double(), 0.1)
    with torch.no_grad():
        model[0].variational_strategy.raw_root.diagonal(dim1=-2, dim2=-1).fill_(0.2)  # deviations of about 0.8
    objective = Objective(model, CategoricalLikelihood(3), num_data=50, beta=beta)
    return objective, torch.randn(6, 5, 8, dtype=torch.float64), torch.arange(6) % 3


@pytest.mark.parametrize("name", NAMES)
def test_divergences_and_added_terms_are_the_objectives(name):
    """With a head that looks at nothing the likelihood is no longer random: both losses are exact."""
    objective, x, y = problem(name, beta=0.3)
    nn.init.zeros_(objective.model[2].weight)
    program = to_pyro(objective)
    loss = TraceMeanField_ELBO().loss(*program, x, y)
    assert loss / 50 == pytest.approx(objective(x, y).item(), rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_bound_is_the_objectives_in_expectation(name):
    objective, x, y = problem(name)
    program, elbo, count = to_pyro(objective), TraceMeanField_ELBO(), 120
    with torch.no_grad(), sampling(objective.model, "joint"):
        by_pyro = torch.tensor([elbo.loss(*program, x, y) / 50 for _ in range(count)])
        by_objective = torch.stack([objective(x, y) for _ in range(count)])
    error = torch.hypot(by_pyro.std(), by_objective.std()) / count**0.5
    assert error < 0.02 * by_objective.mean()  # so that the comparison says something
    assert abs(by_pyro.mean() - by_objective.mean()) < 4 * error


def test_a_model_without_global_variables_is_refused():
    model = nn.Sequential(SoftmaxAttention(8, 2), nn.Flatten(), nn.Linear(40, 3))
    with pytest.raises(ValueError, match="objective: expected a model with global inducing variables"):
        to_pyro(Objective(model, CategoricalLikelihood(3), num_data=50))
