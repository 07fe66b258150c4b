"""What ``cgp.assess_gaps`` compares, claims, recommends and gives back."""

import dataclasses
import pickle
import re
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.impute import KNNImputer

from cgp import CorrelatedGPImputer, assess_gaps
from cgp.regression import MAP, CorrelatedGPRegressor, MultiScale
from cgp.regression.solvers.choice import Cost
from cgp.tables.frames.table import read_table
from cgp.tables.referee.baselines import LaggedRidge, LinearInterpolation
from cgp.tables.referee.comparison import candidates, comparison_seconds
from cgp.tables.referee.report import LEAST_GAIN
from cgp.tables.referee.scores import mean_over_blocks
from tests.null_gaps import claims_anything, null_losses, report_of


class Guessing(TransformerMixin, BaseEstimator):
    """Fills in a truth with errors of a given standard deviation, which it says."""

    def __init__(self, truth, seed, sd=1.0):
        self.truth, self.seed, self.sd = truth, seed, sd

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        noise = self.sd * np.random.default_rng([self.seed, int(np.isnan(X).sum())]).normal(size=X.shape)
        return np.where(np.isnan(X), self.truth + noise, X)

    @property
    def std_(self):
        return np.full(self.truth.shape, self.sd)


class Silent(Guessing):
    """Says values only."""

    std_ = None


class Failing(Guessing):
    def transform(self, X):
        raise ValueError("no such thing")


def waves(size=240, columns=3, seed=0, noise=0.05):
    """Columns that follow each other, with their times."""
    rng = np.random.default_rng(seed)
    t = np.arange(size) / 12.0
    common = np.cumsum(rng.normal(size=(size, 2)), axis=0) / 4
    return t, common @ rng.normal(size=(2, columns)) + noise * rng.normal(size=(size, columns))


def with_gaps(values, seed=0, length=8, share=0.1):
    rng, result = np.random.default_rng(seed), values.copy()
    for column in range(values.shape[1]):
        for _ in range(round(share * len(values) / length)):
            start = int(rng.integers(5, len(values) - length - 5))
            result[start : start + length, column] = np.nan
    return result


@pytest.mark.parametrize(("labels", "tails"), [((8, 2), 5.0), ((10, 10), 5.0), ((16, 4), 5.0), ((60, 60), 30.0)])
def test_at_most_a_twentieth_of_reports_claims_something_of_equal_methods(labels, tails):
    """Of six, in either direction, in two classes of gaps and over all; a class of two blocks shows no variance."""
    rng, trials, claims, uncorrected = np.random.default_rng(0), 60, 0, 0
    names = ["1"] * labels[0] + ["2–4"] * labels[1]
    for _ in range(trials):
        report = report_of(null_losses(rng, 6, sum(labels), tails), names)
        claims += claims_anything(report)
        differences = [report.difference(a, b) for a, b in permutations(report.trials, 2)]
        uncorrected += any(-d.mean > max(LEAST_GAIN, 2 * d.error) for d in differences)
    assert claims <= 0.05 * trials
    assert uncorrected > binom.ppf(0.999, trials, 0.05)


def test_full_reports_of_equal_methods_claim_nothing():
    """Three imputers with errors of the same size, on fresh blocks of fresh tables."""
    claims = 0
    for seed in range(30):
        _, values = waves(120, seed=seed)
        methods = {f"method {number}": Guessing(values, 10 * seed + number) for number in range(3)}
        report = assess_gaps(with_gaps(values, seed), methods=methods, maskings=2, random_state=seed)
        names = list(methods)
        claims += any(report.is_ahead(a, b) for a in names for b in names if a != b)
    assert claims <= binom.ppf(0.99, 30, 0.05)


