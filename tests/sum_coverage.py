"""How often the 95 % intervals of sums over gaps hold the sums, for small tables and default settings.

``python -m tests.sum_coverage --tables 40`` prints a table for docs/notes/reliability-tables.md: sums over a gap of 15
rows in each of two columns of 60, and the single values in them, by the default and by the most probable parameters.
"""

import argparse
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from cgp import CorrelatedGPImputer

ROWS, GAP, CORRELATION = 60, 15, 0.6
Array = NDArray[np.float64]


def table_of(kind: str, seed: int) -> Array:
    """Two correlated columns: AR(1) with coefficient 0.7 or 0.9, random walks, or smooth ones with some noise."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(np.array([[1.0, CORRELATION], [CORRELATION, 1.0]])).T
    if kind == "smooth":
        t = np.arange(ROWS)
        covariance = np.exp(-0.5 * ((t[:, None] - t) / 5.0) ** 2) + 1e-8 * np.eye(ROWS)
        return np.linalg.cholesky(covariance) @ rng.normal(size=(ROWS, 2)) @ root + 0.1 * rng.normal(size=(ROWS, 2))
    coefficient = {"AR(1), 0.7": 0.7, "AR(1), 0.9": 0.9, "random walk": 1.0}[kind]
    steps, values = rng.normal(size=(ROWS + 200, 2)) @ root, np.zeros((ROWS + 200, 2))
    for row in range(1, len(values)):
        values[row] = coefficient * values[row - 1] + steps[row]
    return values[200:]


def scores(kind: str, seed: int, inference: str) -> tuple[Array, Array]:
    """Standardised errors of the sums of both gaps, ``(2,)``, and of their values, ``(30,)``."""
    values, gaps = table_of(kind, seed), np.zeros((ROWS, 2), dtype=bool)
    rng = np.random.default_rng([seed, 1])
    for column in range(2):
        start = int(rng.integers(1, ROWS - GAP - 1))
        gaps[start : start + GAP, column] = True
    table = np.where(gaps, np.nan, values)
    imputer = CorrelatedGPImputer(inference=inference, random_state=0, verbose=False).fit(table)
    total, std = imputer.aggregate()
    errors = (imputer.transform(table) - values)[gaps] / imputer.std_[gaps]
    return ((total - values.sum(axis=0)) / std).ravel(), errors


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=40)
    count, bound = parser.parse_args().tables, norm.ppf(0.975)
    warnings.simplefilter("ignore")
    print("| tables | sums, default | values, default | sums, map | values, map |\n|---|--:|--:|--:|--:|")
    for kind in ("AR(1), 0.7", "AR(1), 0.9", "random walk", "smooth"):
        cells = []
        for inference in ("auto", "map"):
            pairs = [scores(kind, seed, inference) for seed in range(count)]
            cells += [float(np.mean(np.abs(np.concatenate(part)) <= bound)) for part in zip(*pairs, strict=True)]
        print(f"| {kind} | {' | '.join(f'{cell:.3f}' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
