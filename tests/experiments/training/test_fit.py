"""Training: resumed equals uninterrupted, the best epoch is kept, α increases."""

import dataclasses
import os
import random
import shutil

import numpy as np
import pytest
import torch

from cgp.networks.model.blocks import attention_blocks
from experiments.configuration import DataConfig
from experiments.data import batch, load
from experiments.methods.build import build
from experiments.training import fit
from experiments.training.fit import QUIET, AtomicCheckpoints, read_checkpoint, sound_checkpoint
from tests.experiments.tiny import CGP, DIGITS, SOFTMAX, TRAINING, configured

SPLITS = load(DataConfig(), seed=0)
METHODS = {"softmax": SOFTMAX, "cgp": CGP}


def module_of(method, epochs=4, **values):
    """A module with a fixed start."""
    torch.manual_seed(3)
    return build(configured(method, dataclasses.replace(TRAINING, epochs=epochs, **values)), DIGITS, 1077)


def fitted(module, folder, *, seed=1, **options):
    """Train a module as it was built for."""
    return fit(module, SPLITS, training=module.training_config, seed=seed, folder=folder, **options)


def weights_of(folder):
    return read_checkpoint(folder / "last.ckpt")["state_dict"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folders and summaries of uninterrupted trainings of four epochs."""
    runs = {}
    for name, method in METHODS.items():
        folder = tmp_path_factory.mktemp(name)
        runs[name] = folder, fitted(module_of(method), folder)
    return runs


def assert_equals_uninterrupted(whole, folder, summary):
    expected_folder, expected = whole
    weights, other = weights_of(expected_folder), weights_of(folder)
    assert all(torch.equal(weights[key], other[key]) for key in weights)
    assert summary.best_epoch == expected.best_epoch
    assert summary.validation_nll == expected.validation_nll
    assert [row["epoch"] for row in summary.history] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("batches_before", [4, 5])  # two an epoch: at an epoch's end, and within one
def test_resumed_equals_uninterrupted(whole, tmp_path, monkeypatch, name, batches_before):
    broken = module_of(METHODS[name])
    steps = iter(range(100))
    step = broken.training_step

    def dies(batch, batch_idx):
        if next(steps) == batches_before:
            raise RuntimeError("killed")
        return step(batch, batch_idx)

    monkeypatch.setattr(broken, "training_step", dies)
    with pytest.raises(RuntimeError, match="killed"):
        fitted(broken, tmp_path)
    torch.rand(5)
    resumed = module_of(METHODS[name])
    with torch.no_grad():
        for parameter in resumed.parameters():
            parameter.zero_()  # all that matters comes from the checkpoint
    assert_equals_uninterrupted(whole[name], tmp_path, fitted(resumed, tmp_path))


def test_a_damaged_last_checkpoint_leaves_the_one_before(whole, tmp_path):
    shutil.copytree(whole["softmax"][0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "last.ckpt").write_bytes(b"PK")
    assert_equals_uninterrupted(whole["softmax"], tmp_path, fitted(module_of(SOFTMAX), tmp_path))
    best = tmp_path / "best.ckpt"
    best.write_bytes(best.read_bytes()[:3000])
    with pytest.raises(ValueError, match="best.ckpt: expected a checkpoint, got a damaged file; remove"):
        fitted(module_of(SOFTMAX), tmp_path)


def test_seed_decides_the_weights(whole, tmp_path):
    fitted(module_of(SOFTMAX), tmp_path, seed=2)
    weights, other = weights_of(whole["softmax"][0]), weights_of(tmp_path)
    assert not any(torch.equal(weights[key], other[key]) for key in weights if key.endswith("in_proj.weight"))


def test_keeps_the_epoch_of_the_best_validation_nll(tmp_path):
    wild = dataclasses.replace(SOFTMAX, learning_rate=1.0)
    # ends at the learning rate that does most harm
    module = module_of(wild, epochs=6, warmup_epochs=6)
    summary = fitted(module, tmp_path)
    scores = [row["validation_nll"] for row in summary.history]
    assert summary.validation_nll == min(scores)
    assert summary.best_epoch == scores.index(min(scores))
    assert summary.best_epoch < 5  # else the next line says nothing
    with torch.no_grad():
        logits = module.eval().model(batch(SPLITS.validation, slice(None))[0])
    nll = torch.nn.functional.cross_entropy(logits, SPLITS.validation.labels).item()
    assert nll == pytest.approx(summary.validation_nll, abs=1e-5)
    kept = {name: read_checkpoint(tmp_path / f"{name}.ckpt")["epoch"] for name in ("best", "last")}
    assert kept == {"best": summary.best_epoch, "last": 5}  # killed after a worse epoch, that epoch is not lost
    assert all(row["seconds"] > 0 for row in summary.history)


def test_keeps_the_last_epoch_if_configured(tmp_path):
    wild = dataclasses.replace(SOFTMAX, learning_rate=1.0)
    summary = fitted(module_of(wild, 6, warmup_epochs=6, monitor="epoch"), tmp_path)
    scores = [row["validation_nll"] for row in summary.history]
    assert summary.best_epoch == read_checkpoint(tmp_path / "best.ckpt")["epoch"] == 5
    assert summary.validation_nll == scores[-1] > min(scores)


def test_alpha_and_beta_rise_over_the_first_half(tmp_path, monkeypatch):
    module = module_of(dataclasses.replace(CGP, annealing=0.5))
    seen = []
    parts = module.objective.parts

    def watched(inputs, labels):
        seen.append((float(module.objective.alpha), float(module.objective.beta)))
        assert attention_blocks(module.model)[0].sampling == "marginal"
        return parts(inputs, labels)

    monkeypatch.setattr(module.objective, "parts", watched)
    fitted(module, tmp_path)
    alphas, betas = zip(*seen, strict=True)
    assert alphas == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.1])
    assert betas == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0])


def test_half_precision_leaves_the_process_algebra_in_single(tmp_path, monkeypatch):
    module = module_of(CGP, epochs=1)
    block = attention_blocks(module.model)[0]
    seen = {}

    def projected(layer, args, output):
        seen["projection"] = output.dtype

    def merged(heads, dtype, merge=block.merge):
        seen["heads"] = heads.dtype
        return merge(heads, dtype)

    block.in_proj.register_forward_hook(projected)
    monkeypatch.setattr(block, "merge", merged)
    summary = fitted(module, tmp_path, trainer=dataclasses.replace(QUIET, precision="bf16-mixed"))
    assert np.isfinite(summary.validation_nll)
    assert seen == {"projection": torch.bfloat16, "heads": torch.float32}


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
