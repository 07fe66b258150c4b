"""How fast the blocks are: against softmax attention, against the papers' formulas, and where the time goes."""

from experiments.benchmarks.benchmark import SUITES, benchmark

__all__ = ["SUITES", "benchmark"]
