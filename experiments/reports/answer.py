"""Summary of a report in five or six sentences: how well calibrated is it, and what to do?"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cgp.networks.assess.claims import FEWEST_LABELS
from cgp.networks.methods.temperature_scaling import is_useless
from experiments.evaluation import label_log_probabilities
from experiments.evaluation.diagnostics import collapse_of_runs
from experiments.evaluation.paired import mean_difference
from experiments.reports.scores import BASELINE, COLUMNS, Result, Statistic, crossed_losses, statistic

__all__ = ["answer", "findings"]

Choice = tuple[Sequence[Result], bool]
"""A method, and whether it gets a temperature."""

_CERTAIN = 2.0  # standard errors
_LITTLE = 0.001  # nats; smaller gains or losses are called little
_POINT = 0.005  # largest difference of confidence and accuracy that counts as calibrated
_COIN = 0.5  # AUROC of a useless score


def answer(results: Mapping[str, Sequence[Result]], *, assessed: bool = False) -> list[str]:
    """Sentences for the methods of one setting; the reference is softmax, or else the first method.

    Where a report of :func:`cgp.assess` stands beside them, they leave to it what is claimed and whether a temperature
    helps, and compare the methods as trained.
    """
    if few := _too_few(results):
        return [few]
    choice, reference = _choice(results, assessed=assessed), _reference(results, assessed=assessed)
    sentences = [
        *([] if assessed else [_honesty(reference[0]), _temperature(reference[0])]),
        *findings(results, assessed=assessed),
        _elsewhere(choice[0], reference[0]),
    ]
    return [*filter(None, sentences), _collapse(results)]


def findings(results: Mapping[str, Sequence[Result]], *, assessed: bool = False) -> list[str]:
    """Those of the sentences that compare methods: which to take, and which leads, if it is another."""
    if few := _too_few(results):
        return [few]
    choice, reference = _choice(results, assessed=assessed), _reference(results, assessed=assessed)
    others = {name: runs for name, runs in results.items() if runs is not choice[0]}
    following = _choice(others, assessed=assessed) if others else None
    kept = ", as trained" if assessed else " as it is"
    sentences = [_take(choice, reference, kept, following), _leader(results, choice, reference)]
    return [*filter(None, sentences)]


def _too_few(results: Mapping[str, Sequence[Result]]) -> str:
    """What is said in place of all else of test inputs that are too few for it, as those of a smoke run."""
    tested = [row["n"] for runs in results.values() for result in runs for row in result.sets if row["set"] == "test"]
    if min(tested, default=FEWEST_LABELS) >= FEWEST_LABELS:
        return ""
    return f"{min(tested)} test inputs say nothing of a method: at least {FEWEST_LABELS} are needed."


def _reference(results: Mapping[str, Sequence[Result]], *, assessed: bool) -> Choice:
    """Softmax, or the first method; with its temperature if that helps on the test inputs: the harder to beat."""
    names = [name for name in results if name.rpartition("/")[2] == BASELINE]
    baseline = (names or list(results))[0]
    runs = results[baseline]
    return runs, not assessed and statistic(runs, "nll_cooled").mean < statistic(runs, "nll").mean


def _honesty(results: Sequence[Result]) -> str:
    accuracy, confidence = statistic(results, "accuracy"), statistic(results, "confidence")
    gap = confidence.mean - accuracy.mean
    points = abs(round(100 * confidence.mean, 1) - round(100 * accuracy.mean, 1))  # of the figures that are shown
    state = f"{'over' if gap > 0 else 'under'}-confident by {points:.1f} points"
    return (
        f"{_label(results)} is right on {accuracy.text(100, 1)} % of the test inputs and claims "
        f"{confidence.text(100, 1)} %: {'honest on average' if abs(gap) < _POINT else state} "
        f"(ECE {statistic(results, 'ece').text(100, 1)} %, NLL {statistic(results, 'nll').text()}{_over(results)})."
    )


def _over(results: Sequence[Result]) -> str:
    return f"; mean ± sd over {len(results)} seeds" if len(results) > 1 else "; one seed"


def _temperature(results: Sequence[Result]) -> str:
    before, after = statistic(results, "nll"), statistic(results, "nll_cooled")
    if math.isnan(after.mean):
        return ""
    change = f"NLL from {before.mean:.3f} to {after.mean:.3f}"
    ece = f"ECE from {100 * statistic(results, 'ece').mean:.1f} to {100 * statistic(results, 'ece_cooled').mean:.1f} %"
    gain = before.mean - after.mean
    verb = "changes little: it takes" if abs(gain) < _LITTLE else "brings" if gain > 0 else "does not help: it takes"
    temperature = statistic(results, "temperature").text(digits=2)
    if all(is_useless(result.numbers["temperature"]) for result in results):
        temperature += " (the end of the range: there, confidence says nothing of being right)"
    return f"A temperature, {temperature}, fitted on validation inputs, {verb} its {change} and its {ece}."


def _choice(results: Mapping[str, Sequence[Result]], *, assessed: bool) -> Choice:
    """The method with the smallest validation NLL, and whether with a temperature; the test set is not used."""
    keys = ("validation_nll", "validation_nll_cooled")
    candidates = {
        (name, key == keys[1]): np.mean([result.numbers.get(key, math.nan) for result in runs])
        for name, runs in results.items()
        for key in keys[: 1 if assessed else 2]
    }
    finite = {key: value for key, value in candidates.items() if not math.isnan(value)}
    name, cooled = min(finite, key=lambda key: finite[key]) if finite else (next(iter(results)), False)
    return results[name], cooled


def _take(chosen: Choice, reference: Choice, kept: str, following: Choice | None) -> str:
    (best, cooled), end = chosen, "_cooled" if chosen[1] else ""
    numbers = (
        f"accuracy {statistic(best, 'accuracy').text(100, 1)} %, NLL {statistic(best, f'nll{end}').text()}, "
        f"ECE {statistic(best, f'ece{end}').text(100, 1)} %"
    )
    if best is reference[0]:
        lost = _gain((best, False), chosen) if cooled else Statistic(math.nan, math.nan)
        if lost.mean > 0:  # the previous sentence is about a temperature
            take = f"take {_label(best)} as it is, or look for what sets the two apart"
            return (
                f"A temperature helps on the validation inputs, but is worse on the test inputs by {_by(lost)}: {take}."
            )
        take = f"Take {_label(best)}{' with a temperature' if cooled else kept} ({numbers})"
        lead = _gain(chosen, following, "validation") if following else Statistic(math.nan, math.nan)
        if following is None or math.isnan(lead.mean):
            return f"{take}."
        halves = ", each half with the temperature of the other," if cooled or following[1] else ""
        return (
            f"{take}: on the validation inputs{halves} its NLL is {_than(_named(following), lead)}, the next, "
            f"{_standing(lead)}."
        )
    gain, against = _gain(chosen, reference), _named(reference)
    if math.isnan(gain.mean):
        return f"By validation NLL take {_named(chosen)} ({numbers})."
    if gain.mean > _CERTAIN * gain.sd:
        return f"Take {_named(chosen)} ({numbers}): its NLL on the test inputs is {_than(against, gain)}."
    what = f"{_named(chosen)} has the smallest validation NLL (on the test inputs: {numbers})"
    return f"{against} suffices: {what}, but there its NLL is {_than(against, gain)}, {_standing(gain)}."


def _leader(results: Mapping[str, Sequence[Result]], choice: Choice, reference: Choice) -> str:
    """The method that is best in most columns, if no sentence before has named it, and what its lead is worth."""
    best: list[Sequence[Result]] = []
    for column in (column for column in COLUMNS if column.better):
        sign = 1.0 if column.better == "high" else -1.0
        means = {name: sign * statistic(runs, column.key).mean for name, runs in results.items()}
        known = {name: mean for name, mean in means.items() if not math.isnan(mean)}
        best += [results[max(known, key=lambda name: known[name])]] if len(known) > 1 else []
    leader = max(best, key=best.count) if best else reference[0]
    if leader in (choice[0], reference[0]) or 2 * best.count(leader) < len(best):
        return ""
    advised = (leader, choice[1]), (reference[0], choice[1])  # both with a temperature, if that is the advice
    gain = _gain(*advised)
    is_doubt = choice[0] is reference[0] and gain.mean > 0
    said = "On" if not is_doubt else "But on" if gain.mean > _CERTAIN * gain.sd else "That is not sure: on"
    own = "with a temperature its NLL" if choice[1] else "its NLL"
    return (
        f"{said} the test inputs, which choose nothing, {_label(leader)} has the best mean in {best.count(leader)} of "
        f"{len(best)} columns; {own} on the test inputs is {_than(_named(advised[1]), gain)}, {_standing(gain)}."
    )


def _standing(gain: Statistic) -> str:
    errors = abs(gain.mean) / gain.sd if gain.sd > 0 else math.inf
    return "within its error" if errors <= 1 else f"{'within' if errors <= _CERTAIN else 'beyond'} twice its error"


def _than(other: str, gain: Statistic) -> str:
    return f"{'worse' if gain.mean < 0 else 'better'} than that of {other} by {_by(gain)}"


def _by(gain: Statistic) -> str:
    """The size of a difference, without a sign: the words before it say which way it goes."""
    return f"{abs(gain.mean):.3f} ± {gain.sd:.3f} nats"


def _named(choice: Choice) -> str:
    return f"{_label(choice[0])} with a temperature" if choice[1] else _label(choice[0])


def _gain(chosen: Choice, reference: Choice, inputs: str = "test") -> Statistic:
    """Gain in NLL over another method on the same inputs and seeds, and its standard error."""
    other = {result.run.seed: result for result in reference[0]}
    pairs = [(result, other[result.run.seed]) for result in chosen[0] if result.run.seed in other]
    gains = [_sample_gains(*pair, (chosen[1], reference[1]), inputs) for pair in pairs]
    if len({len(gain) for gain in gains}) != 1 or len(gains[0]) < 2:
        return Statistic(math.nan, math.nan)
    return Statistic(*mean_difference(np.array(gains)))


def _sample_gains(ours: Result, theirs: Result, cooled: tuple[bool, bool], inputs: str) -> NDArray[np.float64]:
    if any(inputs not in result.run.predicted for result in (ours, theirs)):
        return np.empty(0)
    predictions = [result.run.predictions(inputs) for result in (ours, theirs)]
    if not np.array_equal(predictions[0].ids, predictions[1].ids):
        return np.empty(0)
    ours_lost, theirs_lost = (
        crossed_losses(part)
        if on and inputs == "validation"
        else -label_log_probabilities(part.logits / (source.numbers["temperature"] if on else 1.0), part.labels)
        for source, part, on in zip((ours, theirs), predictions, cooled, strict=True)
    )
    return theirs_lost - ours_lost


def _elsewhere(best: Sequence[Result], baseline: Sequence[Result]) -> str:
    """Uncertainty on inputs unlike the training data."""

    def number(key: str) -> str:
        ours, theirs = (statistic(runs, key).text(100, 1) for runs in (best, baseline))
        return f"{ours} %" if best is baseline else f"{ours} % ({_label(baseline)}: {theirs} %)"

    parts = []
    if not math.isnan(statistic(best, "corrupted_ece").mean):
        parts.append(f"the ECE of {_label(best)} on corrupted inputs is {number('corrupted_ece')}")
    parts += _detection(best, number)
    if not parts:
        return ""
    listed = f"{', '.join(parts[:-1])}, and {parts[-1]}" if len(parts) > 1 else parts[0]
    return f"{listed[0].upper()}{listed[1:]}."


def _detection(results: Sequence[Result], number: Callable[[str], str]) -> list[str]:
    """Detection of OOD inputs by total and epistemic uncertainty; an AUROC below one half is worse than chance."""
    total, epistemic = statistic(results, "ood_total").mean, statistic(results, "ood_epistemic").mean
    parts = []
    if not math.isnan(total):
        tells = "tells OOD from test inputs" if total > _COIN else "is no larger on OOD than on test inputs,"
        parts.append(f"total uncertainty {tells} with an AUROC of {number('ood_total')}")
    if not math.isnan(epistemic):
        if epistemic <= _COIN:
            adds = " is no larger there," if total > _COIN else " is not either,"
        else:
            adds = ", better," if total <= _COIN or _leads(results) else ", no better,"
        parts.append(f"its epistemic part{adds} with {statistic(results, 'ood_epistemic').text(100, 1)} %")
    return parts


def _leads(results: Sequence[Result]) -> bool:
    """Whether the epistemic part detects better than the total by more than the errors over inputs and over seeds."""
    leads = [result.numbers["ood_epistemic"] - result.numbers["ood_total"] for result in results]
    over_seeds = Statistic.of(leads).sd / math.sqrt(len(leads)) if len(leads) > 1 else 0.0
    return float(np.mean(leads)) > _CERTAIN * max(statistic(results, "ood_lead_error").mean, over_seeds)


def _collapse(results: Mapping[str, Sequence[Result]]) -> str:
    seen = {name: [result.run.diagnostics for result in runs] for name, runs in results.items()}
    seen = {name: paths for name, paths in seen.items() if any(path.exists() for path in paths)}
    if not seen:
        return "Whether attention has collapsed was not looked at: the runs have no diagnostics."
    runs = {name: collapse_of_runs(paths) for name, paths in seen.items()}
    warnings = [f"{_label(results[name])}: {words}" for name, words in runs.items() if words is not None]
    if warnings:
        return f"Warning, these models have stopped attending: {'; '.join(warnings)}."
    return "Attention has collapsed in no model: every layer tells the tokens of an input apart."


def _label(results: Sequence[Result]) -> str:
    return results[0].label
