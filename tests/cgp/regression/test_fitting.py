import math

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.regression import CorrelatedGPRegression, SparseCorrelatedGPRegression, StochasticCorrelatedGPRegression
from cgp.regression.adam import fit_adam, fit_minibatches
from cgp.regression.fitting import ProgressLine, fit_lbfgs
from tests.cgp.regression.data import rows


def waves(n=60):
    """Two processes, the second minus half the first."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(n, 1, generator=generator, dtype=torch.float64) * 6 - 3
    number = torch.arange(n, dtype=torch.float64)[:, None] % 2
    f = (2 * inputs).sin() * torch.where(number == 0, 1.0, -0.5)
    y = (f + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64))[:, 0]
    return torch.cat([inputs, number], dim=-1), y


@pytest.mark.parametrize(
    "make", [CorrelatedGPRegression, lambda *a, **k: SparseCorrelatedGPRegression(*a, num_inducing=15, **k)]
)
def test_finds_noise_scales_and_correlation(make):
    x, y = waves()
    model = make(x, y, signs=[1, -1])
    steps = []
    fit = fit_lbfgs(model, progress=lambda step, loss: steps.append(loss))
    assert fit.converged
    assert fit.loss == pytest.approx(min(steps), abs=1e-6)
    assert not model.training
    torch.testing.assert_close(model.likelihood.noise.sqrt(), torch.full((2,), 0.1).double(), atol=0.04, rtol=0)
    scales = model.sum_kernel.kernels[0].correlated.scales.detach()
    assert scales[1] / scales[0] == pytest.approx(-0.5, abs=0.15)


def test_more_starts_are_never_worse():
    x, y = rows(15)
    one, several = (fit_lbfgs(CorrelatedGPRegression(x, y, 3), num_starts=n, max_steps=100) for n in (1, 7))
    assert several.loss <= one.loss + 1e-9


def test_says_when_it_was_cut_off():
    x, y = waves()
    with pytest.warns(ConvergenceWarning, match="has not converged: cut off after 2 steps"):
        fit = fit_lbfgs(CorrelatedGPRegression(x, y), max_steps=2)
    assert not fit.converged


def test_a_step_too_far_is_taken_back(monkeypatch):
    x, y = waves()
    model = CorrelatedGPRegression(x, y, signs=[1, -1])
    evaluate, calls = model.log_evidence, []

    def sometimes():
        calls.append(None)
        if len(calls) == 9:
            raise NotPositiveDefiniteError("a trial step")
        return evaluate()

    monkeypatch.setattr(model, "log_evidence", sometimes)
    assert math.isfinite(fit_lbfgs(model).loss)


def test_adam_comes_close_to_lbfgs():
    x, y = waves()
    slow, quick = CorrelatedGPRegression(x, y, signs=[1, -1]), CorrelatedGPRegression(x, y, signs=[1, -1])
    assert fit_adam(slow, max_steps=300).loss == pytest.approx(fit_lbfgs(quick).loss, abs=0.02)


def test_adam_says_when_it_was_cut_off():
    x, y = waves()
    with pytest.warns(ConvergenceWarning, match="all 3 steps used"):
        fit_adam(CorrelatedGPRegression(x, y), max_steps=3)


def test_progress_is_one_line(capsys):
    line = ProgressLine("map")
    line(3, 0.5)
    line.close()
    assert capsys.readouterr().err == "\rmap: step 3, 0.50000 nats a row \n"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x, y: fit_lbfgs(m, num_starts=0), "num_starts, max_steps: expected at least 1, got 0, 200"),
        (lambda m, x, y: fit_adam(m, max_steps=0), "max_steps: expected at least 1, got 0"),
        (
            lambda m, x, y: fit_minibatches(StochasticCorrelatedGPRegression(x, y, num_inducing=3), x, y, batch_size=0),
            "batch_size, num_epochs: expected at least 1, got 0, 40",
        ),
    ],
)
def test_refuses(call, message):
    x, y = rows()
    with pytest.raises(ValueError, match=message):
        call(CorrelatedGPRegression(x, y), x, y)
