"""What a user is told of a table's values."""

import warnings

import numpy as np
import pytest

from cgp.tables.frames.codes import warn_of_uneven_errors


@pytest.mark.parametrize(("factor", "said"), [(4.0, "from 40 on as before"), (0.25, "before 40 as from then on")])
def test_a_column_that_is_quiet_and_then_loud_is_named(factor, said):
    errors = np.random.default_rng(0).normal(size=(80, 2))
    errors[40:, 1] *= factor
    errors[5, 1] = np.nan
    with pytest.warns(UserWarning, match=rf"errors of 'b' are \d\.\d times as large {said}") as record:
        warn_of_uneven_errors(errors, ["a", "b"], np.arange(80))
    assert len(record) == 1


def test_errors_of_one_size_are_not():
    """In 1,500 columns, with normal and with heavy tails, in few rows."""
    rng = np.random.default_rng(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for draw in (rng.normal(size=(60, 500)), rng.standard_t(3, size=(60, 500)), rng.normal(size=(41, 500))):
            warn_of_uneven_errors(draw, range(500), np.arange(len(draw)))
        warn_of_uneven_errors(np.where(np.arange(30) < 15, 1.0, 9.0)[:, None], ["few"], np.arange(30))
