import doctest
import importlib
import pkgutil

import pytest

import experiments.metrics

MODULES = [info.name for info in pkgutil.iter_modules(experiments.metrics.__path__, "experiments.metrics.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
