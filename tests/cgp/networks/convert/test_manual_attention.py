"""Attention computed by hand, in the variants of real hosts, against `scaled_dot_product_attention`."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from cgp import calibrate, predict
from cgp.networks.convert import ConvertedHeads, HostAttention, convert
from cgp.networks.convert.manual_attention import Origins
from tests.cgp.networks.convert import hosts, oracle
from tests.cgp.networks.predict.test_predict import classify, whole_passes

B, H, N, S = 3, 2, 5, 4
PADDING = ~hosts.padding(N, 5, 3, 2)
BIAS = torch.linspace(-2, 2, N * N).view(N, N)


def products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * S**-0.5
    return scores.softmax(-1) @ v


def scaled_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.matmul(nn.functional.softmax(torch.matmul(q / math.sqrt(S), k.mT), dim=3), v)


def in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.matmul(q, k.mT)
    scores *= torch.tensor(S**-0.5)
    scores[..., :2] += BIAS[:, :2]
    return torch.matmul(torch.softmax(scores, -1), v)


def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (2.0 * (q @ k.mT)) / (2 * S**0.5)
    return (scores + torch.zeros(B, 1, 1, N).masked_fill(PADDING[:, None, None], -1e4)).softmax(-1) @ v


def folded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, N, N) * S**-0.5
    weights = scores.masked_fill(PADDING[:, None, None], -torch.inf).softmax(-1)
    return torch.bmm(weights.view(-1, N, N), v).unflatten(0, (B, H))


def added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = BIAS.baddbmm(batch1=q.flatten(0, 1), batch2=k.flatten(0, 1).mT, beta=1.0, alpha=S**-0.5)
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).unflatten(0, (B, H))


def einsums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.permute(2, 0, 1, 3) for x in (q, k, v))  # tokens first
    scores = torch.einsum("ibnd,jbnd->bnij", q, k) * S**-0.5
    return torch.einsum("bnij, jbnd -> ibnd", scores.softmax(-1), v).permute(1, 2, 0, 3)


def transposed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.mT * S**-0.5).softmax(-1)
    return (v.mT @ weights.mT).mT


def shared_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head of keys for all."""
    return torch.einsum("bhid,bjd->bhij", q, k[:, 0]).mul(S**-0.5).softmax(-1) @ v


def sinks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.cat([q @ k.mT * S**-0.5, torch.ones(B, H, N, 1)], -1)
    return scores.softmax(-1)[..., :-1] @ v


def mixed_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = nn.functional.linear((q @ k.mT * S**-0.5).permute(0, 2, 3, 1), torch.tensor([[1.0, 0.2], [-0.1, 1.0]]))
    weights = scores.permute(0, 3, 1, 2).softmax(-1)
    return torch.einsum("bhij,hg->bgij", weights, torch.tensor([[1.0, 0.5], [0.0, 1.0]])) @ v


def with_positions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Products of queries and positions belong to the mean."""
    scores = q @ k.mT
    return ((scores + q @ BIAS[:S].expand(B, H, S, N)) * S**-0.5).softmax(-1) @ v


def with_distances(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What is looked up of products with distances is no product of queries and keys, though it comes first."""
    tokens = torch.arange(N)
    distances = (tokens[:, None] - tokens + N - 1).expand(B, H, N, N)
    of_distances = q @ torch.linspace(-1, 1, (2 * N - 1) * S).view(-1, S).expand(B, H, -1, S).mT
    return ((of_distances.gather(-1, distances) + q @ k.mT) * S**-0.5).softmax(-1) @ v


FORMS = (
    products, scaled_queries, in_place, masked, folded, added, einsums, transposed, shared_keys, sinks, mixed_heads,
    with_positions, with_distances,
)  # fmt: skip


