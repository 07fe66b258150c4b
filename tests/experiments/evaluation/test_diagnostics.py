"""Diagnostics of a run against numpy, input by input."""

import numpy as np
import pytest
import torch

from cgp.model.diagnostics import attention_matrix
from experiments.evaluation.diagnostics import collapse_of_runs, collapse_sentence, diagnose
from experiments.methods.build import network
from experiments.runs.parsing import resolve
from tests.experiments.runs import synthetic


def built(row, seed=0):
    """An untrained model of a row with its test part."""
    experiment = resolve([row])
    torch.manual_seed(seed)
    splits = synthetic.load(experiment.data, seed)
    sizes = {"model": experiment.model, "training": experiment.training, "description": splits.description}
    return network(experiment.method, **sizes).eval(), splits.test


def cosine(tokens):
    """Mean over ordered pairs of different tokens, by numpy."""
    unit = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    gram = unit @ unit.T
    return gram[~np.eye(len(unit), dtype=bool)].mean()


def by_hand(model, transformer, inputs):
    """Every input alone, through the parts of the transformer one after the other."""
    after, attended, spectra = [], [], []
    for embedded in inputs:
        tokens, own = embedded, ([], [], [])
        for layer in transformer.layers:
            reaching = layer.attention_norm(tokens)
            out = layer.attention(reaching)
            matrix = attention_matrix(layer.attention, reaching)[0].double().numpy()
            tokens = tokens + out
            tokens = tokens + layer.mlp(layer.mlp_norm(tokens))
            own[0].append(cosine(tokens[0].double().numpy()))
            own[1].append(cosine(out[0].double().numpy()))
            own[2].append(np.mean([np.sqrt(np.linalg.eigvalsh(m @ m.T).clip(0))[::-1] for m in matrix], axis=0))
        for found, one in zip((after, attended, spectra), own, strict=True):
            found.append(one)
    longest = max(len(s[0]) for s in spectra)
    padded = [[np.pad(s, (0, longest - len(s))) for s in one] for one in spectra]
    return np.mean(after, 0), np.mean(attended, 0), np.mean(padded, 0)


def check(found, expected):
    for name, values in zip(("token_similarity", "attention_similarity", "attention_spectrum"), expected, strict=True):
        np.testing.assert_allclose(found[name], values, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("row", ["digits/cgpt", "digits/kep_svgp"])
@torch.no_grad()
def test_images_against_numpy(row):
    model, test = built(row)
    normalisation, transformer = model
    inputs = [transformer.embedding(normalisation(image[None])) for image in test.inputs]
    check(diagnose(model, test), by_hand(model, transformer, inputs))


@pytest.mark.parametrize("row", ["cola/softmax", "cola/scgp_direct"])
@torch.no_grad()
def test_texts_count_with_their_own_tokens_alone(row):
    model, test = built(row)
    inputs = []
    for tokens, padding in zip(test.inputs["tokens"], test.inputs["padding_mask"], strict=True):
        inputs.append(model.embedding(tokens[None, ~padding]))
    found = diagnose(model, test)
    check(found, by_hand(model, model, inputs))
    lengths = (~test.inputs["padding_mask"]).sum(-1)
    assert found["attention_spectrum"].shape == (2, lengths.max())


def test_keys_that_travel_are_those_of_the_whole_model():
    """The spectrum does not depend on whether the keys were frozen, and nothing stays frozen."""
    model, test = built("cola/sgpa")
    block = model.model.layers[1].attention
    seen = []
    handle = block.register_forward_hook(
        lambda own, args, out: seen.append(attention_matrix(own, args[0])) if args[0].dim() == 3 else None
    )
    one = test.chosen(torch.tensor([0]))
    tokens = one.inputs["tokens"][:, ~one.inputs["padding_mask"][0]]
    with torch.no_grad():
        model(tokens=tokens, padding_mask=torch.zeros_like(tokens, dtype=torch.bool))
    handle.remove()
    expected = np.linalg.svd(seen[0][0].double().numpy(), compute_uv=False).mean(0)
    np.testing.assert_allclose(diagnose(model, one)["attention_spectrum"][1], expected, rtol=1e-3, atol=1e-5)
    assert not block.is_frozen


def test_it_looks_at_inputs_all_over_the_test_part():
    model, test = built("digits/softmax")
    few = diagnose(model, test, count=2)
    chosen = diagnose(model, test.chosen(torch.tensor([0, 4])))
    for name, values in few.items():
        np.testing.assert_allclose(values, chosen[name], rtol=1e-5)


def test_layers_are_named_and_runs_averaged(tmp_path):
    for similarity, where in (([0.9, 0.99], None), ([1.0], "layer 1"), ([0.999, 0.1, 1.0], "layers 1, 3")):
        words = collapse_sentence(similarity)
        assert words is None if where is None else words.endswith(f"in {where}")
    assert collapse_sentence([float("nan"), 0.2]) is None
    first, second, third = paths = [tmp_path / f"{number}.npz" for number in range(3)]
    assert collapse_of_runs(paths) is None
    np.savez(first, token_similarity=[1.0, 1.0])
    assert collapse_of_runs(paths) is None
    np.savez(second, attention_similarity=[1.0, 0.999])
    assert collapse_of_runs(paths).endswith("layers 1, 2")
    np.savez(third, attention_similarity=[0.999, 0.5])
    assert collapse_of_runs(paths).endswith("layer 1")