def test_what_is_better_is_claimed_by_how_much():
    """The scores are the truth's: errors of .5 and 2 standard deviations differ by log 4 nats."""
    _, values = waves()
    given = with_gaps(values)
    unit = np.nanstd(given, axis=0)
    scaled, table = values / unit, given / unit
    report = assess_gaps(table, methods={"poor": Guessing(scaled, 0, 2.0), "good": Guessing(scaled, 1, 0.5)})
    assert report.method == "good"
    assert report.is_ahead("good", "poor")
    assert report.difference("poor", "good").mean == pytest.approx(np.log(4.0), abs=0.1)
    assert re.match(
        r"Use good. Mean distance of its fills against that of poor: (column \d 0\.\d+ against [12]\.\d+(, |\. )){3}"
        r"Its 95 % intervals hold 95 ± \d % of hidden values\.\nIt is ahead of poor by 1\.",
        report.sentence,
    )
    header, row = re.split(r"\n", report.to_text())[:2]
    assert re.split(r" {2,}", header.strip())[1:5] == ["NLL", "column 0", "column 1", "column 2"]
    assert all(1.0 < float(each) < 2.5 for each in row.split()[2:5])  # of normal errors of 2, about 1.6
    assert report.strata.mean(report.trials["good"].scores.coverage) == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [
        ([0.0, 0.0], 0),
        ([0.01, 0.0], 0),
        ([0.2, 0.0], 1),
        ([0.2, 0.01, 0.0], 1),
        ([-0.3, 0.2, 0.0], 0),
        ([-0.1, -0.3, 0.0], 1),
    ],
)
def test_the_simplest_method_that_is_hardly_worse_is_enough(gains, chosen):
    rng = np.random.default_rng(0)
    common = rng.normal(size=200)
    nll = common + np.array(gains)[:, None] + 0.05 * rng.normal(size=(len(gains), 200))
    report = report_of(nll)
    assert report.method == f"method {chosen}"
    enough = "Use method 1.\nIt" if chosen else f"Method 0 is enough.\nIts NLL less that of {report.default} is "
    assert report.sentence.startswith(enough)
    assert ("t is ahead of method 0 by" in report.sentence) == bool(chosen)


def test_a_method_that_fills_as_the_default_does_is_said_to():
    report = report_of(np.random.default_rng(0).normal(size=(1, 40)).repeat(2, 0))
    assert report.sentence.startswith("Method 0 is enough.\nIts NLL is that of method 1.")


class Sure(Guessing):
    """As :class:`Guessing`, with standard deviations of half its errors."""

    @property
    def std_(self):
        return np.full(self.truth.shape, 0.5 * self.sd)


def test_intervals_that_are_too_narrow_are_said_beside_the_advice():
    """Normal errors of twice the standard deviation are within 1.96 of them by 67 %."""
    _, values = waves()
    unit = np.nanstd(with_gaps(values), axis=0)
    methods = {"poor": Guessing(values / unit, 0, 3.0), "sure": Sure(values / unit, 1, 0.3)}
    report = assess_gaps(with_gaps(values) / unit, methods=methods)
    assert report.method == "sure"
    assert re.search(r"Its 95 % intervals hold 6\d ± \d % of hidden values: too narrow", report.sentence)


def test_few_blocks_leave_the_default_and_say_so():
    rng = np.random.default_rng(1)
    report = report_of(0.1 * rng.normal(size=(3, 9)) + np.array([[-0.3], [0.0], [0.1]]))
    assert report.method == "method 2"  # though simpler ones are not worse
    assert not report.sentence.startswith("Method 0 is enough")
    report = report_of(rng.normal(size=(3, 4)) + np.array([[0.3], [0.0], [0.1]]))
    assert report.method == "method 2"
    assert report.sentence == (
        "Use method 2, the default: 4 hidden blocks are too few to compare by (10 are needed). To be sure, hide more "
        "by maskings=2."
    )
    assert not any(report.is_ahead(a, b) for a in report.trials for b in report.trials if a != b)


@pytest.mark.parametrize(
    ("count", "gain", "said"), [(3, 0.3, "few"), (30, 0.3, "ahead"), (3, 0.02, "chance"), (30, 0.02, "chance")]
)
def test_chance_is_said_of_small_leads_and_few_blocks_of_large_ones(count, gain, said):
    """With three blocks of a class a standard error is hardly known; the sentence names them and what hides more."""
    rng = np.random.default_rng(1)
    labels = np.array(["1"] * 20 + ["17-64"] * count)
    report = report_of(0.2 * rng.normal(size=(2, len(labels))) + np.array([[gain], [0.0]]), labels)
    lead = f"method 0 by {report.difference('method 0', 'method 1').mean:.3f} ± "
    sentences = {
        "few": f"Use method 1.\nIt may be ahead of {lead}",
        "ahead": f"Use method 1.\nIt is ahead of {lead}",
        "chance": "Use method 1.\nNot told apart, nearest first: method 0 (+0.",
    }
    assert {name: report.sentence.startswith(text) for name, text in sentences.items()} == {
        name: name == said for name in sentences
    }
    cause = "maskings=2: 3 hidden blocks for gaps of 17-64 rows, 50 % of what is missing, are too few."
    assert (cause in report.sentence) == ("hidden block" in report.sentence) == (said == "few")


