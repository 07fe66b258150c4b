"""The blocks under the contract, and their special properties."""

import copy
from functools import partial

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import nn

from cgp import CGPAttention, KernelAttention, SoftmaxAttention, SparseCGPAttention, freeze
from cgp.functional.kernels import canonical
from tests.contracts.attention_contract import AttentionContract, GaussianProcessContract


class TestSoftmaxAttention(AttentionContract):
    attention, takes_causal = SoftmaxAttention, True

    @pytest.mark.parametrize("is_causal", [False, True])
    def test_equals_torch_multihead_attention(self, is_causal):
        block, x = self.block(), self.tokens(2)
        reference = nn.MultiheadAttention(12, 3, batch_first=True).double()
        reference.load_state_dict({k.replace("in_proj.", "in_proj_"): v for k, v in block.state_dict().items()})
        mask = torch.ones(7, 7, dtype=torch.bool).triu(1) if is_causal else None
        expected = reference(x, x, x, attn_mask=mask, need_weights=False)[0]
        torch.testing.assert_close(block(x, is_causal=is_causal), expected)

    def test_has_no_posterior(self):
        with pytest.raises(TypeError, match="SoftmaxAttention is deterministic"):
            self.block().posterior(self.tokens(2))

    def test_without_a_visible_key_the_bias_is_left(self):
        block, x, memory = self.block(), self.tokens(2), self.tokens(2)
        nn.init.normal_(block.out_proj.bias)
        result = block(x, memory, memory, key_padding_mask=torch.ones(2, 7, dtype=torch.bool))
        torch.testing.assert_close(result, block.out_proj.bias.expand_as(result))


@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
def test_maps_start_with_the_distances_of_the_kernel(kernel):
    """Of unit-variance tokens: 2 in the mean of a stationary kernel, unit variances otherwise; values as elsewhere."""
    block = KernelAttention(64, 4, kernel=kernel)
    with torch.no_grad():
        tokens = block.project(torch.randn(8, 64, 64))
    for points in (tokens.q, tokens.k):
        apart = (points[:4] - points[4:]).square().sum(-1).mean()
        expected = torch.tensor(2.0) if kernel == "rbf" else 2.0 * torch.tensor(float(points.shape[-1]))
        torch.testing.assert_close(apart, expected, rtol=0.1, atol=0.0)
    torch.testing.assert_close(tokens.v.var(), torch.tensor(64 * 2.0 / (3 * 64 + 64)), rtol=0.1, atol=0.0)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "exponential"])
def test_kernel_attention_equals_its_formula(kernel, symmetric):
    block, x = KernelAttention(12, 3, kernel=kernel, symmetric=symmetric).double(), torch.randn(2, 7, 12).double()
    parts = block.in_proj(x).chunk(2 if symmetric else 3, -1)
    q, k, v = (p.unflatten(-1, (3, 4)).transpose(1, 2) for p in ((parts[0], *parts) if symmetric else parts))
    gram = canonical(kernel).gram(q, k)
    expected = gram @ v / gram.sum(-1).mean(-1).clamp(min=1.0)[..., None, None]
    torch.testing.assert_close(block(x), block.out_proj(expected.transpose(1, 2).flatten(-2)))


class TestAsymmetricKernelContract(AttentionContract):
    attention, takes_causal = KernelAttention, True


class TestSymmetricExponentialKernelContract(AttentionContract):
    attention, takes_causal = partial(KernelAttention, kernel="exponential", symmetric=True), True
    is_variant = True


class TestCGP(GaussianProcessContract):
    attention, takes_causal = partial(CGPAttention, kernel="matern32", noise=0.1), True


class TestLatentCGP(GaussianProcessContract):
    attention, is_variant = partial(CGPAttention, coupling="latent", objective="marginal", amplitude=0.7), True


def scaled_matern() -> ScaleKernel:
    """With one variance and lengthscale per head."""
    heads = torch.Size([3])
    return ScaleKernel(MaternKernel(2.5, batch_shape=heads), batch_shape=heads)


