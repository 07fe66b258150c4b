"""The Markov operator: linear_operator's test case, and dense covariances in float64."""

import unittest
from functools import partial

import pytest
import torch
from linear_operator import LinearOperator
from linear_operator.test.linear_operator_test_case import (
    LinearOperatorTestCase,
    RectangularLinearOperatorTestCase,
)
from linear_operator.utils.errors import NotPSDError

from cgp.operators import MarkovLinearOperator
from cgp.operators.dense_covariance import DenseCovarianceLinearOperator
from cgp.operators.markov_cross import MarkovCrossLinearOperator
from cgp.operators.markov_posterior import MarkovPosteriorLinearOperator
from cgp.statespace.processes import matern_process
from cgp.statespace.products import covariance_product
from cgp.statespace.space import state_space

CLOSE = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)
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


class TestMarkovOrdered(_Cases, unittest.TestCase):
    """Entries in the order of their cells, so that the triangular root is that of Cholesky."""

    def create_linear_op(self):
        return operator(3)._with(cells=CELLS.sort().values)


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


@pytest.mark.parametrize("batch", [(), (3,)])
def test_the_dense_posterior_of_many_entries(batch, monkeypatch):
    case = TestMarkovPosterior()
    case.batch = batch
    expected = case.create_linear_op()
    monkeypatch.setattr("cgp.operators.markov_posterior._FEW", 1)
    with torch.no_grad():
        torch.testing.assert_close(expected.to_dense(), case.evaluate_linear_op(expected))
    with_gradients = MarkovPosteriorLinearOperator(expected.joint, *(arg.clone() for arg in expected._args[1:]))
    with_gradients._noise.requires_grad_()
    assert with_gradients.to_dense().requires_grad


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


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("ordered", [True, False])
def test_roots_are_dense(batch, ordered):
    made = operator(*batch, dtype=torch.float64)
    made = made._with(cells=CELLS.sort().values) if ordered else made
    covariance, root = made.to_dense(), made.root_decomposition().root
    R, columns = root.to_dense(), torch.randn(*batch, 5, 2, dtype=torch.float64)
    CLOSE(R @ R.mT, covariance)
    CLOSE(root.mT.to_dense(), R.mT)
    CLOSE(root.solve(columns), torch.linalg.solve(R, columns))
    CLOSE(root.solve(torch.ones(5).double()), torch.linalg.inv(R).sum(-1))
    CLOSE(root.mT.solve(columns), torch.linalg.solve(R.mT, columns))
    CLOSE(made.cholesky().to_dense(), torch.linalg.cholesky(covariance))
    CLOSE(made.cholesky().solve(columns), torch.linalg.solve(torch.linalg.cholesky(covariance), columns))


def test_a_factor_beyond_the_memory_says_what_to_do(monkeypatch):
    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes")

    monkeypatch.setattr(LinearOperator, "_cholesky", full)
    with pytest.raises(RuntimeError, match=r"cholesky: expected rows in order .* got 5 in another.* sort them, or"):
        operator().cholesky()


def test_roots_have_gradients():
    *fields, noise = operator(dtype=torch.float64)._args[:5]
    columns = torch.randn(5, 2, dtype=torch.float64)

    def results(A, Q, P, loadings, noise, columns):
        Q, P = 0.5 * (Q + Q.transpose(-3, -2)), 0.5 * (P + P.transpose(-3, -2))
        made = MarkovLinearOperator(A, Q, P, loadings, noise, torch.tensor([0, 1, 1]), STEPS, CELLS)
        root = made.root_decomposition().root
        return root.matmul(columns), root.mT.matmul(columns), root.solve(columns), root.mT.solve(columns)

    assert torch.autograd.gradcheck(results, [x.clone().requires_grad_() for x in (*fields, noise, columns)])


