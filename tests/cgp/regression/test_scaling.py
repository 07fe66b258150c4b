import numpy as np

from cgp.regression.scaling import Scaling


def test_scaling_there_and_back():
    values = np.array([[1.0, 5.0, np.nan], [3.0, 5.0, 2.0], [np.nan, 5.0, 4.0]]) * [1e-200, 1.0, 1e300]
    scaling = Scaling.of(values)
    scaled = scaling.apply(values)
    np.testing.assert_allclose(np.nanmean(scaled, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scaled, axis=0), [1.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(scaling.undo(scaled), values)