@pytest.mark.parametrize("make", [CGPAttention, partial(SparseCGPAttention, num_inducing=5)])
def test_a_kernel_of_gpytorch_is_trained_with_the_block(make):
    kernel, x = scaled_matern(), torch.randn(2, 7, 12)
    block = make(12, 3, kernel=kernel)
    block(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in kernel.parameters())
    assert block.eval().posterior(x).covariance_matrix.shape == (2, 3, 4, 7, 7)
    assert torch.isfinite(block(x, is_causal=True)).all()


@pytest.mark.parametrize(
    "make", [CGPAttention, SparseCGPAttention, partial(CGPAttention, mean="kernel"), KernelAttention]
)
def test_a_kernel_of_gpytorch_is_the_covariance_of_its_name(make):
    by_name, x = make(12, 3).double().eval(), torch.randn(2, 7, 12, dtype=torch.float64)
    block = make(12, 3, kernel=RBFKernel()).double().eval()
    block.load_state_dict(by_name.state_dict(), strict=False)
    block.covar_module.lengthscale = 1.0
    torch.testing.assert_close(block(x), by_name(x))
    twin = copy.deepcopy(block)
    twin.covar_module.lengthscale = 0.3
    assert not torch.allclose(twin(x), block(x))
    torch.testing.assert_close(block(x), by_name(x))


def test_what_is_neither_a_name_nor_a_kernel_is_refused():
    with pytest.raises(TypeError, match=r"kernel: expected one of \['exponential', .*\] or a gpytorch.kernels.Kernel"):
        CGPAttention(12, 3, kernel=3.0)


class TestWeightsCGP(GaussianProcessContract):
    attention, takes_causal = partial(CGPAttention, mean="kernel", objective="marginal"), True


class TestJointLatentWeightsCGP(GaussianProcessContract):
    attention = partial(CGPAttention, mean="kernel", coupling="latent", kernel="rq", objective="joint")


class TestSparseCGP(GaussianProcessContract):
    attention, takes_causal = partial(SparseCGPAttention, num_inducing=5), True


class TestJointSparseCGP(GaussianProcessContract):
    attention = partial(SparseCGPAttention, num_inducing=5, kernel="matern52", objective="joint", amplitude=1.3)
    takes_causal = is_variant = True


class TestLatentSparseCGP(GaussianProcessContract):
    attention = partial(SparseCGPAttention, num_inducing=9, coupling="latent", objective="marginal")


class TestWeightsSparseCGP(GaussianProcessContract):
    attention = partial(SparseCGPAttention, mean="kernel", num_inducing=5, kernel="matern52", objective="joint")
    takes_causal = True


class TestPaperSparseCGP(GaussianProcessContract):
    is_variant = True
    attention = partial(SparseCGPAttention, mean="kernel", coupling="latent", approximation="sor", objective="marginal")


class TestSorSparseCGP(GaussianProcessContract):
    attention = partial(SparseCGPAttention, num_inducing=5, approximation="sor", kernel="matern12", objective="joint")
    takes_causal = is_variant = True


class TestExponentialSparseCGP(GaussianProcessContract):
    attention = partial(SparseCGPAttention, mean="kernel", num_inducing=5, kernel="exponential")
    takes_causal = is_variant = True


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
    attention, takes_causal = partial(CGPAttention, mean="softmax"), True

    def test_the_variance_grows_towards_the_prior_as_queries_leave_the_keys(self):
        block = self.make(amplitude=0.3).eval()
        x = self.tokens(1).float()
        near, far = (block.token_variance(scale * x).mean() for scale in (0.1, 100.0))
        assert near < far <= 0.09 + 1e-6
        torch.testing.assert_close(far, torch.tensor(0.09), rtol=0.1, atol=0.0)


class TestSoftmaxMeanSparseCGP(SoftmaxMeanContract):
    attention, takes_causal = partial(SparseCGPAttention, mean="softmax", num_inducing=5), True

    def test_the_inducing_inputs_follow_the_lengthscale(self):
        block, x = self.make().eval(), self.tokens(2).float()
        before = block.token_variance(x)
        with torch.no_grad():
            block.softmax.log_lengthscale += 1.0
            block.inducing_points.fill_(50.0)  # explain nothing
        assert (block.token_variance(x) > before).all()


