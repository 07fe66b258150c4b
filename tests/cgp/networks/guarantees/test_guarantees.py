"""What held-out labels guarantee: by simulation, by hand, and as MAPIE has it."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom, norm
from torch import nn

from cgp import Detector, assess, calibrate, convert, from_pretrained, predict, save_pretrained, with_held_out
from cgp.networks.guarantees.conformal import (
    LEVELS,
    Regularised,
    SetScore,
    conformal_quantile,
    conformal_sets,
    label_scores,
    labels_needed,
    risk_threshold,
    sets_by_label_scores,
    values_needed,
)
from cgp.networks.predict.prediction import Prediction, TokenLayout
from cgp.weights import save_weights
from tests import guarantees
from tests.cgp.networks.convert import hosts

pytestmark = pytest.mark.filterwarnings("ignore:predict. one draw")


def test_guarantees_hold_over_draws_of_the_held_out_labels():
    for outcome in guarantees.outcomes(1000):
        assert outcome.low <= outcome.value <= outcome.high, outcome


def test_a_tenth_too_small_would_be_seen(monkeypatch):
    monkeypatch.setattr(guarantees, "conformal_quantile", lambda scores, error: conformal_quantile(scores, 1.1 * error))
    outcome = guarantees.coverage_of_sets("lac", 100)
    assert not outcome.low <= outcome.value <= outcome.high


def test_a_threshold_without_a_correction_would_be_seen(monkeypatch):
    """The best of twenty shares, each tested by itself at 50 %."""
    monkeypatch.setattr(guarantees, "risk_threshold", lambda c, right, risk, _: risk_threshold(c, right, risk, -9.0))
    assert guarantees.broken_promises("too sure", 100).value > 0.2


def test_quantiles_are_order_statistics():
    scores = np.random.default_rng(0).permutation(np.arange(1.0, 100.0))
    for error in (0.01, 0.05, 0.1, 0.29, 0.5):
        rank = int(np.ceil(round(100 * (1 - error), 6)))
        assert conformal_quantile(scores, error) == rank
        assert beta(rank, 100 - rank).mean() >= 1 - error - 1e-12
    assert conformal_quantile(scores, 0.009) == np.inf


def test_scores_are_sums_down_the_ranking():
    p = np.random.default_rng(0).dirichlet(np.ones(7), 30)
    for row, aps, raps in zip(p, SetScore.named("aps")(p), Regularised(penalty=0.2, free=3)(p), strict=True):
        for c in range(7):
            above = row[row >= row[c]]
            assert aps[c] == pytest.approx(above.sum())
            assert raps[c] == pytest.approx(above.sum() + 0.2 * max(len(above) - 3, 0))
    np.testing.assert_allclose(SetScore.named("lac")(p), 1 - p)


# MAPIE 1.6.0: SplitConformalClassifier(estimator of p, confidence_level=0.8, prefit=True,
# conformity_score=LACConformityScore()).conformalize(p[:40], y[:40]).predict_set(p[40:]). Its APS draws random numbers.
MAPIE = "0 3 03 02 0 23 0 02 1 0 2 12"


def known_problem():
    rng = np.random.default_rng(7)
    p = rng.dirichlet(0.6 * np.ones(4), 52)
    labels = np.array([rng.choice(4, p=row) for row in p])
    return p, labels


def test_sets_are_those_of_mapie():
    p, labels = known_problem()
    scores = SetScore.named("lac")(p)
    sets = conformal_sets(scores[40:], scores[:40], labels[:40], 0.2)
    assert ["".join(map(str, np.flatnonzero(row))) for row in sets] == MAPIE.split()


def test_sets_hold_the_likeliest_class_and_scores_up_to_the_quantile():
    p, labels = known_problem()
    for method in ("aps", "raps", "lac"):
        scores = SetScore.named(method)(p)
        of_labels = scores[np.arange(40), labels[:40]]
        of_labels[p[:40].argmax(-1) == labels[:40]] = -np.inf  # covered whatever the quantile
        quantile = np.sort(of_labels)[32]  # the 33rd of 40: 41 · 0.8 = 32.8
        sets = conformal_sets(scores[40:], scores[:40], labels[:40], 0.2)
        expected = scores[40:] <= quantile + 1e-9
        expected[np.arange(12), p[40:].argmax(-1)] = True
        assert (sets == expected).all()


def test_per_class_is_each_class_by_itself():
    p, labels = known_problem()
    scores = SetScore.named("lac")(p)
    sets = conformal_sets(scores[40:], scores[:40], labels[:40], 0.2, per_class=True)
    for c in range(4):
        of_class = labels[:40] == c
        own = np.where(p[:40].argmax(-1) == c, -np.inf, scores[:40, c])[of_class]
        expected = scores[40:, c] <= conformal_quantile(own, 0.2) + 1e-9
        top = scores[40:].argmin(-1) == c
        assert (sets[:, c] == (expected | top)).all()
    few = conformal_sets(scores[40:], scores[:3], np.zeros(3, int), 0.2, per_class=True)
    assert few.all()  # too few labels of a class: it is in every set


def sets_by_hand(p, known, labels, level):
    """Adaptive sets of one input after the other: the likeliest classes, as many as the held-out ranks ask for."""

    def reached(row, c):  # the probability down to class c, nothing down to the first
        return 0.0 if c == row.argmax() else row[row >= row[c]].sum()

    scores = sorted(reached(row, c) for row, c in zip(known, labels, strict=True))
    rank = int(np.ceil(round(level * (len(scores) + 1), 9)))
    limit = scores[rank - 1] if rank <= len(scores) else np.inf
    return np.array([[reached(row, c) <= limit + 1e-9 for c in range(len(row))] for row in p])


def test_sets_cover_as_often_as_asked_over_many_splits():
    """Not more, either: a likeliest class that the quantile does not know of made .97 of .9, of twice the classes."""
    rng = np.random.default_rng(0)
    logits = 2.5 * rng.normal(size=(4000, 6))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
    covered, sizes = {}, {}
    for method, level in (("aps", 0.9), ("raps", 0.9), ("lac", 0.9), ("aps", 0.95), ("lac", 0.95)):
        scores, found = SetScore.named(method)(p), []
        for _ in range(200):
            rows = rng.permutation(4000)
            known, new = rows[:200], rows[200:1200]
            sets = conformal_sets(scores[new], scores[known], labels[known], 1 - level)
            found.append((sets[np.arange(1000), labels[new]].mean(), sets.sum(-1).mean()))
        (covered[method, level], sizes[method, level]), error = np.mean(found, 0), np.std(found, 0)[0] / 200**0.5
        assert level - 3 * error <= covered[method, level] <= level + 0.03, (method, level)
    assert sizes["lac", 0.9] <= sizes["aps", 0.9] < 1.3 * sizes["lac", 0.9]


def test_adaptive_sets_are_those_by_hand():
    p, labels = known_problem()
    scores = SetScore.named("aps")(p)
    for level in (0.5, 0.8, 0.9, 0.99):
        sets = conformal_sets(scores[40:], scores[:40], labels[:40], 1 - level)
        assert (sets == sets_by_hand(p[40:], p[:40], labels[:40], level)).all()
        assert (
            sets == sets_by_label_scores(scores[40:], label_scores(scores[:40], labels[:40]), labels[:40], 1 - level)
        ).all()


def test_a_sure_answer_is_a_set_of_one():
    """Classes of probability 0 add nothing to the sum, but are not the likeliest."""
    p = np.array([[0.0, 0.0, 1.0], [0.5, 0.25, 0.25]])
    for method in ("aps", "raps", "lac"):
        scores = SetScore.named(method)(p)
        sets = conformal_sets(scores, np.tile(scores[1:], (19, 1)), np.zeros(19, int), 0.1)
        assert sets.tolist() == [[False, False, True], [True, False, False]]


def model_and_data(count=900, scale=6.0):
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    with torch.no_grad():
        model.weight *= scale
    x = torch.randn(count, 3)
    return model, x, torch.distributions.Categorical(logits=0.6 * model(x).detach()).sample()


def test_a_model_keeps_its_held_out_labels(tmp_path):
    model, x, y = model_and_data(scale=30.0)
    scaled = calibrate(model, [(x[:200], y[:200])], method="temperature").model
    kept = with_held_out(scaled, [(x[200:600], y[200:600])])
    prediction = predict(kept, x[600:])
    by_hand = predict(scaled, x[600:]).sets(0.9, held_out=predict(scaled, [(x[200:600], y[200:600])]))
    assert torch.equal(prediction.sets(0.9), by_hand)
    inside = by_hand[torch.arange(300), y[600:]].double().mean()
    assert inside > 0.84
    save_pretrained(kept, tmp_path)
    again = predict(from_pretrained(tmp_path, nn.Linear(3, 4)), x[600:])
    for options in ({}, {"method": "raps"}, {"per_class": True}):
        assert torch.equal(again.sets(0.8, **options), prediction.sets(0.8, **options))
    assert torch.equal(again.abstain(risk=0.2, level=0.9), prediction.abstain(risk=0.2, level=0.9))
    assert predict(calibrate(kept, [(x[:200], y[:200])], method="temperature").model, x[:2]).held_out is None


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.999, 1 / 3, 0.9999])
def test_fewest_labels_are_those_from_which_a_quantile_is_finite(level):
    needed = values_needed(1.0 - level)
    assert math.isfinite(conformal_quantile(np.zeros(needed), 1.0 - level))
    assert math.isinf(conformal_quantile(np.zeros(needed - 1), 1.0 - level))


@pytest.mark.filterwarnings("error")
def test_sets_and_intervals_by_too_few_labels_say_how_many_they_need():
    model, x, y = model_and_data()
    known, new = predict(model, [(x[:98], y[:98])]), predict(model, x[98:])
    with pytest.warns(UserWarning, match="sets: every set has all classes: a level of 0.99 needs at least 99 held-out"):
        assert new.sets(0.99, held_out=known).all()
    assert not predict(model, x[99:]).sets(0.99, held_out=predict(model, [(x[:99], y[:99])])).all()
    assert torch.bincount(y[:98]).tolist() == [24, 26, 24, 24]
    with pytest.warns(UserWarning, match="classes 0, 2, 3 are in every set: .* at least 25 held-out labels of each"):
        sets = new.sets(0.961, held_out=known, per_class=True)
    assert sets.all(0).tolist() == [True, False, True, True]
    few = gaussian(torch.zeros(8, 2), 1.0, torch.ones(8, 2))
    with pytest.warns(UserWarning, match="intervals: every interval is infinite: .* needs at least 9 .* values, got 8"):
        assert gaussian(torch.ones(4, 2), 1.0, None).intervals(0.9, held_out=few).isinf().all()


def test_a_guarantee_for_the_inputs_that_gave_it_is_warned_of():
    """Of whatever rule; of other inputs, also as many, nothing is said."""
    model, x, y = model_and_data(count=400)
    guarded = with_held_out(model, [(x[:200], y[:200])])
    own, new = predict(guarded, x[:200]), predict(guarded, x[200:])
    for ask in (lambda p: p.sets(0.9), lambda p: p.abstain(risk=0.9, level=0.9)):
        with pytest.warns(UserWarning, match="other inputs than those that are predicted, got the same ones") as caught:
            ask(own)
        assert caught[0].filename == __file__
        ask(new)
    values = gaussian(x[:200, :2].double(), 1.0, x[:200, :2])
    with pytest.warns(UserWarning, match="got the same ones"):
        values.intervals(0.9, held_out=values)


def test_sets_are_the_smallest_ones_by_default():
    """One threshold for the probability: the level is kept with fewer classes than by adaptive sets."""
    model, x, y = model_and_data(count=2400)
    known, new = predict(model, [(x[:1200], y[:1200])]), predict(model, x[1200:])
    smallest, adaptive = (new.sets(0.9, held_out=known, **of) for of in ({}, {"method": "aps"}))
    assert torch.equal(smallest, new.sets(0.9, method="lac", held_out=known))
    inside = smallest[torch.arange(1200), y[1200:]].double().mean()
    assert 0.87 < inside < 0.93
    assert smallest.sum() < 0.9 * adaptive.sum()
    assert torch.equal(smallest, new.sets(0.9, held_out=known, per_class=False))
    few = new.sets(0.3, held_out=known)
    assert (few <= smallest).all()
    assert few.sum() < smallest.sum()


def test_abstaining_is_the_tested_threshold():
    model, x, y = model_and_data(scale=30.0)
    known = predict(model, [(x[:600], y[:600])])
    withheld = predict(model, x[600:]).abstain(risk=0.1, level=0.95, held_out=known)
    confidence, right = known.confidence.double().numpy(), (known.classes == y[:600]).numpy()
    threshold = risk_threshold(confidence, right, 0.1, 0.95)
    assert torch.equal(withheld, predict(model, x[600:]).confidence <= threshold)
    assert 0 < withheld.double().mean() < 1
    above = np.sort(confidence)[::-1]
    assert -np.inf < threshold in above[[600 * k // LEVELS - 1 for k in range(1, LEVELS)]]


def handed_on_along_a_graph(p_values, errors):
    """Hypotheses that Bretz, Maurer, Brannath & Posch (2009), algorithm 1, rejects along a chain."""
    errors, size = errors.copy(), len(errors)
    edges, left = np.eye(size, k=1), set(range(size))
    while passing := [k for k in left if p_values[k] <= errors[k]]:
        j = passing[-1]
        left.remove(j)
        errors += errors[j] * edges[j] * np.isin(np.arange(size), list(left))
        new = np.zeros_like(edges)
        for k in left:
            for m in left - {k}:
                both = edges[k, j] * edges[j, k]
                new[k, m] = (edges[k, m] + edges[k, j] * edges[j, m]) / (1.0 - both) if both < 1.0 else 0.0
        edges = new
    return set(range(size)) - left


@pytest.mark.parametrize("seed", range(8))
def test_errors_are_handed_on_as_along_a_graph(seed):
    rng = np.random.default_rng(seed)
    count, risk, level = (160, 237, 400, 900)[seed % 4], (0.05, 0.1)[seed // 4], 0.9
    confidence = rng.beta(4, 1, count)
    right = rng.random(count) < np.where(confidence > 0.7, 1.0 - 0.4 * risk, 0.85)
    above = [count * share // LEVELS - 1 for share in range(1, LEVELS)] + [count]
    ordered = right[np.argsort(-confidence)]
    p_values = np.array([binom.cdf((~ordered[:n]).sum(), n, risk) for n in above])
    able = next(k for k, n in enumerate(above) if (1.0 - risk) ** n <= (1.0 - level) / 4)
    errors = np.zeros(LEVELS)
    errors[np.linspace(able, LEVELS - 1, 4).round().astype(int)] = (1.0 - level) / 4
    rejected = handed_on_along_a_graph(p_values, errors)
    threshold = risk_threshold(confidence, right, risk, level)
    kept = 0 if threshold is None else (confidence > threshold).sum()
    assert kept == (above[max(rejected)] if rejected else 0)


def test_answers_of_one_confidence_hand_nothing_on():
    right = np.ones(400, bool)
    right[380:] = False
    confidence = np.linspace(1.0, 0.5, 400)
    assert risk_threshold(confidence, right, 0.07, 0.9) == -np.inf  # its p-value is 0.066
    confidence[200:380] = confidence[200]
    assert risk_threshold(confidence, right, 0.07, 0.9) == confidence[200]


def test_too_few_labels_are_counted_and_an_empty_answer_is_said():
    model, x, y = model_and_data()
    prediction, known = predict(model, x[600:]), predict(model, [(x[:200], y[:200])])
    with pytest.raises(ValueError, match=r"expected at least 299 labels to keep to a risk of 0\.01 .* got 200"):
        prediction.abstain(risk=0.01, level=0.95, held_out=known)
    assert labels_needed(0.01, 0.95) == 299
    for values in (np.ones(299), np.linspace(0.0, 1.0, 299)):
        assert risk_threshold(values, np.ones(299, bool), 0.01, 0.95) == -np.inf
        assert risk_threshold(values[:298], np.ones(298, bool), 0.01, 0.95) is None
    wrong = predict(model, [(x[:600], (y[:600] + 1) % 4)])
    with pytest.warns(UserWarning, match="abstain: every answer is withheld: of 600 held-out answers"):
        assert prediction.abstain(risk=0.05, level=0.95, held_out=wrong).all()


def test_intervals_are_normalised_residuals():
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2), torch.randn(500, 3)
    values = model(x).detach() + torch.randn(500, 2) * torch.tensor([1.0, 3.0])
    noise = torch.tensor([1.0, 4.0])
    known = predict(model, [(x[:300], values[:300])], task="regression", noise=noise, num_samples=2)
    new = predict(model, x[300:], task="regression", noise=noise, num_samples=2)
    ends = new.intervals(0.9, held_out=known)
    scores = ((values[:300] - known.mean).abs() / noise.sqrt()).numpy()
    for c in range(2):
        quantile = np.sort(scores[:, c])[int(np.ceil(301 * 0.9)) - 1]
        torch.testing.assert_close(ends[:, c, 1] - new.mean[:, c], (quantile * noise[c].sqrt()).expand(200))
    inside = ((values[300:] >= ends[..., 0]) & (values[300:] <= ends[..., 1])).double().mean(0)
    assert ((inside > 0.83) & (inside < 0.97)).all()


def test_what_guarantees_nothing_is_refused():
    model, x, y = model_and_data(100)
    known, plain = predict(model, [(x, y)]), predict(model, x[1:])
    with pytest.raises(ValueError, match="held_out: expected a prediction of labelled inputs that neither trained"):
        plain.sets()
    with pytest.raises(ValueError, match="held_out: expected a prediction of labelled inputs that neither trained"):
        plain.abstain(risk=0.1, level=0.9)
    with pytest.raises(ValueError, match="task: expected 'regression', got 'classification'"):
        plain.intervals()  # whatever labels are given
    with pytest.raises(ValueError, match="held_out: expected task 'classification' as of the prediction"):
        plain.sets(held_out=predict(model, [(x, y)], task="regression"))
    with pytest.raises(ValueError, match="level: expected a probability"):
        plain.sets(1.0, held_out=known)
    with pytest.raises(ValueError, match="method: expected one of"):
        plain.sets(method="naive", held_out=known)
    with pytest.raises(ValueError, match="risk, level: expected both in"):
        plain.abstain(coverage=0.1, level=0.9, held_out=known)
    with pytest.raises(ValueError, match="expected a label for every input, got -100"):
        plain.sets(held_out=predict(model, [(x, torch.where(y == 0, -100, y))]))
    tokens = torch.randn(4, 5, 3)
    with pytest.raises(ValueError, match="tokens, are not exchangeable"):
        predict(model, tokens).sets(held_out=predict(model, [(tokens, torch.zeros(4, 5).long())]))
    with pytest.raises(ValueError, match="data: expected batches"):
        with_held_out(model, x)
    with pytest.raises(ValueError, match="task: expected 'regression'"):
        plain.intervals(held_out=known)


def gaussian(mean, deviation, values, held_out=None):
    """A prediction of values ``(N, C)`` by normal distributions."""
    total = torch.as_tensor(deviation, dtype=torch.float64).square().expand_as(mean)
    parts = {"probabilities": None, "draws": None, "aleatoric": total, "epistemic": None, "token_variance": {}}
    layout, absent = TokenLayout(0, None), {"num_samples": 1, "labels": values, "held_out": held_out}
    return Prediction(task="regression", mean=mean, total=total, layout=layout, **parts, **absent)


@pytest.mark.filterwarnings("ignore:intervals. every interval is infinite")  # two values
def test_intervals_of_both_predictions_are_in_the_same_units():
    """A variance of 0 in one of them: residuals are not normalised in either."""
    generator = torch.Generator().manual_seed(0)
    values = 100.0 * torch.randn(300, 1, generator=generator, dtype=torch.float64)
    known = gaussian(torch.zeros_like(values), 100.0, values)
    new = gaussian(torch.zeros(2, 1, dtype=torch.float64), torch.tensor([[100.0], [0.0]]), None)
    quantile = conformal_quantile(values.abs().numpy()[:, 0], 0.1)
    for first, second in ((known, new), (new, known)):
        ends = first.intervals(0.9, held_out=Prediction(**{**vars(second), "labels": values[: len(second.mean)]}))
        wanted = quantile if second is known else np.inf
        assert ends[..., 1].tolist() == [[pytest.approx(wanted)]] * len(first.mean)


def test_values_of_a_transposed_table_are_refused():
    known = gaussian(torch.zeros(6, 2), 1.0, torch.arange(12.0).reshape(2, 6))
    with pytest.raises(ValueError, match=r"held_out: expected values .* got \(2, 6\) and \(6, 2\)"):
        gaussian(torch.zeros(3, 2), 1.0, None).intervals(held_out=known)


def test_a_regression_withholds_what_its_variance_says():
    deviation = torch.tensor([[1.0, 5.0], [2.0, 4.0], [3.0, 3.0], [4.0, 2.0]], dtype=torch.float64)
    prediction = gaussian(torch.zeros(4, 2, dtype=torch.float64), deviation, None)
    assert prediction.abstain(coverage=0.5).tolist() == [[False, True], [False, True], [True, False], [True, False]]
    wrong = 2 * norm.sf(3.0 / np.arange(1.0, 6.0))
    kept = int((np.cumsum(wrong[:4]) / np.arange(1, 5) <= 0.2).sum())
    assert (~prediction.abstain(risk=0.2, tolerance=3.0)[:, 0]).sum() == kept == 3
    with pytest.raises(ValueError, match="tolerance: expected the largest error that counts as right"):
        prediction.abstain(risk=0.2)
    same = gaussian(torch.zeros(4, 1, dtype=torch.float64), 1.0, None)
    with pytest.raises(ValueError, match="coverage: expected variances that order the answers"):
        same.abstain(coverage=0.5)


def test_the_risk_of_a_regression_is_kept_to():
    rng = np.random.default_rng(0)
    tolerance, risk, level = 2.0, 0.1, 0.9

    def drawn(count):
        deviation = torch.from_numpy(np.exp(rng.standard_normal((count, 1))))
        errors = 1.5 * deviation * torch.from_numpy(rng.standard_normal((count, 1)))  # surer than it should be
        return torch.zeros(count, 1, dtype=torch.float64), deviation, errors

    mean, deviation, errors = drawn(200_000)
    right = errors.abs() <= tolerance
    broken = kept = 0
    for _ in range(200):
        known = gaussian(*drawn(300))
        withheld = gaussian(mean, deviation, None, known).abstain(risk=risk, level=level, tolerance=tolerance)
        kept += int((~withheld).sum()) / len(mean)
        broken += bool((~right[~withheld]).double().mean() > risk)
    assert broken / 200 <= 1 - level + 3 * (0.1 * 0.9 / 200) ** 0.5
    assert 0.2 < kept / 200 < 0.7


def test_what_is_not_a_number_is_withheld_and_its_set_has_every_class():
    """Whatever the threshold: also where everything else is answered."""
    model, x, y = model_and_data(scale=30.0)
    broken = x[600:].clone()
    broken[3] = 3e38  # logits overflow
    known, prediction = predict(model, [(x[:600], model(x[:600]).argmax(-1))]), predict(model, broken)
    for options in ({"risk": 0.1, "level": 0.95, "held_out": known}, {"coverage": 1.0}, {"risk": 0.9}):
        assert prediction.abstain(**options).nonzero().flatten().tolist() == [3], options
    for method in ("aps", "raps", "lac"):
        for per_class in (False, True):
            sets = prediction.sets(0.9, method=method, per_class=per_class, held_out=known)
            assert sets[3].all()
            others = predict(model, x[600:]).sets(0.9, method=method, per_class=per_class, held_out=known)
            assert torch.equal(sets[4:], others[4:])
    real = (broken < 3e38).all(-1)
    holes, without = predict(model, [(broken, y[600:])]), predict(model, [(broken[real], y[600:][real])])
    some = predict(model, broken[1:])
    assert torch.equal(some.sets(0.9, held_out=holes), some.sets(0.9, held_out=without))


def test_intervals_and_answers_of_a_regression_that_are_not_numbers():
    values = torch.randn(300, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    known = gaussian(torch.zeros_like(values), 1.0, values)
    mean = torch.zeros(4, 2, dtype=torch.float64)
    mean[1, 0] = torch.nan
    deviation = torch.arange(1.0, 9.0, dtype=torch.float64).reshape(4, 2)
    deviation[2, 1] = torch.nan
    new = gaussian(mean, deviation, None, known)
    ends, absent = new.intervals(0.9), torch.tensor([[False, False], [True, False], [False, True], [False, False]])
    assert torch.equal(ends.isinf().all(-1), absent)
    assert (ends[..., 0] < ends[..., 1]).all()
    assert torch.equal(new.abstain(coverage=1.0), absent)
    assert torch.equal(new.abstain(risk=0.99, tolerance=1.0), absent)
    assert torch.equal(new.abstain(risk=0.9, level=0.9, tolerance=5.0), absent)


def train(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


CHANGED = "expected a prediction by the weights of this one, got one by others"


def test_guarantees_do_not_outlive_the_weights(tmp_path):
    """A risk of .49 where .4 was promised at 95 %, and sets that cover .65 of .9, of a model that was trained on."""
    model, x, y = model_and_data()
    kept = with_held_out(model, [(x[:600], y[:600])])
    before = predict(model, [(x[:600], y[:600])])
    save_pretrained(kept, tmp_path)
    for same in (kept, from_pretrained(tmp_path, nn.Linear(3, 4)), copy.deepcopy(kept)):
        assert predict(same, x[600:]).sets(0.9).any()
    train(model)  # whose tensors the copy shares
    for prediction in (predict(kept, x[600:]), replace(predict(model, x[600:]), held_out=before)):
        for call in (Prediction.sets, lambda p: p.abstain(risk=0.4, level=0.95)):
            with pytest.raises(ValueError, match=CHANGED):
                call(prediction)
    assert predict(with_held_out(kept, [(x[:600], y[:600])]), x[600:]).sets(0.9).any()


def test_held_out_data_of_another_model_are_refused():
    model, x, y = model_and_data()
    torch.manual_seed(5)
    other = nn.Linear(3, 4)
    with pytest.raises(ValueError, match=CHANGED):
        predict(model, x[600:]).sets(0.9, held_out=predict(other, [(x[:600], y[:600])]))
    scaled = calibrate(model, [(x[:200], y[:200])], method="temperature").model
    with pytest.raises(
        ValueError, match=r"as it is calibrated \(T=1, method=none\), got \(T=[0-9.]+, method=temperature\)"
    ):
        predict(model, x[600:]).sets(0.9, held_out=predict(scaled, [(x[200:600], y[200:600])]))


@pytest.mark.parametrize(
    ("name", "known", "asked"),
    [
        ("noise", {"noise": 1.0}, {"noise": 0.01}),
        ("noise", {"noise": torch.tensor([1.0, 2.0])}, {}),
        ("noise", {"noise": lambda out: 1 + 0 * out}, {"noise": 1.0}),
        ("sampling", {"sampling": "joint"}, {}),
        ("antithetic", {}, {"antithetic": False}),
        ("autocast", {"autocast": torch.bfloat16}, {}),
        ("output", {"output": lambda out: 2 * out}, {}),
    ],
)
def test_predictions_that_are_asked_otherwise_are_refused(name, known, asked):
    torch.manual_seed(0)
    host = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(32, 2))
    model, x, y = convert(host.eval(), amplitude=0.3), torch.randn(60, 4, 8), torch.randn(60, 2)
    kept = predict(model, [(x[:50], y[:50])], 4, task="regression", **known)
    with pytest.raises(ValueError, match=f"held_out: expected a prediction with {name}="):
        predict(model, x[50:], 4, task="regression", **asked).intervals(0.9, held_out=kept)
    predict(model, x[50:], 4, task="regression", **known).intervals(0.9, held_out=kept)
    plain = predict(nn.Linear(2, 2), x[0, :, :2], task="regression")
    assert plain.source.asked.keys() == {"noise", "autocast", "output"}  # nothing is drawn


def test_a_calibration_does_not_outlive_the_weights(tmp_path):
    """Neither in memory nor on disk, where a host may write its weights over those of a calibrated model."""
    model, x, y = model_and_data(scale=30.0)
    changed = calibrate(model, [(x[:600], y[:600])], method="temperature").model
    save_pretrained(changed, tmp_path)
    assert torch.equal(predict(from_pretrained(tmp_path, nn.Linear(3, 4)), x).mean, predict(changed, x).mean)
    train(model)
    with pytest.raises(ValueError, match="model: expected the weights that it was calibrated with, got others"):
        predict(changed, x)
    save_weights(model, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="model: expected the weights that it was calibrated with, got others"):
        predict(from_pretrained(tmp_path, nn.Linear(3, 4)), x)
    again = calibrate(changed, [(x[:600], y[:600])], method="temperature").model
    assert predict(again, x).probabilities.isfinite().all()


def test_a_posterior_keeps_the_weights_that_it_was_calibrated_with(tmp_path):
    """In its state dict, so that a model of transformers that writes itself has them, too."""
    host = hosts.transformers_bert()
    model, labels = convert(host.model), torch.arange(len(host.inputs["input_ids"])) % 2
    batch = [{**host.inputs, "labels": labels}]
    calibrate(model, batch, num_samples=2)
    model.save_pretrained(tmp_path / "before")
    expected = predict(model, host.inputs, 2, seed=0).mean
    torch.testing.assert_close(predict(from_pretrained(tmp_path / "before"), host.inputs, 2, seed=0).mean, expected)
    train(model)
    model.save_pretrained(tmp_path / "after")
    for stale in (model, from_pretrained(tmp_path / "after")):
        with pytest.raises(ValueError, match="expected the weights that it was calibrated with"):
            predict(stale, host.inputs, 2)
        calibrate(stale, batch, num_samples=2)
        predict(stale, host.inputs, 2)


def test_advice_and_detectors_do_not_outlive_the_weights(tmp_path):
    model, x, y = model_and_data(scale=30.0)
    report = assess(model, [(x[:600], y[:600])], train=[(x[600:], y[600:])], ood={"far": x + 50})
    applied = report.apply(model, detectors=["energy", "Mahalanobis"])
    assert report.apply(copy.deepcopy(model)) is not None
    save_pretrained(applied, tmp_path)
    assert set(predict(from_pretrained(tmp_path, nn.Linear(3, 4)), x).ood) == {"energy", "Mahalanobis"}
    attached = Detector("energy").fit(model, x).attach(model)
    values = assess(nn.Linear(3, 1), [(x, x[:, :1] + 0.1 * torch.randn(900, 1))], task="regression")
    train(model)
    with pytest.raises(ValueError, match="model: expected the one that was assessed, got another Linear, or one whose"):
        report.apply(model)
    with pytest.raises(ValueError, match="model: expected the one that was assessed"):
        values.apply(nn.Linear(3, 1))
    with pytest.raises(ValueError, match="the weights that the detector 'energy' was fitted for"):
        predict(attached, x)
    with pytest.raises(ValueError, match="expected the weights that it was calibrated with"):
        predict(applied, x)