def test_a_method_that_was_ahead_of_the_default_is_named_and_drawn():
    """By two standard errors, but of too few long gaps to be sure; its lower squared error is no further sentence."""
    rng = np.random.default_rng(0)
    nll = 0.2 * rng.normal(size=(5, 22)) + np.array([[0.7], [0.8], [0.9], [0.6], [0.0]])
    report = dataclasses.replace(report_of(nll, ["1"] * 20 + ["17–64"] * 2), default="method 3")
    lead = report.difference("method 3", "method 4")
    assert 2 * lead.error < lead.mean
    assert not report.is_ahead("method 4", "method 3")
    far = [f"method {number} ({report.difference(f'method {number}', 'method 3').mean:+.2f})" for number in (0, 1, 2)]
    far = sorted(far, key=lambda each: abs(float(each[10:-1])))
    assert report.sentence == (
        f"Use method 3.\nMethod 4 may be ahead of it by {lead.mean:.3f} ± {lead.error:.3f} nats a value. Not told "
        f"apart, nearest first: {', '.join(far)}. To be sure, hide more by maskings=2: 2 hidden blocks for gaps of "
        "17–64 rows, 50 % of what is missing, are too few.\nFor values alone, method 4, too: squared "
        f"error {report.nll('method 4'):.3f} against {report.nll('method 3'):.3f}."
    )
    (legend,) = report.plot("NLL").legends
    assert [text.get_text() for text in legend.get_texts()] == ["recommended", "ahead, but not surely"]


def test_methods_of_a_lower_score_that_is_not_shown_are_named():
    """The default is kept beside them: a reader sees their scores in the table above."""
    rng = np.random.default_rng(0)
    nll = rng.normal(size=(5, 30)) + np.array([[3.0], [-0.1], [-0.2], [0.0], [-0.15]])
    nll[1:] += 0.3 - nll[1:].mean(axis=1, keepdims=True) + np.array([[-0.1], [-0.2], [0.0], [-0.15]])
    report = dataclasses.replace(report_of(nll), default="method 3")
    lead = report.difference("method 0", "method 3")
    assert report.sentence == (
        f"Use method 3.\nIt is ahead of method 0 by {lead.mean:.3f} ± {lead.error:.3f} nats a value. Not told apart, "
        "nearest first: method 1 (-0.10), method 4 (-0.15), method 2 (-0.20): the default is kept.\nFor values alone, "
        "method 2: squared "
        f"error {report.nll('method 2'):.3f} against {report.nll('method 3'):.3f} (not told apart)."
    )


@pytest.mark.parametrize(
    ("blocks", "gain", "said"), [(60, 0.5, True), (60, 0.0, False), (9, 0.5, False), (60, -0.5, False)]
)
def test_a_method_of_clearly_smaller_errors_is_named_for_values(blocks, gain, said):
    """The likelihood recommends the last method."""
    rng = np.random.default_rng(0)
    report = report_of(0.1 * rng.normal(size=(2, blocks)) + np.array([[1.0], [0.5]]))
    squares = 1.0 + 0.1 * rng.normal(size=(2, blocks)) - np.array([[gain], [0.0]])
    trials = {
        name: trial._replace(scores=trial.scores._replace(squared_error=square))
        for (name, trial), square in zip(report.trials.items(), squares, strict=True)
    }
    report = dataclasses.replace(report, trials=trials)
    assert report.method == "method 1"
    means = squares.mean(axis=1)
    clause = f"\nFor values alone, method 0: squared error {means[0]:.3f} against {means[1]:.3f}"
    assert (f"{clause}." in report.sentence) == said
    is_lower = means[0] < 0.9 * means[1] and blocks >= 10  # of fewer nothing is said
    assert (f"{clause} (not told apart)." in report.sentence) == (is_lower and not said)
    assert ("For values alone" in report.sentence) == is_lower


def test_a_later_method_replaces_the_default_only_with_a_claim():
    rng = np.random.default_rng(0)
    for gain, chosen in ((0.0, "method 1"), (0.5, "method 2")):
        nll = rng.normal(size=(3, 60)) * 0.2 + np.array([[1.0], [0.5], [0.5 - gain]])
        report = dataclasses.replace(report_of(nll), default="method 1")
        assert report.method == chosen


