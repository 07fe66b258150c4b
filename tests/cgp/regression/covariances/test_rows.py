import numpy as np
import pytest
import torch
from gpytorch.kernels import IndexKernel, MaternKernel, RBFKernel, RQKernel
from linear_operator import to_dense

from cgp.kernels import CorrelatedKernel, HadamardCorrelatedKernel
from cgp.kernels.base_kernels import base_gram
from cgp.regression.covariances.correlated import correlated_covariance
from cgp.regression.covariances.neighbours import nearest_correlation
from cgp.regression.covariances.rows import InputMaps, Loadings, RowKernel
from cgp.regression.observations import Scaling
from tests.cgp.regression.data import rows

KERNELS = [RBFKernel, lambda: MaternKernel(nu=0.5), lambda: MaternKernel(nu=1.5), lambda: MaternKernel(nu=2.5)]


def points(*shape, seed=0):
    return torch.randn(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fixed(make, lengthscale=1.3):
    kernel = make().double()
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


@pytest.mark.parametrize("make", KERNELS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_equals_gpytorch_with_both_derivatives(make, batch):
    kernel = fixed(make)
    x1, x2 = points(*batch, 4), points(3, seed=1)
    torch.testing.assert_close(base_gram(kernel, x1, x2), to_dense(kernel(x1, x2)), atol=1e-12, rtol=0)
    leaves = [value.requires_grad_() for value in (x1, x2)]
    assert torch.autograd.gradcheck(lambda *x: base_gram(kernel, *x), leaves)
    assert torch.autograd.gradgradcheck(lambda *x: base_gram(kernel, *x), leaves)


@pytest.mark.parametrize("make", KERNELS)
def test_a_set_with_itself_far_from_the_origin_and_with_repeats(make):
    kernel = fixed(make)
    x = points(6)
    x = torch.cat([x, x[:2]]) + 1000.0
    expected = to_dense(kernel(x - 1000.0))
    tolerance = 1e-6 if make is KERNELS[1] else 1e-12  # the root of a rounded distance
    torch.testing.assert_close(base_gram(kernel, x, x), expected, atol=tolerance, rtol=0)
    leaf = x.clone().requires_grad_()
    base_gram(kernel, leaf, leaf).sum().backward()
    assert torch.isfinite(leaf.grad).all()


def test_kernels_that_learn_are_left_to_gpytorch():
    x = points(4)
    for kernel in (RBFKernel().double(), RQKernel().double(), RBFKernel(ard_num_dims=2).double()):
        gram = base_gram(kernel, x, x)
        torch.testing.assert_close(gram, to_dense(kernel(x)))
        gram.sum().backward()
        assert kernel.raw_lengthscale.grad.abs().sum() > 0


def test_later_maps_follow_the_first():
    maps = InputMaps(2, 2, shifts=False)
    maps.initialize(log_ratios=torch.tensor([[2.0, 0.5]]).log(), log_scales=torch.tensor([3.0, 3.0]).log())
    result = maps(torch.ones(2, 2), torch.tensor([0, 1]))
    torch.testing.assert_close(result.detach(), torch.tensor([[3.0, 3.0], [6.0, 1.5]]))
    assert {name for name, _ in maps.named_parameters()} == {"log_scales", "log_ratios"}


@pytest.mark.parametrize("size", [1, 2, 5])
def test_loadings_are_the_factor_of_any_correlation_matrix(size):
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    covariance = root @ root.T + 0.1 * torch.eye(size)
    scales = covariance.diagonal().sqrt()
    loadings = Loadings(size).double()
    loadings.initialize(log_scales=scales.log())
    if size > 1:
        loadings.set_correlation(covariance / scales / scales[:, None])
    torch.testing.assert_close((loadings() @ loadings().T).detach(), covariance)
    torch.testing.assert_close(loadings().detach(), torch.linalg.cholesky(covariance))


def test_shared_loadings_are_one_factor_and_a_variance_of_each():
    common, scales = torch.tensor([0.8, -0.5, 0.1]).double(), torch.tensor([1.0, 2.0, 0.5]).double()
    correlation = common[:, None] * common + torch.diag(1.0 - common.square())
    loadings = Loadings(3, shared=True).double()
    loadings.initialize(log_scales=scales.log(), partials=common.atanh())
    result = (loadings() @ loadings().T).detach()
    torch.testing.assert_close(result, correlation * scales * scales[:, None])
    signs = torch.tensor([1.0, -1.0, 1.0]).double()
    loadings.set_correlation(0.6 * signs[:, None] * signs + 0.4 * torch.eye(3))  # its largest eigenvalue is 2.2
    started = loadings.partials.detach().tanh()
    torch.testing.assert_close(started * started[0].sign(), (2.2 / 3) ** 0.5 * signs)
    assert Loadings(1, shared=True).partials is None


def test_shared_components_are_gpytorchs_lmc():
    x = rows(9)[0]
    ours = correlated_covariance(3, 2, kernel="matern32", structure="shared").double()
    expected = torch.zeros(9, 9).double()
    for component in ours.kernels:
        component.loadings.initialize(partials=torch.randn(3).double())
        base, tasks = MaternKernel(nu=1.5, ard_num_dims=2).double(), IndexKernel(num_tasks=3, rank=1).double()
        base.lengthscale = component.input_maps.scales.reciprocal()
        weights = component.loadings().detach()
        tasks.covar_factor.data, tasks.var = weights[:, :1], weights[:, 1:].square().sum(-1)
        expected += base(x[:, :-1]).mul(tasks(x[:, -1:].long())).to_dense()
    assert len(ours.kernels) == 2
    torch.testing.assert_close(ours(x).to_dense(), expected)


def test_parallel_loadings_are_views_of_one_canonical_process():
    x = rows(9)[0]
    kernel = RowKernel("rbf", 3, 2, ratios=True, shifts=True).double()
    other = HadamardCorrelatedKernel(CorrelatedKernel("rbf", 3, 2, input_maps="diagonal")).double()
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter) * parameter.requires_grad)
        kernel.loadings.partials.copy_(torch.tensor([20.0, 20.0, 0.0]))  # correlation 1 to the last digit
    other.correlated.scales = kernel.loadings.scales.detach()
    ratios = torch.cat([torch.zeros(1, 2), kernel.input_maps.log_ratios.detach()]).exp()
    shifts = torch.cat([torch.zeros(1, 2), kernel.input_maps.shifts.detach()])
    for input_map, ratio, shift in zip(other.correlated.input_maps, ratios, shifts, strict=True):
        input_map.scales = kernel.input_maps.scales.detach() * ratio
        input_map.initialize(bias=shift)
    torch.testing.assert_close(kernel(x).to_dense(), other(x).to_dense())


