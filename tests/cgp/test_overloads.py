"""The types that calls return by their task: each overload has the arguments of the function itself."""

import inspect
from typing import get_args, get_overloads, get_type_hints

import pytest

import cgp
from cgp.networks.assess.assess import TASKS


@pytest.mark.parametrize("function", [cgp.assess, cgp.calibrate])
def test_overloads_cover_every_task_and_argument(function):
    given, tasks, names = inspect.signature(inspect.unwrap(function)).parameters, [], set()
    overloads = get_overloads(inspect.unwrap(function))
    for overload in overloads:
        parameters, hints = inspect.signature(overload).parameters, get_type_hints(overload)
        tasks += get_args(hints["task"]) if get_args(hints["task"]) else [hints["task"]]
        names |= set(parameters)
        assert all(parameter.kind == given[name].kind for name, parameter in parameters.items())
        assert all(
            (parameter.default is inspect.Parameter.empty) == (given[name].default is inspect.Parameter.empty)
            for name, parameter in parameters.items()
            if name != "task"
        )
    assert sorted(map(str, tasks)) == sorted([*TASKS, str(str)])
    assert names == set(given)
    returned = [get_type_hints(overload)["return"] for overload in overloads]
    assert returned[0] != returned[1]
    assert set(get_args(returned[2])) == set(returned[:2])
