"""The temperature of a model's logits: set, read, copied and saved."""

import copy

import pytest
import torch
from torch import nn

from cgp.networks.convert import convert
from cgp.networks.model.fingerprints import logit_temperature, modules_with_temperature, set_logit_temperature
from cgp.networks.model.structural_copy import structural_copy


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