def test_correlations_of_neighbours():
    x = torch.linspace(0, 1, 30).double()
    f = (7 * x).sin()
    parts = [f, -f, (100 * x.square()).cos(), torch.full_like(x, 2.0)]
    every = [torch.stack([x, torch.full_like(x, p)], dim=-1)[p % 2 :: 2] for p in range(4)]
    targets = torch.cat([part[p % 2 :: 2] for p, part in enumerate(parts)])
    result = nearest_correlation(torch.cat(every), targets, 4)
    assert result[0, 1] < -0.7
    assert abs(float(result[0, 2])) < 0.4
    assert result[3, :3].abs().max() < 1e-12  # a constant is correlated with nothing
    assert np.linalg.eigvalsh(result).min() > 0.05


def test_scaling_there_and_back():
    values = np.array([[1.0, 5.0, np.nan], [3.0, 5.0, 2.0], [np.nan, 5.0, 4.0]]) * [1e-200, 1.0, 1e300]
    scaling = Scaling.of(values)
    scaled = scaling.apply(values)
    np.testing.assert_allclose(np.nanmean(scaled, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scaled, axis=0), [1.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(scaling.undo(scaled), values)
    assert np.frexp(scaling.largest)[0].tolist() == [0.5] * 3  # powers of two: they round nothing
    assert np.nanmax(np.abs(values / scaling.largest), axis=0).min() >= 0.5


def test_the_correlation_of_a_long_table_is_that_of_all_of_it():
    time = torch.arange(6000).double()
    y = (0.01 * time).sin()
    other = torch.where(time < 2500, -y, y)  # against each other at first, together for most of the time
    rows = torch.cat([torch.stack([time, torch.full_like(time, p)], dim=-1) for p in range(2)])
    assert nearest_correlation(rows, torch.cat([y, other]), 2)[0, 1] == pytest.approx(0.9 * 1 / 6, abs=0.1)


def test_a_spread_far_below_the_level_is_a_spread():
    values = np.array([1e13 - 1, 1e13, 1e13 + 1, np.nan])[:, None]
    scaling = Scaling.of(values)
    np.testing.assert_allclose(scaling.unit, np.sqrt(2 / 3), rtol=1e-2)
    np.testing.assert_allclose(scaling.undo(scaling.apply(values)), values, rtol=0, atol=2e-2)
    assert Scaling.of_outputs(values).unit < 10
    assert Scaling.of(np.full((7, 1), 0.1)).spread == 1.0


def test_outputs_with_few_observations_get_their_scale_from_the_others():
    values = np.full((40, 6), np.nan)
    values[:, 0] = np.arange(40.0)
    values[:, 1] = 3 * np.arange(40.0)
    values[0, 2] = 4.5
    values[:2, 3] = 30.0, 30.001
    values[:2, 4] = 10.0, 1010.0
    values[:, 5] = 7.0
    unit, separate = Scaling.of_outputs(values).unit, Scaling.of(values).unit
    np.testing.assert_allclose(unit[:2], separate[:2], rtol=2e-3)
    common = np.median(separate[:2])
    assert common < unit[2] < 3 * common
    assert common < unit[3] < 3 * common
    assert 700 < unit[4] < 1400
    assert unit[5] == pytest.approx(common, rel=0.05)
    assert (Scaling.of_outputs(np.array([[1.0, 5.0], [3.0, 5.1]])).unit > 1.0).all()
    np.testing.assert_allclose(Scaling.of_outputs(np.array([[20.0, 22.0]])).unit, [2.0 * 2**0.5] * 2)
    assert Scaling.of_outputs(np.array([[-3.0]])).unit == 3.0
    assert Scaling.of_outputs(np.zeros((4, 1))).unit == 1.0
    assert Scaling.of_outputs(np.array([[1.0], [2.0], [3.0]])).unit > 3.0 * 0.8


def test_three_values_that_agree_by_chance_do_not_shrink_a_scale():
    values = np.full((30, 4), np.nan)
    values[:3, 0], values[:3, 1], values[:3, 3] = (0.1, -0.1, 0.9), (0.8, 0.2, -0.8), (-1.2, -0.1, -0.2)
    values[:3, 2] = -0.208, -0.207, -0.198  # 0.014 by itself
    few = Scaling.of_outputs(values).unit
    assert few[2] > 0.5 * few[0]
    values[:, 2] = -0.2 + 0.005 * np.sin(np.arange(30.0))  # so many do show it
    np.testing.assert_allclose(Scaling.of_outputs(values).unit[2], values[:, 2].std(), rtol=0.01)


def test_outputs_in_other_units_keep_their_scales():
    sizes = np.array([1e-3, 1.0, 20.0, 1e3])
    values = np.sin(np.arange(24.0).reshape(6, 4)) * sizes
    unit = Scaling.of_outputs(values).unit
    np.testing.assert_allclose(unit / Scaling.of(values).unit, 1.0 + 60.0 / 6**3, rtol=0.1)
    np.testing.assert_allclose(Scaling.of_outputs(1e5 * values).unit, 1e5 * unit)
