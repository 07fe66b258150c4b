"""Data sets, corrupted inputs and OOD inputs, as tensors."""

from experiments.data.corrupted_sets import corruption_source
from experiments.data.digits import DIGITS_CORRUPTIONS, corrupted_digits
from experiments.data.examples import Batches, DataSplits, Examples, InputSet, batch, image_batch
from experiments.data.loading import check_inputs, input_sets, load
from experiments.data.ood import OWN_IMAGES, requested_ood
from experiments.data.partition import generator_for

__all__ = [
    "DIGITS_CORRUPTIONS",
    "OWN_IMAGES",
    "Batches",
    "DataSplits",
    "Examples",
    "InputSet",
    "batch",
    "check_inputs",
    "corrupted_digits",
    "corruption_source",
    "generator_for",
    "image_batch",
    "input_sets",
    "load",
    "requested_ood",
]
