"""L-BFGS from several starts: a race over the first steps, and the best to the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["RACE", "Fit", "Progress", "copied_state", "learned_parameters", "minimise"]

Progress = Callable[[int, float], None]

RACE = 3
_LAP = 20
_WINDOW = 20
_STILL = 1e-6
_TOO_FAR = 10.0


class Fit(NamedTuple):
    """How a fit went.

    Attributes:
        loss: the negative log posterior of the parameters a row, in nats.
        steps: steps of the optimiser.
        converged: whether it stopped by itself.
        message: in words.
    """

    loss: float
    steps: int
    converged: bool
    message: str


def minimise(
    module: torch.nn.Module,
    loss: Callable[[], Tensor],
    starts: Iterable[dict[str, Tensor]],
    *,
    num_followed: int = 1,
    max_steps: int = 200,
    tolerance: float = 1e-3,
    failures: tuple[type[Exception], ...] = (),
    progress: Progress | None = None,
) -> Fit | None:
    """Minimise by L-BFGS with a strong-Wolfe line search.

    The first three starts, or as many as are to be followed, race over 20 steps each; the best ``num_followed`` of
    them go on to the end. A start ends when its last 20 evaluations of the loss have won less than ``tolerance``
    altogether, or nothing changes any more.

    Args:
        module: what is fitted; left with the best parameters found.
        loss: of the module's current parameters, a scalar.
        starts: state dictionaries, the most promising first.
        num_followed: how many go on after the race.
        max_steps: of each start, the race included.
        tolerance: in units of the loss.
        failures: exceptions that mean a step went too far.
        progress: called with the count of evaluations and the loss.

    Returns:
        How the best one went; None if the loss is finite nowhere.

    Source:
        Nocedal & Wright (2006), Numerical Optimization, algorithms 7.5 and 3.5, as of :class:`torch.optim.LBFGS`.
    """
    runs = []
    for start in islice(starts, max(RACE, num_followed)):
        run = _Run(module, loss, start, tolerance, failures, progress)
        run.advance(min(_LAP, max_steps))
        runs.append(run)
    runs.sort(key=lambda run: run.best)
    for run in runs[:num_followed]:
        run.advance(max_steps - run.steps)
    winner = min(runs, key=lambda run: run.best)
    if not math.isfinite(winner.best):
        return None
    module.load_state_dict(winner.state)
    return winner.outcome()


def learned_parameters(module: torch.nn.Module) -> list[Tensor]:
    """The parameters that are learned.

    Args:
        module: any module.

    Returns:
        Those with gradients.
    """
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def copied_state(module: torch.nn.Module) -> dict[str, Tensor]:
    """The state of a module, which later steps do not change.

    Args:
        module: any module.

    Returns:
        A copy of its state dictionary.
    """
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


class _StandsStill(Exception):  # noqa: N818  # no error: the only way out of torch's line search
    """The loss has not fallen enough for a while."""


class _Run:
    """One start on its way, which may rest while others go on."""

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Callable[[], Tensor],
        start: dict[str, Tensor],
        tolerance: float,
        failures: tuple[type[Exception], ...],
        progress: Progress | None,
    ) -> None:
        self.module, self.loss, self.tolerance = module, loss, tolerance
        self.failures, self.progress = failures, progress
        self.current = self.state = start
        self.bests: list[float] = []
        self.largest = 0.0
        self.finished = False
        self.optimizer = torch.optim.LBFGS(
            learned_parameters(module),
            history_size=20,
            tolerance_grad=_STILL,
            tolerance_change=_STILL,
            line_search_fn="strong_wolfe",
        )

    @property
    def best(self) -> float:
        return self.bests[-1] if self.bests else math.inf

    @property
    def steps(self) -> int:
        return int(self.optimizer.state[self.optimizer._params[0]].get("n_iter", 0))

    def advance(self, steps: int) -> None:
        """Go on for some steps, unless the end was reached before."""
        if self.finished or steps < 1:
            return
        self.module.load_state_dict(self.current)
        group = self.optimizer.param_groups[0]
        group["max_iter"], group["max_eval"] = steps, 2 * steps
        before, evaluations = self.steps, len(self.bests)
        try:
            self.optimizer.step(self._closure)
        except _StandsStill:
            self.finished = True
        else:
            self.finished = self.steps - before < steps and len(self.bests) - evaluations < 2 * steps
        self.current = copied_state(self.module)

    def outcome(self) -> Fit:
        message = "the loss or its gradient stands still" if self.finished else f"cut off after {self.steps} steps"
        return Fit(self.best, self.steps, self.finished, message)

    def _closure(self) -> Tensor:
        self.optimizer.zero_grad()
        value = self._value()
        found = float(value.detach())
        self.largest = max(self.largest, abs(found)) if math.isfinite(found) else self.largest
        if found < self.best:
            self.state = copied_state(self.module)
        self.bests.append(found if found < self.best else self.best)
        if self.progress is not None:
            self.progress(len(self.bests), found)
        if len(self.bests) > _WINDOW and self.bests[-1 - _WINDOW] - self.best < self.tolerance:
            raise _StandsStill
        return value

    def _value(self) -> Tensor:
        """The loss with its gradients; a step too far has a large loss, from which the line search steps back."""
        try:
            value = self.loss()
            value.backward()
        except self.failures:
            # An infinite one would make the line search's interpolation NaN.
            parameters = learned_parameters(self.module)
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
            return parameters[0].new_full((), _TOO_FAR * (1.0 + self.largest))
        return value
