"""Examples in memory, and batches of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.data import DataSplits, Examples, InputSet, batch
from experiments.data.examples import DataDescription


def texts(lengths, width=None):
    padding = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
    tokens = torch.randint(2, 50, padding.shape).masked_fill(padding, 0)
    if width is not None:
        tokens = torch.randn(*padding.shape, width).half().masked_fill(padding[..., None], 0)
    inputs = {"tokens": tokens, "padding_mask": padding}
    return Examples(inputs, torch.zeros(len(lengths), dtype=torch.long), torch.arange(len(lengths)))


def images(count):
    pixels = torch.randint(0, 256, (count, 3, 4, 4), dtype=torch.uint8)
    return Examples(pixels, torch.arange(count) % 2, torch.arange(count) + 100)


def test_bytes_become_floats_a_batch_at_a_time_and_floats_stay():
    examples = images(5)
    inputs, labels = batch(examples, torch.tensor([4, 1]))
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, examples.inputs[[4, 1]].double().div(255).float())
    assert labels.tolist() == [0, 1]
    assert examples.inputs.dtype == torch.uint8
    torch.testing.assert_close(batch(examples, slice(1, 4)), batch(examples, torch.tensor([1, 2, 3])))
    noise = InputSet(torch.rand(3, 1, 2, 2), None, torch.arange(3), "ood-noise")
    inputs, labels = batch(noise, torch.tensor([2, 0]))
    assert torch.equal(inputs, noise.inputs[[2, 0]])
    assert labels is None


@given(
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=8),
    width=st.sampled_from([None, 6]),
    data=st.data(),
)
def test_padding_is_trimmed_to_the_longest_and_no_token_lost(lengths, width, data):
    examples = texts(lengths, width)
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=5))
    inputs, _ = batch(examples, torch.tensor(chosen))
    tokens, padding = inputs["tokens"], inputs["padding_mask"]
    assert tokens.shape[:2] == padding.shape == (len(chosen), max(lengths[i] for i in chosen))
    assert tokens.dtype == (torch.int64 if width is None else torch.float32)
    for row, place in enumerate(chosen):
        whole = examples.inputs["tokens"][place, : lengths[place]]
        assert torch.equal(tokens[row][~padding[row]], whole.to(tokens.dtype))


def test_inputs_labels_and_ids_are_chosen_and_moved_together():
    chosen = images(6).chosen(torch.tensor([5, 0]))
    assert chosen.ids.tolist() == [105, 100]
    assert len(chosen) == len(chosen.inputs) == 2
    assert torch.equal(texts([3, 1]).chosen(torch.tensor([1])).inputs["padding_mask"], torch.tensor([[0, 1, 1]]).bool())
    splits = DataSplits(*(images(3) for _ in range(3)), DataDescription("image", 2), {"out-of-domain": texts([2, 1])})
    moved = splits.to("meta")
    assert moved.train.inputs.device.type == moved.test.ids.device.type == "meta"
    assert moved.others["out-of-domain"].inputs["tokens"].device.type == "meta"
    assert moved.description == splits.description


def test_refuses_lengths_that_differ():
    with pytest.raises(ValueError, match="inputs, labels, ids: expected one length, got .*'labels': 2"):
        Examples(torch.zeros(3, 1, 2, 2), torch.zeros(2), torch.zeros(3))
    with pytest.raises(ValueError, match="expected one length"):
        InputSet(torch.zeros(3, 1, 2, 2), None, torch.zeros(2), "test")


@pytest.mark.parametrize("name", ["ood-\u202egnp.exe", "images-a\nb", "ood-\x1b[2J"])
def test_refuses_names_with_signs_that_do_not_print(name):
    with pytest.raises(ValueError, match="name: expected signs that print, got"):
        InputSet(torch.zeros(1, 1, 2, 2), None, torch.arange(1), name)
