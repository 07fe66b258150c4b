"""Targets that attend to contexts: noise per key, values as observations, contexts encoded once."""

import numpy as np
import pytest
import torch

from cgp import CGPAttention
from cgp.functional import correlated
from tests.oracles import rbf

CONTEXTS, TARGETS, WIDTH, HEADS = 6, 4, 12, 3


def tokens(n: int) -> torch.Tensor:
    return torch.randn(2, n, WIDTH, dtype=torch.float64)


def block_of(**options) -> CGPAttention:
    return CGPAttention(WIDTH, HEADS, **options).double().eval()


def dense(block: CGPAttention, x, memory, noise, *, regression: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of every head, with explicit inverses."""
    projected = block.project(x, memory)
    q, k, v, own = (part.detach().numpy() for part in (projected.q, projected.k, projected.v, block.project(memory).q))
    o = None if projected.o is None else projected.o.detach().numpy()
    means, covariances = np.zeros(q.shape), np.zeros((*q.shape[:-1], q.shape[-2]))
    for place in np.ndindex(q.shape[:2]):
        C = rbf(q[place], k[place])
        if o is not None:
            hop = np.linalg.inv(rbf(o[place], o[place]) + 0.3 * np.eye(CONTEXTS)) @ rbf(o[place], k[place])
            C = rbf(q[place], o[place]) @ hop
        inverse = np.linalg.inv(rbf(k[place], k[place]) + np.diag(noise[place[0]].numpy()))
        covariance = rbf(q[place], q[place]) - C @ inverse @ C.T
        of_keys = rbf(own[place], k[place]) if o is None else rbf(own[place], o[place]) @ hop
        variance = 1.0 if regression else 1.0 / max(1.0, of_keys.sum() / CONTEXTS)
        means[place] = C @ inverse @ v[place] if regression else variance * C @ v[place]
        covariances[place] = variance * covariance
    return means, covariances


@pytest.mark.parametrize("coupling", ["direct", "latent"])
@pytest.mark.parametrize("mean", ["kernel", "regression"])
def test_noise_per_key_equals_dense_algebra(mean, coupling):
    block = block_of(mean=mean, coupling=coupling, noise=0.3)
    x, memory = tokens(TARGETS), tokens(CONTEXTS)
    noise = torch.rand(2, CONTEXTS, dtype=torch.float64) + 0.05
    means, covariances = dense(block, x, memory, noise, regression=mean == "regression")
    posterior = block.posterior(x, memory, key_noise=noise)
    torch.testing.assert_close(posterior.mean.mT, torch.tensor(means))
    torch.testing.assert_close(posterior.covariance_matrix[:, :, 0], torch.tensor(covariances))
    heads = torch.tensor(means).transpose(1, 2).flatten(-2)
    torch.testing.assert_close(block(x, memory, key_noise=noise), block.out_proj(heads))
    torch.testing.assert_close(block(x, block.encode(memory, key_noise=noise)), block.out_proj(heads))


@pytest.mark.parametrize("mean", ["kernel", "regression"])
def test_equal_noise_per_key_is_that_of_the_block(mean):
    block, x, memory = block_of(mean=mean, noise=0.2), tokens(TARGETS), tokens(CONTEXTS)
    noise = torch.full((2, CONTEXTS), 0.2, dtype=torch.float64)
    torch.testing.assert_close(block.token_variance(x, memory, key_noise=noise), block.token_variance(x, memory))
    torch.testing.assert_close(block(x, memory, key_noise=noise), block(x, memory))


def test_a_key_of_large_noise_is_one_that_is_removed():
    block, x, memory = block_of(mean="regression"), tokens(TARGETS), tokens(CONTEXTS)
    noise = torch.full((2, CONTEXTS), 0.1, dtype=torch.float64)
    noise[:, -2:] = 1e12
    kept = {"key_noise": noise[:, :-2]}
    torch.testing.assert_close(block(x, memory, key_noise=noise), block(x, memory[:, :-2], **kept))
    variance = block.token_variance(x, memory[:, :-2], **kept)
    torch.testing.assert_close(block.token_variance(x, memory, key_noise=noise), variance)


def test_the_noise_of_padded_keys_does_not_matter():
    block, x, memory = block_of(mean="regression"), tokens(TARGETS), tokens(CONTEXTS)
    padding = torch.arange(CONTEXTS).ge(4).expand(2, CONTEXTS)
    noise = torch.full((2, CONTEXTS), 0.1, dtype=torch.float64).masked_fill(padding, torch.nan)
    padded = block(x, memory, key_padding_mask=padding, key_noise=noise)
    torch.testing.assert_close(padded, block(x, memory[:, :4], key_noise=noise[:, :4]))


def test_gradient_of_the_noise():
    block, x, memory = block_of(mean="regression"), tokens(TARGETS), tokens(CONTEXTS)
    noise = (torch.rand(2, CONTEXTS, dtype=torch.float64) + 0.5).requires_grad_()

    def moments(noise):
        tokens_of = block.project(x, memory, key_noise=noise)
        posterior = block.gaussian(tokens_of)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(moments, (noise,))


def test_encoded_contexts_are_factorised_once(monkeypatch):
    counted = []
    cholesky = correlated.cholesky

    def counting(*args, **options):
        counted.append(options["name"])
        return cholesky(*args, **options)

    monkeypatch.setattr(correlated, "cholesky", counting)
    block, memory = block_of(mean="regression"), tokens(CONTEXTS)
    keys = block.encode(memory)
    for _ in range(3):
        x = tokens(TARGETS)
        block(x, keys), block.token_variance(x, keys)
    assert counted == ["K_k + noise"]


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (torch.full((2, CONTEXTS), 0.0), "key_noise: expected finite variances of at least 1e-06, got 0"),
        (torch.full((2, CONTEXTS), torch.nan), "key_noise: expected finite variances .* got nan"),
        (torch.ones(CONTEXTS), r"key_noise: expected .* of shape \(2, 6\) .* of shape \(6,\)"),
        (torch.ones(2, CONTEXTS, dtype=torch.long), "key_noise: expected floating-point variances"),
    ],
)
def test_bad_noise_is_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        block_of()(tokens(TARGETS), tokens(CONTEXTS), key_noise=noise)


@pytest.mark.parametrize("options", [{"mean": "softmax"}, {"objective": "marginal"}])
def test_noise_per_key_is_refused_around_softmax_and_with_a_regulariser(options):
    noise = torch.ones(2, CONTEXTS)
    with pytest.raises(ValueError, match="key_noise: CGPAttention as configured takes none"):
        block_of(**options)(tokens(TARGETS), tokens(CONTEXTS), key_noise=noise)


def test_noise_per_key_is_refused_under_a_causal_mask():
    with pytest.raises(ValueError, match="takes none under a causal mask"):
        block_of()(tokens(CONTEXTS), is_causal=True, key_noise=torch.ones(2, CONTEXTS))
