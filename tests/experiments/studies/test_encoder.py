"""The encoder's upper layers against the encoder itself, and the paired differences of the tables."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch.testing import assert_close
from transformers import BertConfig, BertModel

from cgp.assessment.detectors import Mahalanobis
from cgp.model.blocks import draws, sampling
from experiments.studies import encoder
from experiments.studies.encoder import ROWS, States, own_parameters, upper


@pytest.fixture
def host():
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 32, "num_hidden_layers": 3}
    return BertModel(BertConfig(vocab_size=40, initializer_range=0.3, **sizes)).eval()


@pytest.fixture
def sample(host):
    """States above the first layer of two sentences, the second one shorter."""
    tokens, padding = torch.randint(40, (2, 12)), torch.zeros(2, 12, dtype=torch.bool)
    padding[1, 8:] = True
    with torch.no_grad():
        found = host(input_ids=tokens, attention_mask=(~padding).long(), output_hidden_states=True)
    return found, {"states": found.hidden_states[1], "padding": padding}


def network(host, row, sample, replaced=1):
    return upper(host, row, replaced, 2, sample, 5).eval()


@pytest.mark.parametrize("row", ["softmax", "cgp_softmax"])
def test_logits_are_those_of_the_hosts_representation(host, sample, row):
    whole, inputs = sample
    model = network(host, row, inputs, replaced=2)
    assert_close(model(**inputs), model.head(whole.pooler_output))


@pytest.mark.parametrize("row", [row for row in ROWS if row != "softmax"])
def test_every_attention_starts_at_the_hosts_scale(host, sample, row):
    _, inputs = sample
    softmax, other = (network(host, kind, inputs) for kind in ("softmax", row))
    x = softmax.layers[0](x=inputs["states"], padding=inputs["padding"], first=False)
    sizes = []
    for model in (softmax, other):
        block = model.layers[-1].block
        attended = block(x, key_padding_mask=inputs["padding"]) - block.out_proj.bias
        sizes.append(attended[~inputs["padding"]].square().mean().sqrt())
    assert_close(sizes[1], sizes[0])


@pytest.mark.parametrize("row", ["sgpa", "kep_svgp", "sparse_cgp", "cgp_softmax"])
def test_draws_differ_and_padding_changes_nothing(host, sample, row):
    _, inputs = sample
    model = network(host, row, inputs, replaced=2)
    with sampling(model, "marginal"), draws(model, 3):
        logits = model(**inputs)
    assert logits.shape == (3, 2, 5)
    assert logits.std(0).min() > 0
    cut = {"states": inputs["states"][1:, :8], "padding": inputs["padding"][1:, :8]}
    assert_close(model(**inputs)[1:], model(**cut))


def test_own_parameters_are_those_that_the_host_has_not(host, sample):
    model = network(host, "sparse_cgp", sample[1])
    names = {name for name, p in model.named_parameters() if any(p is own for own in own_parameters(model))}
    assert names == {"head.weight", "head.bias", "layers.1.block.inducing_points"}


def test_batches_hold_the_states_of_their_sentences():
    lengths = torch.tensor([2, 3, 1])
    states = States(torch.arange(6.0).half()[:, None], lengths, torch.tensor([0, 1, -1]))
    batch = states.batch(torch.tensor([2, 1]))
    assert batch["states"][..., 0].tolist() == [[5, 0, 0], [2, 3, 4]]
    assert batch["padding"].tolist() == [[False, True, True], [False, False, False]]


def test_runs_are_trained_once_compared_and_assessed(host, tmp_path, monkeypatch, capsys):
    def part(count):
        lengths = torch.randint(3, 9, (count,))
        return States(torch.randn(int(lengths.sum()), 24).half(), lengths, torch.arange(count) % 4)

    parts = {"train": part(60), "val": part(20), "test": part(40), "oos_test": part(20)}
    monkeypatch.setattr(encoder, "NUM_INTENTS", 4)
    monkeypatch.setattr(encoder, "host", lambda: host)
    monkeypatch.setattr(encoder, "states", lambda *_: parts)
    for row, seed in (("softmax", 0), ("softmax", 1), ("sparse_cgp", 0), ("sparse_cgp", 0)):
        encoder.fit(row=row, data=tmp_path, out=tmp_path, seed=seed, epochs=1)
    assert capsys.readouterr().out.count("validation_nll") == 3
    encoder.table(out=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| softmax-1 ") for line in lines) == 9
    assert any(line.startswith("| last-layer Laplace + temperature | 2 |") for line in lines)
    assert any(line.startswith("| sparse_cgp-1 | epistemic | 1 |") for line in lines)
    encoder.assess(data=tmp_path, out=tmp_path)
    assert "out of scope" in capsys.readouterr().out.splitlines()[-1]


def test_detectors_are_those_of_an_assessment_by_hand():
    """Distance and energy are added in standard deviations over the validation sentences."""
    rng = np.random.default_rng(0)
    arrays = {f"{part}.logits": rng.normal(size=(3, 60, 4)) for part in encoder._PARTS}
    arrays |= {f"{part}.features": rng.normal(size=(60, 5)) for part in encoder._PARTS}
    arrays |= {f"{part}.labels": np.arange(60) % 4 for part in encoder._PARTS}
    inside, outside = encoder._detectors(arrays)["Mahalanobis + energy"]
    distance = Mahalanobis(arrays["train.features"], arrays["train.labels"])
    energy = {part: -logsumexp(arrays[f"{part}.logits"].mean(0), axis=-1) for part in encoder._PARTS}
    far = {part: distance(arrays[f"{part}.features"]) for part in encoder._PARTS}
    for part, scores in (("test", inside), ("oos_test", outside)):
        expected = sum((v[part] - v["val"].mean()) / v["val"].std() for v in (energy, far))
        np.testing.assert_allclose(scores, expected, rtol=1e-10)
    assert list(encoder._detectors(arrays))[:2] == ["1 - confidence", "energy"]
