import math
import re
from contextlib import suppress

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import cgp.regression.inference.fitting as fitting_module
import cgp.regression.inference.maximum as maximum_module
from cgp.functional.linalg import NotPositiveDefiniteError
from cgp.regression import Auto, CorrelatedGPRegression, CorrelatedGPRegressor
from cgp.regression.covariances.rows import correlation_of
from cgp.regression.inference.fitting import fit_model, minimise, progress_line
from cgp.regression.inference.minibatches import fit_minibatches
from cgp.regression.inference.setting import Setting
from cgp.regression.observations import Observations
from tests.cgp.regression.data import model_of, rows, waves


@pytest.mark.parametrize("kind", ["exact", "sparse"])
def test_finds_noise_scales_and_correlation(kind):
    model = model_of(kind, *waves(), 2, m=15)
    steps = []
    fit = fit_model(model, progress=lambda step, loss: steps.append(loss))
    assert fit.converged
    assert fit.loss == pytest.approx(min(steps), abs=1e-6)
    assert not model.training
    torch.testing.assert_close(model.likelihood.noise.sqrt(), torch.full((2,), 0.1).double(), atol=0.04, rtol=0)
    weights = model.covar_module.kernels[0].loadings().detach()
    covariance = weights @ weights.T
    assert covariance[1, 0] / covariance[0, 0] == pytest.approx(-0.5, abs=0.15)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_more_starts_are_never_worse():
    x, y = rows(15)
    single, several = (fit_model(CorrelatedGPRegression(x, y, 3), num_starts=n, max_steps=12) for n in (1, 6))
    assert several.loss <= single.loss + 1e-9


def test_single_start_goes_to_its_end_without_a_lap(monkeypatch):
    run, allowed = fitting_module._run, []
    monkeypatch.setattr(fitting_module, "_run", lambda *args: allowed.append(args[2]) or run(*args))
    fit = fit_model(CorrelatedGPRegression(*waves()), race=False)
    assert fit.converged
    assert allowed == [1000]
    fit_model(CorrelatedGPRegression(*waves()))
    assert allowed[1:4] == [20, 20, 20]


