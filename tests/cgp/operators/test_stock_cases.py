"""linear_operator's test case for every operator."""

import unittest

import torch
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

from cgp.operators import (
    DenseCovarianceLinearOperator,
    LowRankPlusDiagonalLinearOperator,
    SharedCovarianceLinearOperator,
)


class _Cases(LinearOperatorTestCase):
    should_test_sample = True
    # Exact at every size: the stock cases set the largest size of a Cholesky to 0 and look who is called.
    should_call_cg = False
    should_call_lanczos = False
    should_call_lanczos_diagonalization = False


def low_rank(*batch, n=5, m=2):
    return LowRankPlusDiagonalLinearOperator(torch.randn(*batch, n, m), torch.rand(*batch, n) + 0.5)


def dense(*batch, n=5):
    root = torch.randn(*batch, n, n)
    return DenseCovarianceLinearOperator(root @ root.mT + torch.eye(n))


class TestLowRankPlusDiagonal(_Cases, unittest.TestCase):
    def create_linear_op(self):
        return low_rank()

    def evaluate_linear_op(self, linear_op):
        root = linear_op._linear_op.root.tensor
        return root @ root.mT + torch.diag_embed(linear_op._diag_tensor._diag)


class TestLowRankPlusDiagonalBatch(TestLowRankPlusDiagonal):
    def create_linear_op(self):
        return low_rank(2, 3)


class TestDenseCovariance(_Cases, unittest.TestCase):
    def create_linear_op(self):
        return dense()

    def evaluate_linear_op(self, linear_op):
        return linear_op.tensor


class TestDenseCovarianceBatch(TestDenseCovariance):
    def create_linear_op(self):
        return dense(3)


class TestSharedLowRank(TestLowRankPlusDiagonal):
    def create_linear_op(self):
        return SharedCovarianceLinearOperator(low_rank(2, 1), torch.Size([1, 3]))

    def evaluate_linear_op(self, linear_op):
        return super().evaluate_linear_op(linear_op.base_linear_op).repeat(*linear_op.batch_repeat, 1, 1)


class TestSharedDense(TestDenseCovariance):
    def create_linear_op(self):
        return SharedCovarianceLinearOperator(dense(2), torch.Size([2, 3]))

    def evaluate_linear_op(self, linear_op):
        return super().evaluate_linear_op(linear_op.base_linear_op).repeat(*linear_op.batch_repeat, 1, 1)
