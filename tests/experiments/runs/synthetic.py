"""Small data sets of every kind, for rows whose data are not there."""

import torch

from experiments.data.examples import DataDescription, DataSplits, Examples, InputSet

_TEXTS = {"cola": 12, "imdb": 24}


def load(data, seed):
    """Random images or texts of the shape that a row expects."""
    generator = torch.Generator().manual_seed(seed)
    parts = [_part(data.name, count, generator) for count in (16, 8, 8)]
    return DataSplits(*parts, _description(data.name))


def input_sets(data, splits, seed, *, full=False):
    """Validation, test, and OOD inputs."""
    for name, part in (("validation", splits.validation), ("test", splits.test)):
        yield InputSet(part.inputs, part.labels, part.ids, name)
    yield InputSet(splits.test.inputs, None, splits.test.ids, "ood-noise")


def _part(name, count, generator):
    labels, ids = torch.arange(count) % 2, torch.arange(count)
    if name not in _TEXTS:
        side = 8 if name == "digits" else 32
        channels = 1 if name == "digits" else 3
        return Examples(torch.rand(count, channels, side, side, generator=generator), labels, ids)
    longest = _TEXTS[name]
    lengths = torch.randint(2, longest + 1, (count, 1), generator=generator)
    tokens = torch.randint(1, 20, (count, longest), generator=generator)
    padding = torch.arange(longest) >= lengths
    return Examples({"tokens": tokens.masked_fill(padding, 0), "padding_mask": padding}, labels, ids)


def _description(name):
    if name in _TEXTS:
        return DataDescription(kind="text", num_classes=2, vocabulary_size=20, max_length=_TEXTS[name])
    grey = name == "digits"
    channels, side = (1, 8) if grey else (3, 32)
    return DataDescription(
        kind="image",
        num_classes=10,
        image_shape=(channels, side, side),
        mean=(0.5,) * channels,
        deviation=(0.3,) * channels,
    )


def check_inputs(data, splits):
    """There is nothing that could be missing."""
