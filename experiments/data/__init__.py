"""Data sets, corrupted inputs and OOD inputs, as tensors."""

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data.corrupted_sets import corruption_source
from experiments.data.digits import DIGITS_CORRUPTIONS, corrupted_digits, ood_images
from experiments.data.examples import Batches, DataDescription, DataSplits, Examples, InputSet, batch
from experiments.data.images import image_files
from experiments.data.loading import check_inputs, input_sets, load
from experiments.data.ood import OWN_IMAGES, folder_inputs, requested_ood
from experiments.data.partition import generator_for
from experiments.data.stand_ins import write_stand_in

__all__ = [
    "DIGITS_CORRUPTIONS",
    "OWN_IMAGES",
    "Batches",
    "CorruptionConfig",
    "DataConfig",
    "DataDescription",
    "DataSplits",
    "Examples",
    "InputSet",
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
