"""Data sets, corrupted inputs and OOD inputs, as tensors."""

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data.catalogue import IMAGE_SETS
from experiments.data.corrupted_sets import PUBLISHED, corruption_source
from experiments.data.digits import (
    DIGITS_CORRUPTIONS,
    OOD_KINDS,
    corrupted_digits,
    ood_images,
)
from experiments.data.examples import Batches, DataDescription, DataSplits, Examples, Inputs, InputSet, batch
from experiments.data.images import image_files
from experiments.data.loading import check_inputs, input_sets, load
from experiments.data.ood import OWN_IMAGES, folder_inputs, requested_ood
from experiments.data.partition import generator_for
from experiments.data.stand_ins import write_stand_in

__all__ = [
    "DIGITS_CORRUPTIONS",
    "IMAGE_SETS",
    "OOD_KINDS",
    "OWN_IMAGES",
    "PUBLISHED",
    "Batches",
    "CorruptionConfig",
    "DataConfig",
    "DataDescription",
    "DataSplits",
    "Examples",
    "InputSet",
    "Inputs",
    "batch",
    "check_inputs",
    "corrupted_digits",
    "corruption_source",
    "folder_inputs",
    "generator_for",
    "image_files",
    "input_sets",
    "load",
    "ood_images",
    "requested_ood",
    "write_stand_in",
]
