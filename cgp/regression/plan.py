"""What a fit of a regressor consists of, and what it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpytorch.kernels import Kernel
from sklearn.base import clone
from torch import Tensor

from .covariances.factors import FACTORS, factor_counts, factor_covariance
from .covariances.rows import correlated_covariance
from .inference.comparison import COMPARED, RACED
from .inference.costs import chains_cost, evaluations_of, fit_cost, minibatches_cost, windows_cost
from .inference.long_series import LongSeries, long_covariance, num_windows
from .scaling import Scaling
from .solvers.choice import Cost, Form, Task, choose_form, forms_of

__all__ = ["WARM_ROWS", "WARM_STEPS", "PlanMixin"]

WARM_ROWS = 2048  # rows of the closed-form fit that initialises a fit by minibatches
WARM_STEPS = 40
_FEW_ROWS = 50  # for which a point estimate of the parameters is not enough
_MANY = 8  # smallest number of outputs for which few processes are fitted if all structures take long
_LEAST_SHARE = 0.5  # smallest observed share of the cells of a table, for that
_LONG_EVALUATION = 0.55  # seconds of an evaluation; a fit of a structure takes a hundred and more


class PlanMixin:
    """The inference, the form of every structure, and the expected time and memory.

    Attributes:
        n_outputs_: number of outputs.
        x_scaling_: map from the user's inputs to standardised ones.
        periods_: periods of the cycles of a long series, in the user's units.
    """

    kernel: str | Kernel | None
    num_components: int | None
    structure: str
    num_inducing: int | None
    inference: str
    num_starts: int
    max_steps: int
    num_epochs: int
    batch_size: int
    num_chains: int
    num_warmup: int
    num_samples: int
    n_outputs_: int
    x_scaling_: Scaling
    periods_: Sequence[float]
    _base: str | Kernel | None
    _long: bool
    _prepared: Callable[[Any, Any], tuple[Tensor, Tensor]]

    def estimate(self, X: Any, y: Any) -> Cost:
        """Expected time and memory of a fit to these observations, without fitting.

        Args:
            X: inputs, ``(n, d)``.
            y: as in :meth:`fit`.

        Returns:
            Seconds of one core, within a factor of about two, and bytes of memory.

        Raises:
            ValueError: if the data or an argument are not usable.
        """
        other = clone(self)
        return other._cost(other._prepared(X, y)[0])

    def _cost(self, rows: Tensor) -> Cost:
        if self._long:
            options, inputs = self._scales(), rows[:, 0].unique()
            task = Task(long_covariance(inputs, self.n_outputs_, options), len(rows), len(inputs))
            return windows_cost(task, num_windows(self.n_outputs_, options))
        forms, inference = self._forms(rows), self._inference_for(rows)
        if inference == "stochastic":
            passes = minibatches_cost(forms, self.num_epochs, self.batch_size)
            forms = {name: (form, _warm(task)) for name, (form, task) in forms.items()}
            return passes._replace(seconds=passes.seconds + fit_cost(forms, self._evaluations(forms)).seconds)
        cost = fit_cost(forms, self._evaluations(forms), is_sampled=inference in ("laplace", "slice", "nuts"))
        chains = chains_cost(forms, inference, self.num_chains * (self.num_warmup + self.num_samples))
        return cost._replace(seconds=cost.seconds + chains)

    def _evaluations(self, forms: dict[str, tuple[Form, Task]]) -> dict[str, int]:
        """Expected number of evaluations of the objective in each fit."""
        raced = (*RACED, f"{FACTORS} 1") if len(forms) > 1 else None
        max_steps = WARM_STEPS if self.inference == "stochastic" else self.max_steps
        return evaluations_of(forms, raced, num_starts=self.num_starts, max_steps=max_steps)

    def _num_steps(self, rows: Tensor) -> int | None:
        """Expected number of steps of a fit; unknown for minibatches and their initial fit."""
        if self._long:
            return num_windows(self.n_outputs_, self._scales())
        return None if self.inference == "stochastic" else sum(self._evaluations(self._forms(rows)).values())

    def _inference_for(self, rows: Tensor) -> str:
        """The inference for these rows: the choice, for "auto"."""
        if self.inference != "auto":
            return self.inference
        return "slice" if self.num_inducing is None and not self._long and len(rows) <= _FEW_ROWS else "map"

    def _scales(self) -> LongSeries:
        periods = [period / self.x_scaling_.unit[0] for period in self.periods_]
        default = LongSeries(periods=periods)
        return default._replace(
            kernel=self.kernel or default.kernel, num_components=self.num_components or default.num_components
        )

    def _forms(self, rows: Tensor) -> dict[str, tuple[Form, Task]]:
        """The form of every structure to be fitted; structures without a form are omitted if others have one."""
        if self.structure == FACTORS:
            return forms_of(self._factor_tasks(rows))
        several = self.structure == "auto" and self.n_outputs_ > 1
        names = COMPARED if several else ["independent" if self.structure == "auto" else self.structure]
        tasks = {name: self._task(rows, name) for name in names}
        if not several or self.num_inducing is not None or self.n_outputs_ < _MANY or not self._takes_long(tasks):
            return forms_of(tasks)
        return forms_of(self._factor_tasks(rows))

    def _takes_long(self, tasks: dict[str, Task]) -> bool:
        """Whether the first of the structures takes minutes, for a table whose cells are mostly observed."""
        task = tasks[RACED[0]]
        if task.num_observations < _LEAST_SHARE * self.n_outputs_ * task.num_inputs:
            return False
        try:
            return choose_form(task).cost(task).seconds > _LONG_EVALUATION
        except ValueError:  # no form can do it
            return True

    def _factor_tasks(self, rows: Tensor) -> dict[str, Task]:
        """Tasks of few processes for many outputs, by the number of processes."""
        counts = factor_counts(self.n_outputs_, len(rows[:, :-1].unique(dim=0)))
        names = [f"{FACTORS} {count}" for count in ([self.num_components] if self.num_components else counts)]
        return {name: self._task(rows, name) for name in names}

    def _task(self, rows: Tensor, structure: str) -> Task:
        """The task (standardised rows and the structure of their outputs) that a form is chosen for."""
        kernel, sizes = self._base or "rbf", (self.n_outputs_, rows.shape[-1] - 1)
        if structure.startswith(FACTORS):
            covariance = factor_covariance(*sizes, int(structure.split()[1]), kernel=kernel)
        else:
            options: dict[str, Any] = {"kernel": kernel, "num_components": self.num_components or 1}
            covariance = correlated_covariance(*sizes, structure=structure, **options).double()
        return Task(covariance, len(rows), len(rows[:, :-1].unique(dim=0)), self.num_inducing)


def _warm(task: Task) -> Task:
    """The task of the fit that initialises a fit by minibatches."""
    return task._replace(num_observations=min(task.num_observations, WARM_ROWS))
