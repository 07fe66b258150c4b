"""A sample of the comparisons with dense algebra, and trials that were once wrong."""

import pytest
import torch

from tests.equivalence.dense import compare

# Coincident points of "matern12" in float64, of which the product kept half the digits.
ONCE_WRONG = (239, 1443)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [*range(60), *ONCE_WRONG])
def test_blocks_are_the_dense_algebra(seed, dtype):
    outcome = compare(seed, dtype)
    assert not outcome.refused, outcome.refused
    assert max(outcome.mean, outcome.variance) <= 1.0, outcome.trial.name
