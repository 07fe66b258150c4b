"""The delta method against Monte Carlo and dense algebra."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cgp import CGPAttention, SGPAttention, SparseCGPAttention, predict
from cgp.conversion import convert
from cgp.model.blocks import attention_blocks
from cgp.model.inputs import call_model
from cgp.model.linearised import linearised_logits
from cgp.model.replay import SharedPrefix
from tests.cgp.conversion import hosts

BLOCKS = (CGPAttention, SparseCGPAttention)


class Affine(nn.Module):
    """Everything above the heads is affine."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.embed, self.block, self.head = nn.Linear(4, 8), block, nn.Linear(8, 3)

    def forward(self, x, key_padding_mask=None):
        x = self.embed(x).tanh()
        return self.head((x + self.block(x, key_padding_mask=key_padding_mask)).mean(-2))


@pytest.mark.parametrize("mode", ["marginal", "joint"])
@pytest.mark.parametrize("mean", ["kernel", "softmax"])
@pytest.mark.parametrize("block", BLOCKS)
def test_under_an_affine_head_it_is_exact(block, mean, mode):
    """Against the dense map of the heads: J Σ Jᵀ by explicit matrices in float64."""
    model = Affine(block(8, 2, mean=mean)).double().eval()
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    got = linearised_logits(model, x, sampling=mode)
    posterior = model.block.posterior(model.embed(x).tanh())  # (3, 2, 4; 5)
    covariance = posterior.covariance_matrix
    if mode == "marginal":
        covariance = torch.diag_embed(covariance.diagonal(dim1=-2, dim2=-1))
    head = (model.head.weight @ model.block.out_proj.weight).unflatten(-1, (2, 4)) / 5  # (C, h, s)
    expected = torch.einsum("chs,bhsij,khs->bck", head, covariance, head)
    torch.testing.assert_close(got.covariance_matrix, expected)
    torch.testing.assert_close(got.mean, model(x))
    assert got.batch_shape == (3,)
    assert got.event_shape == (3,)


@pytest.mark.parametrize("mode", ["marginal", "joint"])
@pytest.mark.parametrize(
    ("make", "output"),
    [
        (hosts.torchvision_vit, lambda out: out),
        (hosts.timm_eva, lambda out: out),
        (hosts.transformers_bert, lambda out: out.logits),
    ],
)
def test_for_small_deviations_it_agrees_with_monte_carlo(make, output, mode):
    host = make()
    model = convert(host.model, "cgp", amplitude=0.003)
    gaussian = linearised_logits(model, host.inputs, sampling=mode)
    count, prefix, block = 1000, SharedPrefix(model), attention_blocks(model)[0]
    with torch.no_grad():
        prefix.record(lambda: call_model(model, host.inputs))
        block.sampling = mode
        with prefix.replaying(posterior=True):
            draws = torch.stack([output(call_model(model, host.inputs)) for _ in range(count)]).double()
    centred = draws - gaussian.mean.detach()
    empirical = torch.einsum("sbc,sbk->bck", centred, centred) / count
    expected = gaussian.covariance_matrix.double()
    scale = expected.diagonal(dim1=-2, dim2=-1).sqrt()
    # The standard error of a covariance is at most √(2/count) of the scale: six of them.
    error = (empirical - expected).abs() / (scale[..., :, None] * scale[..., None, :])
    assert error.max() < 6 * (2 / count) ** 0.5


def test_predictions_by_propagation_agree_with_sampling():
    host = hosts.timm_vit()
    model = convert(host.model, "scgp", amplitude=0.02)
    one, other = (
        predict(model, host.inputs, 4000, propagation=how, seed=0, keep_draws=True)
        for how in ("linearised", "sampling")
    )
    error = (other.draws.var(0) / 2000).sqrt()
    assert ((one.probabilities - other.probabilities).abs() < 6 * error + 1e-4).all()
    torch.testing.assert_close(one.draws.std(0), other.draws.std(0), rtol=0.15, atol=1e-5)
    torch.testing.assert_close(one.token_variance, other.token_variance)


def test_padding_has_no_part_in_it():
    model, x = Affine(CGPAttention(8, 2)).eval(), torch.randn(2, 5, 4)
    mask = ~hosts.padding(5, 5, 2)
    gaussian = linearised_logits(model, {"x": x, "key_padding_mask": mask})
    changed = linearised_logits(model, {"x": x.masked_fill(mask[..., None], 3.0), "key_padding_mask": mask})
    torch.testing.assert_close(gaussian.covariance_matrix, changed.covariance_matrix)


def test_a_layer_that_moves_no_logit():
    model = Affine(CGPAttention(8, 2)).eval()
    nn.init.zeros_(model.head.weight)
    prediction = predict(model, torch.randn(2, 5, 4), 4, propagation="linearised")
    assert prediction.epistemic.max() < 1e-6


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(4, 3).eval(), "expected one stochastic layer that attends once, got 0"),
        (nn.Sequential(CGPAttention(4, 2), CGPAttention(4, 2), nn.Flatten()).eval(), "got 2 of them"),
        (nn.Sequential(SGPAttention(4, 2), nn.Flatten()).eval(), "a layer whose columns share a covariance"),
        (CGPAttention(4, 2).eval(), r"expected logits \(N, C\)"),
        (CGPAttention(4, 2), "expected one in eval mode"),
    ],
)
def test_models_that_it_is_not_defined_for_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        linearised_logits(model, torch.randn(2, 5, 4))