def test_starts_race_on_a_part_of_many_observations():
    """And end where a fit from the best start on all ends."""
    time = torch.arange(540.0, dtype=torch.float64) / 30.0
    y = torch.sin(2.0 * time) + 0.1 * torch.randn(540, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows, sizes = torch.stack([time, torch.zeros_like(time)], dim=-1), []

    class Counted(CorrelatedGPRegression):
        def log_evidence(self):
            sizes.append(len(self.train_targets))
            return super().log_evidence()

    raced, alone = Counted(rows, y, 1), CorrelatedGPRegression(rows, y, 1)
    fit = fit_model(raced)
    assert sizes.count(500) > sizes.count(540) > 5
    assert sizes[:5] == [500] * 5
    assert fit.loss <= fit_model(alone, race=False).loss + 1e-3
    assert len(raced.train_targets) == 540


def test_every_structure_but_the_first_starts_at_the_end_of_another(monkeypatch):
    raced = {}

    def watched(model, *, race, **options):
        start = {name: value.clone() for name, value in model.state_dict().items()}
        fit = fit_model(model, race=race, **options)
        raced[len(raced)] = race, start, model
        return fit

    monkeypatch.setattr(maximum_module, "fit_model", watched)
    given = Setting(Observations.of_rows(*waves(), 2), Auto(), "matern32")
    maximum_module.closed_form(given, 0)
    assert [race for race, *_ in raced.values()] == [True, False, False, False]
    (_, _, first), (_, start, shared) = raced[0], raced[1]
    learned = first.covar_module.kernels[0]
    scales = [start[f"covar_module.kernels.{number}.input_maps.log_scales"] for number in (0, 1)]
    torch.testing.assert_close(scales[0], learned.input_maps.log_scales)
    torch.testing.assert_close(scales[1], learned.input_maps.log_scales + math.log(3.0))
    partials = start["covar_module.kernels.1.loadings.partials"].tanh()
    correlation = correlation_of(learned.loadings().detach())[1, 0]
    assert float(partials.prod()) == pytest.approx(float(correlation), abs=0.1)
    assert len(shared.covar_module.kernels) == 2


def test_says_when_it_was_cut_off():
    x, y = waves()
    with pytest.warns(ConvergenceWarning, match=r"has not converged: cut off after 2 steps.*max_steps=4\) takes more"):
        fit = fit_model(CorrelatedGPRegression(x, y), max_steps=2)
    assert not fit.converged


def test_a_step_too_far_is_taken_back(monkeypatch):
    x, y = waves()
    model = CorrelatedGPRegression(x, y)
    evaluate, calls = model.log_evidence, []

    def sometimes():
        calls.append(None)
        if len(calls) == 9:
            raise NotPositiveDefiniteError("a trial step")
        return evaluate()

    monkeypatch.setattr(model, "log_evidence", sometimes)
    assert math.isfinite(fit_model(model).loss)


def test_progress_is_one_line_that_also_a_failure_ends(capsys):
    with suppress(KeyError), progress_line("map") as line:
        line(1, 0.5)
        raise KeyError
    with progress_line("map", shown=False) as line:
        assert line is None
    text = capsys.readouterr().err
    assert re.search(r"map: 1 steps .*, 0\.50000 nats per row\]\n$", text)


def test_progress_says_how_long_is_left(capsys):
    with progress_line("map", total=3) as line:
        line(1, 0.5)
        line(2, 0.4)
    text = capsys.readouterr().err
    assert re.search(r"map:  67%.*2/3 \[\d\d:\d\d<\d\d:\d\d, .*0\.40000 nats per row", text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x, y: fit_model(m, num_starts=0), "num_starts: expected an integer of at least 1, got 0"),
        (lambda m, x, y: fit_model(m, max_steps=0), "max_steps: expected an integer of at least 1, got 0"),
        (
            lambda m, x, y: fit_minibatches(model_of("stochastic", x, y, m=3), x, y, batch_size=0),
            "batch_size: expected an integer of at least 1, got 0",
        ),
    ],
)
def test_refuses(call, message):
    x, y = rows()
    with pytest.raises(ValueError, match=message):
        call(CorrelatedGPRegression(x, y), x, y)


def rosenbrock(parameter):
    """A loss with a bent valley."""
    x, y = parameter
    return (1 - x) ** 2 + 10 * (y - x**2) ** 2


def test_a_failed_line_search_goes_on_with_a_new_memory():
    parameter = torch.tensor([-1.0, 1.0], dtype=torch.float64, requires_grad=True)
    seen, ended = [], []

    def loss():
        if parameter.tolist() in seen[2:]:
            ended.append(True)
        elif len(seen) > 5 and not ended:  # all trials, until the search is back where it began
            raise NotPositiveDefiniteError("a trial step")
        seen.append(parameter.tolist())
        return rosenbrock(parameter)

    fit = minimise([parameter], loss, [parameter.detach().numpy().copy()])
    assert ended
    assert fit.converged
    torch.testing.assert_close(parameter.detach(), torch.ones(2).double(), atol=1e-2, rtol=0)


def test_a_line_search_that_always_fails_is_said():
    parameter = torch.tensor([-1.0, 1.0], dtype=torch.float64, requires_grad=True)

    def uphill():
        value = rosenbrock(parameter)
        return value.detach() - (value - value.detach())  # the value is right, its slope points the wrong way

    fit = minimise([parameter], uphill, [parameter.detach().numpy().copy()])
    assert not fit.converged
    assert fit.message.startswith("the line search failed after")


def test_a_column_twice_another_has_a_fit_that_converges():
    """Rounding of the evidence ends its line search where a thousandth of a slope is left: nothing is to be said."""
    t = torch.arange(60.0, dtype=torch.float64)
    wave = 10.0 + 5.0 * torch.sin(torch.pi * t / 6.0)
    table = torch.stack([wave, 2.0 * wave], dim=1).numpy()
    table[5, 0] = math.nan
    CorrelatedGPRegressor(random_state=0).fit(t.unsqueeze(1).numpy(), table)  # where a warning is an error
