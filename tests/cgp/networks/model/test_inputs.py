"""Inputs of models."""

import re
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import cgp
from cgp.networks.model.inputs import (
    batches,
    call_model,
    input_batches,
    logits_of,
    model_device,
    split_inputs,
    to_device,
    with_own_caches,
)


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


@given(st.integers(1, 9), st.integers(1, 10))
def test_parts_put_together_are_the_whole(count, batch_size):
    x, y = torch.arange(2.0 * count).reshape(count, 2), torch.arange(count)
    for inputs in (x, (x, y), [x, y], Pair(x, y), {"x": x, "y": y, "flag": True, "nested": (y,)}):
        parts = list(split_inputs(inputs, batch_size))
        assert len(parts) == -(-count // batch_size)
        first = [
            part if isinstance(part, torch.Tensor) else (part["x"] if isinstance(part, dict) else part[0])
            for part in parts
        ]
        assert torch.equal(torch.cat(first), x)
        if isinstance(inputs, dict):
            assert all(part["flag"] is True and torch.equal(part["nested"][0], part["y"]) for part in parts)


def test_without_a_size_nothing_is_split():
    inputs = {"x": torch.zeros(3), "mask": torch.zeros(5, 5)}
    (whole,) = split_inputs(inputs, None)
    assert whole is inputs


@pytest.mark.parametrize(
    "inputs", [{"x": torch.zeros(3), "y": torch.zeros(2)}, {}, (torch.tensor(1.0), torch.zeros(2))]
)
def test_what_cannot_be_split_is_refused(inputs):
    with pytest.raises(ValueError, match="inputs: expected tensors with one first dimension"):
        list(split_inputs(inputs, 2))


def test_calls():
    class Sum(nn.Module):
        def forward(self, x, y=0):
            return x + y

    assert [call_model(Sum(), inputs) for inputs in (1, (1, 2), [1, 2], {"x": 1, "y": 3})] == [1, 3, 3, 4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (cgp.assess, "data: expected dicts with 'labels' and the arguments of Linear.forward, 'input', got 'x', 'y'"),
        (cgp.calibrate, "data: expected dicts with 'labels' and the arguments of Linear.forward, 'input', got 'x',"),
        (cgp.with_held_out, "data: expected dicts with 'labels' and the arguments of Linear.forward, 'input', got 'x"),
        (cgp.predict, "inputs: expected the arguments of Linear.forward, 'input', and perhaps 'labels', got 'x', 'y'"),
    ],
)
def test_a_dict_with_other_keys_is_refused_by_their_names(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(nn.Linear(2, 3), iter([{"x": torch.zeros(40, 2), "y": torch.zeros(40).long()}]))


@pytest.mark.parametrize(
    ("key", "advice"), [("idx", " (leave out 'idx')"), ("attention_maks", "; did you mean 'attention_mask'?")]
)
def test_a_key_that_a_model_has_not_is_named_with_what_to_do(key, advice):
    """None is left out silently: it may be a misspelt argument."""

    class Text(nn.Embedding):
        def forward(self, input_ids, attention_mask=None):
            return super().forward(input_ids).mean(1)

    batch = {"input_ids": torch.zeros(6, 4).long(), key: torch.ones(6, 4)}
    with pytest.raises(ValueError, match=re.escape(f"and perhaps 'labels', got 'input_ids', '{key}'{advice}")):
        cgp.predict(Text(9, 3), [batch])


@pytest.mark.parametrize(
    ("model", "x"),
    [(nn.Linear(8, 3), torch.zeros(8)), (nn.Sequential(nn.Flatten(), nn.Linear(8, 3)), torch.zeros(2, 4))],
)
def test_one_input_without_a_batch_is_said(model, x):
    with pytest.raises((ValueError, RuntimeError), match=r"x\[None\]"):
        cgp.predict(model, x)


def test_an_empty_batch_that_a_model_cannot_take_is_said():
    model = nn.Sequential(cgp.SparseCGPAttention(8, 2), nn.Flatten(), nn.Linear(32, 3))
    with pytest.raises(ValueError, match=r"expected at least one input of Sequential, got an empty batch, \(0, 4, 8\)"):
        cgp.predict(model, torch.zeros(0, 4, 8), 2)


def test_a_type_error_of_a_model_itself_is_left_as_it_is():
    class Broken(nn.Linear):
        def forward(self, x, **others):
            return x.tolist() + "a"

    with pytest.raises(TypeError, match="can only concatenate"):
        call_model(Broken(2, 2), {"x": torch.ones(1, 2).double(), "other": 2})


def test_logits_of_outputs():
    class Output:
        logits = torch.zeros(2)

    for output in (Output.logits, Output(), {"logits": Output.logits}):
        assert logits_of(output) is Output.logits
    for output in ((torch.zeros(2),), {"other": torch.zeros(2)}, None):
        with pytest.raises(ValueError, match="model: expected a tensor of logits"):
            logits_of(output)


def test_devices():
    assert model_device(nn.Linear(1, 1, device="meta")).type == "meta"
    assert model_device(nn.Identity()).type == "cpu"
    moved = to_device({"x": (torch.zeros(2), None), "y": 3}, torch.device("meta"))
    assert moved["x"][0].device.type == "meta"
    assert moved["x"][1] is None
    assert moved["y"] == 3


def test_examples_of_several_lengths_are_padded():
    examples = [
        {"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "labels": [1, 0, 1]},
        {"input_ids": [8], "attention_mask": [1], "labels": [2]},
    ]
    (batch,) = batches(examples, 2)
    assert batch.inputs["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.labels.tolist() == [[1, 0, 1], [2, -100, -100]]  # -100: what PyTorch's losses leave out


def test_a_list_of_batches_of_transformers_is_not_one_of_examples():
    ids = torch.arange(24).reshape(4, 6)
    listed = [{"input_ids": part, "labels": torch.zeros(2)} for part in ids.split(2)]
    read = [batch.inputs["input_ids"] for batch in input_batches(nn.Linear(1, 1), listed)]
    assert [part.shape for part in read] == [(2, 6), (2, 6)]
    rows = [{"input_ids": row, "labels": 0} for row in ids]  # examples, as before
    assert [batch.inputs["input_ids"].shape for batch in input_batches(nn.Linear(1, 1), rows)] == [(4, 6)]


@pytest.mark.parametrize("layer", [nn.Linear(2, 2), nn.Conv1d(2, 2, 1)])
def test_inputs_of_another_precision_are_named(layer):
    with pytest.raises(ValueError, match="inputs: expected torch.float32, as the weights of .*, got torch.float64"):
        call_model(layer, torch.zeros(1, 2, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"inputs: expected .*, as the weights of .*, got torch.uint8 \(scale"):
        call_model(layer, torch.zeros(1, 2, 2, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="indices"):
        call_model(nn.Embedding(2, 2), torch.zeros(1, dtype=torch.int8))
    with pytest.raises(RuntimeError, match="shape|channels"):
        call_model(layer, torch.zeros(1, 3, 3))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Linear(64, 2), (5, 8, 8)),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), (64,)),
        (nn.Conv2d(1, 2, 3), (5, 64)),
    ],
)
def test_inputs_of_another_shape_are_named_beside_the_error(model, shape):
    name = type(model).__name__
    expected = rf"inputs: expected what {name} takes, .* got torch.float32 {re.escape(str(shape))} \("
    with pytest.raises((RuntimeError, IndexError), match=expected) as raised:
        call_model(model, torch.zeros(shape))
    assert str(raised.value.__cause__) in str(raised.value)


