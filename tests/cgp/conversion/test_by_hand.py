"""Attention computed by hand, in every way that hosts write it, against `scaled_dot_product_attention`."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from cgp import predict
from cgp.conversion import ConvertedHeads, HostAttention, convert
from tests.cgp.conversion import hosts

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


FORMS = (
    products, scaled_queries, in_place, masked, folded, added, einsums, transposed, shared_keys, sinks, mixed_heads,
    with_positions,
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
    found, draw = posterior(convert(host), tokens)
    torch.testing.assert_close(found.mean.reshape(expected.mean.shape), expected.mean)
    torch.testing.assert_close(found.variance.reshape(B, H, N), expected.variance, atol=1e-6, rtol=1e-5)
    assert draw.shape == host(tokens).shape
    torch.testing.assert_close(convert(host)(tokens), host(tokens), atol=0, rtol=0)


def test_several_draws_share_one_posterior():
    """`predict` keeps the first layer's posterior, whose mean is then not asked for again."""
    eager, fused = hosts.t5(), hosts.t5()
    fused.model.load_state_dict(eager.model.state_dict())
    eager.model.set_attn_implementation("eager")
    found = [predict(convert(host.model), eager.inputs, 4, seed=0) for host in (eager, fused)]
    torch.testing.assert_close(found[0].probabilities, found[1].probabilities, atol=1e-4, rtol=1e-4)
    assert found[0].epistemic.max() > 0


def test_a_softmax_may_be_a_module():
    host, tokens = WithModule().eval(), torch.randn(B, N, H * S)
    found, _ = posterior(convert(host), tokens)
    q, k, _ = host.split(tokens)
    expected = ConvertedHeads(H).gaussian(HostAttention(lambda: host(tokens), q, k, scale=1.0))
    torch.testing.assert_close(found.variance, expected.variance)


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
