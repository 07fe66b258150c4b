"""The search on validation NLL, on a tiny model."""

import csv

import pytest

from experiments.runs import Run, tuning
from experiments.runs.parsing import resolve, resolve_rows
from experiments.runs.tuning import tune
from experiments.storage import read_yaml
from experiments.training.fit import QUIET

VALUES = [
    *("model.embed_dim=8", "model.mlp_dim=8", "model.depth=1", "training.epochs=2", "training.batch_size=40"),
    *("data.corruptions.kinds=[]", "data.ood=[]", "data.limit_train=80", "data.limit_validation=20"),
]
SPACE = {
    "learning_rates": [1e-4, 1e-2],
    "variants": {"softmax": [{"weight_decay": 0.1}], "cgp_direct": [{"alpha": 0.1, "options": {"objective": "joint"}}]},
}


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """A complete search: folder, table and files."""
    out = tmp_path_factory.mktemp("tune")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "read_yaml", lambda path: SPACE)
        configs = resolve_rows(["digits/softmax", "digits/cgp_direct"], [0, 1], [], VALUES)
        return out, *tune(configs, out=out, trainer=QUIET, workers=1)


def rows(folder):
    return list(csv.DictReader((folder / "trials.csv").read_text().splitlines()))


def test_chooses_the_smallest_mean_validation_nll(search):
    folder, table, files = search
    trials = rows(folder)
    assert len(trials) == 4
    assert table.row_count == len(files) == 2
    for name in ("softmax", "cgp_direct"):
        own = [trial for trial in trials if trial["row"] == f"digits/{name}"]
        best = min(own, key=lambda trial: float(trial["validation_nll"]))
        chosen = resolve([f"digits/{name}", str(folder / f"digits-{name}.yaml")]).method
        assert f"learning_rate {chosen.learning_rate}" in best["selected"]
    assert (chosen.alpha, chosen.options) == (0.1, {"coupling": "direct", "objective": "joint"})


def test_trials_are_means_over_seeds_and_touch_no_test_image(search):
    folder, _, _ = search
    runs = [Run(folder / "digits" / "softmax-trial-1" / f"seed-{seed}") for seed in (0, 1)]
    (row,) = [one for one in rows(folder) if one["selected"] == "weight_decay 0.1, learning_rate 0.01"]
    assert float(row["validation_nll"]) == pytest.approx(sum(run.record["validation_nll"] for run in runs) / 2)
    assert not list(folder.rglob("*.npz"))


def test_every_row_of_the_space_has_as_many_trials_and_is_a_configuration(monkeypatch):
    space = read_yaml(tuning.CONFIGS / "tune.yaml")
    assert len({len(variants) for variants in space["variants"].values()}) == 1
    monkeypatch.setattr(tuning, "read_yaml", lambda path: space | {"learning_rates": [1e-3]})
    configs = resolve_rows([f"digits/{row}" for row in space["variants"]], [0])
    assert sum(1 for _ in tuning._trials(configs)) == 5 * len(space["variants"])
