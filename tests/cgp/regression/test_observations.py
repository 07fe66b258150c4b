"""Observations: rows and cells of the same values, correlations, and some of them."""

import numpy as np
import pytest
import torch

from cgp.regression.observations import Grid, Observations


def table(count=60, outputs=3, seed=0):
    """Inputs in any order, two of them equal, and outputs with gaps."""
    generator = np.random.default_rng(seed)
    x = generator.permutation(count)[:, None] / 7.0
    x[5] = x[11]
    common = np.sin(x)
    y = common * np.linspace(1.0, -0.5, outputs) + 0.1 * generator.normal(size=(count, outputs))
    y[generator.random(y.shape) < 0.2] = np.nan
    return Observations(x, y)


def test_rows_are_the_observed_values_output_by_output():
    given = table()
    expected = [(x, p, y[p]) for p in range(3) for (x,), y in zip(given.inputs, given.values, strict=True)]
    found = torch.cat([given.rows, given.targets[:, None]], dim=-1).numpy()
    np.testing.assert_array_equal(found, [row for row in expected if not np.isnan(row[-1])])


def test_a_grid_has_every_observation_in_its_place():
    given = table()
    numbers = given.grid.numbers(3)
    assert len(numbers) == len(np.unique(given.inputs[given.observed.any(1)]))
    for row, output in np.argwhere(numbers >= 0):
        observation = given.rows[numbers[row, output]]
        assert observation.tolist() == [given.grid.inputs[row, 0], output]


def test_an_output_that_was_observed_twice_at_an_input_has_two_places():
    given = Observations(np.array([[1.0], [0.0], [1.0]]), np.array([[1.0, 2.0], [3.0, np.nan], [4.0, np.nan]]))
    grid = Grid.of_repeated(given.rows)
    assert grid.inputs[:, 0].tolist() == [0.0, 1.0, 1.0]
    assert sorted(zip(grid.places.tolist(), grid.outputs.tolist(), strict=True)) == [(0, 0), (1, 0), (1, 1), (2, 0)]
    assert given.grid.numbers(2).tolist() == [[1, -1], [2, 3]]  # the last counts


@pytest.mark.parametrize("outputs", [1, 4])
def test_correlations_are_those_over_common_inputs(outputs):
    given = table(200, outputs)
    result = given.correlation()
    values = np.full((len(given.grid.inputs), outputs), np.nan)
    values[given.grid.places.numpy(), given.grid.outputs.numpy()] = given.targets.numpy()
    for p in range(outputs):
        for r in range(p):
            both = ~np.isnan(values[:, [p, r]]).any(1)
            expected = np.corrcoef(values[both][:, [p, r]].T)[0, 1]
            assert float(result[p, r]) == pytest.approx(expected, abs=1e-12)
    assert torch.equal(result.diagonal(), torch.ones(outputs, dtype=torch.float64))


def test_some_observations_keep_their_order_and_their_cells():
    given, which = table(), torch.tensor([40, 3, 100, 7])
    some = given.chosen(which)
    torch.testing.assert_close(some.rows, given.rows[which], rtol=0, atol=0)
    torch.testing.assert_close(some.targets, given.targets[which], rtol=0, atol=0)
    assert sorted(some.values[some.observed]) == sorted(given.targets[which].tolist())


def test_rows_and_back():
    given = table()
    again = Observations.of_rows(given.rows, given.targets, 3)
    assert torch.equal(again.rows, given.rows)
    torch.testing.assert_close(again.correlation(), given.correlation(), rtol=0, atol=0)
    np.testing.assert_array_equal(again.values[again.observed], given.targets.numpy())


def test_standardised_outputs_have_unit_variance():
    given = table().standardised()
    np.testing.assert_allclose(np.nanstd(given.values, axis=0), 1.0, rtol=1e-2)
    np.testing.assert_allclose(given.units.outputs.undo(given.values[:, given.units.numbers]), table().values)
