"""The clips of the study of speech, and its comparison on a small transformer in place of the package's."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from experiments.studies import packages, speech


def decibel(speech_wave, noise):
    return 10.0 * (speech_wave.square().mean(1) / noise.square().mean(1)).log10()


def test_clips_get_noise_and_every_second_is_clipped():
    waves = torch.randn(400, 2000, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 0, 400)[:, None]
    changed = speech.degraded(waves)
    level = decibel(waves[::2], changed[::2] - waves[::2])
    assert level.min() > -0.5
    assert level.max() < 30.5
    assert_close(level.mean(), torch.tensor(15.0), atol=2.0, rtol=0.0)  # 3 standard errors of 200 uniform draws
    at_limit = (changed.abs() >= changed.abs().amax(1, keepdim=True)).sum(1)
    assert (at_limit[::2] == 1).all()
    assert (at_limit[1::2] > 10).all()
    assert torch.equal(speech.degraded(waves), changed)
    assert not torch.equal(speech.degraded(waves, seed=1), changed)


def test_the_noise_is_relative_to_the_speech():
    waves = torch.sin(torch.arange(3000.0)).expand(4, -1)
    assert_close(speech.degraded(1024.0 * waves), 1024.0 * speech.degraded(waves), atol=0.0, rtol=1e-6)


def test_waves_are_cut_or_followed_by_silence():
    wave = np.arange(1.0, 5.0)
    assert speech.in_length(wave, 3).tolist() == [1.0, 2.0, 3.0]
    assert speech.in_length(wave, 6).tolist() == [1.0, 2.0, 3.0, 4.0, 0.0, 0.0]


def test_scores_lie_between_one_and_five():
    assert speech.score(torch.tensor([0.0, 0.5, 1.0])).tolist() == [[1.0], [3.0], [5.0]]


@pytest.mark.parametrize("name", ["distillmos", "espeakng_loader"])
def test_a_missing_package_is_named(monkeypatch, name):
    def import_module(wanted):
        raise ModuleNotFoundError(wanted)

    monkeypatch.setattr(packages, "import_module", import_module)
    monkeypatch.setattr(speech, "find_spec", lambda _: True)
    speech._network.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=f"pip install --no-deps .*{name.replace('_', '.')}"):
        speech.host() if name == "distillmos" else speech.clips(1)


class Listener(nn.Module):
    """A share in (0, 1) for each sequence, as the package's transformer returns it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        return torch.sigmoid(self.last(self.layer(x).mean(1)))[:, 0]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_is_scored_on_clips_of_which_nothing_was_fitted(monkeypatch, capsys):
    torch.manual_seed(0)
    network = Listener().eval()
    waves = torch.randn(75, 48)
    monkeypatch.setattr(speech, "host", lambda: network)
    monkeypatch.setattr(speech, "clips", lambda count: waves[:count])
    monkeypatch.setattr(speech, "states", lambda part: part.view(-1, 6, 8))
    speech.assess(count=25, num_samples=2)
    rows = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines() if ": rmse " in line)
    line = rows.pop("a straight line through the network's scores")
    assert list(rows) == ["scale", "posterior + scale", "GP read-out + scale"]
    with torch.no_grad():
        clean, heard = (speech.score(network(x.view(-1, 6, 8))) for x in (waves, speech.degraded(waves)))
    rmse = float((clean - heard)[50:].square().mean().sqrt())
    assert f"rmse {rmse:.3f}" in rows["scale"]
    (slope, offset), *_ = np.linalg.lstsq(np.c_[heard[:25], np.ones(25)], clean[:25, 0], rcond=None)
    assert line == f"rmse {float((clean - slope * heard - offset)[50:].square().mean().sqrt()):.3f}"
    assert ["surest" in row for row in rows.values()] == [False, True, True]
