"""The forms of regression: which tasks each can do, the cost of an evaluation, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpytorch.kernels import AdditiveKernel

from cgp.regression.covariances.rows import is_independent

from .compressed import CompressedCorrelatedGPRegression, compressed_obstacle, num_latents
from .exact import CorrelatedGPRegression
from .model import RegressionModel
from .series import SeriesCorrelatedGPRegression, num_states, series_obstacle
from .sparse import SparseCorrelatedGPRegression
from .stochastic import StochasticCorrelatedGPRegression

__all__ = [
    "FORMS",
    "Cost",
    "Form",
    "Task",
    "choose_form",
    "forms_of",
]

_EXACT_LIMIT = 10_000


class Task(NamedTuple):
    """A task that a form is chosen for.

    Attributes:
        covariance: a covariance of :func:`.correlated_covariance`.
        num_observations: number n of observations.
        num_inputs: number N of distinct inputs.
        num_inducing: argument of the estimator.
        is_stochastic: whether minibatches are requested.
    """

    covariance: AdditiveKernel
    num_observations: int
    num_inputs: int
    num_inducing: int | None = None
    is_stochastic: bool = False


class Cost(NamedTuple):
    """Expected cost of a fit, or of an evaluation of the objective and its gradient.

    Attributes:
        seconds: CPU seconds of one core, from measurements on another machine, within a factor of about two.
        bytes: bytes of memory.
    """

    seconds: float
    bytes: float


class Form(NamedTuple):
    """A form of regression.

    Attributes:
        name: name of the form.
        model: class of the models.
        obstacle: function that returns why the form cannot do a task, or None.
        cost: function that returns the cost of a task that it can do.
    """

    name: str
    model: type[RegressionModel]
    obstacle: Callable[[Task], str | None]
    cost: Callable[[Task], Cost]


def choose_form(task: Task) -> Form:
    """The cheapest of the forms that can do a task.

    Args:
        task: data and options.

    Returns:
        One of :data:`FORMS`.

    Raises:
        ValueError: if there is none, with the obstacle of each form.
    """
    obstacles = {form.name: form.obstacle(task) for form in FORMS}
    possible = [form for form in FORMS if obstacles[form.name] is None]
    if not possible:
        reasons = "; ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items())
        raise ValueError(
            f"num_inducing: expected a number for {task.num_observations} observations, got None: no form of "
            f"regression fits ({reasons})"
        )
    return min(possible, key=lambda form: form.cost(task).seconds)


def forms_of(tasks: Mapping[str, Task]) -> dict[str, tuple[Form, Task]]:
    """The form of each of several tasks; tasks that no form can do are omitted, unless that is all of them."""
    forms, errors = {}, []
    for name, task in tasks.items():
        try:
            forms[name] = choose_form(task), task
        except ValueError as error:
            errors.append(error)
    if not forms:
        raise errors[0]
    return forms


def _exact_obstacle(task: Task) -> str | None:
    if task.num_inducing is not None:
        return "without inducing inputs"
    return None if task.num_observations <= _EXACT_LIMIT else f"for at most {_EXACT_LIMIT}"


def _linear_obstacle(task: Task) -> str | None:
    return "without inducing inputs" if task.num_inducing is not None else series_obstacle(task.covariance)


def _compressed_obstacle(task: Task) -> str | None:
    if task.num_inducing is not None:
        return "without inducing inputs"
    if task.num_inputs * num_latents(task.covariance) > _EXACT_LIMIT:
        return f"for at most {_EXACT_LIMIT} inputs times processes"
    return compressed_obstacle(task.covariance)


def _sparse_obstacle(task: Task) -> str | None:
    if task.num_inducing is None:
        return "with inducing inputs"
    return "without minibatches" if task.is_stochastic else None


def _stochastic_obstacle(task: Task) -> str | None:
    return None if task.is_stochastic else "in minibatches"


# The figures are measured (docs/notes/regression.md, "Linear time" and "What is expected of a fit").
def _exact_cost(task: Task) -> Cost:
    n, kernels = float(task.num_observations), task.covariance.kernels
    blocks = kernels[0].num_processes if all(is_independent(component) for component in kernels) else 1
    seconds = 2e-3 + 1e-3 * blocks + 1.5e-8 * len(kernels) * n**2 / blocks + 3.5e-11 * n**3 / blocks**2
    return Cost(seconds, 8.0 * n**2 * (4.6 + 2.8 * len(kernels)))


def _linear_cost(task: Task) -> Cost:
    first = task.covariance.kernels[0]
    states, outputs = float(num_states(task.covariance)), first.num_processes
    rows = task.num_inputs if first.input_maps.shifts is None else task.num_observations
    seconds = 4e-3 + rows * (1e-4 + 3.5e-6 * states + 1.1e-8 * states**2)
    return Cost(seconds, rows * (2000.0 + 16.0 * states * outputs + 24.0 * states**2))


def _compressed_cost(task: Task) -> Cost:
    size = float(task.num_inputs * num_latents(task.covariance))
    return Cost(3e-3 + 6.5e-8 * size**2 + 3e-11 * size**3, 8.0 * (12.0 * size**2 + 4.0 * task.num_observations))


def _sparse_cost(task: Task) -> Cost:
    n, m = float(task.num_observations), float(task.num_inducing or 0)
    return Cost(3e-3 + n * (8.5e-8 * m + 1.8e-10 * m**2) + 1e-10 * m**3, 8.0 * (min(n * m, 2**25) * 8.0 + 10.0 * m**2))


FORMS = (
    Form("exact", CorrelatedGPRegression, _exact_obstacle, _exact_cost),
    Form("compressed", CompressedCorrelatedGPRegression, _compressed_obstacle, _compressed_cost),
    Form("linear", SeriesCorrelatedGPRegression, _linear_obstacle, _linear_cost),
    Form("sparse", SparseCorrelatedGPRegression, _sparse_obstacle, _sparse_cost),
    Form("stochastic", StochasticCorrelatedGPRegression, _stochastic_obstacle, _sparse_cost),
)
