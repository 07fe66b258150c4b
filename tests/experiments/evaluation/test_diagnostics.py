"""Diagnostics of a run against numpy, input by input."""

import numpy as np
import pytest
import torch

from experiments.data import load
from experiments.evaluation.diagnostics import attention_similarity, collapse_of_runs
from experiments.methods.build import network
from experiments.runs.parsing import resolve


def built(row, values):
    """An untrained model of a row with its test part."""
    experiment = resolve([row], [*values, "data.limit_test=8"])
    splits = load(experiment.data, 0)
    return network(experiment, splits.description).eval(), splits.test


def cosine(tokens):
    """Mean over ordered pairs of different tokens, by numpy."""
    unit = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    gram = unit @ unit.T
    return gram[~np.eye(len(unit), dtype=bool)].mean()


def by_hand(transformer, inputs):
    """Every input alone, through the parts of the transformer one after the other."""
    similarities = []
    for tokens in inputs:
        vectors = []
        for layer in transformer.layers:
            out = layer.attention(layer.attention_norm(tokens))
            tokens = tokens + out
            tokens = tokens + layer.mlp(layer.mlp_norm(tokens))
            vectors.append(cosine(out[0].double().numpy()))
        similarities.append(vectors)
    return np.mean(similarities, 0)


@pytest.mark.parametrize("row", ["digits/cgpt", "digits/kep_svgp"])
@torch.no_grad()
def test_images_against_numpy(row, stand_ins):
    model, test = built(row, stand_ins)
    normalisation, transformer = model
    inputs = [transformer.embedding(normalisation(image[None])) for image in test.inputs]
    np.testing.assert_allclose(attention_similarity(model, test), by_hand(transformer, inputs), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("row", ["cola/softmax", "cola/scgp_direct"])
@torch.no_grad()
def test_texts_count_with_their_own_tokens_alone(row, stand_ins):
    model, test = built(row, stand_ins)
    pairs = zip(test.inputs["tokens"], test.inputs["padding_mask"], strict=True)
    inputs = [model.embedding(tokens[None, ~padding]) for tokens, padding in pairs]
    np.testing.assert_allclose(attention_similarity(model, test), by_hand(model, inputs), rtol=2e-3, atol=2e-4)


def test_keys_that_travel_are_looked_at_and_inputs_all_over_the_test_part(stand_ins):
    for row in ("cola/sgpa", "digits/softmax"):
        model, test = built(row, stand_ins)
        few, chosen = attention_similarity(model, test, count=2), test.chosen(torch.tensor([0, 4]))
        np.testing.assert_allclose(few, attention_similarity(model, chosen), rtol=1e-5)


def test_layers_are_named_and_runs_averaged(tmp_path):
    first, second, third = paths = [tmp_path / f"{number}.npz" for number in range(3)]
    assert collapse_of_runs(paths) is None
    np.savez(first, token_similarity=[1.0, 1.0])
    assert collapse_of_runs(paths) is None
    np.savez(second, attention_similarity=[1.0, 0.999])
    assert collapse_of_runs(paths).endswith("in layers 1, 2")
    np.savez(third, attention_similarity=[0.999, 0.5])
    assert collapse_of_runs(paths).endswith("in layer 1")
    np.savez(third, attention_similarity=[float("nan"), 0.2])
    assert collapse_of_runs(paths) is None
