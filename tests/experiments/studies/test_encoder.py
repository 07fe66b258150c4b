"""The encoder's upper layers against the encoder itself, and the paired differences of the tables."""

import copy

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch.testing import assert_close
from transformers import BertConfig, BertModel, BertTokenizer

from cgp.networks.detect.scores import Mahalanobis
from cgp.networks.model.blocks import draws, sampling
from experiments.configuration import TrainingConfig
from experiments.data import DataSplits, Examples
from experiments.data.contextual import contextual_states
from experiments.data.examples import DataDescription
from experiments.studies.encoder import network as lower
from experiments.studies.encoder import study
from experiments.studies.encoder.network import OUT_OF_SCOPE, ROWS, new_parameters, sentences, upper
from experiments.training.classification import build_optimizer, rate_schedule


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
        result = host(input_ids=tokens, attention_mask=(~padding).long(), output_hidden_states=True)
    return result, {"tokens": result.hidden_states[1], "padding_mask": padding}


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
    x = softmax.layers[0](x=inputs["tokens"], padding=inputs["padding_mask"], first=False)
    sizes = []
    for model in (softmax, other):
        block = model.layers[-1].block
        attended = block(x, key_padding_mask=inputs["padding_mask"]) - block.out_proj.bias
        sizes.append(attended[~inputs["padding_mask"]].square().mean().sqrt())
    assert_close(sizes[1], sizes[0])


@pytest.mark.parametrize("row", ["sgpa", "kep_svgp", "sparse_cgp", "cgp_softmax"])
def test_draws_differ_and_padding_changes_nothing(host, sample, row):
    _, inputs = sample
    model = network(host, row, inputs, replaced=2)
    with sampling(model, "marginal"), draws(model, 3):
        logits = model(**inputs)
    assert logits.shape == (3, 2, 5)
    assert logits.std(0).min() > 0
    cut = {"tokens": inputs["tokens"][1:, :8], "padding_mask": inputs["padding_mask"][1:, :8]}
    assert_close(model(**inputs)[1:], model(**cut))


def test_new_parameters_are_those_that_the_host_has_not(host, sample):
    model = network(host, "sparse_cgp", sample[1])
    names = {name for name, p in model.named_parameters() if any(p is new for new in new_parameters(model))}
    of_block = {f"layers.1.block.{name}" for name in ("inducing_points", "log_amplitude", "raw_noise")}
    assert names == {"head.weight", "head.bias"} | of_block


def splits_of(width):
    """Random states of short sentences of four intents."""

    def part(count):
        padding = torch.arange(9) >= torch.randint(3, 10, (count, 1))
        states = torch.randn(count, 9, width).masked_fill(padding[..., None], 0.0).half()
        return Examples({"tokens": states, "padding_mask": padding}, torch.arange(count) % 4, torch.arange(count))

    description = DataDescription(kind="text", num_classes=4, input_dim=width, max_length=9)
    return DataSplits(part(60), part(20), part(40), description, {OUT_OF_SCOPE: part(20)})


def test_runs_are_trained_once_compared_and_assessed(host, tmp_path, monkeypatch, capsys):
    splits = splits_of(24)
    monkeypatch.setattr(study, "host", lambda: host)
    monkeypatch.setattr(study, "sentences", lambda *_: splits)
    for row, seed in (("softmax", 0), ("softmax", 1), ("sparse_cgp", 0), ("sparse_cgp", 0)):
        study.fit(row=row, data=tmp_path, out=tmp_path, seed=seed, epochs=1)
    assert capsys.readouterr().out.count("validation NLL") == 3
    study.table(out=tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| softmax-1 ") for line in lines) == 9
    assert any(line.startswith("| last-layer Laplace + temperature | 2 |") for line in lines)
    assert any(line.startswith("| sparse_cgp-1 | epistemic | 1 |") for line in lines)
    study.assess(data=tmp_path, out=tmp_path)
    assert "out of scope" in capsys.readouterr().out.split("\n\n")[-2]


def test_new_parameters_learn_ten_times_as_fast(host, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(study, "host", lambda: host)
    monkeypatch.setattr(study, "sentences", lambda *_: splits_of(24))
    monkeypatch.setattr(study, "train", lambda module, *_, training, **__: seen.append((module, training)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        study.fit(row="sparse_cgp", data=tmp_path, out=tmp_path, learning_rate=2e-3)
    ((module, training),) = seen
    assert isinstance(training, TrainingConfig)
    optimizer = build_optimizer(module.groups, module.method, training)
    schedule = rate_schedule(optimizer, module.method, training, total=100)
    highest = [0.0, 0.0]
    for _ in range(99):
        optimizer.step()
        schedule.step()
        highest = [max(h, group["lr"]) for h, group in zip(highest, optimizer.param_groups, strict=True)]
    assert highest == pytest.approx([2e-3, 2e-2])
    assert [id(p) for p in optimizer.param_groups[1]["params"]] == [id(p) for p in new_parameters(module.model)]
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    assert count == len(list(module.model.parameters()))


def test_sentences_are_the_states_above_the_lower_layers(host, tmp_path, monkeypatch):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    tokenizer = BertTokenizer(vocab=str(tmp_path / "vocab.txt"))
    calls = []
    monkeypatch.setattr(lower, "host", lambda: copy.deepcopy(host))
    monkeypatch.setattr(lower, "encoder_folder", lambda _: tmp_path)
    monkeypatch.setattr(lower.AutoTokenizer, "from_pretrained", lambda _: tokenizer)
    monkeypatch.setattr(lower, "load", lambda config, seed: calls.append(config) or seed)
    assert sentences(tmp_path, tmp_path / "out", 1) == 0
    states, padding = contextual_states(["a b", "c"], encoder=calls[0].encoder, max_length=9, cache=tmp_path)
    with torch.no_grad():
        result = host(**tokenizer(["a b"], return_tensors="pt"), output_hidden_states=True)
    assert_close(states[0][~padding[0]].float(), result.hidden_states[1][0], atol=2e-3, rtol=2e-3)


def test_detectors_are_those_of_an_assessment_by_hand():
    """Distance and energy are added in standard deviations over the validation sentences."""
    rng = np.random.default_rng(0)
    arrays = {f"{part}.logits": rng.normal(size=(3, 60, 4)) for part in study._PARTS}
    arrays |= {f"{part}.features": rng.normal(size=(60, 5)) for part in study._PARTS}
    arrays |= {f"{part}.labels": np.arange(60) % 4 for part in study._PARTS}
    inside, outside = study._detectors(arrays)["Mahalanobis + energy"]
    distance = Mahalanobis.of_classes(arrays["train.features"], arrays["train.labels"])
    energy = {part: -logsumexp(arrays[f"{part}.logits"].mean(0), axis=-1) for part in study._PARTS}
    far = {part: distance.distances(arrays[f"{part}.features"]) for part in study._PARTS}
    for part, scores in (("test", inside), (OUT_OF_SCOPE, outside)):
        expected = sum((v[part] - v["validation"].mean()) / v["validation"].std() for v in (energy, far))
        np.testing.assert_allclose(scores, expected, rtol=1e-10)
    assert list(study._detectors(arrays))[:2] == ["1 - confidence", "energy"]
