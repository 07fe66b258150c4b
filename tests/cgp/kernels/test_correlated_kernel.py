import copy
import itertools
import pickle
import unittest

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from hypothesis import given
from hypothesis import strategies as st

from cgp.kernels import AffineMap, CorrelatedKernel, HadamardCorrelatedKernel
from tests.cgp.kernels.conftest import dense_oracle, random_kernel


def inputs(*shape):
    torch.manual_seed(7)
    return torch.randn(*shape, dtype=torch.float64)


def test_every_block_matches_the_formula(kernel):
    x1, x2 = inputs(5, 2), inputs(4, 2) + 0.3
    joint = kernel(x1, x2).to_dense().detach().numpy().reshape(5, 3, 4, 3)
    blocks = kernel.joint([x1] * 3, [x2] * 3).to_dense().detach().numpy().reshape(3, 5, 3, 4)
    for p, r in itertools.product(range(3), repeat=2):
        expected = dense_oracle(kernel, p, x1, r, x2)
        np.testing.assert_allclose(kernel.cross(p, r)(x1, x2).to_dense().detach().numpy(), expected, atol=1e-13)
        np.testing.assert_allclose(joint[:, p, :, r], expected, atol=1e-13)
        np.testing.assert_allclose(blocks[p, :, r], expected, atol=1e-13)
    assert (kernel.cross(0, 1)(x1).to_dense() - kernel.cross(0, 1)(x1).to_dense().mT).abs().max() > 1e-3
    process = kernel.process("key")
    kernel.scales = kernel.scales.detach() * torch.tensor([1.0, 3.0, 1.0])  # which it shares
    np.testing.assert_allclose(
        process(x1, x2).to_dense().detach().numpy(), dense_oracle(kernel, 1, x1, 1, x2), atol=1e-13
    )
    torch.testing.assert_close(process(x1, diag=True), process(x1).to_dense().diagonal())


@given(
    base=st.sampled_from(["rbf", "matern12", "matern32", "matern52", "rq"]),
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    spread=st.floats(-3, 3),
    scale=st.floats(-3, 3),
)
def test_joint_covariance_is_psd_and_bounded_by_the_scales(base, counts, sizes, spread, scale):
    kernel = CorrelatedKernel(base, len(counts), sizes[0], canonical_dim=sizes[1]).double()
    kernel.scales = 10.0**scale * (0.5 + torch.rand(len(counts)))
    covariance = kernel.joint([10.0**spread * torch.randn(n, sizes[0]).double() for n in counts]).to_dense()
    bound = kernel.scales.max().square()
    assert torch.linalg.eigvalsh(covariance)[0] > -1e-7 * bound  # GPyTorch's distances round to 1e-8
    assert covariance.abs().max() <= bound * (1 + 1e-12)


def test_slices_of_the_lazy_matrix(kernel):
    x1, x2 = inputs(6, 2), inputs(5, 2)
    full = kernel(x1, x2).to_dense()
    lazy = kernel(x1, x2)
    assert isinstance(lazy, LazyEvaluatedKernelTensor)
    torch.testing.assert_close(lazy[3:12, 6:9].to_dense(), full[3:12, 6:9])
    torch.testing.assert_close(kernel(x1, x2)[1:11, 2:4].to_dense(), full[1:11, 2:4])
    torch.testing.assert_close(kernel(x1, x2).mT[0:4].to_dense(), full.mT[0:4])
    torch.testing.assert_close(kernel(x1, diag=True), kernel(x1).to_dense().diagonal())


@pytest.mark.parametrize("kind", ["free", "diagonal"])
@pytest.mark.parametrize("batch_shape", [(2,), (3, 2)])
def test_batch_equals_loop(kind, batch_shape):
    dim = {"free": 3, "diagonal": 2}[kind]
    kernel = random_kernel(batch_shape=torch.Size(batch_shape), input_maps=kind, canonical_dim=dim)
    x = inputs(*batch_shape, 4, 2)
    full = kernel(x).to_dense()
    for member in itertools.product(*map(range, batch_shape)):
        torch.testing.assert_close(kernel[member](x[member]).to_dense(), full[member])
    shared = kernel(x[(0,) * len(batch_shape)]).to_dense()
    torch.testing.assert_close(shared[(0,) * len(batch_shape)], full[(0,) * len(batch_shape)])


