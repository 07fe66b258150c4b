import unittest

import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from cgp.kernels import CorrelatedKernel
from tests.cgp.kernels.conftest import dense_oracle, random_kernel


def test_is_the_process_s_own_covariance_and_shares_the_parameters(kernel):
    x = torch.randn(5, 2).double()
    one = kernel.process("latent")
    torch.testing.assert_close(one(x).to_dense().detach(), torch.from_numpy(dense_oracle(kernel, 2, x, 2, x)))
    torch.testing.assert_close(one(x, diag=True), one(x).to_dense().diagonal())
    kernel.scales = kernel.scales.detach() * torch.tensor([1.0, 1.0, 3.0])
    torch.testing.assert_close(one(x).to_dense().detach(), torch.from_numpy(dense_oracle(kernel, 2, x, 2, x)))


def test_only_its_own_parameters_get_gradients():
    kernel = random_kernel(2)
    kernel.process(1)(torch.randn(4, 2).double()).to_dense().square().sum().backward()
    assert kernel.input_maps[0].raw_weight.grad is None
    assert kernel.input_maps[1].raw_weight.grad.abs().sum() > 0
    assert kernel.raw_scales.grad[0] == 0 != kernel.raw_scales.grad[1]


class TestStockCases(BaseKernelTestCase, unittest.TestCase):
    """GPyTorch's own contract. The stock cases call one kernel on inputs of several sizes; a map has one size."""

    def create_kernel_no_ard(self, **kwargs):
        torch.manual_seed(3)
        dim = {"test_active_dims_list": 4, "test_active_dims_range": 6}.get(self._testMethodName, 2)
        return CorrelatedKernel("matern32", 2, dim, **kwargs).process(1)

    def create_kernel_ard(self, num_dims, **kwargs):
        torch.manual_seed(3)
        return CorrelatedKernel("matern32", 2, num_dims, input_maps="diagonal", **kwargs).process(1)
