"""From a configuration to examples in memory."""

from collections.abc import Iterator

from experiments.configuration import DataConfig
from experiments.data.catalogue import IMAGE_SETS
from experiments.data.examples import DataSplits, InputSet
from experiments.data.image_inputs import corrupted_sets, ood_sets
from experiments.data.image_loading import load_digits, load_images
from experiments.data.text_loading import TEXT_SETS, load_texts

__all__ = ["input_sets", "load"]


def load(data: DataConfig, seed: int) -> DataSplits:
    """Read and split a data set.

    Args:
        data: which, and how.
        seed: of the run; it decides the split where `data.split_seed` is None.

    Raises:
        FileNotFoundError: if a file is missing; says what was expected and how to get it.
        ValueError: if a file is truncated or altered, or the configuration asks for what there is not.

    Example:
        >>> splits = load(DataConfig(name="digits"), seed=0)
        >>> len(splits.train), len(splits.validation), len(splits.test), splits.description.image_shape
        (1077, 360, 360, (1, 8, 8))
    """
    if data.folder and data.name in ("digits", *TEXT_SETS, *IMAGE_SETS):
        raise ValueError(f"data.name: expected a name of your own for data.folder={data.folder}, got {data.name!r}")
    if data.name == "digits":
        return load_digits(data, seed)
    if data.name in TEXT_SETS:
        return load_texts(data, seed)
    return load_images(data, seed)


def input_sets(data: DataConfig, splits: DataSplits, seed: int, *, full: bool = False) -> Iterator[InputSet]:
    """Yield everything that is predicted, one set after the other.

    Args:
        data: the configuration that `splits` was loaded by.
        splits: what `load` returned.
        seed: of the run. Which images are corrupted, and how, does not depend on it.
        full: corrupt all test images at all five severities.

    Yields:
        "validation", "test", then "out-of-domain" for CoLA, or corrupted and OOD images.
    """
    for name, part in {"validation": splits.validation, "test": splits.test, **splits.others}.items():
        yield InputSet(name, part.inputs, part.ids, part.labels)
    if splits.description.kind == "image":
        yield from corrupted_sets(data, splits, full=full)
        yield from ood_sets(data, splits)
