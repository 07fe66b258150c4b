"""Images in memory."""

from typing import NamedTuple

from torch import Tensor

__all__ = ["ImageSplits", "LabelledImages"]


class LabelledImages(NamedTuple):
    """Images with their labels.

    Attributes:
        images: `(N, C, H, W)` float32 in [0, 1].
        labels: `(N,)` int64.
        ids: `(N,)` int64, the position of each image in the data set it comes from.
    """

    images: Tensor
    labels: Tensor
    ids: Tensor


class ImageSplits(NamedTuple):
    """Three disjoint parts of a data set.

    Attributes:
        train: what the model is fitted to.
        validation: what everything is selected on.
        test: what is reported.
    """

    train: LabelledImages
    validation: LabelledImages
    test: LabelledImages
