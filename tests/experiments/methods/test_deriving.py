"""Methods derived from runs: from a run's folder to files of predictions."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import softmax

from cgp.networks.methods.temperature_scaling import fit_temperature
from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import input_sets, load
from experiments.data.examples import Batches, Examples
from experiments.evaluation import mean_log_probabilities, negative_log_likelihood
from experiments.methods import DERIVED, Request
from experiments.methods.deriving import joined
from experiments.saved_predictions import Predictions, load_predictions
from tests.experiments.methods.hosts import digits
from tests.experiments.reports.saved import Run, random_logits, write_run

NOISE = CorruptionConfig(kinds=("noise",), severities=(5,))
DATA = DataConfig(limit_train=300, limit_validation=60, limit_test=40, corruptions=NOISE, ood=("inverted",))
EVALUATION = SimpleNamespace(draws=3, batch_size=100, full=False)
C = 10


class Untrained(Run):
    """A run whose model is untrained and whose predictions are random."""

    def model(self):
        torch.manual_seed(5)
        model = digits(depth=1, dropout=0.3)
        model.head = torch.nn.Linear(8, C)
        return model.eval()


def run_in(folder, seed=0, names=("validation", "test", "ood-x"), source="10 images of x"):
    labels, sets = np.arange(20) % C, {}
    for place, name in enumerate(names):
        logits, _ = random_logits(samples=20, num_samples=2, seed=10 * seed + place)
        sets[name] = logits, None if name.startswith("ood") else labels
    return Untrained(write_run(folder, "digits", "softmax", seed, sets=sets, record={"sources": {"ood-x": source}}))


def derived(kind, runs, folder, **options):
    made = DERIVED[kind](runs, Request(DATA, EVALUATION, folder), **options)
    return made.chosen, lambda name: load_predictions(folder / "predictions" / f"{name}.npz")


def test_temperature(tmp_path):
    run = run_in(tmp_path / "run")
    chosen, predictions = derived("temperature", [run], tmp_path / "out")
    before, after = run.predictions("validation"), predictions("validation")
    assert chosen == {"temperature": fit_temperature(before.logits, before.labels)}
    np.testing.assert_allclose(after.logits, before.logits / chosen["temperature"], rtol=1e-6)
    losses = [negative_log_likelihood(mean_log_probabilities(p.logits), p.labels) for p in (before, after)]
    assert losses[1] < losses[0]
    assert predictions("ood-x").labels is None
    np.testing.assert_array_equal(predictions("test").ids, np.arange(20))


@pytest.mark.parametrize("kind", ["mc_dropout", "kfllla"])
def test_mc_dropout_and_last_layer_predict_every_input_set(tmp_path, kind):
    run, splits = run_in(tmp_path / "run"), load(DATA, 0)
    chosen, predictions = derived(kind, [run], tmp_path / kind)
    files = {path.stem for path in (tmp_path / kind / "predictions").iterdir()}
    assert files == {inputs.name for inputs in input_sets(DATA, splits, 0)}
    test = predictions("test")
    assert test.logits.shape == (3, 40, C)
    assert test.logits.dtype == np.float32
    np.testing.assert_array_equal(test.labels, splits.test.labels.numpy())
    np.testing.assert_array_equal(test.ids, splits.test.ids.numpy())
    assert test.logits.std(0).max() > 1e-4
    assert set(chosen) == ({"prior_precision"} if kind == "kfllla" else set())


def test_sources_are_recorded_and_only_changes_are_predicted_again(tmp_path):
    runs = [run_in(tmp_path / str(seed), seed, source=f"{seed + 1} images of x") for seed in range(2)]
    for kind, count in (("temperature", 1), ("ensemble", 2)):
        made = DERIVED[kind](runs[:count], Request(DATA, EVALUATION, tmp_path / kind))
        assert made.sources == {"ood-x": "1 images of x"}
    folder = tmp_path / "mc_dropout"
    sources = {inputs.name: inputs.source for inputs in input_sets(DATA, load(DATA, 0), 0) if inputs.source}
    assert set(sources) == {"corrupted-noise-5", "ood-inverted"}
    assert DERIVED["mc_dropout"](runs[:1], Request(DATA, EVALUATION, folder)).sources == sources
    stamps = {path.stem: path.stat().st_mtime_ns for path in (folder / "predictions").iterdir()}
    recorded = sources | {"ood-inverted": "something else"}
    DERIVED["mc_dropout"](runs[:1], Request(DATA, EVALUATION, folder, recorded))
    again = {path.stem: path.stat().st_mtime_ns for path in (folder / "predictions").iterdir()}
    assert {name for name in stamps if stamps[name] != again[name]} == {"ood-inverted"}


def test_ensembles_average_the_probabilities_of_all_members(tmp_path):
    runs = [run_in(tmp_path / str(seed), seed) for seed in range(5)]
    chosen, predictions = derived("ensemble", runs, tmp_path / "out")
    assert chosen == {"members": 5}
    result = predictions("test")
    assert result.logits.shape == (10, 20, C)
    wanted = np.mean([softmax(run.predictions("test").logits.astype(float), -1).mean(0) for run in runs], 0)
    np.testing.assert_allclose(np.exp(mean_log_probabilities(result.logits)), wanted, rtol=1e-6)
    assert predictions("ood-x").labels is None


def test_texts_come_by_length_and_go_back_into_order():
    lengths = torch.tensor([3, 1, 4, 2])
    padding = torch.arange(4) >= lengths[:, None]
    examples = Examples({"tokens": lengths[:, None].expand(4, 4), "padding_mask": padding}, lengths, torch.arange(4))
    batches = Batches(examples, 2)
    parts = list(batches)
    assert [part["tokens"].shape[1] for part in parts] == [2, 4]
    logits = torch.cat([part["tokens"][:, :1] for part in parts])[None]
    assert torch.equal(batches.in_order(logits)[0, :, 0], lengths)
    assert torch.equal(torch.cat([part["tokens"][:, 0] for part in batches]), examples.labels[batches.order])


def predictions_of(logits=(2, 4, 3), ids=4, labels=None):
    return Predictions(np.zeros(logits, np.float32), np.arange(ids), labels)


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (predictions_of((3, 4, 3)), "members: expected logits of one shape"),
        (predictions_of()._replace(ids=np.arange(1, 5)), "members: expected predictions of the same examples"),
        (predictions_of(labels=np.zeros(4, int)), "members: expected the same labels"),
    ],
)
def test_members_that_do_not_fit(member, message):
    with pytest.raises(ValueError, match=message):
        joined([predictions_of(), member])


def test_runs_that_do_not_fit(tmp_path):
    run, other = run_in(tmp_path / "one"), run_in(tmp_path / "other", names=("validation", "test"))
    with pytest.raises(ValueError, match="runs: expected at least two members of an ensemble, got 1"):
        derived("ensemble", [run], tmp_path / "out")
    with pytest.raises(ValueError, match=r"runs: expected the same predictions in .*not so: \['ood-x'\]"):
        derived("ensemble", [run, other], tmp_path / "out")
    other = run_in(tmp_path / "third", source="20 images of y")
    with pytest.raises(ValueError, match=r"the same ood-x in .*, got 10 images of x and 20 images of y; predict"):
        derived("ensemble", [run, other], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for kind in ("temperature", "mc_dropout", "kfllla"):
        with pytest.raises(ValueError, match=f"runs: expected one run for {kind}, got 2"):
            derived(kind, [run, other], tmp_path / "out")
