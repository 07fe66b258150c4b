"""Converted models on disk."""

from __future__ import annotations

import json

import pytest
import torch

from cgp import CGPAttention
from cgp.conversion import convert, from_pretrained, save_pretrained
from cgp.model.inputs import call_model
from cgp.model.temperature import logit_temperature, set_logit_temperature
from tests.cgp.conversion import hosts
from tests.cgp.conversion.hosts import HOSTS


@pytest.mark.parametrize("make", HOSTS)
def test_reloading_is_equal_to_the_bit(make, tmp_path):
    host = make()
    model = convert(host.model, "scgp", "all", num_inducing=3, statistics="learned")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    save_pretrained(model, tmp_path / "model")
    again = from_pretrained(tmp_path / "model", make().model)
    state, other = model.state_dict(), again.state_dict()
    assert state.keys() == other.keys()
    assert all(torch.equal(state[name], other[name]) for name in state)
    with torch.no_grad():
        got, expected = (host.output(call_model(m, host.inputs)) for m in (again, model.eval()))
    assert torch.equal(got, expected)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["cgp_config.json", "model.safetensors"]


def test_several_conversions_and_factories(tmp_path):
    host = hosts.timm_vit()
    model = convert(convert(host.model, "cgp", [0]), lambda d, h: CGPAttention(d, h, coupling="latent"), [1])
    save_pretrained(model, tmp_path)
    with pytest.raises(ValueError, match="attention: expected the factory"):
        from_pretrained(tmp_path, host.model)
    again = from_pretrained(tmp_path, host.model, attention=lambda d, h: CGPAttention(d, h, coupling="latent"))
    assert torch.equal(again(host.inputs), model(host.inputs))


def test_a_temperature_is_kept(tmp_path):
    host = hosts.timm_vit()
    model = convert(host.model, "cgp")
    set_logit_temperature(model, 1.1 / 0.7)
    save_pretrained(model, tmp_path)
    assert logit_temperature(from_pretrained(tmp_path, host.model)) == 1.1 / 0.7
    config = json.loads((tmp_path / "cgp_config.json").read_text())
    del config["temperature"]  # as it was before there were any
    (tmp_path / "cgp_config.json").write_text(json.dumps(config))
    assert logit_temperature(from_pretrained(tmp_path, host.model)) == 1.0


def test_attention_alone(tmp_path):
    host = hosts.torch_attention()
    save_pretrained(convert(host.model, "cgp"), tmp_path)
    again = from_pretrained(tmp_path, host.model)
    assert torch.equal(call_model(again, host.inputs)[0], call_model(convert(host.model, "cgp"), host.inputs)[0])


def test_saving_over_an_older_model_leaves_nothing_behind(tmp_path):
    host = hosts.timm_vit()
    save_pretrained(convert(host.model, "cgp"), tmp_path)
    save_pretrained(convert(host.model, "scgp"), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert json.loads((tmp_path / "cgp_config.json").read_text())["conversions"][0]["attention"] == "scgp"


def test_a_write_that_fails_leaves_the_older_model(tmp_path, monkeypatch):
    host = hosts.timm_vit()
    save_pretrained(convert(host.model, "cgp"), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def fail(model, name):
        raise OSError("disk full")

    monkeypatch.setattr("cgp.conversion.storage.save_model", fail)
    with pytest.raises(OSError, match="disk full"):
        save_pretrained(convert(host.model, "scgp"), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_what_cannot_be_saved_or_loaded(tmp_path):
    host = hosts.timm_vit()
    with pytest.raises(ValueError, match="model: expected one that cgp.convert returned"):
        save_pretrained(host.model, tmp_path)
    odd = convert(host.model, lambda d, h, kind: CGPAttention(d, h), kind=torch.zeros(1))
    with pytest.raises(ValueError, match="options: expected values that JSON has"):
        save_pretrained(odd, tmp_path)
    save_pretrained(convert(host.model, "cgp"), tmp_path)
    with pytest.raises(ValueError, match="model: expected a timm.models"):
        from_pretrained(tmp_path, hosts.torchvision_vit().model)
    config = tmp_path / "cgp_config.json"
    config.write_text(config.read_text().replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(ValueError, match="expected format_version 1, got 2"):
        from_pretrained(tmp_path, host.model)
