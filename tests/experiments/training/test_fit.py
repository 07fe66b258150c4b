"""Training: resumed equals uninterrupted, the best epoch is kept, α rises."""

import csv
import dataclasses

import numpy as np
import pytest
import torch

from cgp.model.blocks import attention_blocks
from experiments.configuration import DataConfig
from experiments.data import batch, load
from experiments.methods.build import build
from experiments.training import fit
from experiments.training.fit import QUIET
from tests.experiments.tiny import CGP, DIGITS, MODEL, SOFTMAX, TRAINING

SPLITS = load(DataConfig(), seed=0)


def module_of(method, training):
    """A module with a fixed start."""
    torch.manual_seed(3)
    return build(
        method,
        model=MODEL,
        training=training,
        description=DIGITS,
        num_data=1077,
    )


def epochs(number):
    """The tiny training with another number of epochs."""
    return dataclasses.replace(TRAINING, epochs=number)


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("method", [SOFTMAX, CGP], ids=["softmax", "cgp"])
@pytest.mark.parametrize("batches_before", [4, 5])  # two an epoch: at an epoch's end, and within one
def test_resumed_equals_uninterrupted(tmp_path, monkeypatch, method, batches_before):
    whole = module_of(method, epochs(4))
    expected = fit(whole, SPLITS, training=epochs(4), seed=1, folder=tmp_path / "whole")

    broken = module_of(method, epochs(4))
    steps = iter(range(100))
    step = broken.training_step

    def dies(batch, batch_idx):
        if next(steps) == batches_before:
            raise KilledError
        return step(batch, batch_idx)

    monkeypatch.setattr(broken, "training_step", dies)
    with pytest.raises(KilledError):
        fit(broken, SPLITS, training=epochs(4), seed=1, folder=tmp_path / "broken")

    torch.rand(5)
    resumed = module_of(method, epochs(4))
    with torch.no_grad():
        for parameter in resumed.parameters():
            parameter.zero_()  # all that matters comes from the checkpoint
    summary = fit(resumed, SPLITS, training=epochs(4), seed=1, folder=tmp_path / "broken")

    last = [torch.load(tmp_path / name / "last.ckpt", weights_only=True)["state_dict"] for name in ("whole", "broken")]
    assert all(torch.equal(last[0][key], last[1][key]) for key in last[0])
    assert summary.best_epoch == expected.best_epoch
    assert summary.validation_nll == expected.validation_nll
    assert [row["epoch"] for row in summary.history] == [0, 1, 2, 3]


def test_seed_decides_the_weights(tmp_path):
    weights = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        module = module_of(CGP, TRAINING)
        fit(module, SPLITS, training=TRAINING, seed=seed, folder=tmp_path / folder)
        weights.append(torch.cat([parameter.flatten() for parameter in module.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_keeps_the_epoch_of_the_best_validation_nll(tmp_path):
    wild = dataclasses.replace(SOFTMAX, learning_rate=1.0)
    rising = dataclasses.replace(epochs(6), warmup_epochs=6)  # ends at the learning rate that does most harm
    module = module_of(wild, rising)
    reported = []
    summary = fit(module, SPLITS, training=rising, seed=1, folder=tmp_path, report=reported.append)
    scores = [row["validation_nll"] for row in summary.history]
    assert summary.validation_nll == min(scores)
    assert summary.best_epoch == scores.index(min(scores))
    assert summary.best_epoch < 5  # else the next line says nothing
    with torch.no_grad():
        logits = module.eval().model(batch(SPLITS.validation, slice(None))[0])
    nll = torch.nn.functional.cross_entropy(logits, SPLITS.validation.labels).item()
    assert nll == pytest.approx(summary.validation_nll, abs=1e-5)
    assert reported == [1, 2, 3, 4, 5, 6]
    kept = {name: torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["epoch"] for name in ("best", "last")}
    assert kept == {"best": summary.best_epoch, "last": 5}  # killed after a worse epoch, that epoch is not lost
    assert all(row["seconds"] > 0 for row in summary.history)


def test_alpha_rises_to_its_value_over_the_first_half(tmp_path, monkeypatch):
    module = module_of(CGP, epochs(4))
    seen = []
    step = module.training_step

    def watched(batch, batch_idx):
        seen.append(float(module.objective.alpha))
        return step(batch, batch_idx)

    monkeypatch.setattr(module, "training_step", watched)
    fit(module, SPLITS, training=epochs(4), seed=1, folder=tmp_path)
    assert seen == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.1])


def test_beta_rises_from_the_start(tmp_path, monkeypatch):
    module = module_of(dataclasses.replace(CGP, annealing=0.5), epochs(4))
    seen = []
    parts = module.objective.parts

    def watched(inputs, labels):
        seen.append((float(module.objective.beta), attention_blocks(module.model)[0].sampling))
        return parts(inputs, labels)

    monkeypatch.setattr(module.objective, "parts", watched)
    fit(module, SPLITS, training=epochs(4), seed=1, folder=tmp_path)
    assert [beta for beta, _ in seen] == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0])
    assert {how for _, how in seen} == {"marginal"}


