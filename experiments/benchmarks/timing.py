"""Seconds of several calls, interleaved, so that what disturbs the machine disturbs all of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["Budget", "Timing", "interleaved"]


class Budget(NamedTuple):
    """How long a group of calls may take.

    Attributes:
        seconds: after which no further round starts.
        fewest: rounds that are run in any case.
        most: rounds at most.
    """

    seconds: float
    fewest: int = 3
    most: int = 40


class Timing(NamedTuple):
    """Seconds of one call over the rounds, and its ratio to the first call of the same round.

    Attributes:
        seconds: median.
        low: lower quartile.
        high: upper quartile.
        minimum: what a machine left alone would come near to.
        ratio: median over the rounds of the call's seconds by the first call's.
        ratio_low: lower quartile.
        ratio_high: upper quartile.
        ratio_minimum: of the minima.
        rounds: how many there were.
    """

    seconds: float
    low: float
    high: float
    minimum: float
    ratio: float
    ratio_low: float
    ratio_high: float
    ratio_minimum: float
    rounds: int


def interleaved(calls: Mapping[str, Callable[[], Any]], budget: Budget) -> dict[str, Timing]:
    """Time calls in rounds of one each; every other round goes backwards. The first call is what others are related to.

    Args:
        calls: by name; each is called once before it is timed.
        budget: when to stop.

    Example:
        >>> sorted(interleaved({"a": lambda: None, "b": lambda: None}, Budget(0.0)))
        ['a', 'b']
    """
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    started = time.perf_counter()
    for done in range(budget.most):
        if done >= budget.fewest and time.perf_counter() - started > budget.seconds:
            break
        for name, call in list(calls.items())[:: -1 if done % 2 else 1]:
            before = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - before)
    first = next(iter(taken.values()))
    return {name: _summary(seconds, first) for name, seconds in taken.items()}


def _summary(seconds: list[float], first: list[float]) -> Timing:
    ratios = [own / other for own, other in zip(seconds, first, strict=True)]
    low, middle, high = _quartiles(seconds)
    ratio_low, ratio, ratio_high = _quartiles(ratios)
    least = min(seconds)
    return Timing(middle, low, high, least, ratio, ratio_low, ratio_high, least / min(first), len(seconds))


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
