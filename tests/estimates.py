"""Expected seconds of a fit beside the processor's seconds that it took.

``python -m tests.estimates`` fits imputers with default settings to tables of correlated random walks with gaps, and
prints a line for each, for docs/notes/regression.md. Seconds of the processor, as those of a clock count the machine's
other work; ``--most`` leaves out what is expected to take longer.
"""

import argparse
import time
import warnings

import numpy as np
from numpy.typing import NDArray

from cgp import CorrelatedGPImputer

SIZES = ((12, 4), (60, 3), (250, 4), (1000, 2), (120, 100), (20_000, 5))


def table_of(rows: int, columns: int, seed: int = 0) -> NDArray[np.float64]:
    """Random walks with a common part and some noise; a fifth is missing in blocks."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(rows, 1)) + rng.normal(size=(rows, columns))
    table = np.cumsum(0.3 * steps, axis=0) + 0.1 * rng.normal(size=(rows, columns))
    length = max(1, rows // 20)
    for column in range(columns):
        for start in rng.choice(max(rows - length, 1), size=4):
            table[start : start + length, column] = np.nan
    return table


def seconds_of(rows: int, columns: int, most: float) -> tuple[float, float | None]:
    """Those expected, and those taken unless more than ``most`` are expected."""
    table, imputer = table_of(rows, columns), CorrelatedGPImputer(random_state=0, verbose=False)
    expected = float(imputer.estimate(table).seconds)
    if expected > most:
        return expected, None
    start = time.process_time()
    imputer.fit(table)
    return expected, time.process_time() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=900.0)
    parser.add_argument("--cases", type=int, nargs="*", default=list(range(len(SIZES))), help="numbers, from 0")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seconds_of(20, 2, given.most)  # what is imported and compiled once
    print("| table | expected s | taken s | taken / expected |\n|---|--:|--:|--:|")
    for rows, columns in (SIZES[case] for case in given.cases):
        expected, taken = seconds_of(rows, columns, given.most)
        cells = ("not run", "") if taken is None else (f"{taken:.1f}", f"{taken / expected:.2f}")
        print(f"| {rows:,} × {columns} | {expected:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
