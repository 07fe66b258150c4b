"""Checksums of weights: which changes they see, and which they do not."""

import copy
import io

import pytest
import torch
from torch import nn

from cgp.networks.convert import convert
from cgp.networks.model import fingerprints
from cgp.networks.model.fingerprints import (
    Fingerprint,
    fingerprint,
    logit_temperature,
    modules_with_temperature,
    set_logit_temperature,
)
from cgp.networks.model.structural_copy import structural_copy
from tests.cgp.networks.convert import hosts


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Flatten(), nn.Linear(16, 4097), nn.Linear(4097, 2))


CHANGES = {
    "a step of training": lambda m: torch.optim.SGD(m.parameters(), 1e-6).step(),
    "one number": lambda m: m[3].weight[17, 3].mul_(1 + 1e-6),
    "a sign, the highest bit of a word": lambda m: m[3].bias[17].neg_(),
    "written past torch's count": lambda m: m[4].weight.data.mul_(1 - 1e-6),
    "a buffer": lambda m: m[1].running_mean.add_(1e-7),
    "another dtype": lambda m: m.double(),
    "two rows exchanged": lambda m: m[3].weight.copy_(m[3].weight[torch.arange(4097).roll(1)]),
    "two numbers exchanged": lambda m: m[3].bias.copy_(m[3].bias[torch.arange(4097).roll(1)]),
    "another layer": lambda m: m.append(nn.Linear(2, 2)),
    "a new parameter": lambda m: setattr(m[4], "weight", nn.Parameter(m[4].weight * 1.001)),
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_changes_are_seen(name):
    model = network()
    before = fingerprint(model)
    assert fingerprint(model) == before
    with torch.enable_grad():
        sum(parameter.sum() for parameter in model.parameters()).backward()
    CHANGES[name](model)
    assert fingerprint(model).host != before.host


@torch.no_grad()
def test_what_leaves_the_function_alone_leaves_the_fingerprint():
    model = network()
    before = fingerprint(model)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    read = network()
    read[3].weight.zero_()
    read.load_state_dict(torch.load(file))
    others = [copy.deepcopy(model), structural_copy(model), read, model.train(), model.eval(), nn.DataParallel(model)]
    others += [copy.deepcopy(model).to(memory_format=torch.channels_last), torch.compile(model, backend="eager")]
    for other in others:
        assert fingerprint(other) == before
    model[3].weight.add_(1).sub_(0)
    assert fingerprint(model) != before


def test_a_converted_model_has_its_scales_apart_and_no_temperature():
    host = hosts.transformers_bert().model
    model = convert(host)
    before = fingerprint(model)
    assert before.host == fingerprint(host).host
    set_logit_temperature(model, 3.0)
    assert fingerprint(model) == before
    with torch.no_grad():
        hosts.heads_of(model)[0].log_amplitude += 0.1
    changed = fingerprint(model)
    assert changed.host == before.host
    assert changed.heads != before.heads
    assert changed.whole != before.whole
    assert Fingerprint(0, 0).whole > 0


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0),
        torch.tensor(1.5),
        torch.ones(7, dtype=torch.bool),
        torch.arange(9, dtype=torch.uint8)[1:],
        torch.ones(3, dtype=torch.complex64),
        torch.ones(5, dtype=torch.bfloat16),
        torch.zeros(4, device="meta"),
        torch.eye(3).to_sparse(),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout} {tensor.device}",
)
def test_every_kind_of_tensor_has_one(tensor):
    model = nn.Module()
    model.register_buffer("kept", tensor)
    assert fingerprint(model) == fingerprint(model)


@torch.no_grad()
def test_what_has_not_changed_is_not_read_again(monkeypatch):
    model, read = network(), []
    plain = fingerprints._sum
    monkeypatch.setattr(fingerprints, "_sum", lambda x: read.append(tuple(x.shape)) or plain(x))
    before = fingerprint(model)
    read.clear()
    assert fingerprint(model) == before
    assert fingerprint(structural_copy(model)) == before
    assert read == []
    model[0].bias.add_(1)
    assert fingerprint(model) != before
    assert read == [(16,)]


def host():
    return nn.Sequential(nn.TransformerEncoderLayer(8, 2, batch_first=True), nn.Linear(8, 3)).eval()


def test_models_without_a_temperature_have_one():
    assert logit_temperature(host()) == 1.0


@pytest.mark.parametrize("make", [host, lambda: convert(host())])
def test_copies_and_compiled_models_keep_it(make):
    model = make()
    set_logit_temperature(model, 1.5)
    assert [
        logit_temperature(m) for m in (model, copy.deepcopy(model), structural_copy(model), torch.compile(model))
    ] == [1.5] * 4


def test_a_copy_may_have_another():
    model = convert(host())
    set_logit_temperature(model, 1.5)
    other = structural_copy(model)
    set_logit_temperature(other, 3.0)
    assert (logit_temperature(model), logit_temperature(other)) == (1.5, 3.0)


def test_it_is_in_the_state_dict_of_converted_models_only():
    plain, converted = host(), convert(host())
    for model in (plain, converted):
        set_logit_temperature(model, 2.0)
    assert not modules_with_temperature(plain)
    assert not any("temperature" in name for name in plain.state_dict())
    again = convert(host())
    again.load_state_dict(converted.state_dict())
    assert logit_temperature(again) == 2.0


def test_the_output_of_the_model_is_not_divided():
    model, x = host(), torch.randn(2, 5, 8)
    before = model(x)
    set_logit_temperature(model, 4.0)
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_refuses_temperatures_that_are_not_positive_and_finite(temperature):
    model = host()
    with pytest.raises(ValueError, match="temperature: expected a positive number"):
        set_logit_temperature(model, temperature)
    assert logit_temperature(model) == 1.0
