"""Runs shared by several tests, trained once."""

import shutil

import pytest

from experiments import cli
from experiments.runs import Run
from experiments.runs.parsing import resolve
from experiments.runs.performing import perform
from experiments.training.fit import QUIET
from tests.experiments.runs import typed

SMALL = [
    *("training.epochs=1", "training.warmup_epochs=0", "training.validation_draws=1", "evaluation.draws=2"),
    *("data.limit_train=40", "data.limit_validation=20", "data.limit_test=30", "data.limit_ood=10"),
    *("data.corruptions.kinds=[blur]", "data.corruptions.severities=[1]", "data.corruptions.limit=6"),
    "data.ood=[inverted]",
]


def made(out, row="digits/softmax", *values):
    """A complete run of one epoch on few examples."""
    return perform(resolve([row], [*SMALL, *values]), out=out, trainer=QUIET)


@pytest.fixture
def unreported(monkeypatch):
    """Commands without the report at their end: its pictures take most of their seconds."""
    monkeypatch.setattr(cli, "report", lambda *_, **__: None)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory):
    """Folders of a run of `made`, and of one on images of one's own."""
    digits, other_data = tmp_path_factory.mktemp("digits"), tmp_path_factory.mktemp("own")
    made(digits)
    typed.write_classes(other_data / "images", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "report", lambda *_, **__: None)
        cli.main(typed.fit_folder(other_data / "runs", other_data / "images"))
    return digits, other_data


@pytest.fixture
def base(trained_once, tmp_path):
    """The run of `made` in a folder that a test may change."""
    shutil.copytree(trained_once[0], tmp_path, dirs_exist_ok=True)
    return Run(tmp_path / "digits" / "softmax" / "seed-0")


@pytest.fixture
def trained(trained_once, tmp_path):
    """A run on images of one's own, with its images, in a folder that a test may change."""
    shutil.copytree(trained_once[1], tmp_path, dirs_exist_ok=True)
    run = Run(tmp_path / "runs" / "own" / "softmax" / "seed-0")
    run.config_file.write_text(run.config_file.read_text().replace(str(trained_once[1]), str(tmp_path)))
    return run
