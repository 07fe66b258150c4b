"""The linear form of regression against the dense one, over structures, kernels, times and patterns of observations."""

import warnings
from functools import partial

import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cgp.regression import CorrelatedGPRegression, SeriesCorrelatedGPRegression, correlated_covariance
from cgp.regression.inference.sampling import sample_laplace
from cgp.regression.solvers.series import num_states
from tests.cgp.helpers import moments_of_draws
from tests.cgp.regression.data import shuffled

STRUCTURES = {
    "independent": 2,
    "coregionalised": 2,
    "shared": 2,
    "shifted": 1,
}


def quasi_periodic():
    return ScaleKernel(MaternKernel(nu=1.5)) * PeriodicKernel()


KERNELS = {
    "matern12": lambda: "matern12",
    "matern32": lambda: "matern32",
    "matern52": lambda: "matern52",
    "sum": lambda: ScaleKernel(MaternKernel(nu=0.5)) + MaternKernel(nu=2.5) + ConstantKernel(),
    "product": lambda: MaternKernel(nu=0.5) * MaternKernel(nu=1.5),
    "quasi-periodic": quasi_periodic,
    "trend and cycle": lambda: LinearKernel() + CosineKernel() + MaternKernel(nu=0.5),
}


PAIRS = [(structure, kernel) for structure in STRUCTURES for kernel in KERNELS]
"""Every other one is gone through here, the others in test_stream.py."""


def observations(n: int, outputs: int, *, regular: bool, seed: int = 0):
    """Rows in no order: a part of a grid, or irregular times, some of them repeated."""
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    if regular:
        grid = torch.cartesian_prod(torch.arange(n, dtype=torch.float64) * 0.3 - 2.0, torch.arange(outputs).double())
        rows = grid[torch.randperm(len(grid), generator=generator)[:n]]
    else:
        times = (4.0 * torch.rand(n, **options)).round(decimals=1)  # with repetitions
        rows = torch.stack([times, torch.randint(outputs, (n,), generator=generator).double()], dim=-1)
    return rows, torch.randn(len(rows), **options)


def places(outputs: int, count: int = 9):
    times = torch.linspace(-3.0, 6.0, count, dtype=torch.float64)
    return torch.cartesian_prod(times, torch.arange(outputs).double())


def pair(rows, targets, outputs: int, *, seed: int = 1, **options):
    """The dense and the linear model with the same parameters, away from their start."""
    covariance = correlated_covariance(outputs, 1, **options).double()
    dense = shuffled(CorrelatedGPRegression(rows, targets, outputs, covar_module=covariance), seed)
    linear = SeriesCorrelatedGPRegression(rows, targets, outputs, covar_module=covariance).eval()
    linear.load_state_dict(dense.state_dict())
    return dense, linear


def slopes(model):
    learned = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    values = torch.autograd.grad(model.log_evidence(), [p for _, p in learned], materialize_grads=True)
    return {name: value for (name, _), value in zip(learned, values, strict=True)}


def assert_same(dense, linear, new, tolerance=1e-8):
    """All that a model answers."""
    close = partial(torch.testing.assert_close, atol=tolerance, rtol=tolerance)
    close(linear.log_evidence(), dense.log_evidence())
    with torch.no_grad():
        for rows in (new, dense.train_inputs[0][..., :3, :]):  # beside the observations, and at them
            for noisy in (False, True):
                close(linear.moments(rows, noisy=noisy), dense.moments(rows, noisy=noisy))
        close(linear.leave_one_out(), dense.leave_one_out())
        posteriors = dense(new), linear(new)
        close(posteriors[1].mean, posteriors[0].mean)
        close(posteriors[1].covariance_matrix, posteriors[0].covariance_matrix)