@pytest.mark.parametrize("call", [cgp.assess, cgp.calibrate, cgp.with_held_out])
def test_labels_as_an_argument_of_their_own_are_refused(call):
    """As scikit-learn takes them: the message has the form of the batches."""
    x, y = torch.zeros(5, 2), torch.zeros(5).long()
    words = rf"data: .* got inputs and labels apart: cgp.{call.__name__}\(model, \[\(inputs, labels\)\]\)"
    with pytest.raises(TypeError, match=words):
        call(nn.Linear(2, 2), x, y)
    if call is not cgp.with_held_out:
        with pytest.raises(TypeError, match=words):
            call(nn.Linear(2, 2), x, labels=y)
        with pytest.raises(TypeError, match=f"^{call.__name__}: unexpected argument 'trian'; did you mean 'train'.$"):
            call(nn.Linear(2, 2), [(x, y)], trian=[(x, y)])


class KeptCache:
    """A cache that keeps its layers by name, in a dict of lists."""

    def __init__(self):
        self.layers = {"keys": [torch.zeros(2)], "count": 1}


def test_a_copy_of_a_cache_has_its_own_dicts_and_tensors():
    cache = KeptCache()
    copied = with_own_caches({"past_key_values": cache})["past_key_values"]
    copied.layers["keys"][0].add_(1.0)
    copied.layers["keys"].append(torch.ones(2))
    copied.layers["count"] = 2
    assert len(cache.layers["keys"]) == 1
    assert not cache.layers["keys"][0].any()
    assert cache.layers["count"] == 1
