"""Data sets, shifted inputs and unfamiliar inputs, as tensors."""

from experiments.data.configuration import CorruptionConfig, DataConfig
from experiments.data.digits import digits_splits
from experiments.data.examples import DataDescription, DataSplits, Examples, InputSet, batch
from experiments.data.folders import folder_inputs, image_files
from experiments.data.image_inputs import asked_unfamiliar, check_inputs, corruption_source
from experiments.data.images import ImageSplits, LabelledImages
from experiments.data.loading import input_sets, load
from experiments.data.shifts import SHIFTS, STRENGTHS, shifted
from experiments.data.stand_ins import write_stand_in
from experiments.data.unfamiliar import UNFAMILIAR, unfamiliar

__all__ = [
    "SHIFTS",
    "STRENGTHS",
    "UNFAMILIAR",
    "CorruptionConfig",
    "DataConfig",
    "DataDescription",
    "DataSplits",
    "Examples",
    "ImageSplits",
    "InputSet",
    "LabelledImages",
    "asked_unfamiliar",
    "batch",
    "check_inputs",
    "corruption_source",
    "digits_splits",
    "folder_inputs",
    "image_files",
    "input_sets",
    "load",
    "shifted",
    "unfamiliar",
    "write_stand_in",
]