class Host(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.maps, self.attend = H, nn.Linear(H * S, 3 * H * S), nn.Softmax(-1)

    def split(self, tokens: Tensor) -> Tensor:
        return self.maps(tokens).view(B, N, 3, H, S).permute(2, 0, 3, 1, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.form(*self.split(tokens))


class WithModule(Host):
    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self.split(tokens)
        return self.attend(q @ k.mT) @ v


class Product(nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT


class OfModules(Host):
    """A module for every step from queries and keys to weights, with parameters and without."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul, self.mix, self.drop = Product(), nn.Conv2d(H, H, 1), nn.Dropout(0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self.split(tokens)
        weights = self.drop(self.attend(self.mix(self.matmul(q, k))))
        return tokens + (weights @ v).transpose(1, 2).flatten(-2)


class DroppedWeights(Host):
    """A dropout behind a softmax, and the same dropout elsewhere before it."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self.split(self.drop(tokens))
        weights = self.drop((q @ k.mT).softmax(-1))
        return tokens + (weights @ v).transpose(1, 2).flatten(-2)


class Twice(nn.Module):
    """One layer that attends twice, to padded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.real = MaskedWeights(), ~PADDING

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(self.layer(tokens, self.real), self.real)


class MaskedWeights(DroppedWeights):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(H * S, H * S), nn.Linear(H * S, H * S)

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        q, k, v = (x.view(B, N, H, S).transpose(1, 2) for x in (self.q(tokens), self.k(tokens), tokens))
        weights = self.drop((q @ k.mT).masked_fill(~real[:, None, None], -torch.inf).softmax(-1))
        return tokens + (weights @ v).transpose(1, 2).flatten(-2)


def host_of(form: object) -> Host:
    return type("Attention", (Host,), {"form": staticmethod(form), "__module__": __name__})().eval()


def posterior(model: nn.Module, tokens: Tensor):
    seen = hosts.watched(model)
    out = model(tokens)
    return seen[-1], out


@pytest.mark.parametrize("form", FORMS)
def test_the_posterior_is_that_of_fused_attention(form):
    host, tokens = host_of(form), torch.randn(B, N, H * S)
    mask = ~PADDING[:, None, None] if form in (masked, folded) else None
    q, k, _ = host.split(tokens)
    k = k[:, :1].expand_as(k) if form is shared_keys else k
    expected = ConvertedHeads(H).gaussian(HostAttention(lambda: host(tokens), q, k, mask))
    result, draw = posterior(convert(host), tokens)
    torch.testing.assert_close(result.mean.reshape(expected.mean.shape), expected.mean)
    torch.testing.assert_close(result.variance.reshape(B, H, N), expected.variance, atol=1e-6, rtol=1e-5)
    assert draw.shape == host(tokens).shape
    torch.testing.assert_close(convert(host)(tokens), host(tokens), atol=0, rtol=0)


def test_several_draws_share_one_posterior():
    """`predict` keeps the first layer's posterior, whose mean is then not asked for again."""
    eager, fused = hosts.t5(), hosts.t5()
    fused.model.load_state_dict(eager.model.state_dict())
    eager.model.set_attn_implementation("eager")
    result = [predict(convert(host.model), eager.inputs, 4, seed=0) for host in (eager, fused)]
    torch.testing.assert_close(result[0].probabilities, result[1].probabilities, atol=1e-4, rtol=1e-4)
    assert result[0].epistemic.max() > 0


def test_a_softmax_may_be_a_module():
    host, tokens = WithModule().eval(), torch.randn(B, N, H * S)
    result, _ = posterior(convert(host), tokens)
    q, k, _ = host.split(tokens)
    expected = ConvertedHeads(H).gaussian(HostAttention(lambda: host(tokens), q, k, scale=1.0))
    torch.testing.assert_close(result.variance, expected.variance)


@pytest.mark.parametrize("kind", [OfModules, DroppedWeights, Twice])
def test_draws_that_share_lower_layers_equal_complete_passes(kind: type[nn.Module]):
    """Softmax and dropout are modules that finish before the product with values: they are run again."""
    layer = hosts.spread(kind())
    host = nn.Sequential(nn.Linear(H * S, H * S), layer, nn.Flatten(), nn.Linear(N * H * S, 5))
    model = convert(host.eval(), amplitude=0.5)
    tokens = torch.randn(B, N, H * S)
    result = predict(model, tokens, 4, seed=5, antithetic=False, keep_draws=True)
    expected = whole_passes(model, tokens, 4, "marginal", seed=5, antithetic=False)
    torch.testing.assert_close(result.draws, expected.softmax(-1))
    assert result.epistemic.min() > 0
    report = calibrate(model, [(tokens, torch.randint(5, (B,)))], num_samples=2)
    assert 0 < report.factor < torch.inf


def test_token_variances_of_replayed_passes_are_those_of_dense_algebra():
    layer = hosts.spread(DroppedWeights())
    model, tokens = convert(nn.Sequential(nn.Identity(), layer).eval(), **oracle.SCALES), torch.randn(B, N, H * S)
    expected = oracle.dense(*layer.split(tokens), None, False, 1.0)
    (variance,) = predict(model, tokens, 4, task="regression").token_variance.values()
    torch.testing.assert_close(variance.double(), expected.variance, rtol=1e-4, atol=1e-6)


def bloom() -> hosts.Host:
    return hosts.decoder("Bloom", "eager", n_layer=2, n_head=4)


def gpt_neo() -> hosts.Host:
    return hosts.decoder("GPTNeo", "eager", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]])


def deberta() -> hosts.Host:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.DebertaConfig(**sizes, intermediate_size=32, num_labels=5)
    ids = torch.randint(3, 40, (B, 7))
    return hosts.Host(hosts.spread(transformers.DebertaForSequenceClassification(config)), {"input_ids": ids})


def swin() -> hosts.Host:
    host = hosts.timm_swin()
    for module in host.model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return host


@pytest.mark.parametrize("make", [bloom, gpt_neo, deberta, swin])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_hosts_with_such_modules_predict(make: Callable[[], hosts.Host], layers: str):
    host = make()
    model = convert(host.model, layers=layers, amplitude=0.3)
    options = {"antithetic": False, "output": classify, "keep_draws": True}
    result = predict(model, host.inputs, 3, seed=5, **options)
    expected = whole_passes(model, host.inputs, 3, "marginal", seed=5, antithetic=False)
    torch.testing.assert_close(result.draws, expected.softmax(-1), atol=2e-5, rtol=1e-3)
    assert not torch.allclose(result.draws[0], result.draws[1], atol=1e-4)


def test_scales_may_be_learned_per_head():
    scale = torch.tensor([0.5, 2.0])[:, None, None]
    host, tokens = host_of(lambda q, k, v: (q @ k.mT * scale).softmax(-1) @ v), torch.randn(B, N, H * S)
    q, k, _ = host.split(tokens)
    expected = ConvertedHeads(H).gaussian(HostAttention(lambda: host(tokens), q * scale, k, scale=1.0))
    torch.testing.assert_close(posterior(convert(host), tokens)[0].variance, expected.variance)


def selected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1)[:, :, :2] @ v


