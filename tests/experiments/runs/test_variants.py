"""Rows by name alone: variants, ensembles, settings; and that every table has its rows."""

from fnmatch import fnmatch

import pytest
import torch

from experiments.methods.build import network
from experiments.reports.papers import TABLES
from experiments.runs.identity import changes
from experiments.runs.parsing import resolve
from experiments.runs.rows import CONFIGS, row_names
from experiments.storage import read_yaml
from tests.experiments.runs import synthetic


def test_a_setting_extends_another_and_a_paper_sets_methods_otherwise_there():
    one, other = resolve(["cola/sgpa"]), resolve(["cola-official/sgpa"])
    assert (other.name, other.data.split, other.method) == ("cola-official/sgpa", "official", one.method)
    small = resolve(["cifar100-small/cgpt"])
    assert (small.data.name, small.model.depth, small.training.schedule, small.training.epochs) == (
        "cifar100",
        6,
        "cosine",
        400,
    )
    assert (small.method.init_from, small.method.options["noise"], small.method.learning_rate) == (
        "kernel_start",
        0.01,
        1e-3,
    )
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


def test_alpha_is_held_or_rises():
    held, rising = (resolve([f"cifar10/cgpt-alpha-{alpha}"]).method for alpha in ("0.7", "0.5-1"))
    assert (held.alpha_start, held.alpha) == (0.7, 0.7)
    assert (rising.alpha_start, rising.alpha) == (0.5, 1.0)
    own = resolve(["cifar10/cgpt"]).method  # the paper's table IV says so of its table II
    assert (own.alpha_start, own.alpha) == (0.5, 1.0)


def test_branches_layers_and_eta():
    one = resolve(["cola-official/kep_svgp_add-all-layers-e"])
    assert (one.data.split, one.method.layers, one.method.options["branches"]) == ("official", "all", "e")
    assert "branches" not in resolve(["cola-official/kep_svgp_add-all-layers"]).method.options
    assert resolve(["cifar10-kep/kep_svgp-eta-0.01"]).method.options["ksvd_weight"] == 0.01


def test_an_ensemble_of_any_row_joins_its_runs():
    ensemble = resolve(["cola/ensemble_kep_svgp_add-all-layers"], ["seed=2"])
    assert (ensemble.method.kind, ensemble.method.base) == ("ensemble", "kep_svgp_add-all-layers")
    assert ensemble.needs() == [("cola/kep_svgp_add-all-layers", seed) for seed in range(10, 15)]
    assert ensemble.method.label == "Ensemble of KEP-SVGP (addition), all layers"


def test_a_temperature_for_any_row_is_derived_from_its_run():
    cooled = resolve(["cola/temperature_cgpt-alpha-0.1"], ["seed=2"])
    assert (cooled.method.kind, cooled.method.base, cooled.method.options) == ("temperature", "cgpt-alpha-0.1", {})
    assert cooled.needs() == [("cola/cgpt-alpha-0.1", 2)]
    assert cooled.method.label == "CGPT, alpha 0.1, temperature"
    assert cooled.deviations == resolve(["cola/cgpt-alpha-0.1"]).deviations
    both = resolve(["cola/ensemble_temperature_sgpa"])
    assert (both.method.kind, both.method.base) == ("ensemble", "temperature_sgpa")
    assert both.method.label == "Ensemble of SGPA, temperature"


def test_a_later_configuration_goes_over_a_variant():
    experiment = resolve(["imdb/scgp_direct-inducing-4", "reduced/imdb"], ["method.options.num_inducing=3"])
    assert (experiment.data.max_length, experiment.method.options["num_inducing"]) == (128, 3)
    assert experiment.reduced == ["5,000 reviews of at most 128 tokens"]
    assert experiment.method.options["coupling"] == "direct"


def test_a_data_set_means_its_rows_and_a_pattern_its_variants_too():
    assert not any("-" in name.partition("/")[2] or "ensemble" in name for name in row_names("cifar10"))
    assert not any("temperature_" in name for name in row_names("cola"))
    assert {"cifar10/sgpa-inducing-8", "cifar10/ensemble_sgpa"} < set(row_names("cifar10/*"))
    assert row_names("cola/scgpt-inducing-3") == ["cola/scgpt-inducing-3"]
    assert "cola-official/kep_svgp_add-all-layers-r" in row_names("*/*-r")


@pytest.mark.parametrize(
    "name", ["cola/sgpa-inducin-8", "cola/nothing-alpha-1", "cola/ensemble_nothing", "cola/temperature_nothing"]
)
def test_what_is_no_variant_is_refused(name):
    with pytest.raises(ValueError, match="config: expected a file or a row"):
        resolve([name])


def test_every_row_that_a_table_asks_for_has_a_configuration():
    known = set(row_names())
    blocks = [block for table in TABLES.values() for block in table.blocks]
    asked = [(block.folders, method) for block in blocks for method in block.methods.values()]
    assert not [(folders, one) for folders, one in asked if not any(f"{folder}/{one}" in known for folder in folders)]


VARIANTS = [name for name in row_names() if "-" in name.partition("/")[2] and not name.startswith("imdb")]


@pytest.mark.parametrize("name", [name for name in VARIANTS if "ensemble" not in name])
def test_every_listed_variant_is_a_network(name):
    experiment = resolve([name])
    description = synthetic._description(experiment.data.name)
    sizes = {"model": experiment.model, "training": experiment.training, "description": description}
    with torch.device("meta"):
        network(experiment.method, **sizes)


@pytest.mark.parametrize("data", ["cola", "imdb", "cifar10", "cifar100", "cola-official"])
def test_rows_say_what_departs_from_the_papers(data):
    said = {name: " ".join(resolve([f"{data}/{name}"]).deviations) for name in ("softmax", "sgpa", "cgpt", "scgpt")}
    assert "the divergence of a sequence weighs 1e-3" in said["sgpa"]
    assert ("5 global keys" in said["sgpa"]) == data.startswith("cola")
    for name in ("cgpt", "scgpt"):
        assert "alpha weighs the log-density in nats a token and column" in said[name]
    shared = resolve([f"{data}/softmax"]).deviations
    assert shared
    assert all(word in said[name] for word in shared for name in said)  # a row adds, it does not replace
    assert "norms" in " ".join(resolve([f"{data}/sngp"]).deviations)


def test_values_that_are_not_the_rows_are_said():
    assert changes(resolve(["cola/sgpa"], ["seed=3", "data.root=elsewhere"])) == []
    values = ["training.epochs=3", "method.options.num_inducing=7", "model.depth=1"]
    said = "not as in the row: model.depth 1 (2), method.options.num_inducing 7 (5), training.epochs 3 (50)"
    assert changes(resolve(["cola/sgpa"], values)) == [said]
    assert changes(resolve(["cola/sgpa-inducing-7"])) == []
    (words,) = changes(resolve(["imdb/sgpa", "reduced/imdb"], ["method.options.sequence_weight=1"]))
    assert words == "not as in the row: data.max_length 128 (512), method.options.sequence_weight 1 (0.001)"
    values = ["data.encoder=bge", "evaluation.draws=3", "data.limit_test=5"]  # the limit is read off the data
    assert changes(resolve(["cola/sgpa"], values)) == [
        "not as in the row: data.encoder bge (None), evaluation.draws 3 (10)"
    ]
    assert changes(resolve(["cola/sgpa"], ["name=mine/sgpa", "training.epochs=3"])) == []
