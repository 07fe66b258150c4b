"""``pip install .`` without extras, in an interpreter that has only the packages of the base installation."""

import configparser
import importlib.metadata
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

# Read by a fresh interpreter: modules of other packages than these are not there.
SCRIPT = """
import importlib.metadata, json, pkgutil, sys

allowed = set(json.loads(sys.argv[1]))


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


distributions = importlib.metadata.packages_distributions()
BLOCKED = {top for top, named in distributions.items() if not allowed & {n.lower().replace("_", "-") for n in named}}
BLOCKED -= {"cgp", "models", "experiments", "tests"}
sys.meta_path.insert(0, Blocker())

import numpy as np
import cgp

answers = {}


def note(name, call):
    try:
        call()
    except Exception as error:
        answers[name] = f"{type(error).__name__}: {error}"
    else:
        answers[name] = ""


def read(name):
    module = __import__(name, fromlist=["*"])
    return [getattr(module, public) for public in getattr(module, "__all__", ())]


read("cgp")
modules = [info.name for info in pkgutil.walk_packages(cgp.__path__, "cgp.", onerror=lambda name: None)]
for name in modules:
    note(name, lambda: read(name))
x = np.linspace(0.0, 1.0, 8)[:, None]


def fit(inference):
    from cgp.regression import CorrelatedGPRegressor

    mean = CorrelatedGPRegressor(inference=inference).fit(x, np.sin(6 * x[:, 0])).predict(x)
    assert np.isfinite(mean).all()


for inference in ("map", "laplace", "nuts"):
    note(inference, lambda: fit(inference))
note("matplotlib", lambda: __import__("matplotlib"))
import torch
prediction = cgp.predict(torch.nn.Linear(2, 3), torch.zeros(4, 2), task="classification")
note("to_frame", prediction.to_frame)
note("plot", prediction.plot)
note("pipeline", lambda: cgp.pipeline("text-classification", torch.nn.Linear(2, 3)))
print(json.dumps(answers))
"""


@cache
def base() -> set[str]:
    """The packages of the base install: what setup.cfg asks for, and what that asks for."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = parser["options"]["install_requires"].splitlines()
    waiting, pinned = [line for line in lines if line and not line.startswith("#")], set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and name not in pinned and "nvidia" not in name:
            pinned.add(name)
            waiting += importlib.metadata.requires(name) or []
    return pinned


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, json.dumps(sorted(base()))]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_every_public_name_is_there_or_names_its_extra(answers: dict[str, str]) -> None:
    names = {name: answer for name, answer in answers.items() if name.startswith("cgp.")}
    assert {
        "cgp.regression",
        "cgp.regression.inference.nuts",
        "cgp.networks.predict.prediction",
        "cgp.networks.assess",
    } <= names.keys()
    of_extras = {name: answer for name, answer in names.items() if answer}
    extras = {"cgp.plotting": "plot", "cgp.networks.model.pyro": "bayesian"}
    assert of_extras.keys() == extras.keys()
    for name, extra in extras.items():
        assert of_extras[name].startswith(f"ImportError: {name}: needs ")
        assert of_extras[name].endswith(f'pip install "cgp[{extra}]"')


@pytest.mark.parametrize("inference", ["map", "laplace"])
def test_the_regressor_fits(answers: dict[str, str], inference: str) -> None:
    assert answers[inference] == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nuts", "ImportError: inference='nuts': needs pyro, which the extra 'bayesian' installs"),
        ("to_frame", "ImportError: to_frame: needs pandas, which the extra 'frames' installs"),
        ("plot", "ImportError: cgp.plotting: needs matplotlib, which the extra 'plot' installs"),
        ("pipeline", "ImportError: pipeline: needs transformers, which the extra 'text' installs"),
    ],
)
def test_features_of_extras_name_the_extra(answers: dict[str, str], name: str, message: str) -> None:
    assert answers[name].startswith(message)


def test_the_interpreter_has_no_other_packages(answers: dict[str, str]) -> None:
    assert answers["matplotlib"].startswith("ModuleNotFoundError")
