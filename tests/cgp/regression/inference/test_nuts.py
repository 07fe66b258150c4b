import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from cgp.regression import CorrelatedGPRegression
from cgp.regression.inference.fitting import fit_model
from cgp.regression.inference.nuts import diagnose, sample_nuts
from cgp.regression.inference.sampling import potential_of, sample_laplace, sampled_parameters
from tests.cgp.regression.data import TWO_SHIFTED, model_of, regression, rows, shuffled, waves

KINDS = [{}, TWO_SHIFTED]


def prior_values(model):
    return {name: closure(module).detach() for name, module, _, closure, _ in model.named_priors()}


@pytest.mark.parametrize("covariance", KINDS)
def test_the_sampler_sees_the_posterior_and_its_gradient(covariance):
    model = regression(n=8, **covariance)
    potential, values = potential_of(model), sampled_parameters(model)
    torch.testing.assert_close(-potential(values), model.log_evidence() + model.log_prior())
    names = list(values)
    assert {name.removesuffix("_prior") for name in names} == {
        name for name, p in model.named_parameters() if p.requires_grad
    }
    leaves = [(values[name] + 0.1).requires_grad_() for name in names]

    def energy(*values):
        return potential(dict(zip(names, values, strict=True)))

    assert torch.autograd.gradcheck(energy, leaves, atol=1e-5)


@pytest.mark.parametrize("covariance", KINDS)
@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_a_batch_of_samples_is_one_model_after_the_other(covariance, kind):
    models = []
    for seed in range(3):
        model = model_of(kind, *rows(9), m=4, **covariance)
        points = {k: v.clone() for k, v in model.state_dict().items() if k.startswith("features")}
        shuffled(model, seed)
        model.load_state_dict(points, strict=False)
        models.append(model)
    samples = {name: torch.stack([prior_values(m)[name] for m in models]) for name in prior_values(models[0])}
    batch = models[0].with_samples(samples)
    new = rows(5, seed=7)[0]
    for result, expected in zip(
        batch.moments(new, noisy=True), zip(*(m.moments(new, noisy=True) for m in models), strict=True), strict=True
    ):
        torch.testing.assert_close(result, torch.stack(expected))
    joint = batch.posterior(new)
    torch.testing.assert_close(joint.covariance_matrix, torch.stack([m(new).covariance_matrix for m in models]))
    torch.testing.assert_close(batch.log_evidence(), torch.stack([m.log_evidence() for m in models]))


def test_laplaces_draws_have_the_curvature_of_the_posterior():
    model = CorrelatedGPRegression(*rows(20, processes=1, dim=1)).eval()
    fit_model(model)
    potential, values = potential_of(model), sampled_parameters(model)
    names, centre = list(values), torch.cat([value.flatten() for value in values.values()])

    def energy(vector):
        parts = vector.split([values[name].numel() for name in names])
        return potential({n: p.reshape(values[n].shape) for n, p in zip(names, parts, strict=True)}).detach()

    steps = 1e-2 * torch.eye(len(centre), dtype=centre.dtype)
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    hessian = torch.stack(
        [torch.stack([sum(a * b * energy(centre + a * i + b * j) for a, b in signs) for j in steps]) for i in steps]
    )
    draws = sample_laplace(model, num_samples=40_000)
    flat = torch.cat([draws[name].flatten(1) for name in names], dim=-1)
    torch.testing.assert_close(flat.mean(0), centre)
    expected = torch.cholesky_inverse(torch.linalg.cholesky(hessian / 4e-4))
    scale = expected.diagonal().sqrt()
    torch.testing.assert_close(
        flat.T.cov() / scale / scale[:, None], expected / scale / scale[:, None], atol=0.05, rtol=0
    )


def test_chains_are_praised_or_not():
    apart = torch.randn(2, 100) + torch.tensor([[0.0], [5.0]])
    with pytest.warns(ConvergenceWarning, match="the chains disagree on noise"):
        result = diagnose({"noise": apart, "scale": torch.randn(2, 100)})
    assert result.r_hat["noise"] > 2 > 1.1 > result.r_hat["scale"]
    with pytest.warns(ConvergenceWarning, match=r"effective samples .* 3 transitions diverged"):
        diagnose({"noise": torch.randn(2, 100).cumsum(-1)}, 3)
    with pytest.warns(ConvergenceWarning, match="scale has only"):
        diagnose({"noise": torch.randn(2, 100), "scale": torch.randn(2, 5).repeat_interleave(20, 1)})
    result = diagnose({"noise": torch.randn(2, 500, 2)})
    assert result.message.startswith("The chains agree")
    assert result.divergences == 0


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
    noise = first.flat["likelihood.noise_covar.log_noise_prior"]
    assert thinned["likelihood.noise_covar.log_noise_prior"][[0, -1]].tolist() == noise[[0, -1]].tolist()


def test_no_chain_starts_where_a_covariance_cannot_be_factored(monkeypatch):
    model = CorrelatedGPRegression(*rows(8, processes=1, dim=1)).eval()
    monkeypatch.setattr(torch, "randn_like", lambda value: torch.full_like(value, 1e3))
    with pytest.warns(ConvergenceWarning):
        samples = sample_nuts(model, num_samples=4, num_warmup=1, num_chains=1, max_tree_depth=2, progress=False)
    assert potential_of(model)({name: value[0] for name, value in samples.flat.items()}).isfinite()


@pytest.mark.slow
def test_chains_agree_because_the_gauge_is_fixed():
    x, y = waves(30)
    model = CorrelatedGPRegression(x, y)
    fit_model(model)
    samples = sample_nuts(model, num_samples=400, num_chains=2, progress=False)
    assert max(samples.diagnostics.r_hat.values()) < 1.02
    assert min(samples.diagnostics.effective_size.values()) > 100
    # Fifteen observations a process do not pin the noise down: the interval must hold the truth, and not everything.
    noise = samples.flat["likelihood.noise_covar.log_noise_prior"].exp().sqrt()
    low, high = noise.quantile(torch.tensor([0.025, 0.975]).double(), dim=0)
    assert (low < 0.1).all()
    assert (high > 0.1).all()
    assert (high < 0.4).all()


def test_refuses_too_few_samples():
    with pytest.raises(ValueError, match="num_samples, num_warmup, num_chains: expected at least 4"):
        sample_nuts(CorrelatedGPRegression(*rows()), num_samples=3)
