"""Rows x seeds: what needs what, what is done, what is printed."""

import pytest

from experiments.runs import experiment_from, experiment_of, row_names
from experiments.runs.parsing import HintingParser
from experiments.runs.sweeping import commands, experiments_of, waves


def names(experiments):
    return [(experiment.name, experiment.seed) for experiment in experiments]


def test_rows_bring_those_that_they_need():
    found = names(experiments_of(["cola/cgpt", "cola/temperature"], [0, 1], [], []))
    needed = ["kernel_asymmetric", "cgpt", "softmax", "temperature"]
    assert found == [(f"cola/{name}", seed) for seed in (0, 1) for name in needed]


def test_an_ensemble_needs_its_members():
    found = names(experiments_of(["cola/ensemble_softmax"], [1], [], ["method.options.members=2"]))
    assert found == [("cola/softmax", 2), ("cola/softmax", 3), ("cola/ensemble_softmax", 1)]


def test_what_is_needed_comes_in_an_earlier_wave():
    ordered = waves(experiments_of(["cola/cgpt", "cola/softmax"], [0], [], []))
    assert [names(wave) for wave in ordered] == [
        [("cola/kernel_asymmetric", 0), ("cola/softmax", 0)],
        [("cola/cgpt", 0)],
    ]


def test_commands_leave_out_what_is_done(tmp_path):
    runs = experiments_of(["cola/softmax", "cola/sgpa"], [0, 1], [], ["training.epochs=3"])
    done = tmp_path / "cola" / "softmax" / "seed-1"
    done.mkdir(parents=True)
    (done / "run.json").write_text("{}")
    lines = commands(runs, tmp_path, [], ["--training.epochs=3"])
    assert [line.split("--config ")[1] for line in lines] == [
        f"cola/{name} --training.epochs=3 --seed {seed} --out {tmp_path}"
        for seed, name in ((0, "softmax"), (0, "sgpa"), (1, "sgpa"))
    ]


def test_overrides_are_merged_over_a_row():
    experiment = experiment_from(["imdb/sgpa", "reduced/imdb"], ["training.epochs=3", "seed=4"])
    assert (experiment.data.max_length, experiment.training.epochs, experiment.seed) == (128, 3, 4)
    assert experiment.method.options["num_inducing"] == 50
    assert experiment.reduced == ["5,000 reviews of at most 128 tokens"]


def test_a_folder_without_rows_has_those_of_the_folder_it_is_named_after():
    one, other = experiment_from(["cola/sgpa"]), experiment_from(["cola-official/sgpa"])
    assert (other.name, other.data.split) == ("cola-official/sgpa", "official")
    assert other.method == one.method
    assert "cola-pooled/scgpt" in row_names("cola*/scgpt")
    assert "cifar10-kep/cgpt" not in row_names()


def test_a_configuration_is_what_its_plain_values_say():
    experiment = experiment_from(["cifar10-kep/kep_svgp"])
    assert experiment_of(experiment.plain()) == experiment


def test_an_unknown_row_is_refused():
    with pytest.raises(ValueError, match=r"rows: expected rows such as .* got 'colla'; did you mean cola\?"):
        row_names("colla")
    with pytest.raises(ValueError, match=r"got 'cola/sgpaa'; did you mean cola/sgpa\?"):
        row_names("cola/sgpaa")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--training.epoch", "3"], "training.epochs"),
        (["--wrokers", "3"], "workers"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_known_one(arguments, hint, capsys):
    parser = HintingParser(allow_abbrev=False)
    parser.add_argument("--training.epochs", type=int)
    parser.add_argument("--workers", type=int)
    with pytest.raises(SystemExit) as stopped:
        parser.parse_args(arguments)
    assert stopped.value.code == 2
    assert f"did you mean '{hint}'?" in capsys.readouterr().err