def test_attention_that_takes_no_product_of_all_weights_is_refused():
    with pytest.raises(ValueError, match=r"Attention: expected softmax attention \(.* leave this layer out"):
        posterior(convert(host_of(selected)), torch.randn(B, N, H * S))


def test_a_tensor_covers_the_arguments_it_is_computed_from():
    x, y = torch.ones(2), torch.ones(2)
    origins = Origins((x,), {"context": [y]})
    q, both = 2 * x, x + y
    origins.follow([x], q)
    origins.follow([x, y], both)
    assert origins.cover(q, x)
    assert not origins.cover(q, y)
    assert not origins.cover(q, both)
    assert origins.cover(both, q)


def test_tensors_from_no_argument_cover_nothing_and_are_not_covered():
    x, cache = torch.ones(2), torch.ones(2)
    origins = Origins(x)
    origins.follow([cache], k := 3 * cache)
    assert not origins.cover(x, k)
    assert not origins.cover(k, x)
    assert not origins.cover(k, k)


def test_integer_arguments_such_as_positions_are_no_origins():
    x, positions = torch.ones(2), torch.arange(2)
    origins = Origins(x, positions)
    origins.follow([positions], table := positions.float())
    assert not origins.cover(table, table)


def test_every_output_of_a_function_is_followed():
    x = torch.ones(4)
    origins = Origins(x)
    parts = x.chunk(2)
    origins.follow([x], parts)
    assert all(origins.cover(part, x) for part in parts)


def test_intermediate_tensors_are_not_kept_alive():
    x = torch.ones(2)
    origins = Origins(x)
    intermediate = x + 1
    origins.follow([x], intermediate)
    alive = weakref.ref(intermediate)
    del intermediate
    gc.collect()
    assert alive() is None
