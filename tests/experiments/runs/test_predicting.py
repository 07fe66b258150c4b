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
from tests.experiments.tiny import CGP, DIGITS, METHODS, MODEL, TRAINING

IMAGES = load(DataConfig(), 0).test.inputs[:300]


def model_of(method):
    """An untrained model."""
    return build(method, model=MODEL, training=TRAINING, description=DIGITS, num_data=1077).model


def predicted(model, images, *, num_samples, seed=0):
    return drawn_logits(model, images.split(256), num_samples=num_samples, seed=seed)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_shapes_and_seeds(method):
    model = model_of(method)
    logits = predicted(model, IMAGES, num_samples=3)
    draws = 3 if method.attention in ("cgp", "sparse_cgp") else 1
    assert logits.shape == (draws, 300, 10)
    assert not model.training
    assert torch.equal(predicted(model, IMAGES, num_samples=3), logits)
    if draws > 1:
        assert not torch.equal(logits[0], logits[1])
        assert not torch.equal(predicted(model, IMAGES, num_samples=3, seed=1), logits)


def test_prediction_leaves_generator_and_blocks_as_they_were():
    model = model_of(CGP)
    state = torch.get_rng_state()
    predicted(model, IMAGES, num_samples=2)
    assert torch.equal(torch.get_rng_state(), state)
    block = attention_blocks(model)[0]
    assert block.num_samples is None
    assert block.sampling == "mean"
    block.train()
    assert block.sampling == "marginal"


def test_draws_average_to_what_single_draws_average_to():
    model = model_of(CGP)
    with torch.no_grad():
        torch.manual_seed(0)
        blocks = attention_blocks(model.eval())
        blocks[0].sampling = "marginal"
        one_by_one = model(IMAGES[:4].expand(3000, -1, -1, -1, -1))
        blocks[0].sampling = None
    together = predicted(model, IMAGES[:4], num_samples=3000)
    error = 5 * one_by_one.std(0) / 3000**0.5 * 2**0.5
    assert ((together.mean(0) - one_by_one.mean(0)).abs() < error).all()
    torch.testing.assert_close(together.std(0), one_by_one.std(0), rtol=0.1, atol=0)


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
