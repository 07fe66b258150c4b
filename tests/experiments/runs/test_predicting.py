"""Draws and files of predictions."""

import numpy as np
import pytest
import torch

from cgp.model.blocks import attention_blocks
from experiments.configuration import DataConfig
from experiments.data import load
from experiments.methods.build import build
from experiments.runs.predicting import drawn_logits
from experiments.runs.prediction import Predictions, load_predictions, save_predictions
from tests.experiments.tiny import DIGITS, METHODS, MODEL, TRAINING

IMAGES = load(DataConfig(), 0).test.inputs[:300]


def predicted(model, images, *, num_samples, seed=0):
    return drawn_logits(model, images.split(256), num_samples=num_samples, seed=seed)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_draws_follow_the_seed_and_leave_generator_and_blocks_as_they_were(method):
    model = build(method, model=MODEL, training=TRAINING, description=DIGITS, num_data=1077).model
    state = torch.get_rng_state()
    logits = predicted(model, IMAGES, num_samples=3)
    assert torch.equal(torch.get_rng_state(), state)
    draws = 3 if method.attention in ("cgp", "sparse_cgp") else 1
    assert logits.shape == (draws, 300, 10)
    assert not model.training
    assert torch.equal(predicted(model, IMAGES, num_samples=3), logits)
    if draws > 1:
        assert not torch.equal(logits[0], logits[1])
        assert not torch.equal(predicted(model, IMAGES, num_samples=3, seed=1), logits)
        block = attention_blocks(model)[0]
        assert (block.num_samples, block.sampling) == (None, "mean")
        block.train()
        assert block.sampling == "marginal"


@pytest.mark.parametrize("labels", [torch.arange(36) % 10, None])
def test_saved_predictions_come_back(tmp_path, labels):
    logits = torch.randn(2, 36, 10)
    save_predictions(tmp_path / "test.npz", Predictions(logits, torch.arange(36), labels))
    back = load_predictions(tmp_path / "test.npz")
    assert (back.logits.dtype, back.ids.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(back.logits, logits)
    np.testing.assert_array_equal(back.ids, np.arange(36))
    assert back.labels is None if labels is None else (back.labels == labels.numpy()).all()


@pytest.mark.parametrize("shapes", [(2, 3), (2, 3, 4), (1, 5, 4)])
def test_something_else_is_refused(tmp_path, shapes):
    np.savez(tmp_path / "test.npz", logits=np.zeros(shapes), ids=np.arange(5), labels=np.arange(3))
    with pytest.raises(ValueError, match=r"test.npz: expected logits \(S, N, C\), ids \(N,\)"):
        load_predictions(tmp_path / "test.npz")
