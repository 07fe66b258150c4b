"""Checkpoints: complete or absent, checked when read, the previous one kept."""

import os
import random

import pytest
import torch

from experiments.training.checkpoints import AtomicCheckpoints, read_checkpoint, sound_checkpoint

STATE = {"epoch": 3, "state_dict": {"weight": torch.arange(2000.0)}}


@pytest.fixture
def folder(tmp_path):
    """Two checkpoints, one after the other."""
    for epoch in (2, 3):
        AtomicCheckpoints().save_checkpoint(STATE | {"epoch": epoch}, tmp_path / "last.ckpt")
    return tmp_path


def test_the_one_before_is_kept(folder):
    assert {path.name for path in folder.iterdir()} == {"last.ckpt", "previous.ckpt"}
    epochs_kept = [read_checkpoint(folder / f"{name}.ckpt")["epoch"] for name in ("previous", "last")]
    assert epochs_kept == [2, 3]
    assert sound_checkpoint(folder) == folder / "last.ckpt"
    assert sound_checkpoint(folder / "empty") is None


def test_flipped_bytes_are_noticed(folder):
    """PyTorch itself reads most of them as if nothing were."""
    path, generator = folder / "last.ckpt", random.Random(0)
    whole = path.read_bytes()
    first = whole.index(b"\x00\x00\x80?\x00\x00\x00@")  # 1.0, 2.0: within the weights
    for place in generator.sample(range(first, first + 7000), 50):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="last.ckpt: expected a checkpoint, got a damaged file"):
            read_checkpoint(path)
        assert sound_checkpoint(folder) == folder / "previous.ckpt"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_what_is_cut_off_is_noticed(folder, share):
    for name in ("last.ckpt", "previous.ckpt"):
        path = folder / name
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(ValueError, match="last.ckpt: expected a checkpoint, got a damaged file; remove"):
        sound_checkpoint(folder)


class Harmful:
    """What a pickle runs when it is read."""

    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_a_pickle_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"epoch": Harmful()}, "last.ckpt")
    with pytest.raises(ValueError, match="expected a checkpoint, got a damaged file"):
        sound_checkpoint(tmp_path)
    assert not (tmp_path / "harm").exists()


def test_a_failed_write_keeps_the_previous_file(folder, monkeypatch):
    before = {path: path.read_bytes() for path in folder.iterdir()}

    def full(path, content):
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(type(folder), "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        AtomicCheckpoints().save_checkpoint(STATE, folder / "last.ckpt")
    assert set(folder.iterdir()) == set(before)
    assert (folder / "last.ckpt").read_bytes() == before[folder / "last.ckpt"]
