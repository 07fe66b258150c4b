"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import experiments

MODULES = [
    info.name
    for info in pkgutil.walk_packages(experiments.__path__, "experiments.")
    if not info.name.startswith(("experiments.studies", "experiments.__main__"))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
