"""The Markov operator: linear_operator's test case, and dense covariances in float64."""

import unittest

import torch
from linear_operator.test.linear_operator_test_case import (
    LinearOperatorTestCase,
    RectangularLinearOperatorTestCase,
)

from cgp.operators import MarkovLinearOperator
from cgp.operators.markov_cross import MarkovCrossLinearOperator
from cgp.operators.markov_posterior import MarkovPosteriorLinearOperator
from cgp.statespace.processes import matern_process

STEPS = torch.tensor([0, 1, 2, 1, 2])
CELLS = torch.tensor([3, 0, 9, 4, 6])


def operator(*batch, dtype=torch.float32):
    """Five entries of two outputs at five rows, of three processes of two kinds."""
    lags = torch.tensor([0.0, 0.4, 1.1], dtype=dtype) * (1.0 + torch.rand(*batch, 1, dtype=dtype))
    processes = [matern_process(lags, degree) for degree in (0, 1)]
    size = processes[1].stationary.shape[-1]
    fields = []
    for number in range(3):
        blocks = [each[number].expand(*batch, *each[number].shape[-3 + (number == 2) :]) for each in processes]
        blocks = [
            torch.nn.functional.pad(each, (0, size - each.shape[-1], 0, size - each.shape[-1])) for each in blocks
        ]
        fields.append(torch.stack(blocks, dim=-1))
    loadings = torch.randn(*batch, 2, 3, dtype=dtype)
    noise = torch.rand(*batch, 5, dtype=dtype) + 0.3
    return MarkovLinearOperator(*fields, loadings, noise, torch.tensor([0, 1, 1]), STEPS, CELLS)


def dense(A, Q, P, loadings, noise, kinds, steps, cells):
    """Of what is stored, row by row, for one member of a batch."""
    A, Q, P = A[..., kinds], 0.5 * (Q + Q.transpose(-3, -2))[..., kinds], 0.5 * (P + P.transpose(-3, -2))[..., kinds]
    rows, covariances = len(steps), [P]
    for row in range(1, rows):
        step = steps[row]
        covariances.append(torch.einsum("abk,bck,dck->adk", A[step], covariances[-1], A[step]) + Q[step])
    blocks = [[None] * rows for _ in range(rows)]
    for i in range(rows):
        moved = covariances[i]
        for j in range(i, rows):
            moved = moved if j == i else torch.einsum("abk,bck->ack", A[steps[j]], moved)
            blocks[j][i] = torch.einsum("pk,qk,k->pq", loadings, loadings, moved[0, 0])
            blocks[i][j] = blocks[j][i].mT
    K = torch.cat([torch.cat(row, dim=-1) for row in blocks], dim=-2)
    return K[cells][:, cells] + torch.diag_embed(noise)


class _Cases(LinearOperatorTestCase):
    should_test_sample = True
    should_call_cg = False
    should_call_lanczos = False
    should_call_lanczos_diagonalization = False

    def evaluate_linear_op(self, linear_op):
        batch = linear_op.batch_shape
        members = [dense(*(arg[index] for arg in linear_op._expanded(batch))) for index in _indices(batch)]
        return torch.stack(members).reshape(linear_op.shape)


def _indices(batch):
    return (
        torch.cartesian_prod(*map(torch.arange, batch)).reshape(-1, len(batch)).unbind()
        and [tuple(index) for index in torch.ones(batch).nonzero().tolist()]
        if batch
        else [()]
    )


class TestMarkov(_Cases, unittest.TestCase):
    def create_linear_op(self):
        return operator()


class TestMarkovBatch(_Cases, unittest.TestCase):
    def create_linear_op(self):
        return operator(3)


class TestMarkovTwoBatches(_Cases, unittest.TestCase):
    def create_linear_op(self):
        return operator(2, 3)


class TestMarkovPosterior(_Cases, unittest.TestCase):
    """The covariance of two entries and a noise given the three others."""

    batch = ()

    def create_linear_op(self):
        joint = operator(*self.batch).without_noise()
        noise, known = torch.rand(*self.batch, 4) + 0.3, torch.rand(*self.batch, 3) + 0.3
        joint = joint.select(torch.tensor([0, 1, 2, 3, 4, 0, 1]))  # four new ones, three observed
        observed = torch.tensor([True, False, True]).expand(*self.batch, 3)
        made = MarkovPosteriorLinearOperator(joint, noise, torch.zeros_like(noise), known, observed)
        variance = made._matmul(torch.eye(4)).diagonal(dim1=-2, dim2=-1) - noise
        return MarkovPosteriorLinearOperator(joint, noise, variance.detach(), known, observed)

    def evaluate_linear_op(self, linear_op):
        K = super().evaluate_linear_op(linear_op.joint.without_noise())
        noise, _, known, observed = linear_op._args[1:]
        precision = torch.where(observed, known, 1e12).reciprocal().sqrt()
        white = precision[..., :, None] * K[..., 4:, 4:] * precision[..., None, :] + torch.eye(3)
        cross = precision[..., :, None] * K[..., 4:, :4]
        return K[..., :4, :4] - cross.mT @ torch.linalg.solve(white, cross) + torch.diag_embed(noise)


class TestMarkovPosteriorBatch(TestMarkovPosterior):
    batch = (3,)


class TestMarkovCross(RectangularLinearOperatorTestCase, unittest.TestCase):
    batch = ()

    def create_linear_op(self):
        joint = operator(*self.batch).without_noise().select(torch.tensor([0, 1, 2, 3, 4, 0, 1, 2]))
        return MarkovCrossLinearOperator(joint, rows=4)

    def evaluate_linear_op(self, linear_op):
        return _Cases.evaluate_linear_op(self, linear_op.joint)[..., :4, 4:]


class TestMarkovCrossBatch(TestMarkovCross):
    batch = (3,)
