"""Training with Lightning: resumable, seeded, selected on validation NLL."""

from experiments.training.classification import ClassificationModule
from experiments.training.fit import FitSummary, fit

__all__ = ["ClassificationModule", "FitSummary", "fit"]
