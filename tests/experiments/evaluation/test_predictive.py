import numpy as np
import pytest
import torch
import torch_uncertainty.metrics as tum
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.evaluation import (
    mean_log_probabilities,
    mean_logits,
    mean_probabilities,
    predictive_log_probabilities,
    uncertainty,
)
from tests.experiments.evaluation.simulated import draws

LOGITS = arrays(np.float64, st.tuples(*[st.integers(1, 4)] * 2, st.integers(2, 4)), elements=st.floats(-50, 50))


def test_matches_torch_and_torch_uncertainty():
    logits, _ = draws()
    probabilities = torch.tensor(logits).softmax(-1)
    parts = uncertainty(logits)
    np.testing.assert_allclose(mean_probabilities(logits), probabilities.mean(0), rtol=1e-12)
    np.testing.assert_allclose(mean_logits(logits), torch.tensor(logits).mean(0), rtol=1e-12)
    total = torch.distributions.Categorical(probabilities.mean(0)).entropy()
    aleatoric = torch.distributions.Categorical(probabilities).entropy().mean(0)
    np.testing.assert_allclose(parts.total, total, rtol=1e-9)
    np.testing.assert_allclose(parts.aleatoric, aleatoric, rtol=1e-9)
    mutual_information = tum.MutualInformation(reduction="none")
    mutual_information.update(probabilities.transpose(0, 1))
    np.testing.assert_allclose(parts.epistemic, mutual_information.compute(), atol=1e-9)


@given(LOGITS)
def test_parts_add_up_and_stay_in_range(logits):
    parts = uncertainty(logits)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-10)
    assert min(part.min() for part in parts) >= 0
    assert parts.total.max() <= np.log(logits.shape[-1]) + 1e-12
    assert parts.epistemic.max() <= np.log(len(logits)) + 1e-12


@given(LOGITS, st.randoms(use_true_random=False))
def test_order_of_draws_and_shift_of_logits_do_not_matter(logits, random):
    order = random.sample(range(len(logits)), len(logits))
    shifted = logits[order] + random.uniform(-5, 5)
    for part, other in zip(uncertainty(logits), uncertainty(shifted), strict=True):
        np.testing.assert_allclose(part, other, atol=1e-10)


def test_one_draw_and_equal_draws_have_no_epistemic_uncertainty():
    logits, _ = draws()
    assert uncertainty(logits[0]).epistemic.max() < 1e-14
    assert uncertainty(np.repeat(logits[:1], 3, 0)).epistemic.max() < 1e-14


def test_extreme_logits_stay_finite():
    logits = np.array([[[1e4, 0.0, -1e4]], [[-1e4, 0.0, 1e4]]])
    assert all(np.isfinite(part).all() for part in uncertainty(logits))
    np.testing.assert_allclose(uncertainty(logits).epistemic, np.log(2))
    np.testing.assert_allclose(mean_log_probabilities(logits), [[-np.log(2), -1e4, -np.log(2)]], rtol=1e-12)


@pytest.mark.parametrize("protocol", ["pooled", "cgpt", "sgpa"])
def test_only_kep_averages_logits(protocol):
    logits = np.array([[[4.0, 0.0]], [[0.0, 2.0]]])
    by_probability = torch.tensor(logits).softmax(-1).mean(0).log()
    by_logit = torch.tensor(logits).mean(0).log_softmax(-1)
    np.testing.assert_allclose(predictive_log_probabilities(logits, protocol=protocol), by_probability, rtol=1e-12)
    np.testing.assert_allclose(predictive_log_probabilities(logits, protocol="kep"), by_logit, rtol=1e-12)
