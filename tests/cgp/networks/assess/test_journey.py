"""A classifier, a tagger and a regression network by the same calls: assess, apply, predict, abstain, save."""

import pytest
import torch
from torch import nn

import cgp


class Network(nn.Module):
    """A small transformer with an output for each input or token."""

    def __init__(self, outputs, *, tokens=False):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.layers, self.head, self.tokens = nn.TransformerEncoder(layer, 2), nn.Linear(16, outputs), tokens

    def forward(self, x):
        states = self.layers(x)
        return self.head(states if self.tokens else states.mean(1))


def task_of(name):
    """A network whose answers are three times too sure, with the data of four parts."""
    torch.manual_seed(0)
    network = Network({"regression": 1}.get(name, 4), tokens=name == "tokens").eval()
    x = torch.randn(700, 5, 16)
    with torch.no_grad():
        network.head.weight *= 8
        outputs = network(x)
        network.head.weight *= 1.0 if name == "regression" else 3.0
    if name == "regression":
        y = outputs + 0.3 * torch.randn(700, 1)
    else:
        y = torch.distributions.Categorical(logits=outputs).sample()
    parts = torch.arange(700).split([200, 200, 200, 100])
    return network, *([(x[part], y[part])] for part in parts)


@pytest.mark.parametrize("name", ["classification", "tokens", "regression"])
def test_every_network_goes_all_the_way(name, tmp_path):
    network, held_out, known, train, new = task_of(name)
    options = {} if name == "tokens" else {"train": train}

    report = cgp.assess(network, held_out, task=name, num_samples=4, **options)
    model = cgp.with_held_out(report.apply(network), known, 4, task=name, seed=0)
    prediction = cgp.predict(model, new, 4, task=name, seed=0)
    if name == "tokens":
        withheld = prediction.abstain(coverage=0.8)  # tokens of a sentence are not exchangeable: no guarantee
    else:
        options = {"tolerance": 0.7} if name == "regression" else {}
        withheld = prediction.abstain(risk=0.5, level=0.9, **options)
    cgp.save_pretrained(model, tmp_path)

    assert report.method in report.choices
    assert "Use " in report.sentence
    assert prediction.task == ("regression" if name == "regression" else "classification")
    assert withheld.shape == prediction.labels.shape
    assert 0 < int((~withheld).sum()) <= withheld.numel()
    scores = prediction.score()
    assert scores["nll"] < 1.1 * report.scores["scale" if name == "regression" else "as trained"]["nll"]
    again = cgp.predict(cgp.from_pretrained(tmp_path, task_of(name)[0]), new, 4, task=name, seed=0)
    for attribute in ("mean", "total"):
        assert torch.equal(getattr(again, attribute), getattr(prediction, attribute))
    assert torch.equal(again.held_out.labels, known[0][1])
