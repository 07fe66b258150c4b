"""Examples in memory, and batches of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.data import DataDescription, DataSplits, Examples, InputSet, batch


def texts(lengths, width=None):
    longest = max(lengths)
    padding = torch.arange(longest) >= torch.tensor(lengths)[:, None]
    shape = padding.shape if width is None else (*padding.shape, width)
    tokens = torch.randint(2, 50, shape) if width is None else torch.randn(shape).half()
    mask = padding if width is None else padding[..., None]
    inputs = {"tokens": tokens.masked_fill(mask, 0), "padding_mask": padding}
    return Examples(inputs, torch.zeros(len(lengths), dtype=torch.long), torch.arange(len(lengths)))


def images(count):
    pixels = torch.randint(0, 256, (count, 3, 4, 4), dtype=torch.uint8)
    return Examples(pixels, torch.arange(count) % 2, torch.arange(count) + 100)


def test_bytes_become_floats_a_batch_at_a_time():
    examples = images(5)
    inputs, labels = batch(examples, torch.tensor([4, 1]))
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, examples.inputs[[4, 1]].double().div(255).float())
    assert labels.tolist() == [0, 1]
    assert examples.inputs.dtype == torch.uint8


def test_a_slice_cuts_what_its_positions_cut():
    examples = images(5)
    torch.testing.assert_close(batch(examples, slice(1, 4)), batch(examples, torch.tensor([1, 2, 3])))


def test_floats_stay_what_they_are():
    examples = InputSet(torch.rand(3, 1, 2, 2), None, torch.arange(3), "ood-noise")
    inputs, labels = batch(examples, torch.tensor([2, 0]))
    assert torch.equal(inputs, examples.inputs[[2, 0]])
    assert labels is None


@given(lengths=st.lists(st.integers(1, 9), min_size=2, max_size=8), data=st.data())
def test_padding_is_trimmed_to_the_longest_and_no_token_lost(lengths, data):
    examples = texts(lengths)
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=5))
    inputs, _ = batch(examples, torch.tensor(chosen))
    assert inputs["tokens"].shape == inputs["padding_mask"].shape == (len(chosen), max(lengths[i] for i in chosen))
    for row, place in enumerate(chosen):
        real = ~inputs["padding_mask"][row]
        assert real.sum() == lengths[place]
        whole = examples.inputs["tokens"][place]
        assert torch.equal(inputs["tokens"][row][real], whole[~examples.inputs["padding_mask"][place]])


def test_states_are_trimmed_and_become_single_precision():
    inputs, _ = batch(texts([3, 1, 2], width=6), torch.tensor([1, 2]))
    assert inputs["tokens"].shape == (2, 2, 6)
    assert inputs["tokens"].dtype == torch.float32


def test_chosen_keeps_inputs_labels_and_ids_together():
    chosen = images(6).chosen(torch.tensor([5, 0]))
    assert chosen.ids.tolist() == [105, 100]
    assert len(chosen) == len(chosen.inputs) == 2
    assert torch.equal(texts([3, 1]).chosen(torch.tensor([1])).inputs["padding_mask"], torch.tensor([[0, 1, 1]]).bool())


def test_everything_moves_to_a_device():
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