@pytest.mark.parametrize(
    ("options", "scale"), [({}, 0.25), ({"mean": "softmax"}, 0.5), ({"kernel": "exponential"}, 1.0)]
)
def test_inducing_inputs_start_at_the_scale_of_tokens(options, scale):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        block = SparseCGPAttention(32, 2, num_inducing=512, **options)  # heads of 16 channels
    assert abs(float(block.inducing_points.detach().std()) / scale - 1.0) < 0.05  # of 16,384 draws


@pytest.mark.parametrize(("coupling", "mean"), [("direct", "regression"), ("latent", "kernel"), ("direct", "softmax")])
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


@pytest.mark.parametrize("make", [CGPAttention, SparseCGPAttention, KernelAttention])
def test_query_and_key_maps_start_equal(make):
    query, key, _ = make(12, 3).in_proj.weight.chunk(3)
    assert torch.equal(query, key)


@pytest.mark.parametrize("make", [CGPAttention, SparseCGPAttention])
def test_a_regulariser_keeps_noise_and_amplitude_from_being_learned(make):
    learned, fixed = make(12, 3, noise=0.2), make(12, 3, noise=0.2, objective="marginal")
    for name in ("raw_noise", "log_amplitude"):
        assert getattr(learned, name).requires_grad
        assert not getattr(fixed, name).requires_grad
    torch.testing.assert_close(learned.noise, torch.full((3,), 0.2))
    assert make(12, 3, mean="kernel", noise=0.2).noise == 0.2


@pytest.mark.parametrize("n", [4, 256])
@pytest.mark.parametrize(
    "block", [KernelAttention(32, 2), *(m(32, 2, mean="kernel") for m in (CGPAttention, SparseCGPAttention))]
)
def test_values_as_weights_start_at_the_size_of_softmax(block, n):
    torch.manual_seed(0)
    x = torch.randn(8, 1, 32) + 0.3 * torch.randn(8, n, 32)
    values = block.project(x).v
    heads = block.eval().attend(block.project(x))
    assert 0.5 < heads.square().mean() / values.mean(-2).square().mean() < 1.5


@pytest.mark.parametrize(
    "make", [KernelAttention, *(partial(m, mean="kernel") for m in (CGPAttention, SparseCGPAttention))]
)
def test_weights_without_an_amplitude_are_of_unit_variance(make):
    """As older versions stored them; and so they are stored again."""
    block, older, x = make(12, 3).double().eval(), make(12, 3).double().eval(), torch.randn(2, 7, 12).double()
    older.load_state_dict({k: v for k, v in block.state_dict().items() if k != "log_amplitude"})
    assert older.state_dict().keys() == block.state_dict().keys() - {"log_amplitude"}
    tokens = older.project(x)
    heads = older.attend(tokens)
    if isinstance(older, SparseCGPAttention):
        points = older.inducing_points
        gram = canonical("rbf").gram
        K_mm = gram(points) + 1e-8 * torch.eye(16).double()
        expected = gram(tokens.q, points) @ torch.linalg.solve(K_mm, gram(points, tokens.k) @ tokens.v)
    else:
        expected = canonical("rbf").gram(tokens.q, tokens.k) @ tokens.v
    torch.testing.assert_close(heads, expected)


def test_weights_without_a_noise_are_refused_by_a_regression():
    """They may be those of values as weights, the former default."""
    state = {k: v for k, v in CGPAttention(12, 3).state_dict().items() if k not in ("log_amplitude", "raw_noise")}
    with pytest.raises(RuntimeError, match="Missing key.*raw_noise"):
        CGPAttention(12, 3).load_state_dict(state)


@pytest.mark.parametrize("make", [CGPAttention, SparseCGPAttention])
def test_a_default_block_computes_no_regulariser(make):
    block = make(12, 3).train()
    block(torch.randn(2, 7, 12))
    assert not [term for term in block.added_loss_terms() if term is not None]


def test_padding_of_a_separate_value_is_cleared():
    """NaN behind the padding of keys and values reaches no query."""
    query, key, value = (torch.randn(2, n, 12) for n in (4, 6, 6))
    padding = torch.arange(6) >= torch.tensor([4, 6])[:, None]
    block = SparseCGPAttention(12, 3, num_inducing=4).eval()
    expected = block(query, key, value, key_padding_mask=padding)
    for given in (key, value):
        given[0, 4:] = torch.nan
    torch.testing.assert_close(block(query, key, value, key_padding_mask=padding), expected)
