"""Data sets, shifted inputs and unfamiliar inputs, as tensors."""

from experiments.data.digits import digits_splits
from experiments.data.images import ImageSplits, LabelledImages
from experiments.data.shifts import SHIFTS, STRENGTHS, shifted
from experiments.data.unfamiliar import UNFAMILIAR, unfamiliar

__all__ = [
    "SHIFTS",
    "STRENGTHS",
    "UNFAMILIAR",
    "ImageSplits",
    "LabelledImages",
    "digits_splits",
    "shifted",
    "unfamiliar",
]
