"""Taggers: one label for each token, errors of whole sequences, −100 left out."""

import numpy as np
import pytest
import torch
from torch import nn

from cgp import assess, calibrate, convert, from_pretrained, predict, save_pretrained
from cgp.comparisons import Difference
from cgp.networks.methods.temperature_scaling import fit_temperature

WORDS, TAGS = 11, 4


class Tagger(nn.Module):
    """Embeddings, one encoder layer, logits of tags."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, TAGS)

    def forward(self, ids):
        return self.head(self.encoder(self.embed(ids)))


def tagger():
    torch.manual_seed(0)
    model = Tagger().eval()
    with torch.no_grad():
        model.head.weight *= 8
    return model


@torch.no_grad()
def sentences(model, count, length, seed=0):
    """Words and tags, drawn from probabilities that are less sure than the model's; the first are short."""
    torch.manual_seed(seed)
    ids = torch.randint(WORDS, (count, length))
    labels = torch.distributions.Categorical(logits=model(ids) / 3).sample()
    for row in range(count // 3):
        labels[row, length - 1 - row % 3 :] = -100
    return ids, labels


def test_methods_are_compared_on_tokens_by_folds_of_sentences():
    model = tagger()
    parts = [sentences(model, 40, 7), sentences(model, 30, 5, seed=1)]
    report = assess(model, parts, task="tokens", num_samples=2)
    flat = [(model(ids).detach()[labels != -100], labels[labels != -100]) for ids, labels in parts]
    logits, y = (torch.cat(column) for column in zip(*flat, strict=True))
    sentence = torch.cat(
        [(labels != -100).nonzero()[:, 0] + first for (_, labels), first in zip(parts, (0, 40), strict=True)]
    )
    assert (report.num_labels, report.num_inputs) == (len(y), 70)
    fold_of = (torch.randperm(70, generator=torch.Generator().manual_seed(0)) % 5)[sentence]
    losses = torch.zeros(len(y))
    for fold in range(5):
        rest = fold_of != fold
        temperature = fit_temperature(logits[rest], y[rest])
        losses[~rest] = nn.functional.cross_entropy(logits[~rest] / temperature, y[~rest], reduction="none")
    assert report.scores["temperature"]["nll"] == pytest.approx(float(losses.mean()), abs=1e-5)
    gain = losses - nn.functional.cross_entropy(logits, y, reduction="none")
    sums = [float((gain - gain.mean())[sentence == i].sum()) for i in range(70)]
    error = np.sqrt(70 / 69 * np.square(sums).sum()) / len(y)
    assert report.differences["temperature"]["nll"].error == pytest.approx(error, rel=1e-3)
    assert report.method in ("temperature", "posterior + temperature")


def test_words_that_are_repeated_say_nothing_new():
    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=60), np.arange(60)
    once, alone = Difference.of_groups(values, groups), Difference.of(values)
    assert once.error == pytest.approx(alone.error)
    again = Difference.of_groups(np.repeat(values, 9), np.repeat(groups, 9))
    assert again.error == pytest.approx(alone.error)
    assert Difference.of(np.repeat(values, 9)).error < 0.4 * alone.error


def test_a_tagger_is_assessed_applied_scored_and_saved(tmp_path):
    model = tagger()
    held_out, test = sentences(model, 90, 6), sentences(model, 60, 6, seed=2)
    report = assess(model, [held_out], task="tokens", num_samples=2)
    advised = report.apply(model)
    prediction = predict(advised, [test], 2, task="tokens", seed=0)
    plain = predict(model, [test]).score()
    assert prediction.score()["nll"] < plain["nll"] - 0.1
    assert prediction.abstain(coverage=0.5).shape == (60, 6)
    save_pretrained(advised, tmp_path)
    again = predict(from_pretrained(tmp_path, tagger()), [test], 2, seed=0)
    assert torch.equal(again.probabilities, prediction.probabilities)
    by_hand = calibrate(model, [held_out], task="tokens", method="temperature")
    assert by_hand.num_labels == int((held_out[1] != -100).sum())
    assert by_hand.temperature == pytest.approx(report.choices["temperature"].parameter, rel=1e-4)


def test_padding_after_the_labels_changes_nothing():
    model = tagger()
    ids, labels = sentences(model, 30, 6)
    longer = torch.cat([labels, torch.full((30, 2), -100)], 1)
    words = torch.cat([ids, torch.zeros(30, 2, dtype=torch.long)], 1)

    class Cut(nn.Module):
        def forward(self, words):
            return nn.functional.pad(model(words[:, :6]), (0, 0, 0, 2))

    plain = assess(model, [(ids, labels)], task="tokens", compare=[])
    padded = assess(Cut(), [(words, longer)], task="tokens", compare=[])
    assert plain.scores == padded.scores


def test_what_was_not_named_is_refused():
    model = tagger()
    part = sentences(model, 30, 6)
    whole, (other, tags) = (part[0], part[1].clamp(min=0)), sentences(model, 30, 6, seed=1)
    with pytest.raises(ValueError, match="task='tokens' takes a label for every token"):
        assess(model, [whole])
    with pytest.raises(ValueError, match="ood: expected None with task='tokens', got dict"):
        assess(model, [part], task="tokens", ood={"others": part[0]})
    with pytest.raises(ValueError, match=r"model: expected logits \(N, n, C\), one label for every token"):
        assess(nn.Linear(2, 3), [(torch.randn(30, 2), torch.arange(30) % 3)], task="tokens", compare=[])
    with pytest.raises(ValueError, match="task: expected one of"):
        assess(model, [part], task="spans")
    with pytest.raises(ValueError, match="expected values that are floating-point numbers"):
        assess(model, [part], task="regression")
    with pytest.raises(ValueError, match="expected at least 5 inputs with labels"):
        assess(model, [(part[0][:4], part[1][:4])], task="tokens")
    with pytest.raises(ValueError, match=r"model: expected logits \(N, C\) for a read-out to replace"):
        calibrate(model, [part], method="readout", train=[(other, tags[:, 0].clamp(min=0))])
    with pytest.raises(ValueError, match="with task='tokens', got 'readout'"):
        calibrate(model, [part], method="readout", task="tokens", train=[part])


def test_few_sentences_with_many_tokens_are_said_to_be_few():
    model = convert(tagger())
    report = assess(model, [sentences(model, 12, 30)], task="tokens", num_samples=2)
    assert report.method == "as trained"
    assert f"{report.num_labels} labels of 12 inputs" in report.sentence
