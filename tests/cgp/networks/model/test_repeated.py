"""Held-out inputs that are in the training data again: found whatever their form, refused or counted."""

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from cgp import assess, calibrate, convert, from_pretrained, save_pretrained, with_held_out
from cgp.networks.model.inputs import Batch
from cgp.networks.model.repeated import check_apart, keep_keys, kept_keys, keys_of
from tests.cgp.networks.model.digits import digits

X, Y = digits()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def held_out(rows):
    return [(X[rows], Y[rows])]


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_training_data_that_hold_the_held_out_data_are_refused(share):
    """A read-out has seen their labels, and looks better by half a nat than it is."""
    held, seen = torch.arange(800, 1000), torch.cat([torch.arange(300), torch.arange(800, 800 + int(200 * share))])
    message = f"train: expected none of the held-out inputs, got {200 * share:.0f} of 200: leave them out of one"
    with pytest.raises(ValueError, match=message):
        assess(network(), held_out(held), train=held_out(seen), compare=["readout"])
    with pytest.raises(ValueError, match=message):
        calibrate(network(), held_out(held), method="readout", train=held_out(seen))


def test_few_repeated_inputs_are_said_and_none_is_not():
    held = torch.arange(800, 1000)
    with pytest.warns(UserWarning, match="train: expected none of the held-out inputs, got 3 of 200"):
        assess(network(), held_out(held), train=held_out(torch.arange(503, 803)), compare=["readout"])
    assert "temperature" in assess(network(), held_out(held), train=held_out(torch.arange(300)), compare=[]).scores


def test_other_inputs_that_are_held_out_ones_are_refused_by_name():
    held = held_out(torch.arange(800, 1000))
    with pytest.raises(ValueError, match=r"ood\['same'\]: expected none of the held-out inputs, got 50 of 150"):
        assess(network(), held, ood={"same": X[950:1100]})
    assert assess(network(), held, ood={"as they are": lambda x: x}, compare=[]).detection  # a transform may do nothing


HELD, TRAIN, FRESH = torch.arange(800, 1000), torch.arange(300), torch.arange(1000, 1200)


def attention():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (8, 8)), layer, nn.Flatten(), nn.Linear(64, 10)).eval()


FITTED = {
    "a temperature": lambda: calibrate(network(), held_out(HELD), method="temperature").model,
    "a posterior": lambda: calibrate(convert(attention()), [(X[HELD].flatten(1), Y[HELD])], num_samples=2).model,
    "a report": lambda: assess(network(), held_out(HELD), train=held_out(TRAIN), compare=["readout"]).apply(network()),
}


@pytest.mark.filterwarnings("error", "ignore:data. .* and no temperature")
@pytest.mark.parametrize("way", FITTED)
def test_labels_that_fitted_a_model_cannot_guarantee_its_answers(way, tmp_path):
    """Also after saving: a network that knows its training set by heart keeps to any risk on it, and to none later."""
    flat = (lambda data: [(x.flatten(1), y) for x, y in data]) if way == "a posterior" else (lambda data: data)
    host = attention if way == "a posterior" else network
    fitted = FITTED[way]()
    save_pretrained(fitted, tmp_path)
    for model in (fitted, from_pretrained(tmp_path, host())):
        for seen in (HELD, TRAIN) if way == "a report" else (HELD,):
            count = len(seen)
            with pytest.raises(
                ValueError, match=f"data: expected none of the inputs that .* fitted to, got {count} of {count}: take"
            ):
                with_held_out(model, iter(flat(held_out(seen))), 2)
        with pytest.warns(UserWarning, match="got 4 of 204: take others"):
            assert with_held_out(model, flat(held_out(torch.cat([HELD[:4], FRESH]))), 2)
        assert with_held_out(model, flat(held_out(FRESH)), 2)


def test_an_input_that_fitted_a_model_twice_has_no_twin_by_that():
    model, keys = network(), keys_of(Batch(X[HELD], None))
    for _ in range(2):
        keep_keys(model, keys)
    assert sorted(keys) == kept_keys(model).tolist()
    with pytest.raises(ValueError, match="got 200 of 200"):
        with_held_out(model, held_out(HELD))


def test_keys_are_the_same_in_every_process():
    keys = keys_of(Batch(torch.arange(4).view(2, 2), None))
    assert keys == [8118103383084794603, 2068279573001530991]  # blake2b of the bytes


def test_examples_are_known_whatever_the_batch_pads_them_to():
    """Masked tokens do not count, on either side; an adjacent token is another one."""

    def batch(rows, width, left=False):
        ids, mask = torch.full((len(rows), width), 1), torch.zeros(len(rows), width, dtype=torch.long)
        for i, row in enumerate(rows):
            place = slice(width - len(row), width) if left else slice(len(row))
            ids[i, place], mask[i, place] = torch.tensor(row), 1
        return keys_of(Batch({"input_ids": ids, "attention_mask": mask, "return_dict": True}, torch.zeros(len(rows))))

    known = batch([[5, 6, 7], [5, 6], [5, 8]], 3)
    assert len(set(known)) == 3
    assert batch([[5, 6], [5, 6, 7]], 9) == [known[1], known[0]]
    assert batch([[5, 8]], 4, left=True) == [known[2]]


def test_rounding_errors_of_another_batch_do_not_matter_and_digits_do():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(200, 40))).float()
    nudged = keys_of(Batch(x * (1 + 1e-6 * torch.randn(200, 40)), None))
    assert np.mean(np.array(nudged) == keys_of(Batch(x, None))) > 0.9
    assert not set(keys_of(Batch(x + 0.05 * torch.randn(200, 40), None))) & set(keys_of(Batch(x, None)))
    assert len(set(keys_of(Batch(torch.linspace(0, 1, 5000)[:, None], None)))) == 5000  # few numbers count exactly
    assert keys_of(Batch(-torch.zeros(1, 9), None)) == keys_of(Batch(torch.zeros(1, 9), None))


def test_what_has_no_tensor_with_a_row_for_each_example_has_no_keys():
    nodes, graph_labels = torch.randn(7, 3), torch.zeros(2)
    assert keys_of(Batch((nodes,), graph_labels)) == keys_of(Batch("text", None)) == []
    check_apart("train", [], [])


@pytest.mark.filterwarnings("error")
def test_inputs_that_are_alike_by_chance_are_not_taken_for_repeated_ones():
    """Draws of few values: nearly every one is among the others, in both sets."""
    rng, said = np.random.default_rng(0), 0
    for _ in range(200):
        try:
            check_apart("train", rng.zipf(1.3, 300).tolist(), rng.zipf(1.3, 2000).tolist())
        except (ValueError, UserWarning):
            said += 1
    assert said <= binom.ppf(0.999, 200, 0.05)


class Sentences(nn.Module):
    """A classifier of tokens that are given by name."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        return self.head((self.embed(input_ids) * attention_mask[..., None]).mean(1))


def test_dicts_of_transformers_are_compared_as_tensors_are():
    torch.manual_seed(0)

    def batch(rows):
        return {"input_ids": rows, "attention_mask": torch.ones_like(rows), "labels": rows[:, 0] % 3}

    rows = torch.randint(50, (120, 6))
    with pytest.raises(ValueError, match="train: expected none of the held-out inputs, got 60 of 60"):
        assess(Sentences(), [batch(rows[:60])], train=[batch(rows)])
