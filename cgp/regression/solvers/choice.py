"""The solvers by their names, and the choice of the cheapest one that can solve a problem."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpytorch.kernels import AdditiveKernel

if TYPE_CHECKING:
    from .model import RegressionModel

__all__ = [
    "SOLVERS",
    "Cost",
    "Problem",
    "Solver",
    "beyond_exact",
    "check_memory",
    "choose_solver",
    "machine_memory",
]

Solver: TypeAlias = "type[RegressionModel]"

SOLVERS: dict[str, Solver] = {}
"""By name; each is entered where it is defined."""

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_EXACT_LIMIT = 10_000  # rows of a matrix that is factored


class Problem(NamedTuple):
    """What a solver is asked for.

    Attributes:
        covariance: of rows.
        num_observations: number n of observations.
        num_inputs: number N of distinct inputs.
        num_inducing: number of inducing inputs, or None.
        num_sums: number of sums that are known.
    """

    covariance: AdditiveKernel
    num_observations: int
    num_inputs: int
    num_inducing: int | None = None
    num_sums: int = 0


class Cost(NamedTuple):
    """Expected cost of a fit, or of an evaluation of the objective and its gradient.

    Attributes:
        seconds: CPU seconds of one core, from measurements on another machine, within a factor of about two.
        bytes: bytes of memory.
    """

    seconds: float
    bytes: float

    def __repr__(self) -> str:
        return f"Cost(seconds={self.seconds:.3g}, bytes={self.bytes:.3g})"


def choose_solver(problem: Problem) -> Solver:
    """The cheapest of the solvers that can solve a problem.

    Args:
        problem: covariance and sizes.

    Returns:
        One of :data:`SOLVERS`.

    Raises:
        ValueError: if there is none, with the obstacle of each.
    """
    if problem.num_sums:
        return _for_sums(problem)
    obstacles, best, least = {}, None, float("inf")
    for name, solver in SOLVERS.items():
        if solver.with_inducing is not (problem.num_inducing is not None):
            continue
        obstacle = solver.obstacle(problem)
        seconds = least if obstacle else solver.cost(problem).seconds
        if obstacle:
            obstacles[name] = obstacle
        elif seconds < least:
            best, least = solver, seconds
    if best is None:
        reasons = "; ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items())
        raise ValueError(
            f"num_inducing: expected a number for {problem.num_observations} observations, got None: no solver "
            f"can do it ({reasons})"
        )
    return best


def _for_sums(problem: Problem) -> Solver:
    """The solver of series whose sums are known."""
    solver = SOLVERS["linear, sums"]
    obstacle = solver.obstacle(problem) if problem.num_inducing is None else "expected num_inducing=None"
    if obstacle is not None:
        raise ValueError(
            f"totals: expected a series, that is one input and a Markov kernel such as 'matern32': {obstacle}"
        )
    return solver


def beyond_exact(size: int, what: str = "") -> str | None:
    """Why a matrix of so many rows is not factored, or None if it is."""
    return None if size <= _EXACT_LIMIT else f"for at most {_EXACT_LIMIT}{what}"


def check_memory(cost: Cost) -> None:
    """Reject costs that exceed the memory of the machine."""
    available = machine_memory()
    if cost.bytes > available:
        raise ValueError(
            f"X, y: expected a fit within the machine's memory of {available / 1e9:.1f} GB, got an estimated "
            f"{cost.bytes / 1e9:.1f} GB"
        )


def machine_memory() -> float:
    """Bytes of memory of this machine, or of the control group (container) that the process is in."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = _CGROUP.read_text().strip() if _CGROUP.exists() else "max"
    return total if limit == "max" else min(total, float(limit))
