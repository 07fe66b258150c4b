import numpy as np
import pytest
import torch
from pyro.infer.mcmc.util import initialize_model
from sklearn.exceptions import ConvergenceWarning

from cgp.regression import CorrelatedGPRegression, SparseCorrelatedGPRegression
from cgp.regression.bayesian import _program, batch_model, fit_svi, sample_nuts
from cgp.regression.diagnostics import diagnose
from cgp.regression.fitting import fit_lbfgs
from tests.cgp.regression.data import rows, shuffled
from tests.cgp.regression.test_fitting import waves

KINDS = [{}, {"maps": "free"}, {"num_components": 2, "signs": [1, -1, 1]}]


def prior_values(model):
    return {name: closure(module).detach() for name, module, _, closure, _ in model.named_priors()}


@pytest.mark.parametrize("covariance", KINDS)
def test_the_sampler_sees_the_posterior_and_its_gradient(covariance):
    x, y = rows(8)
    model = shuffled(CorrelatedGPRegression(x, y, 3, **covariance))
    init, potential, transforms, _ = initialize_model(_program(model))
    constrained = {name: transforms[name].inv(value).detach() for name, value in init.items()}
    for name, module, _, _, assign in model.named_priors():
        assign(module, constrained[name])
    volume = sum(transforms[n].inv.log_abs_det_jacobian(init[n], constrained[n]).sum() for n in init)
    torch.testing.assert_close(-potential(init), model.log_evidence() + model.log_prior() + volume)
    names = list(init)
    leaves = [init[name].detach().requires_grad_() for name in names]

    def energy(*values):
        return potential(dict(zip(names, values, strict=True)))

    assert torch.autograd.gradcheck(energy, leaves, atol=1e-5, check_undefined_grad=False)


@pytest.mark.parametrize("covariance", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_batch_of_samples_is_one_model_after_the_other(covariance, sparse):
    x, y = rows(9)
    make = SparseCorrelatedGPRegression if sparse else CorrelatedGPRegression
    sizes = {"num_inducing": 4} if sparse else {}
    models = []
    for seed in range(3):
        model = make(x, y, 3, **sizes, **covariance)
        points = {k: v.clone() for k, v in model.state_dict().items() if k.startswith("features")}
        shuffled(model, seed)
        model.load_state_dict(points, strict=False)
        models.append(model)
    samples = {name: torch.stack([prior_values(m)[name] for m in models]) for name in prior_values(models[0])}
    batch = batch_model(models[0], samples)
    new = rows(5, seed=7)[0]
    for found, expected in zip(
        batch.moments(new, noisy=True), zip(*(m.moments(new, noisy=True) for m in models), strict=True), strict=True
    ):
        torch.testing.assert_close(found, torch.stack(expected))
    joint = batch.posterior(new)
    torch.testing.assert_close(joint.covariance_matrix, torch.stack([m(new).covariance_matrix for m in models]))
    torch.testing.assert_close(batch.log_evidence(), torch.stack([m.log_evidence() for m in models]))


def test_chains_that_disagree_are_called_so():
    apart = torch.randn(2, 100) + torch.tensor([[0.0], [5.0]])
    with pytest.warns(ConvergenceWarning, match="the chains disagree on noise"):
        found = diagnose({"noise": apart, "scale": torch.randn(2, 100)})
    assert found.r_hat["noise"] > 2 > 1.1 > found.r_hat["scale"]


def test_too_few_samples_and_divergences_are_called_so():
    walk = torch.randn(2, 100).cumsum(-1)
    with pytest.warns(ConvergenceWarning, match=r"effective samples .* 3 transitions diverged"):
        diagnose({"noise": walk}, 3)


def test_chains_that_agree_are_praised():
    found = diagnose({"noise": torch.randn(2, 500, 2)})
    assert found.message.startswith("The chains agree")
    assert found.divergences == 0


def test_nuts_runs_and_leaves_the_model_alone():
    x, y = rows(8, processes=1, dim=1)
    model = CorrelatedGPRegression(x, y).eval()
    before = prior_values(model)
    with pytest.warns(ConvergenceWarning, match="Do not trust the samples yet"):
        first = sample_nuts(model, num_samples=5, num_warmup=5, num_chains=2, max_tree_depth=3, progress=False)
    with pytest.warns(ConvergenceWarning):
        again = sample_nuts(model, num_samples=5, num_warmup=5, num_chains=2, max_tree_depth=3, progress=False)
    for name, value in prior_values(model).items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
        assert first.chains[name].shape[:2] == (2, 5)
        torch.testing.assert_close(first.chains[name], again.chains[name], rtol=0, atol=0)
    thinned = first.thinned(3)
    assert all(len(value) == 3 for value in thinned.values())
    noise = first.flat["likelihood.noise_covar.noise_prior"]
    assert thinned["likelihood.noise_covar.noise_prior"][[0, -1]].tolist() == noise[[0, -1]].tolist()


@pytest.mark.slow
def test_chains_agree_because_the_gauge_is_fixed():
    x, y = waves(30)
    model = CorrelatedGPRegression(x, y, signs=[1, -1])
    fit_lbfgs(model)
    samples = sample_nuts(model, num_samples=400, num_warmup=300, num_chains=2, progress=False)
    assert max(samples.diagnostics.r_hat.values()) < 1.02
    # Fifteen observations a process do not pin the noise down: the interval must hold the truth, and not everything.
    noise = samples.flat["likelihood.noise_covar.noise_prior"].sqrt()
    low, high = noise.quantile(torch.tensor([0.025, 0.975]).double(), dim=0)
    assert (low < 0.1).all()
    assert (high > 0.1).all()
    assert (high < 0.4).all()


def test_svi_finds_the_noise():
    x, y = waves()
    model = CorrelatedGPRegression(x, y, signs=[1, -1])
    fit_lbfgs(model)
    samples = fit_svi(model, num_samples=50, num_steps=60)
    assert samples.diagnostics is None
    noise = samples.flat["likelihood.noise_covar.noise_prior"]
    assert noise.shape == (50, 2)
    assert noise.std() > 0
    np.testing.assert_allclose(noise.sqrt().mean(0), 0.1, atol=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: sample_nuts(m, num_samples=3), "num_samples, num_warmup, num_chains: expected at least 4"),
        (lambda m: fit_svi(m, num_steps=0), "num_samples, num_steps: expected at least 1"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call(CorrelatedGPRegression(*rows()))


@pytest.mark.parametrize("sample", [sample_nuts, fit_svi])
def test_refuses_orthogonal_maps(sample):
    model = CorrelatedGPRegression(*rows(), maps="orthogonal", canonical_dim=1)
    with pytest.raises(ValueError, match="orthogonal maps have no identifiable prior"):
        sample(model)