def test_batches_keep_their_gradients_and_unsqueezed_matrices_their_shape():
    """Stock kernels lose the gradient (trap 2) and give a wrong shape (trap 3)."""
    kernel = random_kernel(batch_shape=torch.Size([2]))
    x = inputs(2, 4, 2)
    for matrix in (kernel(x)[1], kernel[1](x[1]), kernel.expand_batch(3, 2)(x)[0, 1]):
        kernel.zero_grad()
        matrix.to_dense().sum().backward()
        gradients = [p.grad for p in kernel.parameters() if p.requires_grad]
        assert all(g is not None and g[0].abs().sum() == 0 and g[1].abs().sum() > 0 for g in gradients)
    assert kernel(x).unsqueeze(-3).shape == (2, 1, 12, 12)
    torch.testing.assert_close(kernel(x).unsqueeze(-3).to_dense(), kernel(x).to_dense().unsqueeze(-3))
    stock = gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2])).double()
    stock(x)[1].to_dense().sum().backward()
    assert stock.raw_lengthscale.grad is None, "GPyTorch mended trap 2: BatchSafeKernel may go"
    assert stock(x).unsqueeze(-3).to_dense().shape != (2, 1, 4, 4), "GPyTorch mended trap 3"


def test_gradients(kernel):
    x = inputs(3, 2).requires_grad_()
    parameters = [p for p in kernel.parameters() if p.requires_grad]

    def joint(x, *_):
        return kernel.joint([x, x[:2] + 0.1, x[1:]]).to_dense()

    assert torch.autograd.gradcheck(joint, (x, *parameters))


def test_maps_of_ones_own_and_processes_with_inputs_of_different_size():
    kernel = CorrelatedKernel("rbf", 2, input_maps=[torch.nn.Linear(2, 2), AffineMap(3, 2)])
    assert kernel.joint([torch.randn(4, 2), torch.randn(5, 3)]).shape == (9, 9)
    assert kernel.cross(1, 0)(torch.randn(5, 3), torch.randn(4, 2)).shape == (5, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kernel: CorrelatedKernel("rbf", 0, 1), "num_processes"),
        (lambda kernel: CorrelatedKernel("rbf", 2), "input_dim"),
        (lambda kernel: CorrelatedKernel("rbf", 2, input_maps=[AffineMap(1)]), "one for each of 2"),
        (lambda kernel: CorrelatedKernel("rbf", 2, 1, input_maps="diag"), "input_maps: .*; did you mean 'diagonal'"),
        (lambda kernel: CorrelatedKernel("rbf", 2, input_maps=[AffineMap(1), AffineMap(2)]), "one common out_features"),
        (lambda kernel: kernel.cross(0, 3), "process: expected 0 to 2"),
        (
            lambda kernel: random_kernel(2).process("latent"),
            r"expected 0 to 1 or one of \('query', 'key'\), got 'latent'",
        ),
        (
            lambda kernel: HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, 1))(torch.zeros(4, 3)).to_dense(),
            "x: expected rows of 2 columns, the last one the number of the process, got 3",
        ),
        (lambda kernel: kernel.joint([inputs(2, 2)]), "one tensor for each of 3"),
        (lambda kernel: kernel(inputs(2, 2), task=1).to_dense(), "unknown arguments"),
        (lambda kernel: kernel(inputs(2, 2) / 0).to_dense(), "x: expected finite numbers, got 4 NaN or infinite of 4"),
        (lambda kernel: kernel.cross(0, 1)(inputs(2, 2) / 0), "x: expected finite numbers, got 4"),
    ],
)
def test_bad_arguments_are_refused(kernel, call, message):
    with pytest.raises(ValueError, match=message):
        call(kernel)


