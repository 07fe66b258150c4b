"""Rows: every file is a typed configuration, and runs for a few steps."""

import numpy as np
import pytest

from experiments.cli import _smoked as smoked
from experiments.methods.build import network
from experiments.runs import fitting, predicting
from experiments.runs.fitting import perform
from experiments.runs.parsing import resolve, resolve_rows
from experiments.runs.rows import composed, is_row, row_names
from experiments.training.fit import QUIET
from tests.experiments.runs import synthetic

ONE_OF_EACH = [
    "digits/scgpt",
    "digits/cgpt",
    "digits/kep_svgp",
    "digits/mfvi",
    "digits/sngp",
    "digits/mc_dropout",
    "digits/kfllla",
    "digits/ensemble_softmax",
    "cola/sgpa",
    "cola/cgp_softmax",
    "cola/kep_svgp_add",
    "cola/temperature",
    "cola/temperature_cgpt",
    "imdb/kernel_symmetric",
    "imdb/scgp_direct",
    "cifar10/cgp_direct",
    "cifar100/softmax",
]


@pytest.fixture
def synthetic_data(monkeypatch):
    """Data of every set, without any file."""
    from experiments import data
    from experiments.methods import deriving

    for module in (data, fitting, predicting, deriving):
        for name in ("load", "input_sets", "check_inputs"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(synthetic, name))


def run_with_needs(name, out):
    """Run a row for a few steps, after those that it needs."""
    for experiment in resolve_rows([name], [0], [], []):  # what is needed comes first
        run = perform(smoked(experiment), out=out, trainer=QUIET)
    return run


def check(run, name):
    """A complete run has everything that the tables read."""
    words = run.deviations
    assert "smoke test: a few steps on a handful of examples" in words
    assert any(word.startswith("not as in the row: training.epochs 2 (") for word in words)
    assert len(set(words)) == len(words)
    assert {"validation", "test", "ood-noise"} <= set(run.predicted)
    with np.load(run.prediction_file("test")) as saved:
        draws, count, _ = saved["logits"].shape
        assert saved["logits"].dtype == np.float32
        assert np.isfinite(saved["logits"]).all()
        assert count == 8
        assert np.array_equal(saved["labels"], np.arange(8) % 2)
    method = name.partition("/")[2]  # a setting may be called after a method
    stochastic = any(part in method for part in ("cgp", "sgpa", "kep", "mfvi", "sngp", "dropout", "kfllla"))
    assert draws == (10 if "ensemble" in name and stochastic else 5 if "ensemble" in name else 2 if stochastic else 1)


@pytest.mark.usefixtures("synthetic_data")
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_row_of_each_kind_runs(name, tmp_path):
    check(run_with_needs(name, tmp_path), name)


@pytest.mark.slow
@pytest.mark.usefixtures("synthetic_data")
@pytest.mark.parametrize("name", row_names())
def test_every_row_runs(name, tmp_path):
    check(run_with_needs(name, tmp_path), name)


@pytest.mark.parametrize("name", row_names("cola") + row_names("digits"))
def test_every_row_of_the_small_sets_is_a_configuration(name):
    experiment = resolve([name])
    assert experiment.name == name
    assert experiment.deviations
    if experiment.method.base is not None:
        return  # derived: it has no network of its own
    description = synthetic._description(experiment.data.name)
    network(experiment.method, model=experiment.model, training=experiment.training, description=description)


@pytest.mark.usefixtures("synthetic_data")
def test_a_trained_run_predicts_what_was_saved(tmp_path):
    run = run_with_needs("digits/cgp_direct", tmp_path)
    inputs = next(iter(synthetic.input_sets(None, synthetic.load(run.config.data, run.config.seed), 0)))
    again = predicting.logits_of_set(run.model(), inputs, run.config)
    assert np.allclose(again.numpy(), run.predictions("validation").logits, atol=1e-5)


@pytest.mark.usefixtures("synthetic_data")
def test_a_complete_run_is_left_alone_and_another_configuration_refused(tmp_path):
    experiment = smoked(resolve(["digits/softmax"]))
    run = perform(experiment, out=tmp_path, trainer=QUIET)
    stamp = run.weights.stat().st_mtime_ns
    perform(experiment, out=tmp_path, trainer=QUIET)
    assert run.weights.stat().st_mtime_ns == stamp
    other = smoked(resolve(["digits/softmax"], ["method.learning_rate=0.5"]))
    with pytest.raises(ValueError, match="another configuration .method.learning_rate: 0.004 there, 0.5 asked for"):
        perform(other, out=tmp_path, trainer=QUIET)


@pytest.mark.usefixtures("synthetic_data")
def test_a_missing_run_is_named(tmp_path):
    with pytest.raises(
        ValueError, match="cola/cgpt: expected a complete run .*command with --config cola/kernel_asymmetric"
    ):
        perform(smoked(resolve(["cola/cgpt"])), out=tmp_path, trainer=QUIET)


def test_a_misspelt_row_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"did you mean cola/softmax .*got 'cola/sofmax'"):
        composed(["cola/sofmax"])


@pytest.mark.parametrize("content", ["", "- 1", "training:\n\tepochs: 3", "\xff", "seed: 1\nseed: 2"])
def test_a_file_without_settings_is_named(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"config: .*{path}"):
        composed([str(path)])


def test_a_file_of_ones_own_is_no_row(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("seed: 1\n")
    assert not is_row(str(path))
    assert composed(["cola/softmax", str(path)])["seed"] == 1