def test_lines_are_enough_for_a_line_and_ridge_for_a_linear_relation():
    t = np.arange(300.0)
    rng = np.random.default_rng(0)
    smooth = np.column_stack([np.sin(t / 40), np.cos(t / 30), rng.normal(size=300)])
    methods = {"lines": LinearInterpolation(), "ridge": LaggedRidge()}
    assert assess_gaps(with_gaps(smooth[:, :2], length=3), methods=methods).method == "lines"
    source = rng.normal(size=300)
    noise = source[:, None] @ np.array([[1.0, -2.0, 0.5]]) + 0.1 * rng.normal(size=(300, 3))
    report = assess_gaps(with_gaps(noise), methods=methods)
    assert report.method == "ridge"
    assert report.is_ahead("ridge", "lines")


def test_trees_are_compared_where_there_is_enough_to_learn_from():
    """With the calendar where the index is times; never over places."""
    names = {}
    for rows, is_time in ((199, True), (200, True), (200, False)):
        table, _ = read_table(waves(rows, 2)[1], None)
        names[rows, is_time] = candidates(CorrelatedGPImputer(), table, is_time=is_time).get("trees")
    assert names[199, True] is None
    assert names[200, True].periods == (1.0, 7.0, 365.25)
    assert names[200, False].periods == ()
    places, _ = read_table(
        pd.DataFrame(np.random.default_rng(0).normal(size=(250, 3)), columns=list("xyz")), ["x", "y"]
    )
    assert "trees" not in candidates(CorrelatedGPImputer(inputs=["x", "y"]), places, is_time=False)


@pytest.fixture(scope="module")
def frame():
    _, values = waves(60, 2)
    index = pd.date_range("2024-03-01", periods=60, freq="2h", tz="Europe/Zurich")
    result = pd.DataFrame(with_gaps(values, share=0.1, length=4), index=index, columns=["a", "b"])
    return result.sample(frac=1.0, random_state=0)  # rows in any order


