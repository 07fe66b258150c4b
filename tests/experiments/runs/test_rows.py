"""Rows: every file is a typed configuration, and runs for a few steps."""

import numpy as np
import pytest

from experiments.cli import _smoked as smoked
from experiments.data import input_sets, load
from experiments.evaluation.diagnostics import attention_similarity
from experiments.runs import predicting
from experiments.runs.parsing import resolve_rows
from experiments.runs.performing import perform, predict_again
from experiments.runs.rows import composed, row_names
from experiments.training.fit import QUIET

ONE_OF_EACH = [
    *("digits/scgpt", "digits/cgpt", "digits/kep_svgp", "digits/mfvi", "digits/sngp", "digits/mc_dropout"),
    *("digits/kfllla", "digits/ensemble_softmax", "cola/sgpa", "cola/cgp_softmax", "cola/kep_svgp_add"),
    *("cola/temperature", "cola/temperature_cgpt", "imdb/kernel_symmetric", "imdb/scgp_direct"),
    *("cifar10/cgp_direct", "cifar100/softmax"),
]

SMALLER = {
    "digits/sngp": ["method.options.num_features=32"],
    "cifar10/cgp_direct": ["model.depth=2"],
    "cifar100/softmax": ["model.depth=2"],
}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder of runs: what several rows need is trained once."""
    return tmp_path_factory.mktemp("runs")


def perform_row(name, out, values):
    """Run a row for a few steps, after those that it needs."""
    for config in resolve_rows([name], [0], [], values):  # what is needed comes first
        run = perform(smoked(config), out=out, trainer=QUIET)
    return run


def check(run):
    """A complete run has everything that the tables read."""
    words = run.deviations
    assert "smoke test: a few steps on a handful of examples" in words
    assert any(word.startswith("not as in the row: ") and "training.epochs 2 (" in word for word in words)
    assert len(set(words)) == len(words)
    data = run.config.data
    splits = load(data, 0)
    assert set(run.predicted) == {inputs.name for inputs in input_sets(data, splits, 0)}
    logits, ids, labels = run.predictions("test")
    draws, count, _ = logits.shape
    assert np.isfinite(logits).all()
    assert count == 8
    assert np.array_equal(ids, splits.test.ids)
    assert np.array_equal(labels, splits.test.labels)
    stochastic = any(part in run.method for part in ("cgp", "sgpa", "kep", "mfvi", "sngp", "dropout", "kfllla"))
    members = run.config.method.options.get("members", 1)
    assert draws == members * (2 if stochastic else 1)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_row_of_each_kind_runs(name, out, stand_ins):
    check(perform_row(name, out, [*stand_ins, *SMALLER.get(name, [])]))


@pytest.mark.slow
@pytest.mark.parametrize("name", row_names())
def test_every_row_runs(name, out, stand_ins):
    check(perform_row(name, out, stand_ins))


def test_a_complete_run_is_kept_and_refuses_another_configuration(out):
    run = perform_row("digits/cgp_direct", out, [])
    stamp = run.weights.stat().st_mtime_ns
    perform_row("digits/cgp_direct", out, [])
    assert run.weights.stat().st_mtime_ns == stamp
    splits = load(run.config.data, run.config.seed)
    inputs = next(input_sets(run.config.data, splits, 0))
    again = predicting.logits_of_set(run.model(), inputs, run.config)
    assert np.allclose(again.numpy(), run.predictions("validation").logits, atol=1e-5)
    with np.load(run.diagnostics) as arrays:
        written = dict(arrays)
    again = attention_similarity(run.model(), splits.test)
    np.testing.assert_allclose(written["attention_similarity"], again, rtol=2e-3, atol=2e-4)
    classes = len(splits.test.labels.unique()[:5])
    assert written["token_variance"].shape[1] == len(written["variance_images"]) == classes
    assert (written["token_variance"] > 0).all()
    before = run.predictions("test").logits
    run.diagnostics.unlink()
    predict_again(run.config, run)
    assert run.diagnostics.exists()
    assert (run.predictions("test").logits == before).all()
    with pytest.raises(ValueError, match="another configuration .method.learning_rate: 0.002 there, 0.5 asked for"):
        perform_row("digits/cgp_direct", out, ["method.learning_rate=0.5"])


@pytest.mark.parametrize("content", ["", "- 1", "training:\n\tepochs: 3", "\xff", "seed: 1\nseed: 2"])
def test_a_file_without_settings_is_named(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"config: .*{path}"):
        composed([str(path)])
