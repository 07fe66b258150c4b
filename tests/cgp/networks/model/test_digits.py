"""The model used by the tests of calibration and assessment."""

import torch

from tests.cgp.networks.model.digits import digits, fit, trained


def test_processors_that_round_differently_train_the_same_model():
    """A change of the last bits of the starting weights stays below what any test compares."""
    images, other = digits()[0][800:], fit(rounding=1e-14).float()
    with torch.no_grad():
        torch.testing.assert_close(other(images), trained()(images), rtol=1e-4, atol=1e-4)
