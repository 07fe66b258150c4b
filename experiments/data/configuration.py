"""The typed configuration of a data set."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from experiments.configuration import check_counts

__all__ = ["CorruptionConfig", "DataConfig"]


@dataclass(frozen=True, kw_only=True)
class CorruptionConfig:
    """Which corrupted test images are predicted.

    Args:
        kinds: names of corruptions; None for all that the data set has (19 for CIFAR, 5 for the digits, none for
            other sets), an empty list for none.
        severities: of 1 to 5.
        limit: how many test images, the same for every kind, severity and seed; None for all.
        source: "official" reads the published CIFAR-10-C or CIFAR-100-C files, "generated" makes our own, "auto" takes
            the published ones where they are there.
        seed: of the noise and the places of our own.
    """

    kinds: tuple[str, ...] | None = None
    severities: tuple[int, ...] = (1, 3, 5)
    limit: int | None = 1000
    source: Literal["auto", "official", "generated"] = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        _check_severities(self.severities)
        check_counts("data.corruptions", self, "limit")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """A data set, how it is split, and what is predicted with it beside its test part.

    Args:
        name: digits, cifar10, cifar100, svhn, textures, lsun_crop, lsun_resize, tiny_imagenet, tiny_imagenet_crop,
            tiny_imagenet_resize, cola or imdb; or a name of your own, with `folder` or `<root>/<name>/<split>.npz`.
        root: folder of the data sets; None for the environment variable CGP_DATA.
        folder: your own images, in one sub-folder a class (or in train/, validation/ and test/ of such).
        download: let torchvision or pytorch-ood download what is missing into `root`.
        split: of CoLA: "pooled" (train and dev together, 80 : 20, as CGPT's code), "selected" (the same, 70 : 10 : 20)
            or "official" (8,551 : 527); a part of the training texts is held out for selection throughout.
        split_seed: decides what is held out; None to let it follow the seed of the run. Runs of one split can be
            joined to an ensemble.
        validation: share of the training examples that is held out where a set has no validation part.
        unchecked: accept files that are not the published ones (number of examples, checksum): what differs is then
            named in the description's deviations instead of being an error.
        limit_train: how many training examples at most ("reduced").
        limit_validation: how many validation examples at most.
        limit_test: how many test examples at most.
        limit_ood: how many inputs of each OOD set at most; None for as many as the test part has.
        image_size: side to which images are resized and cropped; None for the set's own (of `folder`: 32).
        ood: names of image sets, folders of images or .npz files that hold images of no class, or kinds that
            are made from the test images (inverted, shuffled-patches, uniform-noise, gaussian-noise); None for the four
            kinds with the digits, and nothing with other sets.
        corruptions: the corrupted test images.
        encoder: folder or hub name of a transformers encoder whose frozen states are the tokens' embeddings; None for
            embeddings that are learned.
        max_length: tokens after which a text is cut; None for the set's own.
        vocabulary_size: how many symbols at most, the most frequent ones; None for all.
        min_count: how often a word must be there in the training part to have a symbol of its own; rarer ones share
            one, so that it is learned what an unknown word means.
        cache: folder of what is made once (corrupted images, encoders' states); None for the environment variable
            CGP_CACHE, or else the user's cache.
    """

    name: str = "digits"
    root: Path | None = None
    folder: Path | None = None
    download: bool = False
    split: Literal["pooled", "selected", "official"] = "selected"
    split_seed: int | None = 0
    validation: float = 0.1
    unchecked: bool = False
    limit_train: int | None = None
    limit_validation: int | None = None
    limit_test: int | None = None
    limit_ood: int | None = None
    image_size: int | None = None
    ood: tuple[str, ...] | None = None
    corruptions: CorruptionConfig = field(default_factory=CorruptionConfig)
    encoder: str | None = None
    max_length: int | None = None
    vocabulary_size: int | None = None
    min_count: int = 2
    cache: Path | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.validation < 1.0:
            raise ValueError(f"data.validation: expected a share between 0 and 1, got {self.validation}")
        limits = ("limit_train", "limit_validation", "limit_test", "limit_ood")
        check_counts("data", self, *limits, "image_size", "max_length", "vocabulary_size", "min_count")
        if self.name == "digits" and self.folder is None and self.image_size is not None:
            raise ValueError(f"data.image_size: expected none with the digits, 8 x 8 images, got {self.image_size}")

    @property
    def data_root(self) -> Path:
        """The folder of the data sets.

        Raises:
            ValueError: if neither `root` nor CGP_DATA says where it is.
            FileNotFoundError: if it is not there.
        """
        named = self.root or os.environ.get("CGP_DATA")
        if not named:
            raise ValueError(
                f"data.root: expected the folder that holds the data set {self.name!r}, got nothing; set it, or the "
                "environment variable CGP_DATA"
            )
        root = Path(named).expanduser()
        if not root.is_dir() and not self.download:
            raise FileNotFoundError(f"data.root: expected a folder, got {root}, which is not there")
        return root

    @property
    def cache_folder(self) -> Path:
        """The folder of what is made once."""
        named = self.cache or os.environ.get("CGP_CACHE")
        users = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(named).expanduser() if named else Path(users) / "cgp"


def _check_severities(severities: tuple[int, ...]) -> None:
    if not set(severities) <= {1, 2, 3, 4, 5}:
        raise ValueError(f"data.corruptions.severities: expected some of 1 to 5, got {severities}")
