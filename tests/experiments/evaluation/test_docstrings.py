import doctest
import importlib
import pkgutil

import pytest

import experiments.evaluation

MODULES = [info.name for info in pkgutil.iter_modules(experiments.evaluation.__path__, "experiments.evaluation.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
