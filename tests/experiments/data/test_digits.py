"""The splits of the digits."""

import torch
from sklearn.datasets import load_digits

from experiments.data import digits_splits


def test_parts_are_disjoint_and_cover_everything():
    parts = digits_splits(seed=3)
    ids = torch.cat([part.ids for part in parts])
    assert torch.equal(ids.sort().values, torch.arange(1797))


def test_images_and_labels_belong_to_their_ids():
    digits = load_digits()
    for part in digits_splits(seed=1):
        assert torch.equal(part.labels, torch.from_numpy(digits.target)[part.ids])
        assert torch.equal(part.images[:, 0].double() * 16, torch.from_numpy(digits.images)[part.ids])
        assert part.images.amin() == 0
        assert part.images.amax() == 1


def test_every_class_is_in_every_part_by_its_share():
    everything = torch.bincount(torch.from_numpy(load_digits().target)) / 1797
    for part in digits_splits(seed=2):
        share = torch.bincount(part.labels, minlength=10) / len(part.labels)
        assert (share - everything).abs().max() < 1.5 / len(part.labels)


def test_the_seed_decides_the_split():
    first, again, other = (digits_splits(seed=seed).test.ids for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
