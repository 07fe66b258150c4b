"""Rows: every file is a typed configuration, and runs for a few steps."""

import numpy as np
import pytest

from experiments.cli import _smoked as smoked
from experiments.evaluation.diagnostics import attention_similarity
from experiments.runs import predicting
from experiments.runs.fitting import perform, predict_again
from experiments.runs.parsing import resolve, resolve_rows
from experiments.runs.rows import composed, is_row, row_names
from experiments.training.fit import QUIET
from tests.experiments.runs import synthetic

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


def run_with_needs(name, out, *values):
    """Run a row for a few steps, after those that it needs."""
    for config in resolve_rows([name], [0], [], values):  # what is needed comes first
        run = perform(smoked(config), out=out, trainer=QUIET)
    return run


def check(run, name):
    """A complete run has everything that the tables read."""
    words = run.deviations
    assert "smoke test: a few steps on a handful of examples" in words
    assert any(word.startswith("not as in the row: ") and "training.epochs 2 (" in word for word in words)
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
    members = run.config.method.options.get("members", 1)
    assert draws == members * (2 if stochastic else 1)


@pytest.mark.usefixtures("synthetic_data")
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_row_of_each_kind_runs(name, out):
    check(run_with_needs(name, out, *SMALLER.get(name, [])), name)


@pytest.mark.slow
@pytest.mark.usefixtures("synthetic_data")
@pytest.mark.parametrize("name", row_names())
def test_every_row_runs(name, tmp_path):
    check(run_with_needs(name, tmp_path), name)


@pytest.mark.usefixtures("synthetic_data")
def test_a_complete_run_is_left_alone_predicts_what_was_saved_and_refuses_another_configuration(out):
    run = run_with_needs("digits/cgp_direct", out)
    stamp = run.weights.stat().st_mtime_ns
    run_with_needs("digits/cgp_direct", out)
    assert run.weights.stat().st_mtime_ns == stamp
    inputs = next(iter(synthetic.input_sets(None, synthetic.load(run.config.data, run.config.seed), 0)))
    again = predicting.logits_of_set(run.model(), inputs, run.config)
    assert np.allclose(again.numpy(), run.predictions("validation").logits, atol=1e-5)
    with np.load(run.diagnostics) as arrays:
        written = dict(arrays)
    test = synthetic.load(run.config.data, 0).test
    again = attention_similarity(run.model(), test)
    np.testing.assert_allclose(written["attention_similarity"], again, rtol=2e-3, atol=2e-4)
    assert written["token_variance"].shape[1] == len(written["variance_images"]) == len(test.labels.unique()[:5])
    assert (written["token_variance"] > 0).all()
    before = run.predictions("test").logits
    run.diagnostics.unlink()
    predict_again(run.config, run)
    assert run.diagnostics.exists()
    assert (run.predictions("test").logits == before).all()
    with pytest.raises(ValueError, match="another configuration .method.learning_rate: 0.002 there, 0.5 asked for"):
        run_with_needs("digits/cgp_direct", out, "method.learning_rate=0.5")


@pytest.mark.parametrize("content", ["", "- 1", "training:\n\tepochs: 3", "\xff", "seed: 1\nseed: 2"])
def test_a_file_without_settings_is_named(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"config: .*{path}"):
        composed([str(path)])
