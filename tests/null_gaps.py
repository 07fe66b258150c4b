"""How often ``cgp.assess_gaps`` claims that one of several equally good methods is ahead of another.

``python -m tests.null_gaps --trials 1000`` prints a table of claims, in either direction, over all gaps or in a class
of them, for docs/notes/reliability.md:

- reports whose block scores are drawn: with something in common, heavy tails, classes of gaps of unlike sizes,
- whole reports of six imputers whose errors are drawn anew.
"""

import argparse
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgp import assess_gaps
from cgp.tables import GapReport
from cgp.tables.masking import HiddenBlocks
from cgp.tables.referee.scores import BlockScores, Strata
from cgp.tables.referee.trials import Trial

Array = NDArray[np.float64]


def report_of(nll: Array, labels: Any = None, weights: dict[str, float] | None = None) -> GapReport:
    """A report of methods with these NLLs ``(M, B)`` of blocks, of these classes; the last method is the default."""
    names = np.array(["1"] * nll.shape[1] if labels is None else labels)
    classes = sorted(set(names.tolist()))
    shares = {name: 1 / len(classes) for name in classes} if weights is None else weights
    empty, none = np.zeros(0), np.zeros(0, dtype=np.int64)
    trials = {
        f"method {number}": Trial(empty, empty, empty, BlockScores(values, values, values, values), 0.0, None)
        for number, values in enumerate(nll)
    }
    hidden = HiddenBlocks(none, none, none, none, np.zeros(len(names), dtype=np.int64), names, None)  # type: ignore[arg-type]
    return GapReport({}, trials, {}, hidden, Strata(names, shares), True, f"method {len(nll) - 1}", None)


def null_losses(rng: np.random.Generator, methods: int, blocks: int, tails: float = 5.0) -> Array:
    """NLLs of equally good methods: means over blocks of different lengths of what has something in common."""
    sizes, common = rng.integers(1, 30, blocks), rng.standard_t(tails, size=blocks)
    own = [rng.normal(size=(2, blocks)) for _ in range(methods)]
    return np.stack([0.5 * (common + first) ** 2 + second / np.sqrt(sizes) for first, second in own])


def claims_anything(report: GapReport) -> bool:
    """Whether any method is claimed to be ahead of any other, over all gaps or in a class."""
    places = (None, *report.strata.weights)
    return any(report.is_ahead(one, other, place) for one, other in permutations(report.trials, 2) for place in places)


class Guessing:
    """An imputer of values that are the truth with standard normal errors, and says so."""

    def __init__(self, truth: Array, seed: int) -> None:
        self.truth, self.seed = truth, seed

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """As scikit-learn's clone asks for them."""
        return {"truth": self.truth, "seed": self.seed}

    def fit_transform(self, table: Array) -> Array:
        """The filled table; errors are those of the place and the seed."""
        rng = np.random.default_rng([self.seed, int(np.isnan(table).sum())])
        self.std_ = np.isnan(table).astype(float)
        return np.where(np.isnan(table), self.truth + rng.normal(size=table.shape), table)


def whole_report(trial: int) -> GapReport:
    """Six imputers on a table of white noise with gaps of a few rows."""
    rng = np.random.default_rng(trial)
    truth = rng.normal(size=(200, 3))
    table = truth.copy()
    for column in range(3):
        for start in rng.choice(180, 3, replace=False):
            table[start : start + int(rng.integers(1, 12)), column] = np.nan
    methods = {f"method {number}": Guessing(truth, 6 * trial + number) for number in range(6)}
    return assess_gaps(table, methods=methods, random_state=trial, verbose=False)


def rows(trials: int) -> Iterator[tuple[str, int, int]]:
    """Each setting, the number of reports, and of those that claim something."""
    for blocks in (10, 20, 40, 120):
        for tails in (3.0, 5.0, 30.0):
            for share in (0.5, 0.8):
                rng = np.random.default_rng([blocks, int(tails)])
                first = int(share * blocks)
                labels = ["1"] * first + ["2–4"] * (blocks - first)
                reports = (report_of(null_losses(rng, 6, blocks, tails), labels) for _ in range(trials))
                name = f"six methods, {first} and {blocks - first} blocks, tails of t({tails:g})"
                yield name, trials, sum(map(claims_anything, reports))
    yield "six imputers, whole reports", trials // 5, sum(claims_anything(whole_report(k)) for k in range(trials // 5))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    print("| methods that are equally good | reports | claims | share |\n|---|--:|--:|--:|")
    for name, trials, claims in rows(parser.parse_args().trials):
        print(f"| {name} | {trials} | {claims} | {claims / trials:.1%} |", flush=True)


if __name__ == "__main__":
    main()
