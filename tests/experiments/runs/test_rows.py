"""Rows: every file is a typed configuration, and runs for a few steps."""

from fnmatch import fnmatch

import numpy as np
import pytest
import torch

from experiments.atomic_files import read_yaml
from experiments.cli import _smoked as smoked
from experiments.data import input_sets, load
from experiments.evaluation.diagnostics import attention_similarity
from experiments.methods.build import network
from experiments.reports.papers import TABLES
from experiments.runs import predicting
from experiments.runs.identity import changes
from experiments.runs.parsing import resolve, resolve_rows
from experiments.runs.performing import perform, predict_again
from experiments.runs.rows import CONFIGS, composed, row_names
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
    assert written["variance_labels"].tolist() == splits.test.labels.unique()[:5].tolist()
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


def test_a_setting_extends_another_and_a_paper_overrides_methods():
    base, other = resolve(["cola/sgpa"]), resolve(["cola-official/sgpa"])
    assert (other.name, other.data.split, other.method) == ("cola-official/sgpa", "official", base.method)
    small = resolve(["cifar100-small/cgpt"])
    training, method = small.training, small.method
    assert (small.data.name, small.model.depth, training.schedule, training.epochs) == ("cifar100", 6, "cosine", 400)
    assert (method.init_from, method.options["noise"], method.learning_rate) == ("kernel_start", 0.01, 1e-3)
    direct = [resolve([f"{data}/cgp_direct"]).method for data in ("cifar100", "cifar100-kep")]
    assert [(method.alpha, method.options.get("objective")) for method in direct] == [(0.0, None), (0.01, "joint")]
    assert "cola-pooled/scgpt" in row_names("cola*/scgpt")
    assert "cifar10-kep/cgpt" not in row_names()


def test_every_place_of_a_method_is_a_setting():
    settings = {name.partition("/")[0] for name in row_names()}
    for file in (CONFIGS / "method").glob("*.yaml"):
        places = read_yaml(file).get("where", {})
        assert all(any(fnmatch(setting, place) for setting in settings) for place in places), file


def test_a_variant_is_its_row_with_other_values():
    row, variant = resolve(["cifar10/sgpa"]), resolve(["cifar10/sgpa-inducing-8"])
    assert variant.name == "cifar10/sgpa-inducing-8"
    assert (row.method.options["num_inducing"], variant.method.options["num_inducing"]) == (32, 8)
    assert variant.method.options == row.method.options | {"num_inducing": 8}
    assert variant.method.label == "SGPA, inducing 8"
    assert (variant.data, variant.training, variant.deviations) == (row.data, row.training, row.deviations)
    resolved = resolve(["cola-official/kep_svgp_add-all-layers-e"])
    assert (resolved.data.split, resolved.method.layers, resolved.method.options["branches"]) == (
        "official",
        "all",
        "e",
    )
    assert "branches" not in resolve(["cola-official/kep_svgp_add-all-layers"]).method.options
    assert resolve(["cifar10-kep/kep_svgp-eta-0.01"]).method.options["ksvd_weight"] == 0.01
    # The last is the paper's own: its table IV says so of its table II.
    for variant, start, end in (("-alpha-0.7", 0.7, 0.7), ("-alpha-0.5-1", 0.5, 1.0), ("", 0.5, 1.0)):
        method = resolve([f"cifar10/cgpt{variant}"]).method
        assert (method.alpha_start, method.alpha) == (start, end)


def test_a_later_configuration_goes_over_a_variant():
    experiment = resolve(["imdb/scgp_direct-inducing-4", "reduced/imdb"], ["method.options.num_inducing=3"])
    result = experiment.data.max_length, experiment.method.options["num_inducing"], experiment.reduced
    assert result == (128, 3, ["5,000 reviews of at most 128 tokens"])


@pytest.mark.parametrize(
    "name", ["cola/sgpa-inducin-8", "cola/nothing-alpha-1", "cola/ensemble_nothing", "cola/temperature_nothing"]
)
def test_what_is_no_variant_is_refused(name):
    with pytest.raises(ValueError, match="config: expected a file or a row"):
        resolve([name])


def test_every_row_that_a_table_asks_for_has_a_configuration():
    known = set(row_names())
    blocks = [block for table in TABLES.values() for block in table.blocks]
    needed = [(block.folders, method) for block in blocks for method in block.methods.values()]
    assert not [(folders, row) for folders, row in needed if not any(f"{folder}/{row}" in known for folder in folders)]


NETWORKS = {
    name
    for name in [*row_names("cola"), *row_names("digits"), *row_names()]
    if not name.startswith("imdb") and ("-" in name.partition("/")[2] or name.startswith(("cola/", "digits/")))
}


@pytest.mark.parametrize("data", sorted({name.partition("/")[0] for name in NETWORKS}))
def test_rows_and_variants_are_networks(data, stand_ins):
    description = load(resolve([f"{data}/softmax"], stand_ins).data, 0).description
    for name in sorted(name for name in NETWORKS if name.startswith(f"{data}/")):
        config = resolve([name])
        assert config.name == name
        assert config.deviations
        if config.method.base is None:  # what is derived has no network of its own
            # Mean-field and SNGP layers look at their values as they are made.
            with torch.device("meta" if "-" in name.partition("/")[2] else "cpu"):
                network(config, description)


def test_values_that_differ_from_the_row_are_reported():
    assert changes(resolve(["cola/sgpa"], ["seed=3", "data.root=elsewhere"])) == []
    values = ["training.epochs=3", "method.options.num_inducing=7", "model.depth=1"]
    sentence = "not as in the row: model.depth 1 (2), method.options.num_inducing 7 (5), training.epochs 3 (50)"
    assert changes(resolve(["cola/sgpa"], values)) == [sentence]
    assert changes(resolve(["cola/sgpa-inducing-7"])) == []
    (words,) = changes(resolve(["imdb/sgpa", "reduced/imdb"], ["method.options.sequence_weight=1"]))
    assert words == "not as in the row: data.max_length 128 (512), method.options.sequence_weight 1 (0.001)"
    values = ["data.encoder=bge", "evaluation.draws=3", "data.limit_test=5"]  # the limit is read off the data
    assert changes(resolve(["cola/sgpa"], values)) == [
        "not as in the row: data.encoder bge (None), evaluation.draws 3 (10)"
    ]
    assert changes(resolve(["cola/sgpa"], ["name=mine/sgpa", "training.epochs=3"])) == []


@pytest.mark.parametrize(
    ("name", "kind", "base", "needs", "label"),
    [
        ("ensemble_sgpa", "ensemble", "sgpa", range(10, 15), "Ensemble of SGPA"),
        ("temperature_cgpt-alpha-0.1", "temperature", "cgpt-alpha-0.1", [2], "CGPT, alpha 0.1, temperature"),
        ("ensemble_temperature_sgpa", "ensemble", "temperature_sgpa", range(10, 15), "Ensemble of SGPA, temperature"),
    ],
)
def test_ensembles_and_temperatures_are_derived_from_any_row(name, kind, base, needs, label):
    row = resolve([f"cola/{name}"], ["seed=2"])
    assert (row.method.kind, row.method.base, row.method.label) == (kind, base, label)
    assert row.needs() == [(f"cola/{base}", seed) for seed in needs]
    assert row.method.options == ({"members": 5} if kind == "ensemble" else {})
    assert row.deviations == resolve([f"cola/{base}"]).deviations
