"""Likelihoods of samples against torch.distributions, and GPyTorch's traps that they avoid."""

import pytest
import torch
from torch.distributions import Categorical, Normal

from cgp.networks.model.likelihoods import CategoricalLikelihood, HomoscedasticLikelihood


@pytest.mark.parametrize("sample", [(), (7,), (2, 7)])
def test_categorical_averages_log_probabilities_over_draws(sample):
    logits, labels = torch.randn(*sample, 5, 3), torch.randint(0, 3, (5,))
    expected = Categorical(logits=logits).log_prob(labels)
    expected = expected.reshape(-1, 5).mean(0)
    torch.testing.assert_close(CategoricalLikelihood(3).expected_log_prob(labels, logits), expected)
    torch.testing.assert_close(CategoricalLikelihood(3)(logits).probs, logits.softmax(-1))


def test_categorical_does_not_transpose_a_batch_as_large_as_the_classes():
    logits = torch.tensor([[5.0, 0.0], [5.0, 0.0]])
    value = CategoricalLikelihood(2).expected_log_prob(torch.tensor([0, 1]), logits)
    assert value[0] > -0.1
    assert value[1] < -4


@pytest.mark.parametrize("sample", [(), (7,)])
def test_gaussian_averages_log_densities_over_draws(sample):
    likelihood = HomoscedasticLikelihood(2, initial_noise=0.3)
    likelihood.noise = torch.tensor([0.3, 0.7])
    f, y = torch.randn(*sample, 5, 2), torch.randn(5, 2)
    expected = Normal(f, torch.tensor([0.3, 0.7]).sqrt()).log_prob(y).sum(-1).reshape(-1, 5).mean(0)
    torch.testing.assert_close(likelihood.expected_log_prob(y, f), expected)
    torch.testing.assert_close(likelihood(f).variance, torch.tensor([0.3, 0.7]).expand_as(f))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CategoricalLikelihood(1), "num_classes: expected at least 2"),
        (lambda: HomoscedasticLikelihood(0), "num_outputs, initial_noise: expected"),
        (lambda: HomoscedasticLikelihood(1, initial_noise=0.0), "num_outputs, initial_noise: expected"),
        (
            lambda: CategoricalLikelihood(3).expected_log_prob(torch.zeros(4).long(), torch.zeros(4, 2)),
            "function_samples",
        ),
        (lambda: CategoricalLikelihood(3).expected_log_prob(torch.zeros(3).long(), torch.zeros(4, 3)), "observations"),
        (lambda: HomoscedasticLikelihood(2).expected_log_prob(torch.zeros(4), torch.zeros(4, 2)), "observations"),
    ],
)
def test_bad_shapes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
