"""Maximum a posteriori fits by L-BFGS: several starts compared after some steps, the best run to convergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from tqdm import tqdm

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.regression.covariances.structure import check_count
from cgp.warning import warn_user

if TYPE_CHECKING:
    from cgp.regression.solvers.model import RegressionModel

__all__ = [
    "RACED",
    "Fit",
    "Progress",
    "fit_model",
    "learned_parameters",
    "minimise",
    "progress_line",
    "reported",
    "seeded",
]

Progress = Callable[[int, float], None]
Vector = NDArray[np.float64]

_FACTORS = (1.0, 3.0, 0.3, 10.0, 30.0)
_RACE = 3
_LAP = 20
RACED = 500  # observations that show which start is best; the cost of a step on all is cubic
_WINDOW = 20
_TOO_FAR = 10.0
_LEVEL = 50.0  # tolerances of a slope that a failed line search may end at: less than 2e-5 nats a row were left
_CUT, _CUT_OFF = "cut off", 1  # in words, and scipy's status


class Fit(NamedTuple):
    """Result of a fit.

    Attributes:
        loss: negative log posterior of the parameters per row, in nats.
        steps: number of steps of the optimizer.
        converged: whether a stopping criterion was met.
        message: reason for stopping.
    """

    loss: float
    steps: int
    converged: bool
    message: str


@contextmanager
def progress_line(label: str, shown: bool = True, total: int | None = None) -> Iterator[Progress | None]:
    """A progress line on the standard error stream, with the expected remaining time of a fit.

    Args:
        label: beginning of the line.
        shown: whether there is a line.
        total: actual or expected number of steps; None if it is unknown.

    Yields:
        A function to call after each step, or None if nothing is shown.
    """
    if not shown:
        yield None
        return
    with tqdm(desc=label, total=total, unit=" steps", dynamic_ncols=True) as bar:

        def show(_: int, loss: float) -> None:
            bar.set_postfix_str(f"{loss:.5f} nats per row", refresh=False)
            bar.update()

        yield show


@contextmanager
def seeded(random_state: Any) -> Iterator[int]:
    """A seed from scikit-learn's ``random_state``; torch's global generator is set to it, and restored afterwards."""
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield seed


def fit_model(
    model: RegressionModel,
    *,
    num_starts: int = 1,
    max_steps: int = 1000,
    tolerance: float = 1e-3,
    race: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Fit:
    """Fit by L-BFGS from the best of several starts.

    The objective is evaluated at five lengthscales (factors 0.3 to 30 of the initial one). The best three (or
    ``num_starts``, if that is more) run for 20 steps, and the best ``num_starts`` continue to convergence; starts
    beyond five are random perturbations. Comparing after 20 steps finds the better mode where the evidence has several:
    initial values are a poor guide. Of an exact model the steps before are on the 500 observations about the middle,
    and what they come to is compared on all.

    Args:
        model: exact or sparse; left in eval mode with the best parameters found.
        num_starts: number of starts that are optimised to the end.
        max_steps: largest number of steps of each start.
        tolerance: a start ends when 20 steps have improved the loss by less than this, in nats per row.
        race: False starts from the model's current parameters only.
        seed: seed of the perturbations.
        progress: called with the count of evaluations and the loss.

    Returns:
        The fit of the best start.

    Raises:
        ValueError: if a count is below one, or the objective is finite at no start.

    Warns:
        ConvergenceWarning: if the best start stopped before convergence.
    """
    for name, value in (("num_starts", num_starts), ("max_steps", max_steps)):
        check_count(name, value, 1)
    model.eval()
    part = _raced(model) if race else model
    fit = minimise(
        learned_parameters(model),
        lambda: _loss(model),
        _starts(model, max(len(_FACTORS), num_starts) if race else 1, seed),
        race=None if part is model else (learned_parameters(part), lambda: _loss(part)),
        num_followed=num_starts,
        max_steps=max_steps,
        tolerance=tolerance,
        progress=progress,
    )
    return reported(fit)


def minimise(
    parameters: Sequence[Tensor],
    loss: Callable[[], Tensor],
    starts: Sequence[Vector],
    *,
    race: tuple[Sequence[Tensor], Callable[[], Tensor]] | None = None,
    num_followed: int = 1,
    max_steps: int = 1000,
    tolerance: float = 1e-3,
    failures: tuple[type[Exception], ...] = (NotPositiveDefiniteError,),
    progress: Progress | None = None,
) -> Fit:
    """Minimise a loss by L-BFGS from several starts as in :func:`fit_model`; the parameters are set to the best."""
    evaluate = _Loss(parameters, loss, failures, progress)
    quick = evaluate if race is None else _Loss(*race, failures, progress)  # a cheaper loss of the same parameters
    ranked = sorted(starts, key=quick.value) if len(starts) > 1 else starts
    # A single start has nothing to race against.
    lap = min(_LAP, max_steps) if len(starts) > 1 else max_steps
    racers = [_run(quick, start, lap, tolerance) for start in ranked[: max(_RACE, num_followed)]]
    if race is not None:
        racers = [_Run(each.vector, Fit(evaluate.value(each.vector), each.fit.steps, False, "")) for each in racers]
    racers.sort(key=lambda run: run.fit.loss)
    for index, run in enumerate(racers[:num_followed]):
        if not run.fit.converged and run.fit.steps < max_steps:
            racers[index] = _run(evaluate, run.vector, max_steps - run.fit.steps, tolerance, run.fit.steps)
    best = min(racers, key=lambda run: run.fit.loss)
    if not math.isfinite(best.fit.loss):
        raise ValueError("fit: the objective is not finite at any start; check the scale of inputs and targets")
    evaluate.load(best.vector)
    return best.fit


def learned_parameters(module: torch.nn.Module) -> list[Tensor]:
    """The parameters that are learned."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def reported(fit: Fit) -> Fit:
    """Warn of a fit that stopped before convergence."""
    if not fit.converged:
        more = f"; inference=MAP(max_steps={2 * fit.steps}) takes more steps" if fit.message.startswith(_CUT) else ""
        warn_user(
            f"The fit has not converged: {fit.message} at {fit.loss:.5g} nats per row. What it predicts may be used, "
            "and might be better: leave out a column that follows exactly from another one, take logarithms of one "
            f"whose values differ by orders of magnitude{more}",
            ConvergenceWarning,
        )
    return fit


