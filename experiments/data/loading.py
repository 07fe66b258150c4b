"""From a configuration to examples in memory."""

from collections.abc import Iterator

from experiments.data import digits
from experiments.data.configuration import DataConfig
from experiments.data.examples import DataDescription, DataSplits, Examples, InputSet
from experiments.data.images import LabelledImages

__all__ = ["input_sets", "load"]


def load(data: DataConfig, seed: int) -> DataSplits:
    """Read and split a data set.

    Args:
        data: which, and how.
        seed: of the run; it decides the split where `data.split_seed` is None.

    Example:
        >>> splits = load(DataConfig(name="digits"), seed=0)
        >>> len(splits.train), len(splits.validation), len(splits.test), splits.description.image_shape
        (1077, 360, 360, (1, 8, 8))
    """
    if data.name != "digits":
        raise ValueError(f"data.name: expected digits, got {data.name!r}")
    parts = digits.digits_splits(seed if data.split_seed is None else data.split_seed)
    description = DataDescription(
        kind="image",
        num_classes=10,
        image_shape=(1, 8, 8),
        mean=(digits.MEAN,),
        deviation=(digits.STANDARD_DEVIATION,),
        class_names=tuple("0123456789"),
    )
    return DataSplits(*(_examples(part) for part in parts), description)


def input_sets(data: DataConfig, splits: DataSplits, seed: int, *, full: bool = False) -> Iterator[InputSet]:
    """Yield everything that is predicted, one set after the other.

    Args:
        data: the configuration that `splits` was loaded by.
        splits: what `load` returned.
        seed: of the run.
        full: corrupt all test images at all five severities.

    Yields:
        "validation", "test", then what else there is.
    """
    for name, part in {"validation": splits.validation, "test": splits.test, **splits.others}.items():
        yield InputSet(name, part.inputs, part.ids, part.labels)


def _examples(part: LabelledImages) -> Examples:
    return Examples(part.images, part.labels, part.ids)
