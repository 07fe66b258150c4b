"""The blocks under the contract, and what is particular to each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cgp import CGPAttention, KernelAttention, SoftmaxAttention, SparseCGPAttention, freeze
from cgp.functional.covariances import canonical
from tests import oracles
from tests.contracts.attention_contract import AttentionContract, GaussianProcessContract


class TestSoftmaxAttention(AttentionContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return SoftmaxAttention(embed_dim, num_heads, **options)

    @pytest.mark.parametrize("is_causal", [False, True])
    def test_equals_torch_multihead_attention(self, is_causal):
        block, x = self.block(), self.tokens(2)
        reference = nn.MultiheadAttention(12, 3, batch_first=True).double()
        with torch.no_grad():
            reference.in_proj_weight.copy_(block.in_proj.weight)
            reference.in_proj_bias.copy_(block.in_proj.bias)
            reference.out_proj.load_state_dict(block.out_proj.state_dict())
        mask = torch.ones(7, 7, dtype=torch.bool).triu(1) if is_causal else None
        expected = reference(x, x, x, attn_mask=mask, need_weights=False)[0]
        torch.testing.assert_close(block(x, is_causal=is_causal), expected)

    def test_has_no_posterior(self):
        with pytest.raises(TypeError, match="SoftmaxAttention is deterministic"):
            self.block().posterior(self.tokens(2))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
class TestKernelAttention:
    def test_equals_its_formula(self, kernel, symmetric):
        block = KernelAttention(12, 3, kernel=kernel, symmetric=symmetric).double()
        x = torch.randn(2, 7, 12, dtype=torch.float64)
        parts = block.in_proj(x).chunk(2 if symmetric else 3, -1)
        q, k, v = (p.unflatten(-1, (3, 4)).transpose(1, 2) for p in ((parts[0], *parts) if symmetric else parts))
        expected = canonical(kernel).gram(q, k) @ v
        torch.testing.assert_close(block(x), block.out_proj(expected.transpose(1, 2).flatten(-2)))


class TestAsymmetricKernelContract(AttentionContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return KernelAttention(embed_dim, num_heads, **options)


class TestSymmetricExponentialKernelContract(AttentionContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return KernelAttention(embed_dim, num_heads, kernel="exponential", symmetric=True, **options)

    def check_finite(self, x):
        if x.abs().max() < 100:  # the exponential of large products overflows by nature
            super().check_finite(x)


class TestDirectCGP(GaussianProcessContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return CGPAttention(embed_dim, num_heads, **options)


class TestLatentCGP(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return CGPAttention(embed_dim, num_heads, coupling="latent", **options)


class TestPaperCGP(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        options = {"covariance": "paper", "objective": "elbo", "objective_reduction": "sum", **options}
        return CGPAttention(embed_dim, num_heads, coupling="latent", **options)


class TestDirectSparseCGP(GaussianProcessContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return SparseCGPAttention(embed_dim, num_heads, num_inducing=5, **options)


class TestLatentSparseCGP(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return SparseCGPAttention(embed_dim, num_heads, num_inducing=9, coupling="latent", **options)


class TestPaperSparseCGP(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        options = {"conditional": "sor", "objective": "elbo", **options}
        return SparseCGPAttention(embed_dim, num_heads, num_inducing=5, coupling="latent", **options)


class TestMaternJointCGP(GaussianProcessContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return CGPAttention(embed_dim, num_heads, kernel="matern32", objective="joint", **options)


class TestSampledLatentCGP(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return CGPAttention(embed_dim, num_heads, coupling="latent", kernel="rq", objective="paper_mc", **options)

    def loss_terms(self, block, x, **masks):
        return {}  # draws differ with the length; the closed form of the same bound is under the contract above


class TestTwoSetSparseCGP(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        options = {"num_inducing": 5, "num_key_inducing": 4, "objective": "joint", **options}
        return SparseCGPAttention(embed_dim, num_heads, coupling="latent", kernel="matern52", **options)


class TestPooledSparseCGP(GaussianProcessContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return SparseCGPAttention(embed_dim, num_heads, num_inducing=5, inducing="pooled", **options)


class TestSorSparseCGP(GaussianProcessContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        options = {"conditional": "sor", "kernel": "matern12", "objective": "paper_mc", **options}
        return SparseCGPAttention(embed_dim, num_heads, num_inducing=5, **options)

    def loss_terms(self, block, x, **masks):
        return {}  # draws differ with the length


class SoftmaxMeanContract(GaussianProcessContract):
    """Besides: the mean is softmax attention, whatever the masks."""

    @pytest.mark.parametrize("masked", [False, True])
    def test_mean_is_softmax_attention(self, masked):
        block, x = self.block().eval(), self.tokens(2)
        plain = SoftmaxAttention(12, 3).double()
        plain.load_state_dict({k: v for k, v in block.state_dict().items() if k.split(".")[0].endswith("_proj")})
        mask = torch.zeros(2, 7, dtype=torch.bool)
        mask[0, 4:] = masked
        torch.testing.assert_close(block(x, key_padding_mask=mask)[~mask], plain(x, key_padding_mask=mask)[~mask])
        if self.takes_causal:
            torch.testing.assert_close(block(x, is_causal=True), plain(x, is_causal=True))


class TestSoftmaxMeanCGP(SoftmaxMeanContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return CGPAttention(embed_dim, num_heads, mean="softmax", **options)

    def test_median_variance_is_the_amplitude(self):
        block, x = self.make(amplitude=0.3).eval(), self.tokens(2).float()
        deviation = block.token_variance(x).sqrt().median(-1).values
        torch.testing.assert_close(deviation, torch.full((2, 3), 0.3))


class TestSoftmaxMeanLearnedCGP(SoftmaxMeanContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return CGPAttention(embed_dim, num_heads, mean="softmax", statistics="learned", **options)


class TestSoftmaxMeanBoundedCGP(SoftmaxMeanContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return CGPAttention(embed_dim, num_heads, mean="softmax", statistics="bounded", **options)

    def test_the_variance_is_that_of_the_bracket_alone_with_its_own_lengthscale(self):
        block, x = self.make(amplitude=0.3, lengthscale=1.7).eval().double(), self.tokens(2).double()
        seen = {}
        block.attend = lambda tokens: seen.update(tokens=tokens) or tokens.q
        block(x)
        q, k = ((z * z.shape[-1] ** -0.25 / 1.7).detach().numpy() for z in (seen["tokens"].q, seen["tokens"].k))
        for index in np.ndindex(q.shape[:2]):
            R_k = oracles.rbf(k[index], k[index]) + block.softmax.noise[index[1]].item() * np.eye(k.shape[-2])
            R_qk = oracles.rbf(q[index], k[index])
            expected = 0.09 * (1.0 - np.einsum("ij,jk,ik->i", R_qk, np.linalg.inv(R_k), R_qk))
            found = block.softmax.exact_marginals(seen["tokens"], seen["tokens"].v).variance[index]
            np.testing.assert_allclose(found.detach(), expected, rtol=1e-6)

    def test_the_variance_grows_towards_the_prior_as_queries_leave_the_keys(self):
        block = self.make(amplitude=0.3).eval()
        x = self.tokens(1).float()
        near, far = (block.token_variance(scale * x).mean() for scale in (0.1, 100.0))
        assert near < far <= 0.09 + 1e-6
        torch.testing.assert_close(far, torch.tensor(0.09), rtol=0.1, atol=0.0)


class TestSoftmaxMeanBoundedSparseCGP(SoftmaxMeanContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        options = {"mean": "softmax", "statistics": "bounded", "num_inducing": 5, **options}
        return SparseCGPAttention(embed_dim, num_heads, **options)

    def test_the_inducing_inputs_follow_the_lengthscale(self):
        block, x = self.make().eval(), self.tokens(2).float()
        before = block.token_variance(x)
        with torch.no_grad():
            block.softmax.log_lengthscale += 1.0
            block.inducing.points *= 0.0
            block.inducing.points += 50.0  # explain nothing
        assert (block.token_variance(x) > before).all()


class TestSoftmaxMeanSparseCGP(SoftmaxMeanContract):
    def make(self, embed_dim=12, num_heads=3, **options):
        return SparseCGPAttention(embed_dim, num_heads, mean="softmax", num_inducing=5, **options)


class TestSoftmaxMeanLearnedSparseCGP(SoftmaxMeanContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        options = {"mean": "softmax", "statistics": "learned", "num_inducing": 5, **options}
        return SparseCGPAttention(embed_dim, num_heads, **options)


class TestExponentialSparseCGP(GaussianProcessContract):
    takes_causal = True

    def make(self, embed_dim=12, num_heads=3, **options):
        return SparseCGPAttention(embed_dim, num_heads, num_inducing=5, kernel="exponential", **options)


def test_linear_inducing_is_for_one_length():
    block = SparseCGPAttention(12, 3, num_inducing=5, inducing="linear", num_tokens=7, conditional="sor")
    x = torch.randn(2, 7, 12)
    assert block.posterior(x).batch_shape == (2, 3, 4)
    assert block(x).shape == x.shape
    with pytest.raises(ValueError, match="expected 7 of them for inducing='linear', got 6"):
        block(x[:, :6])


def test_linear_inducing_inputs_are_a_map_of_the_projected_tokens():
    block = SparseCGPAttention(12, 3, num_inducing=5, inducing="linear", num_tokens=7, coupling="latent").double()
    tokens = block.project(torch.randn(2, 7, 12, dtype=torch.float64))
    expected = torch.einsum("hmn,bhns->bhms", block.inducing.weight, tokens.o) + block.inducing.offsets
    torch.testing.assert_close(block.inducing(tokens.o, None), expected)


@pytest.mark.parametrize("coupling", ["direct", "latent"])
def test_inducing_inputs_at_the_tokens_make_the_sparse_block_exact(coupling):
    exact = CGPAttention(8, 2, coupling=coupling).double().eval()
    sparse = (
        SparseCGPAttention(8, 2, coupling=coupling, num_inducing=15 if coupling == "latent" else 10).double().eval()
    )
    sparse.load_state_dict(exact.state_dict(), strict=False)
    x = torch.randn(5, 8, dtype=torch.float64)
    tokens = exact.project(x)
    with torch.no_grad():
        sparse.inducing.points.copy_(torch.cat([t for t in (tokens.q, tokens.k, tokens.o) if t is not None], -2))
        torch.testing.assert_close(sparse.token_variance(x), exact.token_variance(x), rtol=1e-4, atol=1e-5)
        if coupling == "direct":
            torch.testing.assert_close(sparse(x), exact(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("coupling", "mean"), [("direct", "kernel"), ("latent", "kernel"), ("direct", "softmax")])
def test_frozen_factors_change_nothing_and_are_dropped(coupling, mean):
    block = SparseCGPAttention(12, 3, coupling=coupling, mean=mean, num_inducing=5).eval()
    x = torch.randn(2, 7, 12)
    before = block(x), block.token_variance(x)
    freeze(block)
    assert set(block.weight_factors()) == {"whitening"}
    assert torch.equal(before[0], block(x))
    assert torch.equal(before[1], block.token_variance(x))
    for drop in (block.train, lambda: block.load_state_dict(block.state_dict()), block.double):
        freeze(block.eval())
        assert block.frozen_factor("whitening") is not None
        drop()
        assert block.frozen_factor("whitening") is None
    with pytest.raises(RuntimeError, match="freeze: expected a block in eval mode"):
        freeze(block.train())


@pytest.mark.parametrize("make", [CGPAttention, SparseCGPAttention])
def test_joint_draws_are_refused_under_a_causal_mask(make):
    block, x = make(12, 3), torch.randn(2, 7, 12)
    block.sampling = "joint"
    with pytest.raises(ValueError, match="'joint' .* is not defined under a causal mask"):
        block(x, is_causal=True)
    with pytest.raises(ValueError, match="is not defined under a causal mask"):
        block.posterior(x, is_causal=True)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (CGPAttention, {"coupling": "two"}, "coupling: expected one of"),
        (CGPAttention, {"objective": "map"}, "objective: expected None or one of"),
        (CGPAttention, {"objective": "elbo"}, "needs coupling='latent'"),
        (CGPAttention, {"covariance": "paper"}, "covariance: expected 'coherent'"),
        (CGPAttention, {"noise": 0.0}, "noise: expected a variance of at least 1e-06, got 0.0"),
        (CGPAttention, {"noise": float("nan")}, "noise: expected"),
        (CGPAttention, {"kernel": "cosine"}, "kernel: expected one of"),
        (CGPAttention, {"mean": "median"}, "mean: expected 'kernel' or 'softmax'"),
        (CGPAttention, {"mean": "softmax", "coupling": "latent"}, "mean: 'softmax' needs coupling='direct'"),
        (CGPAttention, {"mean": "softmax", "objective": "marginal"}, "mean: 'softmax' needs"),
        (CGPAttention, {"mean": "softmax", "amplitude": 0.0}, "amplitude: expected a positive"),
        (CGPAttention, {"mean": "softmax", "statistics": "batch"}, "statistics: expected one of"),
        (CGPAttention, {"objective_reduction": "median"}, "objective_reduction: expected"),
        (SparseCGPAttention, {"num_inducing": 0}, "num_inducing: expected at least 1, got 0"),
        (SparseCGPAttention, {"inducing": "random"}, "inducing: expected one of"),
        (SparseCGPAttention, {"inducing": "linear"}, "num_tokens: expected the length"),
        (SparseCGPAttention, {"conditional": "fitc"}, "conditional: expected one of"),
        (SparseCGPAttention, {"num_key_inducing": 4}, "a second set needs coupling='latent'"),
        (SparseCGPAttention, {"mean": "softmax", "inducing": "pooled"}, "mean='softmax' needs 'learned'"),
    ],
)
def test_bad_options_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(12, 3, **options)
