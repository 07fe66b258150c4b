"""Predictions: draws, files, variance of patches."""

import numpy as np
import pytest
import torch

from cgp.model.blocks import attention_blocks
from experiments.data import DIGITS_CORRUPTIONS, OOD_KINDS, digits_splits
from experiments.methods.build import build
from experiments.runs.prediction import (
    input_sets,
    load_predictions,
    predict_logits,
    predictive_variance,
    save_predictions,
)
from tests.experiments.tiny import CGP, DIGITS, EVALUATION, METHODS, MODEL, SOFTMAX, TRAINING

SPLITS = digits_splits(seed=0)
IMAGES = SPLITS.test.images[:300]


def model_of(method):
    """An untrained model."""
    shapes = {"description": DIGITS, "num_data": 1077}
    return build(method, model=MODEL, training=TRAINING, **shapes).model


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_shapes_and_seeds(method):
    model = model_of(method)
    logits = predict_logits(model, IMAGES, num_samples=3, seed=0)
    draws = 3 if method.attention in ("cgp", "sparse_cgp") else 1
    assert logits.shape == (draws, 300, 10)
    assert not model.training
    assert torch.equal(predict_logits(model, IMAGES, num_samples=3, seed=0), logits)
    if draws > 1:
        assert not torch.equal(logits[0], logits[1])
        assert not torch.equal(predict_logits(model, IMAGES, num_samples=3, seed=1), logits)


def test_prediction_leaves_generator_and_blocks_as_they_were():
    model = model_of(CGP)
    state = torch.get_rng_state()
    predict_logits(model, IMAGES, num_samples=2, seed=0)
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
    together = predict_logits(model, IMAGES[:4], num_samples=3000, seed=0)
    error = 5 * one_by_one.std(0) / 3000**0.5 * 2**0.5
    assert ((together.mean(0) - one_by_one.mean(0)).abs() < error).all()
    torch.testing.assert_close(together.std(0), one_by_one.std(0), rtol=0.1, atol=0)


def test_variance_of_patches_is_that_of_the_blocks():
    model = model_of(CGP)
    variance = predictive_variance(model, IMAGES[:5])
    assert variance.shape == (1, 5, 4)
    assert (variance > 0).all()
    transformer = model[1]
    with torch.no_grad():
        tokens = transformer.layers[0].attention_norm(transformer.embedding((IMAGES[:5] - 0.3) / 0.4))
        expected = transformer.layers[0].attention.posterior(tokens).variance  # (B, h, s, n)
    torch.testing.assert_close(variance[0], expected.mean((1, 2)), rtol=1e-4, atol=1e-5)
    assert predictive_variance(model_of(SOFTMAX), IMAGES[:5]) is None


def test_every_input_set_once():
    sets = list(input_sets(SPLITS, EVALUATION, seed=0))
    names = [inputs.name for inputs in sets]
    assert len(set(names)) == len(names) == 2 + len(DIGITS_CORRUPTIONS) + len(OOD_KINDS)
    assert all((inputs.labels is None) == inputs.name.startswith("ood") for inputs in sets)
    assert all(len(inputs.images) == len(inputs.ids) == 360 for inputs in sets)


def test_saved_predictions_come_back(tmp_path):
    labelled, unlabelled = (
        next(s for s in input_sets(SPLITS, EVALUATION, 0) if s.name == n) for n in ("test", "ood-inverted")
    )
    logits = torch.randn(2, 360, 10)
    save_predictions(tmp_path / "test.npz", logits, labelled)
    back = load_predictions(tmp_path / "test.npz")
    assert back.logits.dtype == np.float32
    assert back.labels.dtype == back.ids.dtype == np.int64
    np.testing.assert_array_equal(back.logits, logits)
    np.testing.assert_array_equal(back.labels, labelled.labels)
    np.testing.assert_array_equal(back.ids, labelled.ids)
    save_predictions(tmp_path / "strange.npz", logits, unlabelled)
    assert load_predictions(tmp_path / "strange.npz").labels is None
