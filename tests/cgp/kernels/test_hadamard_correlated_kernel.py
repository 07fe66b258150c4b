import unittest

import pytest
import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from cgp.kernels import CorrelatedKernel, HadamardCorrelatedKernel
from tests.cgp.kernels.conftest import random_kernel


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


class TestStockCases(BaseKernelTestCase, unittest.TestCase):
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


def test_a_batch_kernel_takes_rows_without_a_batch():
    kernel = HadamardCorrelatedKernel(random_kernel(batch_shape=torch.Size([3])))
    x = rows(3, 2, 4)
    points, expected = kernel.points(x), kernel.points(x.expand(3, -1, -1))
    torch.testing.assert_close(points.inputs, expected.inputs)
    torch.testing.assert_close(points.loadings, expected.loadings)
    torch.testing.assert_close(kernel(x).to_dense(), kernel(x.expand(3, -1, -1)).to_dense())