@pytest.mark.parametrize(("structure", "kernel"), PAIRS[::2])
def test_linear_form_is_the_dense_form(structure, kernel):
    rows, targets = observations(15, 3, regular=False)
    options = {"kernel": KERNELS[kernel](), "structure": structure, "num_components": STRUCTURES[structure]}
    dense, linear = pair(rows, targets, 3, **options)
    assert_same(dense, linear, places(3), 1e-7)
    torch.testing.assert_close(slopes(linear), slopes(dense), atol=1e-6, rtol=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(sorted(STRUCTURES)),
    st.sampled_from(["matern12", "matern32", "matern52"]),
    st.integers(1, 3),
    st.integers(1, 12),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_linear_form_is_the_dense_form_whatever_is_observed(structure, kernel, outputs, n, regular, seed):
    rows, targets = observations(n, outputs, regular=regular, seed=seed)
    options = {"kernel": kernel, "structure": structure, "num_components": STRUCTURES[structure]}
    dense, linear = pair(rows, targets, outputs, seed=seed, **options)
    assert_same(dense, linear, places(outputs, 3))
    torch.testing.assert_close(slopes(linear), slopes(dense), atol=1e-7, rtol=1e-6)


def test_shifts_have_gradients_where_they_begin():
    """Outputs on one grid and shifts of zero: the order of equal times and the sharing of lags must not matter."""
    rows = torch.cartesian_prod(torch.arange(8).double(), torch.arange(3).double())
    targets = torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    dense, linear = pair(rows, targets, 3, kernel="matern52", structure="shifted")
    for model in (dense, linear):
        model.covar_module.kernels[0].input_maps.shifts.data.zero_()
    torch.testing.assert_close(slopes(linear), slopes(dense), atol=1e-9, rtol=1e-8)


def test_members_of_a_batch_are_models():
    """Laplace's samples of all parameters: each member as the dense form has it."""
    rows, targets = observations(20, 2, regular=True)
    dense, linear = pair(rows, targets, 2, kernel="matern32", structure="shifted")
    samples = sample_laplace(dense, num_samples=3, seed=0)
    assert_same(dense.with_samples(samples), linear.with_samples(samples), places(2))


def test_laplace_curvatures_agree():
    rows, targets = observations(20, 2, regular=True)
    dense, linear = pair(rows, targets, 2, kernel="matern52", structure="coregionalised")
    expected, samples = (sample_laplace(model, num_samples=4, seed=0) for model in (dense, linear))
    torch.testing.assert_close(samples, expected, atol=1e-6, rtol=1e-6)


def test_further_observations_are_conditioned_on():
    rows, targets = observations(20, 2, regular=False)
    dense, linear = pair(rows, targets, 2, kernel="matern32", structure="coregionalised")
    more = observations(6, 2, regular=False, seed=3)
    assert_same(*(model.get_fantasy_model(*more) for model in (dense, linear)), places(2))


def test_members_may_have_observations_of_their_own():
    """Fantasies: a batch of inputs."""
    rows, targets = observations(12, 2, regular=False)
    dense, linear = pair(rows, targets, 2, kernel="matern32", structure="coregionalised")
    parts = [observations(4, 2, regular=False, seed=seed) for seed in (3, 4)]
    more = [torch.stack(values) for values in zip(*parts, strict=True)]
    assert_same(*(model.get_fantasy_model(*more) for model in (dense, linear)), places(2))


def test_draws_have_the_mean_and_covariance_of_the_posterior():
    rows, targets = observations(15, 2, regular=False)
    dense, linear = pair(rows, targets, 2, kernel="matern32", structure="coregionalised")
    new = places(2, 5)
    with torch.no_grad():
        posterior = dense(new)
    moments = moments_of_draws(lambda count: linear.draw(new, [count]))
    torch.testing.assert_close(moments, (posterior.mean, posterior.covariance_matrix))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kernel": "rbf"}, "Markov kernel, but RBFKernel"),
        ({"kernel": LinearKernel() * MaternKernel(nu=0.5)}, "LinearKernel is a factor of a product"),
        ({"kernel": MaternKernel(nu=0.5, active_dims=(0,))}, "MaternKernel is of several or chosen inputs"),
        ({"kernel": "matern32", "structure": "affine"}, "affine"),
        (
            {"kernel": "matern32", "structure": "shifted", "num_components": 2},
            "one component where outputs are shifted",
        ),
        ({"kernel": MaternKernel(nu=1.5) + RBFKernel()}, "RBFKernel is not one of"),
    ],
)
def test_what_is_no_state_space_is_refused(options, match):
    rows, targets = observations(8, 2, regular=True)
    covariance = correlated_covariance(2, 1, **options).double()
    with pytest.raises(ValueError, match=f"covar_module: expected .*{match}"):
        SeriesCorrelatedGPRegression(rows, targets, 2, covar_module=covariance)


def test_the_states_of_a_chain_are_counted():
    sum_of_two = MaternKernel(nu=1.5) + MaternKernel(nu=2.5)  # two and three states
    covariance = correlated_covariance(2, 1, kernel=sum_of_two, structure="coregionalised")
    assert num_states(covariance) == 2 * 2 * 3  # processes, kernels, states of the larger one


def test_several_inputs_are_refused():
    rows = torch.zeros(4, 3, dtype=torch.float64)
    covariance = correlated_covariance(1, 2, kernel="matern32").double()
    with pytest.raises(ValueError, match="expected one input, got 2"):
        SeriesCorrelatedGPRegression(rows, rows[:, 0], 1, covar_module=covariance)


def test_single_precision_is_kept():
    rows, targets = observations(12, 2, regular=True)
    covariance = correlated_covariance(2, 1, kernel="matern32", structure="coregionalised")
    model = SeriesCorrelatedGPRegression(rows.float(), targets.float(), 2, covar_module=covariance).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.log_evidence().backward()
        moments, posterior = model.moments(places(2).float()), model(places(2).float())
    values = (*moments, model.log_evidence(), posterior.mean, posterior.covariance_matrix, *model.leave_one_out())
    assert {value.dtype for value in values} == {torch.float32}
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.grad is not None)