def test_the_gradient_is_clipped_at_its_norm(tmp_path, monkeypatch):
    norms = []
    clip = torch.nn.utils.clip_grad_norm_

    def watched(parameters, max_norm, *more, **options):
        parameters = list(parameters)
        found = clip(parameters, max_norm, *more, **options)
        after = torch.stack([parameter.grad.norm() for parameter in parameters if parameter.grad is not None]).norm()
        norms.append((float(found), float(after)))
        return found

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", watched)
    tight = dataclasses.replace(epochs(1), gradient_clip=0.01)
    fit(module_of(SOFTMAX, tight), SPLITS, training=tight, seed=1, folder=tmp_path / "tight")
    assert len(norms) == 2
    assert all(before > 0.01 for before, _ in norms)
    assert [after for _, after in norms] == pytest.approx([0.01, 0.01], rel=1e-3)
    loose = dataclasses.replace(epochs(1), gradient_clip=None)
    fit(module_of(SOFTMAX, loose), SPLITS, training=loose, seed=1, folder=tmp_path / "loose")
    assert len(norms) == 2


def test_half_precision_leaves_the_process_algebra_in_single(tmp_path, monkeypatch):
    module = module_of(CGP, epochs(1))
    block = attention_blocks(module.model)[0]
    seen = {}

    def projected(layer, args, output):
        seen["projection"] = output.dtype

    def merged(heads, dtype, merge=block.merge):
        seen["heads"] = heads.dtype
        return merge(heads, dtype)

    block.in_proj.register_forward_hook(projected)
    monkeypatch.setattr(block, "merge", merged)
    half = dataclasses.replace(QUIET, precision="bf16-mixed")
    summary = fit(module, SPLITS, training=epochs(1), seed=1, folder=tmp_path, trainer=half)
    assert np.isfinite(summary.validation_nll)
    assert seen == {"projection": torch.bfloat16, "heads": torch.float32}


def test_logs_are_written_for_a_spreadsheet_and_for_tensorboard(tmp_path):
    logged = dataclasses.replace(QUIET, logs=True)
    summary = fit(
        module_of(SOFTMAX, epochs(2)),
        SPLITS,
        training=epochs(2),
        seed=1,
        folder=tmp_path / "kept",
        trainer=logged,
        logs=tmp_path / "logs",
    )
    (table,) = (tmp_path / "logs").rglob("metrics.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    written = [float(row["validation_nll"]) for row in rows if row["validation_nll"]]
    assert written == pytest.approx([row["validation_nll"] for row in summary.history])
    assert list((tmp_path / "logs").rglob("events.out.tfevents*"))


def test_unknown_option_of_an_attention_is_named():
    wrong = dataclasses.replace(CGP, options={"inducing": 3})
    with pytest.raises(ValueError, match="options of CGP: .*'inducing'"):
        module_of(wrong, TRAINING)