def test_a_root_of_many_rows_is_linear():
    """Factors and draws of rows whose dense matrix would take 20 GB, with gradients."""
    count = 50_000
    process = matern_process(torch.tensor([0.0, 0.1], dtype=torch.float64), 1)
    space = state_space([process], [torch.ones(1, 1)], torch.ones(count, dtype=torch.long))
    noise = torch.full((count,), 0.1, dtype=torch.float64, requires_grad=True)
    made = MarkovLinearOperator.of(space, torch.arange(count), noise)
    torch.manual_seed(0)
    draws = made.zero_mean_mvn_samples(2)
    square = draws.square().mean()
    square.backward()
    assert draws.shape == (2, count)
    assert abs(square.item() - 1.1) < 0.12
    assert abs(float(noise.grad.sum()) - 1.0) < 0.12  # the mean square is 1 + noise
    factor, y = made.cholesky(), torch.ones(count, dtype=torch.float64)
    CLOSE(factor.solve(y).square().sum(), made.inv_quad(y))


def test_a_singular_covariance_has_a_root_with_jitter():
    """As dense ones have in linear_operator: two readings of one moment, without noise."""
    process = matern_process(torch.tensor([0.0, 0.1], dtype=torch.float64), 1)
    space = state_space([process], [torch.ones(1, 1)], torch.tensor([0, 1, 0]))
    made = MarkovLinearOperator.of(space, torch.arange(3), torch.zeros(3, dtype=torch.float64))
    root = made.root_decomposition().root.to_dense()
    torch.testing.assert_close(root @ root.mT, made.to_dense(), rtol=0, atol=1e-6)
    with pytest.raises(NotPSDError, match="cannot be factored"):
        made.add_diagonal(torch.tensor(-2.0)).root_decomposition()


@pytest.mark.parametrize("batch", [(), (3,)])
def test_single_entries_and_their_gradients_are_the_dense_ones(batch):
    args = [arg.double().requires_grad_() if arg.is_floating_point() else arg for arg in operator(*batch)._args]
    rows, columns = torch.tensor([[0], [4], [0]]), torch.tensor([1, 3, 3, 0])
    members = (torch.tensor([[2], [0], [1]]),) if batch else ()
    for index in ((rows, columns), (columns, rows)):
        lazy = MarkovLinearOperator(*args)
        entries, expected = lazy[(*members, *index)], lazy.to_dense()[(*members, *index)]
        CLOSE(entries, expected)
        weights, leaves = torch.randn_like(expected), [arg for arg in args if arg.requires_grad]
        lazily, densely = (torch.autograd.grad((each * weights).sum(), leaves) for each in (entries, expected))
        for pair in zip(lazily, densely, strict=True):
            CLOSE(*pair)


def test_a_row_is_made_of_one_column(monkeypatch):
    columns = []

    def product(space, table):
        columns.append(table.shape[-1])
        return covariance_product(space, table)

    monkeypatch.setattr("cgp.operators.markov.covariance_product", product)
    operator()[torch.tensor([1]), torch.arange(5)]
    assert columns == [1]


@pytest.mark.parametrize("count", [1, 2])
def test_products_and_gradients_in_parts_are_those_of_all_columns(count, monkeypatch):
    args = [arg.double().requires_grad_() if arg.is_floating_point() else arg for arg in operator(3)._args]
    leaves, columns = [arg for arg in args if arg.requires_grad], torch.randn(3, 5, 5, dtype=torch.float64)
    weights, results = torch.randn(3, 5, 5, dtype=torch.float64), []
    for most in (128, count):
        monkeypatch.setattr("cgp.operators.markov._COLUMNS", most)
        product = MarkovLinearOperator(*args) @ columns
        results.append([product, *torch.autograd.grad((product * weights).sum(), leaves)])
    for pair in zip(*results, strict=True):
        CLOSE(*pair)


def test_operators_say_their_shape():
    """In one line, and nothing is computed for it."""
    made = operator(2, dtype=torch.float64)
    assert repr(made) == "MarkovLinearOperator(shape=(2, 5, 5), dtype=torch.float64, states=6)"
    assert repr(MarkovCrossLinearOperator(made, 2)) == "MarkovCrossLinearOperator(shape=(2, 2, 3), dtype=torch.float64)"
    assert repr(made.root_decomposition()) == "RootedLinearOperator(shape=(2, 5, 5), dtype=torch.float64)"
    assert repr(DenseCovarianceLinearOperator(torch.eye(3))).endswith("(shape=(3, 3), dtype=torch.float32)")
