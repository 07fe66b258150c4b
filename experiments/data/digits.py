"""scikit-learn's digits: 1,797 real scans of handwritten digits, 8 x 8, nothing to download."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from experiments.data.images import ImageSplits, LabelledImages

__all__ = ["MEAN", "STANDARD_DEVIATION", "digits_splits"]

MEAN, STANDARD_DEVIATION = 0.305, 0.376
"""Of all pixels; what a model subtracts and divides by."""


def digits_splits(seed: int) -> ImageSplits:
    """Split the digits 60 : 20 : 20 into train, validation and test, stratified by class.

    Args:
        seed: decides the split.

    Returns:
        1,077, 360 and 360 images of shape (1, 8, 8).

    Example:
        >>> [len(part.labels) for part in digits_splits(seed=0)]
        [1077, 360, 360]
    """
    digits = load_digits()
    ids = np.arange(len(digits.target))
    train, held_out = train_test_split(ids, test_size=720, stratify=digits.target, random_state=seed)
    validation, test = train_test_split(held_out, test_size=360, stratify=digits.target[held_out], random_state=seed)
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16.0  # the scans have 17 grey levels
    labels = torch.from_numpy(digits.target).long()
    parts = (torch.from_numpy(np.sort(part)) for part in (train, validation, test))
    return ImageSplits(*(LabelledImages(images[part], labels[part], part) for part in parts))
