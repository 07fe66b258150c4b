"""Disjoint parts of a set."""

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from experiments.data.partition import partition, some, stratified_partition

SHARES = st.lists(st.floats(0.0, 0.45), min_size=1, max_size=2)


def assert_partition(parts, count):
    assert torch.cat(parts).sort().values.tolist() == list(range(count))
    assert all(part.tolist() == sorted(part.tolist()) for part in parts)


@given(count=st.integers(1, 200), shares=SHARES, seed=st.integers(0, 1000))
def test_parts_are_disjoint_whole_sized_and_repeatable(count, shares, seed):
    parts = partition(count, shares, "set", seed)
    assert_partition(parts, count)
    assert [len(part) for part in parts[1:]] == [round(count * share) for share in shares]
    again = partition(count, shares, "set", seed)
    assert all(torch.equal(first, second) for first, second in zip(parts, again, strict=True))


@example(labels=[0] * 5 + [1] * 2 + [2] * 4, shares=[0.375, 0.375], seed=51)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=150), shares=SHARES, seed=st.integers(0, 1000))
def test_every_class_has_its_share_to_within_one(labels, shares, seed):
    labels = torch.tensor(labels)
    parts = stratified_partition(labels, shares, "set", seed)
    assert_partition(parts, len(labels))
    for part in parts:
        counts, whole = labels[part].bincount(minlength=5), labels.bincount(minlength=5)
        expected = whole * len(part) / len(labels)
        assert (counts - expected).abs().amax() <= 1 + 1e-9


def test_another_seed_divides_otherwise():
    labels = torch.arange(100) % 3
    assert not torch.equal(partition(100, [0.3], "set", 0)[1], partition(100, [0.3], "set", 1)[1])
    first, second = (stratified_partition(labels, [0.3], "set", seed)[1] for seed in (0, 1))
    assert not torch.equal(first, second)


@given(count=st.integers(1, 100), small=st.integers(1, 100), large=st.integers(1, 100))
def test_a_smaller_limit_takes_a_subset_of_a_larger_one(count, small, large):
    small, large = sorted((small, large))
    few, many = some(count, small, "set"), some(count, large, "set")
    assert len(few) == min(count, small)
    assert set(few.tolist()) <= set(many.tolist()) <= set(range(count))
    assert some(count, None, "set").tolist() == list(range(count))
