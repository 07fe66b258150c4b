"""Sets larger than what is kept: no more than a few batches in memory, and the same scores."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import cgp
from cgp.networks.assess import tuning
from cgp.networks.assess.assess import FOLDS
from cgp.networks.methods.rows import LabelScores, Logits
from cgp.networks.model import progress

BATCHES, SIZE = 8, 75


class Source:
    """Batches that are made when they are read, and how many of them are alive."""

    def __init__(self, *, shuffled=False, values=False):
        self.shuffled, self.values, self.passes, self.most = shuffled, values, 0, 0
        self.alive = weakref.WeakSet()

    def __iter__(self):
        self.passes += 1
        for number in range(BATCHES):
            generator = torch.Generator().manual_seed(number + 7 * self.shuffled * self.passes)
            x = torch.randn(SIZE, 4, 8, generator=generator)
            scores = x[:, :, :3].sum(1)
            noise = torch.randn(SIZE, 3, generator=generator)
            y = scores[:, :1] + noise[:, :1] if self.values else (scores + 2 * noise).argmax(-1)
            self.alive.add(x)
            gc.collect(0)
            self.most = max(self.most, len(self.alive))
            yield x, y


def network(outputs):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(32, outputs)).eval()
    with torch.no_grad():
        model[2].weight.zero_().view(outputs, 4, 8)[:, :, :outputs] = 3 * torch.eye(outputs)[:, None]
    return model


@pytest.fixture
def few_are_kept(monkeypatch):
    monkeypatch.setattr(tuning, "KEPT_BYTES", 4000)
    monkeypatch.setattr(tuning, "KEPT_LABELS", 300)


def test_a_temperature_is_fitted_once_a_fold_and_once_to_all_labels(monkeypatch):
    fits, fit = [], Logits.fit
    monkeypatch.setattr(Logits, "fit", lambda *args, **options: fits.append(1) or fit(*args, **options))
    report = cgp.assess(network(3), list(Source()), compare=["lac"])
    assert [*report.scores] == ["as trained", "temperature"]
    assert len(fits) == FOLDS + 1


def test_a_large_set_is_read_again_and_scored_whole(few_are_kept, monkeypatch):
    model, source, options = network(3), Source(), {"num_samples": 2, "train": list(Source(shuffled=True))[1:6]}
    ood = {"half": lambda x: x / 2, "other": list(Source(shuffled=True))[1:]}
    streamed = cgp.assess(model, source, ood=ood, **options)
    assert source.passes > 3
    assert source.most <= 4
    assert streamed.num_labels == BATCHES * SIZE
    monkeypatch.undo()
    whole = cgp.assess(model, list(Source()), ood=ood, **options)
    assert list(streamed.scores) == list(whole.scores)
    assert streamed.scores["as trained"] == pytest.approx(whole.scores["as trained"])
    assert streamed.detection["half"]["energy"].auroc == pytest.approx(whole.detection["half"]["energy"].auroc)
    for name, scores in whole.scores.items():  # temperatures of 300 labels or of 480
        assert streamed.scores[name]["nll"] == pytest.approx(scores["nll"], abs=0.03)
    prediction = cgp.predict(streamed.apply(model), Source(), 4, seed=0)
    assert prediction.score()["nll"] < whole.scores["as trained"]["nll"]


def test_chosen_by_all_where_all_are_kept(monkeypatch):
    """Reading again changes nothing by itself."""
    model = network(3)
    kept = cgp.assess(model, Source(), num_samples=2)
    monkeypatch.setattr(tuning, "KEPT_BYTES", 4000)
    source = Source()
    again = cgp.assess(model, source, num_samples=2)
    assert source.passes > 3
    assert again.scores == kept.scores
    assert again.choices == kept.choices


def test_a_regression_is_read_again(few_are_kept):
    source = Source(values=True)
    report = cgp.assess(network(1), source, task="regression", num_samples=2)
    assert source.most <= 4
    assert report.num_inputs == BATCHES * SIZE
    assert report.scores == cgp.assess(network(1), list(source), task="regression", num_samples=2).scores


def test_another_order_is_noticed(few_are_kept):
    with pytest.raises(ValueError, match="same batches in every pass, got others in batch 0 .*shuffle=False"):
        cgp.assess(network(3), Source(shuffled=True))


def test_what_can_be_read_once_is_kept(few_are_kept):
    source = Source()
    report = cgp.assess(network(3), iter(source), num_samples=4, compare=[])
    assert source.passes == 1
    assert report.num_labels == BATCHES * SIZE


def test_inputs_with_more_labels_than_are_kept_are_tuned_on_another(monkeypatch):
    """One image a batch: with the labels of the first alone its fold would have none to be tuned on."""
    monkeypatch.setattr(tuning, "KEPT_LABELS", 30)
    torch.manual_seed(0)
    model, x = nn.Conv2d(1, 3, 1), torch.randn(6, 1, 6, 6)
    data = [(x[i : i + 1], torch.randint(3, (1, 6, 6))) for i in range(6)]
    report = cgp.assess(model, data, task="dense")
    assert report.num_labels == 6 * 36
    assert report.scores["temperature"]["nll"] < report.scores["as trained"]["nll"]


def test_predictions_come_one_after_the_other():
    model, source = cgp.convert(network(3), amplitude=0.5), Source()
    losses = [
        -p.probabilities.gather(1, p.labels[:, None]).log() for p in cgp.predict_batches(model, source, 4, seed=0)
    ]
    assert source.most <= 3
    whole = cgp.predict(model, Source(), 4, seed=0)
    assert whole.score()["nll"] == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)
    assert not torch.is_inference_mode_enabled()
    for _ in cgp.predict_batches(model, Source(), 2):
        assert torch.is_grad_enabled()
        break


def test_progress_is_quiet_in_a_file_and_shown_when_asked(capsys):
    model = network(3)
    cgp.predict(model, Source())
    cgp.assess(model, Source(), compare=[])
    assert capsys.readouterr().err == ""
    cgp.predict(model, Source(), progress=True)
    cgp.assess(model, Source(), compare=[], progress=True)
    shown = capsys.readouterr().err
    assert "predict: 8 batches" in shown
    assert "assess: 100%" in shown


def test_what_takes_long_says_so_once_where_there_is_no_terminal(capsys, monkeypatch):
    """After ten seconds, with those that are left; nothing if progress is not asked for."""
    for asked, said in ((None, "calibrate: 12 s so far, some 36 s more\n"), (False, "")):
        clock = iter([0.0, 6.0, 12.0, 18.0, 24.0])
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda clock=clock: next(clock)))
        ticks = progress.Ticks(asked, "calibrate", 8)
        for _ in range(4):
            ticks(1)
        assert capsys.readouterr().err == said


def test_without_draws_no_temperatures_are_compared(monkeypatch):
    """They are for the choice of an amplitude: half of the time of an assessment of logits."""
    monkeypatch.setattr(LabelScores, "of", lambda *_: pytest.fail("compared"))
    torch.manual_seed(0)
    logits = torch.randn(60, 3)
    labels = torch.distributions.Categorical(logits=logits).sample()
    assert list(cgp.assess(nn.Identity(), [(logits, labels)]).scores) == ["as trained", "temperature"]
