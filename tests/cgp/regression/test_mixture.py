import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from cgp.regression.mixture import log_density, mixture_covariance, mixture_moments
from cgp.regression.scaling import Scaling, process_signs


def test_moments_are_those_of_draws():
    generator = np.random.default_rng(0)
    mean, sd = np.array([[-1.0], [2.0], [0.5]]), np.array([[0.3], [1.0], [2.0]])
    draws = (mean + sd * generator.standard_normal((3, 200_000))).ravel()
    found = mixture_moments(mean, sd**2)
    np.testing.assert_allclose([found[0][0], found[1][0]], [draws.mean(), draws.var()], atol=0.02)


def test_covariance_has_the_variances_on_its_diagonal():
    generator = np.random.default_rng(0)
    mean, root = generator.standard_normal((4, 3)), generator.standard_normal((4, 3, 3))
    covariance = root @ np.swapaxes(root, -1, -2)
    expected = mixture_moments(mean, np.diagonal(covariance, axis1=-2, axis2=-1))
    found = mixture_covariance(mean, covariance)
    np.testing.assert_allclose(found[0], expected[0])
    np.testing.assert_allclose(found[1].diagonal(), expected[1])
    np.testing.assert_allclose(found[1], covariance.mean(0) + np.cov(mean.T, bias=True))


def test_density_is_the_mean_of_densities():
    mean, variance = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[1.0, 0.5], [2.0, 3.0]])
    value = np.array([0.3, -200.0])
    expected = logsumexp(norm(mean, np.sqrt(variance)).logpdf(value), axis=0) - np.log(2)
    np.testing.assert_allclose(log_density(value, mean, variance), expected)


def test_scaling_there_and_back():
    values = np.array([[1.0, 5.0, np.nan], [3.0, 5.0, 2.0], [np.nan, 5.0, 4.0]]) * [1e-200, 1.0, 1e300]
    scaling = Scaling.of(values)
    scaled = scaling.apply(values)
    np.testing.assert_allclose(np.nanmean(scaled, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scaled, axis=0), [1.0, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(scaling.undo(scaled), values)


def test_signs_follow_the_strongest_correlation():
    x = np.linspace(0, 1, 30)[:, None]
    f = np.sin(7 * x[:, 0])
    y = np.column_stack([f, -f, -f, np.cos(100 * x[:, 0] ** 2), np.full(30, 2.0)])
    y[::2, 1] = np.nan
    assert process_signs(x, y)[[0, 1, 2, 4]].tolist() == [1, -1, -1, 1]
