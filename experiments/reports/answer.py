"""How honest is it? The answer in five sentences that one can act on, whatever came out."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.evaluation.diagnostics import collapse_of_runs
from experiments.reports.scores import BASELINE, Result, Statistic, label_logs, statistic

__all__ = ["answer"]

_CERTAIN = 2.0  # standard errors
_LITTLE = 0.001  # nats
_POINT = 0.005  # confidence this close to accuracy is honest


def answer(results: Mapping[str, Sequence[Result]]) -> list[str]:
    """Answer for the methods of one setting.

    Args:
        results: of each row `<setting>/<method>`, one per seed; softmax is what the others are compared with, else the
            first.
    """
    tested = {name: found for name, found in results.items() if not math.isnan(statistic(found, "nll").mean)}
    if not tested:
        return ["No run has predictions on labelled test inputs: there is nothing to answer."]
    names = [name for name in tested if name.rpartition("/")[2] == BASELINE]
    baseline = tested[(names or list(tested))[0]]
    best, cooled = _choice(tested)
    sentences = [
        _honesty(baseline),
        _temperature(baseline),
        _take(best, baseline, cooled=cooled, alone=len(tested) < 2),
    ]
    return [*filter(None, [*sentences, _elsewhere(best, baseline)]), _collapse(tested)]


def _honesty(found: Sequence[Result]) -> str:
    accuracy, confidence = statistic(found, "accuracy"), statistic(found, "confidence")
    gap = confidence.mean - accuracy.mean
    state = f"{'over' if gap > 0 else 'under'}-confident by {100 * abs(gap):.1f} points"
    return (
        f"{_label(found)} is right on {accuracy.text(100, 1)} % of the test inputs and claims "
        f"{confidence.text(100, 1)} %: {'honest on average' if abs(gap) < _POINT else state} "
        f"(ECE {statistic(found, 'ece').text(100, 1)} %, NLL {statistic(found, 'nll').text()}{_over(found)})."
    )


def _over(found: Sequence[Result]) -> str:
    return f"; mean ± sd over {len(found)} seeds" if len(found) > 1 else "; one seed"


def _temperature(found: Sequence[Result]) -> str:
    before, after = statistic(found, "nll"), statistic(found, "nll_cooled")
    if math.isnan(after.mean):
        return ""
    change = f"NLL from {before.mean:.3f} to {after.mean:.3f}"
    ece = f"ECE from {100 * statistic(found, 'ece').mean:.1f} to {100 * statistic(found, 'ece_cooled').mean:.1f} %"
    gain = before.mean - after.mean
    verb = "changes little: it takes" if abs(gain) < _LITTLE else "brings" if gain > 0 else "does not help: it takes"
    temperature = statistic(found, "temperature").text(digits=2)
    return f"A temperature, {temperature}, fitted on validation inputs, {verb} its {change} and its {ece}."


def _choice(tested: Mapping[str, Sequence[Result]]) -> tuple[Sequence[Result], bool]:
    """The method with the smallest validation NLL, and whether with a temperature; the test set chooses nothing."""
    keys = ("validation_nll", "validation_nll_cooled")
    found = {
        (name, key == keys[1]): np.mean([result.numbers.get(key, math.nan) for result in results])
        for name, results in tested.items()
        for key in keys
    }
    finite = {key: value for key, value in found.items() if not math.isnan(value)}
    name, cooled = min(finite, key=lambda key: finite[key]) if finite else (next(iter(tested)), False)
    return tested[name], cooled


def _take(best: Sequence[Result], baseline: Sequence[Result], *, cooled: bool, alone: bool) -> str:
    with_t = " with a temperature" if cooled else ""
    end = "_cooled" if cooled else ""
    numbers = (
        f"accuracy {statistic(best, 'accuracy').text(100, 1)} %, NLL {statistic(best, f'nll{end}').text()}, "
        f"ECE {statistic(best, f'ece{end}').text(100, 1)} %"
    )
    if alone or best is baseline:
        others = "" if alone else "; no other method has a smaller validation NLL"
        return f"Take {_label(best)}{with_t or ' as it is'} ({numbers}){others}."
    gain = _gain(best, baseline, cooled=cooled)
    if math.isnan(gain.mean):
        return f"By validation NLL take {_label(best)}{with_t} ({numbers})."
    against = f"{_label(baseline)} with a temperature"
    by = f"{gain.mean:+.3f} ± {gain.sd:.3f} nats".replace("-", "−")
    if gain.mean > _CERTAIN * gain.sd:
        end = f"over {against} it gains {by}, so a temperature does not suffice"
        return f"Take {_label(best)}{with_t} ({numbers}): {end}."
    end = f"its gain over {against} on the test inputs, {by}, is {'none' if gain.mean < 0 else 'within its error'}"
    what = f"{_label(best)}{with_t} has the smallest validation NLL ({numbers})"
    return f"A temperature for {_label(baseline)} suffices: {what}, but {end}."


def _gain(best: Sequence[Result], baseline: Sequence[Result], *, cooled: bool) -> Statistic:
    """Test NLL gained over the baseline with a temperature, and its standard error, paired over seeds or samples."""
    other = {result.seed: result for result in baseline}
    pairs = [(result, other[result.seed]) for result in best if result.seed in other]
    if len(pairs) > 1:
        key = "nll_cooled" if cooled else "nll"
        gains = np.array([theirs.numbers["nll_cooled"] - ours.numbers[key] for ours, theirs in pairs])
    else:
        gains = np.concatenate([_sample_gains(ours, theirs, cooled=cooled) for ours, theirs in pairs] or [np.empty(0)])
    if len(gains) < 2:
        return Statistic(math.nan, math.nan)
    return Statistic(float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains))))


def _sample_gains(ours: Result, theirs: Result, *, cooled: bool) -> np.ndarray:
    found, other = ours.run.predictions("test"), theirs.run.predictions("test")
    if not np.array_equal(found.ids, other.ids):
        return np.empty(0)
    temperature = ours.numbers["temperature"] if cooled else 1.0
    return label_logs(found, temperature) - label_logs(other, theirs.numbers["temperature"])


def _elsewhere(best: Sequence[Result], baseline: Sequence[Result]) -> str:
    """Uncertainty on inputs unlike the training data."""

    def number(key: str) -> str:
        ours, theirs = (statistic(found, key).text(100, 1) for found in (best, baseline))
        return f"{ours} %" if best is baseline else f"{ours} % ({_label(baseline)}: {theirs} %)"

    parts = []
    if not math.isnan(statistic(best, "corrupted_ece").mean):
        parts.append(f"the ECE of {_label(best)} on corrupted inputs is {number('corrupted_ece')}")
    total, epistemic = statistic(best, "ood_total"), statistic(best, "ood_epistemic")
    if not math.isnan(total.mean):
        parts.append(f"total uncertainty tells OOD from test inputs with an AUROC of {number('ood_total')}")
    if not math.isnan(epistemic.mean):
        adds = "better" if epistemic.mean > total.mean else "no better"
        parts.append(f"its epistemic part, {adds}, with {epistemic.text(100, 1)} %")
    if not parts:
        return ""
    listed = f"{', '.join(parts[:-1])}, and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"{listed[0].upper()}{listed[1:]}."


def _collapse(tested: Mapping[str, Sequence[Result]]) -> str:
    seen = {name: [result.run.diagnostics for result in found] for name, found in tested.items()}
    seen = {name: paths for name, paths in seen.items() if any(path.exists() for path in paths)}
    if not seen:
        return "Whether attention has collapsed was not looked at: the runs have no diagnostics."
    found = {name: collapse_of_runs(paths) for name, paths in seen.items()}
    warnings = [f"{_label(tested[name])}: {words}" for name, words in found.items() if words is not None]
    if warnings:
        return f"Warning, these models have stopped attending: {'; '.join(warnings)}."
    return "Attention has collapsed in no model: every layer tells the tokens of an input apart."


def _label(found: Sequence[Result]) -> str:
    return found[0].label
