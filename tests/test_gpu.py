"""On an accelerator everything is as on the processor: `make test TEST_ARGS="-m gpu"`."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.models import ApproximateGP
from torch import nn

import cgp
from cgp.functional.kernels import canonical
from cgp.functional.linalg import NotPositiveDefiniteError, cholesky
from cgp.kernels import CorrelatedKernel, HadamardCorrelatedKernel, Markov
from cgp.networks.model.blocks import added_losses, sampling
from cgp.operators import LazyMultivariateNormal
from cgp.variational import DTCVariationalStrategy, KernelEigenVariationalStrategy
from tests.blocks import BLOCKS
from tests.cgp.functional.test_distances import clusters
from tests.cgp.helpers import moved
from tests.cgp.networks.convert import hosts
from tests.cgp.networks.model.digits import digits, trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no accelerator that PyTorch knows as cuda"),
    pytest.mark.filterwarnings("ignore:predict. one draw"),
]
GPU = torch.device("cuda")
X = torch.linspace(-2, 2, 20, dtype=torch.float64)[:, None]
Y = (3 * X[:, 0]).sin()


def gradients(module):
    return {name: p.grad.cpu() for name, p in module.named_parameters() if p.grad is not None}


def are_near(got, expected, tolerance):
    """Whether the difference is small beside the values: an entry near zero may be off by what the others lose."""
    return bool((got - expected).norm() <= tolerance * expected.norm() + 1e-3 * tolerance)


def same(here, there, *calls, tolerance=1e-8):
    """Values of two equal modules, on the processor and on the accelerator, and the gradients of their squares."""
    for call in calls:
        expected, got = call(here), call(there)
        assert got.device.type == GPU.type
        assert are_near(got.cpu(), expected, tolerance)
        for value in (expected, got):
            value.square().sum().backward()
    expected, got = gradients(here), gradients(there)
    assert got.keys() == expected.keys()
    size = max(gradient.norm() for gradient in expected.values())
    for name, gradient in got.items():
        assert (gradient - expected[name]).norm() <= 10 * tolerance * size, name


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-3)])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name, padded, dtype, tolerance):
    block, x = BLOCKS[name](12, 3).to(dtype), torch.randn(2, 7, 12, dtype=dtype)
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[1, 4:] = padded
    there = copy.deepcopy(block).to(GPU)

    def given(module):
        device = next(module.parameters()).device
        return x.to(device), {"key_padding_mask": mask.to(device) if padded else None}

    def mean(module):
        tokens, masks = given(module)
        with sampling(module, "mean"):
            out = module(tokens, **masks)
        return torch.cat([out[~mask.to(out.device)].flatten(), *(t.reshape(-1) for t in added_losses(module).values())])

    def variance(module):
        tokens, masks = given(module.eval())
        return module.token_variance(tokens, **masks)

    same(block, there, mean, *([variance] if block.stochastic else []), tolerance=tolerance)
    tokens, masks = given(there)
    draw = there.train()(tokens, **masks)
    assert draw.device.type == GPU.type
    assert torch.isfinite(draw[~mask.to(GPU)]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_under_autocast(name, dtype):
    block, x = BLOCKS[name](12, 3).to(GPU), torch.randn(2, 7, 12, device=GPU, requires_grad=True)
    with torch.autocast("cuda", dtype):
        out = block(x)
    (out.float().square().sum() + sum(added_losses(block).values(), torch.zeros((), device=GPU))).backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in (*block.parameters(), x) if p.grad is not None)


def test_joint_draws_have_the_covariance_of_the_posterior():
    block, x = cgp.CGPAttention(12, 3).double().to(GPU).eval(), torch.randn(1, 5, 12, dtype=torch.float64, device=GPU)
    with torch.no_grad():
        posterior = block.posterior(x)
        draws, expected = posterior.rsample(torch.Size([4000])), posterior.variance
    torch.testing.assert_close(draws.var(0), expected, rtol=0.2, atol=0.1 * float(expected.max()))


def test_what_fails_is_an_error_after_which_all_goes_on():
    points = torch.full((2, 4), 10.0, device=GPU)
    with pytest.raises(ValueError, match="'exponential' overflows"):
        canonical("exponential").gram(points)
    with pytest.raises(NotPositiveDefiniteError, match="K"):
        cholesky(-torch.eye(3, device=GPU), name="K")
    with pytest.raises(ValueError, match="points: expected sizes"):
        canonical("rbf").gram(clusters(3, 3, scale=1e6).to(GPU))
    assert float(torch.ones(3, device=GPU).sum()) == 3.0


def test_jitter_is_added_where_rounding_needs_it():
    matrix = canonical("rbf").gram(torch.linspace(0, 1, 200, device=GPU)[:, None])
    factor = cholesky(matrix, name="K")
    torch.testing.assert_close(factor @ factor.mT, matrix, rtol=0, atol=1e-4)


def test_a_step_without_reading_is_recorded_as_a_graph():
    block, x = cgp.SparseCGPAttention(12, 3).to(GPU).eval(), torch.randn(2, 7, 12, device=GPU)
    block.sampling = "mean"
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                expected = block(x)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = block(x)
        graph.replay()
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("hadamard", [False, True])
def test_kernels(hadamard):
    here, rows = moved(CorrelatedKernel("matern32", 3, 2).double()), X.expand(-1, 2)
    if hadamard:
        here, rows = HadamardCorrelatedKernel(here), torch.cat([rows, (torch.arange(20.0) % 3)[:, None]], 1)
    there = copy.deepcopy(here).to(GPU)
    same(here, there, lambda k: k(rows.to(next(k.parameters()).device)).to_dense())


class Bound(nn.Module):
    """The ELBO of a strategy, per observation."""

    def __init__(self, strategy, likelihood):
        super().__init__()
        self.model, self.likelihood = ApproximateGP(strategy), likelihood

    def forward(self, x, y):
        bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=len(y))
        return bound(self.model(x), y)


def closed_form(likelihood):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    return DTCVariationalStrategy(kernel, X[::3], X, Y, likelihood, gpytorch.means.ConstantMean())


def kernel_eigen(likelihood):
    maps = [nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 6)) for _ in range(2)]
    strategy = KernelEigenVariationalStrategy(*maps, num_features=6, rank=3)
    moved(strategy.variables, 0.5)
    return strategy


@pytest.mark.parametrize("strategy", [closed_form, kernel_eigen])
def test_strategies(strategy):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    here = Bound(strategy(likelihood).double(), likelihood)
    there = copy.deepcopy(here).to(GPU)

    def bound(module):
        device = next(module.parameters()).device
        return module(X.to(device), Y.to(device))

    same(here, there, bound)
    draws = there.model(X.to(GPU)).rsample(torch.Size([3]))
    assert torch.isfinite(draws).all()


def test_lazy_distributions():
    root = torch.randn(4, 6, 6, dtype=torch.float64)
    covariance = root @ root.mT + torch.eye(6)
    here = LazyMultivariateNormal(torch.zeros(4, 6, dtype=torch.float64), covariance)
    there = LazyMultivariateNormal(torch.zeros(4, 6, dtype=torch.float64, device=GPU), covariance.to(GPU))
    value = torch.randn(4, 6, dtype=torch.float64)
    torch.testing.assert_close(there.log_prob(value.to(GPU)).cpu(), here.log_prob(value))
    assert there.rsample(torch.Size([2])).device.type == GPU.type


@pytest.fixture(scope="module")
def network():
    return copy.deepcopy(trained()).to(GPU)


def test_conversion_prediction_and_guarantees(network, tmp_path):
    x, y = digits()
    here = cgp.convert(copy.deepcopy(trained()), amplitude=0.5)
    there = cgp.convert(network, amplitude=0.5)
    with sampling(here, "mean"), sampling(there, "mean"), torch.no_grad():
        torch.testing.assert_close(there(x[:8].to(GPU)).cpu(), here(x[:8]), rtol=1e-3, atol=1e-3)
    expected, got = (cgp.predict(model, x[800:1000], 32, seed=0) for model in (here, there))
    assert got.mean.device.type == GPU.type
    torch.testing.assert_close(got.probabilities.cpu(), expected.probabilities, rtol=0.0, atol=0.15)
    assert abs(float(got.epistemic.mean().cpu() / expected.epistemic.mean()) - 1) < 0.15
    known = [(x[1000:1300], y[1000:1300])]
    model = cgp.with_held_out(there, known, 8, seed=0)
    prediction = cgp.predict(model, x[1300:].to(GPU), 8, seed=0)
    assert float(prediction.score(y[1300:])["accuracy"]) > 0.9
    sets, withheld = prediction.sets(0.9), prediction.abstain(risk=0.1)
    assert sets.device.type == withheld.device.type == GPU.type
    cgp.save_pretrained(model, tmp_path)
    again = cgp.from_pretrained(tmp_path, copy.deepcopy(trained())).to(GPU)
    torch.testing.assert_close(cgp.predict(again, x[:8], 8, seed=0).mean, cgp.predict(model, x[:8], 8, seed=0).mean)


def test_assessment_and_calibration(network):
    x, y = digits()
    held_out, train = [(x[800:1100], y[800:1100])], [(x[:400], y[:400])]
    far = {"noise": torch.rand(100, 8, 8)}
    there = cgp.assess(network, held_out, train=train, ood=far, num_samples=4)
    here = cgp.assess(copy.deepcopy(trained()), held_out, train=train, ood=far, num_samples=4)
    assert there.method == here.method
    assert abs(there.scores["as trained"]["nll"] - here.scores["as trained"]["nll"]) < 1e-3
    assert cgp.predict(there.apply(network), x[1100:], 4).mean.device.type == GPU.type
    calibrated = cgp.calibrate(network, held_out)
    assert calibrated.method == cgp.calibrate(copy.deepcopy(trained()), held_out).method


@pytest.mark.parametrize("score", ["energy", "entropy", "Mahalanobis", "GP variance", "GradNorm", "kernel PCA"])
def test_detectors(score, network):
    x, y = digits()
    known = [(x[:400], y[:400])]
    expected = cgp.Detector(score).fit(trained(), known, train=known).score(trained(), x[800:900])
    got = cgp.Detector(score).fit(network, known, train=known).score(network, x[800:900])
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


def test_generation():
    host = hosts.llama()
    model = cgp.convert(host.model.to(GPU), amplitude=0.5)
    ids = torch.randint(3, 40, (2, 6))
    result = cgp.generate(model, {"input_ids": ids}, num_samples=4, seed=0, max_new_tokens=5, do_sample=False)
    assert result.epistemic.shape == (2, 5)
    assert bool((result.epistemic >= 0).all())


def test_draws_have_the_seed_that_they_are_given(network):
    model, x = cgp.convert(network, amplitude=0.5), digits()[0][:20]
    first, second, other = (cgp.predict(model, x, 4, seed=seed).mean for seed in (1, 1, 2))
    torch.testing.assert_close(first, second)
    assert not torch.allclose(first, other)


def test_predictions_where_the_accelerator_is_the_default(network):
    x, y = digits()
    with torch.device(GPU):
        model = cgp.convert(network, amplitude=0.5)
        prediction = cgp.predict(model, x[:50], 4, seed=0)
        report = cgp.assess(network, [(x[800:1000], y[800:1000])], num_samples=4)
    torch.testing.assert_close(prediction.mean, cgp.predict(model, x[:50], 4, seed=0).mean)
    assert report.method in report.choices


def test_labels_are_waited_for_in_the_first_step_only():
    likelihood, logits = cgp.CategoricalLikelihood(3), torch.zeros(4, 3, device=GPU)
    with pytest.raises(ValueError, match="class indices from 0 to 2, got 3"):
        likelihood.expected_log_prob(torch.full((4,), 3, device=GPU), logits)
    labels = torch.arange(4, device=GPU) % 3
    likelihood.expected_log_prob(labels, logits)
    torch.cuda.set_sync_debug_mode("error")
    try:
        likelihood.expected_log_prob(labels, logits)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_state_spaces_say_that_they_are_on_the_processor():
    kernel, x = Markov(gpytorch.kernels.MaternKernel(nu=1.5)).double(), X.to(GPU)
    with pytest.raises(ValueError, match="Markov: expected inputs on the CPU"):
        kernel.to(GPU)(x).to_dense()
    with pytest.raises(ValueError, match="device: expected the CPU"):
        kernel.cpu()(X).evaluate_kernel().to(device=GPU)
    with torch.device(GPU), pytest.raises(ValueError, match="expected torch's default device to be the CPU"):
        cgp.CorrelatedGPRegressor().fit(X.numpy(), Y.numpy())


def test_tables_on_the_accelerator_are_refused():
    for fit in (cgp.CorrelatedGPImputer().fit, lambda y: cgp.CorrelatedGPRegressor().fit(y, y)):
        with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
            fit(Y[:, None].to(GPU))
