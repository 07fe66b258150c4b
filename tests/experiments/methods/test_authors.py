"""The regularisers of the authors' code against dense float64 algebra, element by element."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from experiments.methods.authors import AuthorsCGPAttention, AuthorsSparseCGPAttention, exact_penalty, sparse_penalty
from experiments.methods.build import network
from experiments.runs.parsing import resolve
from tests.experiments.tiny import DIGITS

B, H, N, S, M = 2, 2, 5, 3, 4
BLOCKS = {"exact": AuthorsCGPAttention, "sparse": AuthorsSparseCGPAttention}


def gram(x, y):
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    return kernel(x, y).to_dense().detach()


def tokens():
    return torch.randn(B, H, N, S, dtype=torch.double)


def dense_exact(f, K_z, K_zo, K_o, z_o, jitter):
    """The formula with explicit inverses and determinants, one matrix at a time."""
    total, logs = 0.0, []
    eye = np.eye(N)
    for b in range(B):
        for h in range(H):
            inverse = np.linalg.inv(K_o[b, h].numpy() + jitter * eye)
            A = K_zo[b, h].numpy() @ inverse
            covariance = K_z[b, h].numpy() - A @ K_zo[b, h].numpy().T + jitter * eye
            residual = f[b, h].numpy() - A @ z_o[b, h].numpy()
            total += np.trace(residual.T @ np.linalg.inv(covariance) @ residual) / B
            logs.append(0.5 * np.linalg.slogdet(covariance)[1])
    return total + 2 * abs(np.mean(logs))


def test_the_exact_penalty_equals_dense_algebra():
    q, o, f, z_o = (tokens() for _ in range(4))
    K_q, K_qo, K_o = gram(q, q), gram(q, o), gram(o, o)
    result = exact_penalty(f, K_q, K_qo, K_o, z_o, jitter=1e-3)
    assert result.item() == pytest.approx(dense_exact(f, K_q, K_qo, K_o, z_o, 1e-3), rel=1e-9)


@pytest.mark.parametrize("noise", [0.01, 0.25])
def test_the_sparse_penalty_equals_dense_algebra(noise):
    q, o = tokens(), tokens()
    points = torch.randn(H, M, S, dtype=torch.double)
    K_qm, K_om, K_o, K_mm = gram(q, points), gram(o, points), gram(o, o), gram(points, points)
    expected = 0.0
    for b in range(B):
        for h in range(H):
            G = np.linalg.inv(K_mm[h].numpy() + np.eye(M) / noise)
            X = K_om[b, h].numpy() @ G @ K_qm[b, h].numpy().T
            expected += np.trace(X @ X.T @ K_o[b, h].numpy()) / noise**2
            expected += np.trace(K_qm[b, h].numpy() @ G @ K_qm[b, h].numpy().T)
    result = sparse_penalty(K_qm, K_om, K_o, K_mm, noise=noise)
    assert result.item() == pytest.approx(expected / (B * H), rel=1e-9)


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_blocks_add_both_processes_terms(block):
    """The added term is that of queries and of keys, made of the block's own projections."""
    made = block(8, 2).double()
    x = torch.randn(3, 6, 8, dtype=torch.double)
    torch.manual_seed(1)
    made(x)
    (term,) = made.added_loss_terms()
    inputs = made.project(x)
    if block is AuthorsSparseCGPAttention:
        points = made.inducing_points
        rest = gram(inputs.o, points), gram(inputs.o, inputs.o), gram(points, points)
        expected = sum(sparse_penalty(gram(z, points), *rest, noise=made.noise) for z in (inputs.q, inputs.k))
        torch.testing.assert_close(term.loss(), expected.detach() + 0 * term.loss())
    assert term.kind == "log_density"
    term.loss().backward()
    assert all(parameter.grad is not None for name, parameter in made.named_parameters() if "out_proj" not in name)
    assert torch.isfinite(term.loss())
    predicting = block(8, 2).double().eval()
    predicting(x)
    assert not [term for term in predicting.added_loss_terms() if term is not None]


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_padded_token_is_a_removed_one(block, monkeypatch):
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)  # draws of another length are others
    made = block(8, 2).double()
    made.sampling = "mean"
    x, padding = torch.randn(1, 6, 8, dtype=torch.double), torch.tensor([[False] * 4 + [True] * 2])
    values = []
    for inputs, mask in ((x, padding), (x[:, :4], None)):
        made(inputs, key_padding_mask=mask)
        values.append(next(iter(made.added_loss_terms())).loss())
    torch.testing.assert_close(*values)


def built(row, *values):
    config = resolve([row], values)
    return config, network(config, DIGITS)


@pytest.mark.parametrize(("row", "block"), [("cgpt", AuthorsCGPAttention), ("scgpt", AuthorsSparseCGPAttention)])
def test_rows_of_the_authors_have_their_blocks(row, block):
    config, model = built(f"digits/{row}-authors")
    blocks = [module for module in model.modules() if isinstance(module, block)]
    assert len(blocks) == config.model.depth
    assert blocks[0].noise == config.method.options["noise"]
    assert "authors' code" in " ".join(config.deviations)


def test_the_authors_regulariser_needs_latent_attention():
    with pytest.raises(ValueError, match="objective 'authors' needs latent attention of cgp or sparse_cgp"):
        built("digits/scgp_direct", "method.options.objective=authors")
