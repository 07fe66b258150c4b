"""Weights on disk: bitwise equal when read again, and an error if a bit differs."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cgp.weights import check_weights, load_weights, save_weights


class Tied(nn.Module):
    """Shared, scalar, empty, integer and low-precision tensors."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.randn((), dtype=torch.bfloat16))
        self.register_buffer("count", torch.arange(3))
        self.register_buffer("nothing", torch.zeros(0, 4))


def test_weights_come_back_to_the_bit(tmp_path):
    model, other = Tied(), Tied()
    save_weights(model, tmp_path / "weights")
    load_weights(other, tmp_path / "weights")
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)


def test_every_flipped_bit_is_refused(tmp_path):
    """Of header and tensors, one after another."""
    torch.manual_seed(0)
    file = tmp_path / "weights"
    save_weights(nn.Linear(2, 1), file)
    content = file.read_bytes()
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="expected weights"):
            check_weights(file)


def test_a_damaged_file_leaves_the_model_as_it_was(tmp_path):
    model, file = nn.Linear(4, 4), tmp_path / "weights"
    save_weights(nn.Linear(4, 4), file)
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    before = model.weight.clone()
    with pytest.raises(ValueError, match="its checksum is another"):
        load_weights(model, file)
    assert torch.equal(model.weight, before)


def test_what_is_not_there_or_has_no_checksum(tmp_path):
    with pytest.raises(FileNotFoundError):
        check_weights(tmp_path / "nothing")
    save_file({"weight": torch.zeros(2)}, tmp_path / "old")
    with pytest.raises(ValueError, match="expected weights with a checksum"):
        check_weights(tmp_path / "old")
