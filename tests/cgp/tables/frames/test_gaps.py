"""The pattern of a table's gaps, and blocks that are hidden like it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cgp.tables.conformal import gap_labels
from cgp.tables.frames.gaps import EDGE, length_bin, length_label, made_runs, ordered_rows, row_distances, runs_of
from cgp.tables.masking import hidden_cells, masked_blocks

TABLES = arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 3)))


def with_gaps(size, *gaps):
    """What is missing ``(n, 4)``: of each gap (first row, length, columns)."""
    missing = np.zeros((size, 4), dtype=bool)
    for first, length, columns in gaps:
        missing[first : first + length, list(columns)] = True
    return missing


@given(TABLES)
def test_runs_cover_what_is_missing_once_and_stand_apart(missing):
    runs = runs_of(missing)
    counts = np.zeros(missing.shape, dtype=int)
    for column, start, stop in zip(runs.columns, runs.starts, runs.stops, strict=True):
        counts[start:stop, column] += 1
        assert start == 0 or not missing[start - 1, column]
        assert stop == len(missing) or not missing[stop, column]
    np.testing.assert_array_equal(counts, missing)


@given(TABLES)
def test_distances_are_those_of_the_nearest_observed_row(missing):
    distances = row_distances(missing)
    for (row, column), distance in np.ndenumerate(distances):
        known = np.flatnonzero(~missing[:, column])
        assert distance == (np.abs(known - row).min() if len(known) else len(missing))


@given(TABLES)
def test_every_missing_value_has_the_class_of_its_run(missing):
    """Rows are shuffled: the order is that of their input."""
    inputs = np.random.default_rng(0).permutation(len(missing)).astype(float)[:, None]
    labels, order = gap_labels(inputs, missing), ordered_rows(inputs)
    np.testing.assert_array_equal(labels != "", missing)
    runs = runs_of(missing[order])
    for column, start, stop, label in zip(runs.columns, runs.starts, runs.stops, runs.labels, strict=True):
        assert set(labels[order][start:stop, column]) == {label}


def test_classes_of_length_are_powers_of_four():
    lengths = np.arange(1, 70)
    for length, number in zip(lengths, length_bin(lengths), strict=True):
        low, _, high = length_label(int(number)).partition("–")
        assert int(low) <= length <= int(high or low)


def test_runs_that_are_missing_together_have_one_shape():
    """Half an overlap is together; what reaches an end is so in other columns only if they reach it as well."""
    runs = runs_of(with_gaps(60, (10, 8, (0, 2)), (12, 8, (1,)), (40, 4, (1,)), (44, 4, (3,)), (55, 5, (0, 3))))
    shapes = [runs.shape(number) for number in range(len(runs.starts))]
    together = {tuple(sorted(shape.columns.tolist())) for shape in shapes}
    assert together == {(0, 1, 2), (1,), (3,), (0, 3)}
    assert {shape.edge for shape in shapes} == {"", "end"}
    first = next(shape for shape in shapes if shape.columns[0] == 1 and shape.size > 4)
    assert sorted(zip(first.columns.tolist(), first.starts.tolist(), strict=True)) == [(0, -2), (1, 0), (2, -2)]
    assert first.shortened(12).size <= 12


PATTERNS = {
    "single values": np.random.default_rng(3).random((150, 4)) < 0.1,
    "runs together": with_gaps(150, (20, 12, (0, 1)), (60, 12, (2,)), (100, 3, (0,)), (110, 3, (1, 2, 3))),
    "an end": with_gaps(150, (130, 20, (0, 1))),
    "mostly missing": np.random.default_rng(4).random((150, 4)) < 0.8,
}


@pytest.mark.parametrize("name", PATTERNS)
def test_blocks_hide_values_that_are_there_and_none_twice(name):
    missing = PATTERNS[name]
    drawn = masked_blocks(~missing, runs_of(missing), 3, 0.1, seed=0)
    hidden = [hidden_cells(masking, missing.shape) for masking in drawn]
    assert not (np.logical_or.reduce(hidden) & missing).any()
    assert np.sum(hidden, axis=0).max() == 1
    assert sum(len(block.rows) for masking in drawn for block in masking) == np.sum(hidden)
    for each in hidden:
        assert 0.02 < each.sum() / (~missing).sum() < 0.13
        assert (each.sum(axis=0) <= 0.5 * (~missing).sum(axis=0)).all()


def test_blocks_are_as_long_as_the_gaps_and_in_the_same_columns():
    missing = PATTERNS["runs together"]
    drawn = masked_blocks(~missing, runs_of(missing), 3, 0.1, seed=0)
    blocks = [block for masking in drawn for block in masking]
    for masking in drawn:
        masked = missing | hidden_cells(masking, missing.shape)
        labels = gap_labels(np.arange(150.0)[:, None], masked)
        for block in masking:
            assert set(labels[block.rows, block.columns]) == {block.label}
    together = {(block.label, tuple(np.unique(block.columns).tolist())) for block in blocks}
    assert together <= {("5–16", (0, 1)), ("5–16", (2,)), ("2–4", (0,)), ("2–4", (1, 2, 3))}
    assert {label for label, _ in together} == {"2–4", "5–16"}


def test_an_end_is_hidden_at_the_end_and_at_the_beginning():
    """At the end in the same columns, from the last values on; at the beginning in others, too."""
    missing = PATTERNS["an end"]
    drawn = masked_blocks(~missing, runs_of(missing), 3, 0.1, seed=0)
    assert {block.label for masking in drawn for block in masking} == {"17–64" + EDGE}
    first = drawn[0][0]
    assert (sorted(set(first.rows.tolist())), sorted(set(first.columns.tolist()))) == ([*range(110, 130)], [0, 1])
    for block in (drawn[1][0], drawn[2][0]):
        assert sorted(set(block.rows.tolist())) == [*range(20)]
    assert set(drawn[1][0].columns.tolist()).isdisjoint(drawn[2][0].columns.tolist())


def test_an_end_may_lack_one_value():
    missing = with_gaps(150, (149, 1, (0,)))
    drawn = masked_blocks(~missing, runs_of(missing), 2, 0.1, seed=0)
    assert {block.label for masking in drawn for block in masking} == {"1" + EDGE}


def test_blocks_of_places_are_values_of_one_row():
    """Rows without an order have no runs."""
    missing = PATTERNS["single values"]
    runs = runs_of(missing, ordered=False)
    blocks = [block for masking in masked_blocks(~missing, runs, 2, 0.1, seed=0) for block in masking]
    assert {block.label for block in blocks} == {"1"}
    assert all(len(set(block.rows.tolist())) == 1 for block in blocks)


@settings(max_examples=25, deadline=None)
@given(arrays(bool, st.tuples(st.integers(4, 30), st.integers(1, 3))), st.integers(0, 5))
def test_any_table_can_be_masked(missing, seed):
    runs = runs_of(missing) if missing.any() else made_runs(*missing.shape)
    first, second = (masked_blocks(~missing, runs, 2, 0.1, seed) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(hidden_cells(one, missing.shape), hidden_cells(other, missing.shape))
        assert not (hidden_cells(one, missing.shape) & missing).any()
        assert (hidden_cells(one, missing.shape).sum(axis=0) <= 0.5 * (~missing).sum(axis=0)).all()


def test_lengths_are_made_for_a_table_without_gaps():
    runs = made_runs(400, 2)
    assert sorted(set(runs.lengths.tolist())) == [1, 4, 16]
    assert all(len(runs.shape(number).columns) == 1 for number in range(len(runs.starts)))
    assert set(runs.labels.tolist()) == {"1", "2–4", "5–16"}