def test_scales_prior_constraint_and_copies(kernel):
    kernel.scales = torch.tensor([0.5, 1.0, 2.0])
    torch.testing.assert_close(kernel.scales, torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
    x = inputs(4, 2)
    before = kernel(x).to_dense()
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        torch.testing.assert_close(twin(x).to_dense(), before)
    fresh = random_kernel(seed=5)
    fresh.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(fresh(x).to_dense(), before)
    bounded = CorrelatedKernel("rbf", 2, 1, scale_constraint=gpytorch.constraints.Interval(0.5, 3.0))
    assert ((bounded.scales > 0.5) & (bounded.scales < 3.0)).all()


def test_samples_from_pyro_make_a_batch_kernel():
    kernel = random_kernel(2, scale_prior=gpytorch.priors.LogNormalPrior(0.0, 1.0))
    for affine in kernel.input_maps:
        affine.register_prior("weight_prior", gpytorch.priors.NormalPrior(0.0, 1.0), "weight")
    x = inputs(5, 2)
    scales, weights = torch.rand(6, 2).double() + 0.5, torch.randn(2, 6, 3, 2).double()
    samples = {"scale_prior": scales}
    samples |= {f"input_maps.{p}.weight_prior": weights[p] for p in range(2)}
    loaded = copy.deepcopy(kernel)
    loaded.pyro_load_from_samples(samples)
    matrix = loaded(x).to_dense()
    for draw in range(6):
        kernel.scales = scales[draw]
        for p in range(2):
            kernel.input_maps[p].weight = weights[p, draw]
        torch.testing.assert_close(matrix[draw], kernel(x).to_dense())
    torch.testing.assert_close(loaded[2](x).to_dense(), matrix[2])
    assert kernel.pyro_sample_from_prior()(x).shape == (10, 10)


class TestStockCases(BaseKernelTestCase, unittest.TestCase):
    """GPyTorch's own contract. The stock cases call one kernel on inputs of several sizes; a map has one size."""

    dims = 2

    def _make(self, **kwargs):
        torch.manual_seed(3)
        return CorrelatedKernel("rbf", 3, self.dims, **kwargs)

    def create_kernel_no_ard(self, **kwargs):
        self.dims = {"test_active_dims_list": 4, "test_active_dims_range": 6}.get(self._testMethodName, 2)
        return self._make(**kwargs)

    def create_kernel_ard(self, num_dims, **kwargs):
        return self._make(input_maps="diagonal", **kwargs)


def test_maps_become_random_with_gradients():
    kernel = CorrelatedKernel("rbf", 2, 1)
    bias = kernel.input_maps[1].bias.detach().clone()
    kernel.input_maps[1].register_prior("bias_prior", gpytorch.priors.NormalPrior(0.0, 1.0), "bias")
    sampled = kernel.pyro_sample_from_prior()
    assert not isinstance(sampled.input_maps[1].bias, torch.nn.Parameter)
    assert not torch.equal(sampled.input_maps[1].bias, bias)
    torch.testing.assert_close(kernel.input_maps[1].bias.detach(), bias)
    value = torch.tensor([0.3], requires_grad=True)
    random = kernel.to_pyro_random_module()
    random.input_maps[1].initialize(bias=value)
    random(torch.zeros(1, 1)).to_dense().sum().backward()
    assert value.grad.abs() > 0
    assert len(kernel.input_maps[1:]) == 1


def test_free_maps_start_equal_but_for_their_biases():
    maps = CorrelatedKernel("rbf", 4, 3, canonical_dim=2).input_maps
    for other in maps[1:]:
        assert torch.equal(other.weight, maps[0].weight)
        assert other.weight.data_ptr() != maps[0].weight.data_ptr()
        assert not torch.equal(other.bias, maps[0].bias)


def test_only_the_parameters_of_its_own_get_gradients():
    kernel = random_kernel(2)
    kernel.process(1)(torch.randn(4, 2).double()).to_dense().square().sum().backward()
    assert kernel.input_maps[0].raw_weight.grad is None
    assert kernel.input_maps[1].raw_weight.grad.abs().sum() > 0
    assert kernel.raw_scales.grad[0] == 0 != kernel.raw_scales.grad[1]


def rows(*counts, dim=2, batch=()):
    """Inputs of each process in turn, its number in the last column."""
    torch.manual_seed(4)
    parts = [
        torch.cat([torch.randn(*batch, n, dim), torch.full((*batch, n, 1), float(p))], -1) for p, n in enumerate(counts)
    ]
    return torch.cat(parts, -2).double()


def test_is_the_joint_covariance_whatever_the_order_of_the_rows(kernel):
    x = rows(3, 2, 4)
    joint = kernel.joint([x[:3, :-1], x[3:5, :-1], x[5:, :-1]]).to_dense()
    order = torch.randperm(9)
    shuffled = HadamardCorrelatedKernel(kernel)(x[order])
    torch.testing.assert_close(shuffled.to_dense(), joint[order][:, order])
    torch.testing.assert_close(HadamardCorrelatedKernel(kernel)(x, diag=True), joint.diagonal())
    lazy = HadamardCorrelatedKernel(kernel)(x, x[:5])
    torch.testing.assert_close(lazy.mT.to_dense(), joint[:5])
    torch.testing.assert_close(lazy[2:7, torch.tensor([4, 0])].to_dense(), joint[2:7][:, [4, 0]])


def test_batch_members_keep_their_gradients():
    kernel = HadamardCorrelatedKernel(random_kernel(2, batch_shape=torch.Size([2])))
    x = rows(3, 2, batch=(2,))
    member = kernel(x)[1].to_dense()
    torch.testing.assert_close(kernel[1](x[1]).to_dense(), member)
    member.sum().backward()
    assert all(p.grad is not None and p.grad[1].abs().sum() > 0 for p in kernel.parameters() if p.requires_grad)


@pytest.mark.parametrize("wrong", [3.0, -1.0, 0.5, float("nan")])
def test_refuses_numbers_that_are_no_process(kernel, wrong):
    with pytest.raises(ValueError, match="processes 0 to 2 in the last column, got"):
        HadamardCorrelatedKernel(kernel)(torch.tensor([[0.0, 0.0, wrong]]).double()).to_dense()


class TestHadamardStockCases(BaseKernelTestCase, unittest.TestCase):
    """GPyTorch's own contract, a column of processes in the data; its cases of active_dims would lose that column."""

    test_active_dims_list = None
    test_active_dims_range = None

    def create_kernel_no_ard(self, **kwargs):
        torch.manual_seed(3)
        return HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, 2, **kwargs))

    def create_kernel_ard(self, num_dims, **kwargs):
        return HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, 2, input_maps="diagonal", **kwargs))

    def create_data_no_batch(self):
        return rows(20, 30).float()

    def create_data_single_batch(self):
        return rows(2, 1, batch=(2,)).float()

    def create_data_double_batch(self):
        return rows(20, 30, batch=(3, 2)).float()


def test_hadamard_refuses_rows_with_nan():
    rows = torch.tensor([[0.3, 0.0], [torch.nan, 1.0]])
    with pytest.raises(ValueError, match="x: expected finite numbers, got 1 NaN or infinite of 4: leave out"):
        HadamardCorrelatedKernel(CorrelatedKernel("rbf", 2, 1))(rows).to_dense()


def test_a_batch_kernel_takes_rows_without_a_batch():
    kernel = HadamardCorrelatedKernel(random_kernel(batch_shape=torch.Size([3])))
    x = rows(3, 2, 4)
    points, expected = kernel.points(x), kernel.points(x.expand(3, -1, -1))
    torch.testing.assert_close(points.inputs, expected.inputs)
    torch.testing.assert_close(points.loadings, expected.loadings)
    torch.testing.assert_close(kernel(x).to_dense(), kernel(x.expand(3, -1, -1)).to_dense())


def test_hadamard_refuses_another_kernel():
    with pytest.raises(TypeError, match="correlated: expected a CorrelatedKernel, got RBFKernel"):
        HadamardCorrelatedKernel(gpytorch.kernels.RBFKernel())