@pytest.fixture(scope="module")
def report(frame):
    return assess_gaps(
        frame, CorrelatedGPImputer(kernel="matern32", inference=MAP(max_steps=5), random_state=0), maskings=2
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_frame_is_assessed_by_every_method(frame, report):
    before = frame.copy()
    assert list(report.trials) == [
        "linear interpolation",
        "the seasonal mean",
        "ridge on the other columns",
        "one GP per column",
        "the correlated GP",
        "the GP 'coregionalised'",
        "the GP 'shared'",
        "the GP 'shifted'",
    ]
    assert not report.failures
    text = str(report)
    assert text.startswith(report.sentence)
    assert "Squared error: 1\nis that of filling a column's mean. Less is better." in text
    assert all(name in text for name in report.trials)
    assert report.sentence in report.to_html().replace("&#x27;", "'")
    assert report._repr_html_() == report.to_html()
    assert repr(report) == f"GapReport({report.method}, {len(report.hidden.maskings)} hidden blocks)"
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_structures_are_taken_from_the_fit_that_compared_them(report):
    """Each says something else, in the seconds of one fit: that of its own model, given what was not hidden."""
    structures = ("independent", "coregionalised", "shared", "shifted")
    names = ["one GP per column", *(f"the GP {name!r}" for name in structures[1:])]
    assert {report.trials[name].seconds for name in names} == {report.trials["the correlated GP"].seconds}
    assert len({report.trials[name].errors.tobytes() for name in names}) == 4
    table, _ = read_table(report.table, None)
    for masking in range(2):
        masked = table.hiding(report.hidden.cells(masking, table.values.shape))
        imputer = clone(report.methods["the correlated GP"]).fit(masked)
        values = report.hidden.maskings[report.hidden.blocks] == masking
        rows, columns = report.hidden.rows[values], report.hidden.columns[values]
        for name, structure in zip(names, structures, strict=True):
            mean, sd = imputer.regressor_.with_structure(structure).predict(table.inputs[rows], return_std=True)
            unit = np.nanstd(table.values, axis=0)[columns]
            error = (np.asarray(mean)[np.arange(len(rows)), columns] - table.values[rows, columns]) / unit
            np.testing.assert_allclose(report.trials[name].errors[values], error, rtol=1e-6, atol=1e-9)
            spread = np.asarray(sd)[np.arange(len(rows)), columns] / unit
            np.testing.assert_allclose(report.trials[name].sd[values], spread, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_structure_by_itself_is_what_was_compared():
    t, values = waves(40, 2)
    both = CorrelatedGPRegressor("matern32", inference=MAP(max_steps=5), random_state=0).fit(t[:, None], values)
    near = [both.with_structure(name) for name in both.criteria_]
    averaged = {structure.structure_: structure.predict(t[:, None]) for structure in near}
    best = averaged[both.structure_]
    np.testing.assert_array_equal(best, both.with_structure(both.structure_).predict(t[:, None]))
    kept = [
        mean
        for name, mean in averaged.items()
        if name != "independent" and both.criteria_[name] < min(both.criteria_.values()) + 30
    ]
    np.testing.assert_allclose(both.predict(t[:, None]), np.mean(kept, axis=0))
    with pytest.raises(ValueError, match="structure: expected one of .*'shifted'.* got 'affine'"):
        both.with_structure("affine")
    both.partial_fit(t[:1, None] + 9, values[:1])
    with pytest.raises(ValueError, match="structure: expected one of"):
        both.with_structure("shared")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_imputer_of_a_method_says_its_uncertainty(frame, report):
    for name in ("linear interpolation", "ridge on the other columns", "the GP 'coregionalised'"):
        imputer = report.fitted(name)
        filled, sd = imputer.transform(frame), imputer.std_
        assert not filled.isna().any(axis=None)
        np.testing.assert_array_equal(filled.index, frame.index)
        assert (np.asarray(sd) > 0).tolist() == frame.isna().to_numpy().tolist()
        low, high = imputer.interval(0.9)
        assert (np.asarray(high - low) >= 0).all()
        np.testing.assert_allclose((np.asarray(low) + np.asarray(high)) / 2, filled)
        again = pickle.loads(pickle.dumps(imputer))
        pd.testing.assert_frame_equal(again.transform(frame), filled)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_conformal_intervals_are_saved(frame, report, tmp_path):
    imputer = report.fitted("the GP 'coregionalised'")
    imputer.save(tmp_path / "imputer")
    again = CorrelatedGPImputer.load(tmp_path / "imputer")
    with pytest.warns(UserWarning, match="19 are needed"):
        first = imputer.interval(0.95, method="conformal")
    with pytest.warns(UserWarning, match="19 are needed"):
        second = again.interval(0.95, method="conformal")
    pd.testing.assert_frame_equal(first.lower, second.lower)


def test_conformal_intervals_widen_what_says_too_little():
    """An imputer whose errors are three times what it says: conformal intervals cover, its own do not."""
    _, values = waves(2000, 2)
    given = with_gaps(values, length=2, share=0.05)
    unit = np.nanstd(given, axis=0)

    class Bold(Guessing):
        @property
        def std_(self):
            return np.full(self.truth.shape, self.sd / 3)

    report = assess_gaps(given, methods={"bold": Bold(values, 0, 0.5 * unit)}, maskings=3)
    scores = report.intervals(0.95)
    assert all(each["coverage"] < 0.6 for each in scores.values())
    for each in scores.values():
        assert each["conformal_coverage"] == pytest.approx(0.95, abs=0.04)
        assert each["conformal_width"] == pytest.approx(2 * 1.96 * 0.5, rel=0.25)


def test_hidden_blocks_are_filled_without_their_values():
    """What a method sees of a masked table: everything but the gaps and what is hidden, once each over the maskings."""
    _, values = waves(150, 2)
    given, seen = with_gaps(values), []

    class Watching(Guessing):
        def transform(self, X):
            seen.append(np.isnan(X))
            return super().transform(X)

    report = assess_gaps(given, methods={"watching": Watching(values, 0)})
    assert len(seen) == 3
    for masking, missing in enumerate(seen):
        np.testing.assert_array_equal(missing, np.isnan(given) | report.hidden.cells(masking, given.shape))


def test_errors_of_values_only_are_learned_in_the_other_maskings():
    """Errors of one size: the spread is that size, and intervals cover; the fitted imputer has it in its gaps."""
    _, values = waves(900, 2)
    given = with_gaps(values)
    unit = np.nanstd(given, axis=0)
    report = assess_gaps(given / unit, methods={"silent": Silent(values / unit, 0, 0.4)})
    trial = report.trials["silent"]
    assert np.median(trial.sd) == pytest.approx(0.4, rel=0.15)
    assert report.strata.mean(trial.scores.coverage) == pytest.approx(0.95, abs=0.03)
    sd = report.best().std_
    assert np.median(sd[np.isnan(given)]) == pytest.approx(0.4, rel=0.15)
    assert not sd[~np.isnan(given)].any()


def test_conformal_intervals_that_few_blocks_leave_open_are_said(report):
    assert any(np.isinf(each["conformal_width"]) for each in report.intervals().values())
    said = [line.rstrip() for line in report.to_text().splitlines()]
    assert any(line.endswith("too few blocks") for line in said)
    assert "inf" not in " ".join(said).split()
    with pytest.raises(ValueError, match="level: expected a number between 0 and 1, got 95"):
        report.intervals(95)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_intervals_of_few_blocks_are_infinite_and_say_what_is_needed(report):
    imputer = report.fitted("linear interpolation")
    with pytest.warns(UserWarning, match="hidden blocks, and 19 are needed for a finite interval at level 0.95"):
        lower, upper = imputer.interval(0.95, method="conformal")
    assert np.isinf(np.asarray(upper - lower)).any()
    plain = CorrelatedGPImputer(inference=MAP(max_steps=3), random_state=0).fit(
        np.array([[0.0], [np.nan], [1.0], [2.0]])
    )
    with pytest.raises(ValueError, match="method: expected 'gaussian', since no blocks were hidden"):
        plain.interval(0.9, method="conformal")
    with pytest.raises(ValueError, match="method: expected 'gaussian' or 'conformal', got 'exact'"):
        plain.interval(0.9, method="exact")


def test_conformal_intervals_of_an_imputer_are_its_own_times_the_factor():
    _, values = waves(2000, 2)
    given = with_gaps(values, length=2, share=0.05)
    report = assess_gaps(given, methods={"lines": LinearInterpolation()})
    imputer = report.best()
    lower, upper = imputer.interval(0.9, method="conformal")
    gaps = np.isnan(given)
    factor = ((upper - lower) / 2)[gaps] / imputer.std_[gaps]
    expected = {report.conformal("lines").factor(label, 0.9) for label in ("1", "2–4")}
    assert set(factor.round(9)) <= {round(each, 9) for each in expected}
    inside = (values >= lower) & (values <= upper)
    assert 0.8 < inside[gaps].mean() < 0.98
    np.testing.assert_array_equal(lower[~gaps], given[~gaps])


def test_a_table_without_gaps_is_assessed_at_a_few_lengths():
    _, values = waves(120, 2)
    report = assess_gaps(values, methods={"lines": LinearInterpolation(), "ridge": LaggedRidge()})
    assert not report.has_gaps
    assert set(report.strata.weights) == {"1", "2–4"}
    assert set(report.strata.weights.values()) == {0.5}
    assert "The table has no gaps" in report.sentence


def test_places_have_no_runs():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.random((80, 4)), columns=["x", "y", "a", "b"])
    table["b"] = table["a"] + 0.01 * rng.random(80)
    table.iloc[5:15, 2] = np.nan
    imputer = CorrelatedGPImputer(inputs=["x", "y"])
    methods = {"nearest": LinearInterpolation(inputs=["x", "y"]), "ridge": LaggedRidge(inputs=["x", "y"])}
    report = assess_gaps(table, imputer, methods=methods)
    assert set(report.strata.weights) == {"1"}
    assert report.method == "ridge"
    pd.testing.assert_frame_equal(report.best().fit_transform(table)[["x", "y"]], table[["x", "y"]])


def test_imputers_of_scikit_learn_can_be_compared():
    _, values = waves(100, 3)
    report = assess_gaps(with_gaps(values), methods={"lines": LinearInterpolation(), "neighbours": KNNImputer()})
    assert set(report.trials) == {"lines", "neighbours"}


@pytest.mark.parametrize(
    ("rows", "step", "offered"),
    [
        (100, "1h", "the GP with cycles of a day"),
        (600, "1h", "the GP with cycles of a day and a week"),
        (100, "12h", "the GP with cycles of a week"),
        (300, "3D", "the GP with cycles of a year"),
        (60, "1h", None),
        (300, None, None),
    ],
)
def test_cycles_of_the_calendar_are_offered(rows, step, offered):
    """Those that the times span often enough, with rows enough; never to rows that are no times."""
    index = pd.RangeIndex(rows) if step is None else pd.date_range("2024-01-01", periods=rows, freq=step)
    numbers, axis = read_table(pd.DataFrame(waves(rows)[1], index=index), None)
    methods = candidates(CorrelatedGPImputer(), numbers, is_time=axis.is_time)
    assert [name for name in methods if "cycles" in name] == ([] if offered is None else [offered])
    if offered is not None:
        assert list(methods)[-1] == offered
        assert isinstance(methods[offered].structure, MultiScale)
    chosen = candidates(CorrelatedGPImputer(structure=MultiScale(periods=("1D",))), numbers, is_time=axis.is_time)
    assert not [name for name in chosen if "cycles" in name]


def test_codes_are_missing():
    _, values = waves(120, 2)
    given = with_gaps(values)
    coded = np.where(np.isnan(given), -200.0, given)
    options = {"missing_values": -200.0}
    methods = {"lines": LinearInterpolation(**options), "ridge": LaggedRidge(**options)}
    first = assess_gaps(coded, CorrelatedGPImputer(**options), methods=methods)
    second = assess_gaps(given, methods={"lines": LinearInterpolation(), "ridge": LaggedRidge()})
    assert first.nll("ridge") == pytest.approx(second.nll("ridge"))


def test_methods_that_fail_are_named():
    _, values = waves(60, 2)
    methods = {"failing": Failing(values, 0), "lines": LinearInterpolation()}
    report = assess_gaps(with_gaps(values), methods=methods)
    assert report.method == "lines"
    assert "Failed: failing (ValueError: no such thing)." in report.sentence
    with pytest.raises(ValueError, match="methods: none could fill the table: .*no such thing"):
        assess_gaps(with_gaps(values), methods={"failing": Failing(values, 0)})


def test_bad_arguments_are_named():
    _, values = waves(60, 2)
    dead = np.column_stack([values, np.full(60, np.nan)])
    methods = {"lines": LinearInterpolation()}
    for given, options, message in (
        (values, {"maskings": 1}, "maskings: expected at least 2, got 1"),
        (values, {"share": 0.0}, "share: expected a number above 0"),
        (values, {"methods": {}}, "methods: expected at least one imputer, got none"),
        (values, {"methods": ["lines"]}, r"methods: expected imputers by name, .*, got \['lines'\]"),
        (values, {"methods": {"lines": "lines"}}, r"methods: expected imputers by name, .*, got \{'lines': 'lines'\}"),
        (dead, {}, r"X: expected at least one value in each column, got none in \['column 2'\]"),
        (np.array([[1.0, 2.0]]), {}, "X: expected values that can be hidden"),
    ):
        with pytest.raises(ValueError, match=message):
            assess_gaps(given, **({"methods": methods} | options))
    report = assess_gaps(values, methods=methods)
    for call in (report.fitted, report.conformal, lambda name: report.difference(name, "lines")):
        with pytest.raises(ValueError, match="method: expected one of \\['lines'\\], got 'splines'"):
            call("splines")
    with pytest.raises(ValueError, match="label: expected one of"):
        report.nll("lines", "7")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_one_line_or_one_of_each_method(is_terminal, capsys, monkeypatch):
    """On a terminal, where each step is written over the one before, and in files."""
    _, values = waves(60, 2)
    methods = {"lines": LinearInterpolation(), "ridge": LaggedRidge()}
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    assess_gaps(with_gaps(values), methods=methods, maskings=2, verbose=True)
    first, *steps = capsys.readouterr().err.splitlines()
    assert first == "assess_gaps: about 0 s"
    lines = [f"assess_gaps: {n} of 2, {name}, masking 1 of 2" for n, name in ((1, "lines"), (2, "ridge"))]
    assert is_terminal or steps == lines
    assert not is_terminal or "2 of 2, ridge, masking 2 of 2" in steps[-1]
    assess_gaps(with_gaps(values), methods=methods, maskings=2)
    assert capsys.readouterr().err == ""


def test_structures_that_one_fit_compares_are_expected_once(monkeypatch):
    """None of them has a fit of its own beside the average, unless parameters are sampled, of few observations."""
    monkeypatch.setattr("cgp.regression.CorrelatedGPRegressor.estimate", lambda *_, **__: Cost(1.0, 1.0))
    for rows, fits in ((150, 1), (60, 5)):
        _, values = waves(rows, 2)
        assert comparison_seconds(with_gaps(values), CorrelatedGPImputer(), maskings=2) == 2 * fits


def test_one_block_is_counted_as_one():
    nll = np.random.default_rng(0).normal(size=(2, 13))
    titles = [ax.get_title() for ax in report_of(nll, ["1"] + ["2–4"] * 12).plot("NLL").axes]
    assert [title.split("\n")[-1] for title in titles] == ["1 block", "12 blocks"]
    assert "the default: 1 hidden block is too few to compare by (10 are needed)." in report_of(nll[:, :1]).sentence


def test_the_picture_has_a_panel_for_each_class_and_a_row_for_each_method():
    _, values = waves(120, 2)
    given = with_gaps(values)
    given[::20, 0] = np.nan
    report = assess_gaps(given, methods={"lines": LinearInterpolation(), "ridge": LaggedRidge()})
    figure = report.plot("NLL")
    titles = [ax.get_title() for ax in figure.axes]
    assert titles[0].startswith("gaps of 1 row\n")
    assert [title.split("\n")[-1] for title in titles] == [
        f"{int((report.hidden.labels == label).sum())} blocks" for label in report.strata.weights
    ]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["lines", "ridge"]


@pytest.mark.parametrize("columns", [2, 5])
def test_the_picture_shows_distances_in_units_and_the_share_in_intervals(columns):
    """A panel for each column, or one of many in standard deviations; then coverage beside a line at 95 %."""
    given = with_gaps(waves(120, columns)[1])
    names = ["flow", "rain", "warm", "wind", "sun"][:columns]
    table = pd.DataFrame(7.0 * given, pd.date_range("2024-01-01", periods=len(given)), names)
    table.attrs["units"] = {"flow": "m³/s"}
    report = assess_gaps(table, methods={"lines": LinearInterpolation(), "ridge": LaggedRidge()})
    *panels, last = report.plot().axes
    errors, hidden = report.trials["lines"].errors, report.hidden
    blocks = [len(np.unique(hidden.blocks[hidden.columns == p])) for p in range(columns)]
    if columns == 2:
        assert [ax.get_title() for ax in panels] == [f"flow (m³/s)\n{blocks[0]} blocks", f"rain\n{blocks[1]} blocks"]
        expected = np.abs(errors[hidden.columns == 0]).mean() * table["flow"].std(ddof=0)
    else:
        assert [ax.get_title() for ax in panels] == [f"in standard deviations\n{len(hidden.labels)} blocks"]
        expected = np.abs(errors).mean()
    assert panels[0].containers[0].lines[0].get_xdata()[0] == pytest.approx(expected, rel=1e-6)
    assert last.get_title() == "in 95 % intervals"
    assert list(last.lines[0].get_xdata()) == [0.95, 0.95]
    covered = report.strata.mean(report.trials["ridge"].scores.coverage)
    assert last.containers[1].lines[0].get_xdata()[0] == pytest.approx(covered)
    text = report.to_text()
    assert f"{covered:.4f}" in text
    assert "units are called nats" in text
    assert ("mean distance, in units" in text) == (columns == 5) == ("those of their columns" in text)
    if columns == 5:
        near = np.abs(report.trials[report.method].errors[hidden.columns == 4]).mean() * table["sun"].std(ddof=0)
        assert re.search(rf"\nsun +{near:.3g} ", text)
    assert (", sun" in report.sentence, " and 1 more. Its 95 %" in report.sentence) == (False, columns == 5)
    with pytest.raises(ValueError, match="what: expected 'distance' or 'NLL', got 'nats'"):
        report.plot("nats")


def test_errors_of_means_know_that_values_of_a_block_vary_together():
    rng, blocks = np.random.default_rng(0), np.repeat(np.arange(30), 5)
    values = np.repeat(rng.normal(size=(2000, 30)), 5, axis=1)
    found = np.array([mean_over_blocks(each, blocks) for each in values])
    assert found[:, 0].std() == pytest.approx(30**-0.5, rel=0.05)
    assert found[:, 1].mean() == pytest.approx(30**-0.5, rel=0.05)
    assert mean_over_blocks(np.arange(3.0), np.zeros(3, dtype=int)) == (1.0, np.inf)


def test_columns_as_they_are_are_compared_where_transforms_are_chosen():
    t = np.arange(300.0)
    waves = np.column_stack([np.sin(t / 5.0), np.sin(t / 5.0 + 1.0)])
    waves += 0.3 * np.random.default_rng(0).normal(size=waves.shape)
    for values, there in ((np.exp(2.0 * waves), True), (waves, False)):
        table, axis = read_table(values, None)
        methods = candidates(CorrelatedGPImputer(transforms="auto"), table, is_time=axis.is_time)
        assert ("the correlated GP of columns as they are" in methods) == there
        assert methods["the correlated GP"].transforms == "auto"
    table, axis = read_table(np.exp(2.0 * waves), None)
    methods = candidates(CorrelatedGPImputer(transforms={0: "log"}), table, is_time=axis.is_time)
    assert methods["the correlated GP of other columns as they are"].transforms == {0: "log", 1: None}