class _Loss:
    """A loss and its gradient as functions of a vector."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        loss: Callable[[], Tensor],
        failures: tuple[type[Exception], ...],
        progress: Progress | None,
    ) -> None:
        self.parameters, self.loss, self.failures, self.progress = list(parameters), loss, failures, progress
        self.evaluations, self.largest = 0, 0.0

    def load(self, vector: Vector) -> None:
        with torch.no_grad():
            vector_to_parameters(torch.as_tensor(vector).to(self.parameters[0]), self.parameters)

    def value(self, vector: Vector) -> float:
        """The loss without a gradient, infinite where it cannot be computed."""
        self.load(vector)
        try:
            with torch.no_grad():
                value = float(self.loss())
        except self.failures:
            return math.inf
        return value if math.isfinite(value) else math.inf

    def __call__(self, vector: Vector) -> tuple[float, Vector]:
        self.load(vector)
        self.evaluations += 1
        try:
            loss = self.loss()
            slopes = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        except self.failures:
            loss, slopes = torch.tensor(math.inf), ()
        value = float(loss.detach())
        if self.progress is not None:
            self.progress(self.evaluations, value)
        if not math.isfinite(value):
            # The step was too long; an infinite loss would make the line search's interpolation NaN.
            return _TOO_FAR * (1.0 + self.largest), np.zeros_like(vector)
        self.largest = max(self.largest, abs(value))
        return value, parameters_to_vector(slopes).double().cpu().numpy()


class _Run(NamedTuple):
    vector: Vector
    fit: Fit


def _run(evaluate: _Loss, start: Vector, steps: int, tolerance: float, before: int = 0) -> _Run:
    """Run one start for some steps, until it stalls; after a failed line search L-BFGS restarts with empty memory."""
    vector, value, count, won, settled = start, math.inf, 0, math.inf, False
    while won >= tolerance and count < steps and not settled:
        result, settled = _descend(evaluate, vector, steps - count, tolerance)
        vector, won, value, count = result.x, value - float(result.fun), float(result.fun), count + int(result.nit)
        if result.status == _CUT_OFF:
            break
    # Rounding hides the last of the descent: nothing was won with empty memory, on ground that is nearly level.
    level = won < tolerance and float(np.abs(result.jac).max()) < _LEVEL * tolerance
    converged = count < steps and (settled or level)
    reason = _CUT if count >= steps or result.status == _CUT_OFF else "the line search failed"
    message = "the loss stands still" if converged else f"{reason} after {before + count} steps"
    finite = evaluate.value(vector) < math.inf
    return _Run(vector, Fit(value if finite else math.inf, before + count, converged, message))


def _descend(evaluate: _Loss, start: Vector, steps: int, tolerance: float) -> tuple[OptimizeResult, bool]:
    """Run L-BFGS until it stops; also whether the gradient vanishes there, or progress has stalled."""
    losses: list[float] = []

    def stands_still() -> bool:
        return len(losses) > _WINDOW and losses[-1 - _WINDOW] - losses[-1] < tolerance

    def watch(intermediate_result: Any) -> None:
        losses.append(float(intermediate_result.fun))
        if stands_still():
            raise StopIteration

    options = {"maxiter": steps, "maxfun": 4 * steps + _WINDOW, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-6}
    result = minimize(evaluate, start, jac=True, method="L-BFGS-B", callback=watch, options=options)
    # No progress at a nonzero gradient is a failed line search, whatever status is reported.
    return result, stands_still() or float(np.abs(result.jac).max()) < tolerance


def _loss(model: RegressionModel) -> Tensor:
    return -(model.log_evidence() + model.log_prior()) / len(model.train_targets)


def _raced(model: RegressionModel) -> RegressionModel:
    """The model of a part of its observations, those about the middle, where it has many and a step is cubic."""
    rows = model.train_inputs[0]
    if model.name != "exact" or len(rows) <= RACED:
        return model
    far = (rows[:, :-1] - rows[:, :-1].median(dim=0).values).square().sum(-1)
    return model.of_rows(far.argsort(stable=True)[:RACED].sort().values)


def _starts(model: RegressionModel, number: int, seed: int) -> list[Vector]:
    """Vectors of parameters at several lengthscales, the later ones perturbed."""
    generator = torch.Generator().manual_seed(seed)
    parameters = learned_parameters(model)
    initial = parameters_to_vector(parameters).detach().clone()
    starts = []
    for index in range(number):
        with torch.no_grad():
            vector_to_parameters(initial, parameters)
            for component in model.covar_module.kernels:
                component.input_maps.log_scales += math.log(_FACTORS[index % len(_FACTORS)])
            if index >= len(_FACTORS):
                _perturb(model, generator)
            starts.append(parameters_to_vector(parameters).double().cpu().numpy().copy())
    return starts


def _perturb(model: RegressionModel, generator: torch.Generator) -> None:
    for _, module, _, closure, assign in model.named_priors():
        value = closure(module).detach()
        noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
        assign(module, value + 0.5 * noise.to(value.device))
