"""Synthetic stand-ins for every public set."""

import pytest

from tests.experiments.data.stand_ins import write_stand_in


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory):
    """Values of a row that is to read stand-ins of its data."""
    root = tmp_path_factory.mktemp("stand-ins")
    for name in ("cola", "imdb", "sst2", "clinc150", "cifar10", "cifar100", "textures"):
        write_stand_in(root, name)
    write_stand_in(root, "tiny_imagenet", side=64)
    return [f"data.root={root}", "data.unchecked=true"]
