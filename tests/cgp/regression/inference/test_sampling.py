import pytest
import torch

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.kernels.canonical_kernel import PriorModule
from cgp.regression import CorrelatedGPRegression
from cgp.regression.inference.fitting import fit_model
from cgp.regression.inference.sampling import sample_slices
from tests.cgp.regression.data import waves


def prior_draws(model, count):
    generator = torch.Generator().manual_seed(5)
    return {
        name: prior.loc + prior.scale * torch.randn(count, *closure(module).shape, generator=generator).double()
        for name, module, prior, closure, _ in model.named_priors()
        if isinstance(module, PriorModule)
    }


def test_samples_have_the_moments_of_weighted_prior_draws():
    x, y = waves(60)
    few = x[::10, :]
    few[:, -1] = 0.0
    model = CorrelatedGPRegression(few, y[::10] / y.std(), 1)
    fit_model(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    draws = prior_draws(model, 40_000)
    with torch.no_grad():
        likelihood = torch.cat(
            [
                model.with_samples({k: v[i : i + 4000] for k, v in draws.items()}).log_evidence()
                for i in range(0, 40_000, 4000)
            ]
        )
    weights = (likelihood - likelihood.logsumexp(0)).exp()
    effective = 1.0 / weights.square().sum()
    assert effective > 500
    samples = sample_slices(model, num_samples=400)
    for name, exact in draws.items():
        exact, result = exact.reshape(len(exact), -1), samples[name].reshape(400, -1)
        mean = weights @ exact
        variance = weights @ (exact - mean).square()
        error = (variance * (1 / 400 + 1 / effective)).sqrt()
        assert ((result.mean(0) - mean).abs() < 4 * error).all(), name
        assert (result.var(0) / variance).log().abs().max() < 0.5, name
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_covariance_that_cannot_be_factored_is_another_angle(monkeypatch):
    x, y = waves(12)
    model = CorrelatedGPRegression(x, y)
    fit_model(model)
    evaluate, calls = CorrelatedGPRegression.log_evidence, []

    def sometimes(self):
        calls.append(None)
        if self.train_targets.dim() > 1 and len(calls) % 3:
            raise NotPositiveDefiniteError("a trial")
        return evaluate(self)

    monkeypatch.setattr(CorrelatedGPRegression, "log_evidence", sometimes)
    samples = sample_slices(model, num_samples=5, num_steps=3)
    assert all(value.isfinite().all() for value in samples.values())


@pytest.mark.parametrize("name", ["num_samples", "num_steps"])
def test_refuses(name):
    with pytest.raises(ValueError, match=f"{name}: expected an integer of at least 1, got 0"):
        sample_slices(CorrelatedGPRegression(*waves(12)), **{name: 0})
