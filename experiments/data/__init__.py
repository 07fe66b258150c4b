"""Data sets, corrupted inputs and OOD inputs, as tensors."""

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data.digits import digits_splits
from experiments.data.digits_corruption import DIGITS_CORRUPTIONS, STRENGTHS, corrupted_digits
from experiments.data.examples import DataDescription, DataSplits, Examples, InputSet, batch
from experiments.data.folders import folder_inputs, image_files
from experiments.data.image_inputs import check_inputs, corruption_source, requested_ood
from experiments.data.images import ImageSplits, LabelledImages
from experiments.data.loading import input_sets, load
from experiments.data.ood import OOD_KINDS, ood_images
from experiments.data.stand_ins import write_stand_in

__all__ = [
    "DIGITS_CORRUPTIONS",
    "OOD_KINDS",
    "STRENGTHS",
    "CorruptionConfig",
    "DataConfig",
    "DataDescription",
    "DataSplits",
    "Examples",
    "ImageSplits",
    "InputSet",
    "LabelledImages",
    "batch",
    "check_inputs",
    "corrupted_digits",
    "corruption_source",
    "digits_splits",
    "folder_inputs",
    "image_files",
    "input_sets",
    "load",
    "ood_images",
    "requested_ood",
    "write_stand_in",
]
