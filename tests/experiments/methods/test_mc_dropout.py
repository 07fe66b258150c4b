"""MC dropout against all masks enumerated, and in hosts of torch, timm and transformers."""

import itertools

import pytest
import timm
import torch
from scipy.stats import chisquare
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from cgp import SparseCGPAttention
from cgp.networks.model.inputs import logits_of
from experiments.data.partition import generator_for
from experiments.methods import mc_dropout_logits
from experiments.methods.mc_dropout import active_dropout
from tests.experiments.methods.hosts import IMAGES, torchvision_host, vision


def timm_host(**rates):
    sizes = {"img_size": 16, "patch_size": 8, "depth": 1, "num_heads": 2, "embed_dim": 8, "num_classes": 3}
    return timm.models.vision_transformer.VisionTransformer(**sizes, **rates)


def transformers_host():
    config = ViTConfig(
        image_size=16, patch_size=8, num_hidden_layers=1, num_attention_heads=2, hidden_size=8, intermediate_size=8,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5, num_labels=3,
    )  # fmt: skip
    return ViTForImageClassification(config)


@pytest.mark.parametrize("probability", [0.5, 0.2])
def test_draws_are_the_masks_one_by_one_with_their_frequencies(probability):
    below, above = nn.Linear(2, 4), nn.Linear(4, 3)
    x = torch.randn(1, 2)
    masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=4)), dtype=torch.double)
    outcomes = above(below(x) * masks.float() / (1 - probability)).detach()  # (16, 3)
    weights = probability ** (4 - masks.sum(-1)) * (1 - probability) ** masks.sum(-1)
    model = nn.Sequential(below, nn.Dropout(probability), above)
    draws = mc_dropout_logits(model, [x.expand(400, 2)], 10).flatten(0, 1)
    distances = (draws[:, None] - outcomes).abs().amax(-1)  # (4000, 16)
    assert distances.min(-1).values.max() < 1e-5
    counts = distances.argmin(-1).bincount(minlength=16)
    assert chisquare(counts.numpy(), 4000 * weights.numpy()).pvalue > 1e-3


def test_same_seed_same_draws_and_the_first_of_more():
    model = torchvision_host(0.3, 0.3)
    first = mc_dropout_logits(model, IMAGES.split(2), 4, seed=1)
    assert torch.equal(first, mc_dropout_logits(model, IMAGES.split(2), 6, seed=1)[:4])
    assert not torch.equal(first, mc_dropout_logits(model, IMAGES.split(2), 4, seed=2))
    assert first[:, 0].std(0).min() > 0  # draws differ


def test_model_and_generator_are_left_as_they_were():
    model = torchvision_host(0.3, 0.3).train()
    model.encoder.layers[0].eval()
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    mc_dropout_logits(model, [IMAGES], 2)
    assert modes == [module.training for module in model.modules()]
    assert torch.equal(state, torch.get_rng_state())


HOSTS = {
    "torchvision": lambda: torchvision_host(0.5, 0.0),
    "torchvision attention": lambda: torchvision_host(0.0, 0.5),
    "timm": lambda: timm_host(proj_drop_rate=0.5),
    "timm attention": lambda: timm_host(attn_drop_rate=0.5),
    "transformers attention": transformers_host,
    "reference": vision,
    "fused encoder layer": lambda: nn.Sequential(
        nn.Flatten(2), nn.TransformerEncoderLayer(256, 2, 8, dropout=0.5, batch_first=True), nn.Flatten()
    ),
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_masks_are_those_of_the_training_mode(host):
    model = host()
    draws = mc_dropout_logits(model, [IMAGES], 2, seed=3)
    assert (draws[0] - draws[1]).abs().max() > 1e-4
    for number, draw in enumerate(draws):  # nothing in these hosts but dropout depends on the mode
        torch.manual_seed(generator_for("mc-dropout", 3, 0, number).initial_seed())
        with torch.no_grad():
            torch.testing.assert_close(draw, logits_of(model.train()(IMAGES)), rtol=1e-5, atol=1e-6)


def test_stochastic_blocks_and_everything_else_keep_their_mode():
    model = nn.Sequential(vision(SparseCGPAttention), nn.BatchNorm1d(3), nn.Dropout(0.5)).eval()
    with active_dropout(model):
        training = {type(module).__name__ for module in model.modules() if module.training}
    assert training == {"Dropout"}


@pytest.mark.parametrize("model", [torchvision_host(0.0, 0.0), nn.Linear(2, 3), timm_host()])
def test_a_model_without_dropout_is_refused(model):
    with pytest.raises(ValueError, match="model: expected dropout"):
        mc_dropout_logits(model, [IMAGES], 2)
