"""The words of a report: its tables, and the lines that say which method and which detectors to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cgp.comparisons import LEVEL, Difference, aligned, critical_value
from cgp.networks.methods.temperature_scaling import ASKED, USELESS
from cgp.networks.tasks.metrics import LabelledScores
from cgp.spelling import counted

from .claims import (
    COVERAGE,
    FEWEST_INPUTS,
    FEWEST_LABELS,
    FEWEST_WRONG,
    LEAST_NATS,
    Detection,
    labels_needed,
    num_comparisons,
)

if TYPE_CHECKING:
    from .assessment import Assessment

__all__ = ["about_detection", "about_methods", "compared_in", "headline", "meanings", "tables"]

_COLUMNS = ("nll", "brier", "ece", "accuracy")  # what sentences are of; to_frame has all scores
_OF_VALUES = ("nll", "crps", "rmse", "coverage90", "width90")

_MEANINGS = {
    "nll": "negative log-likelihood, the surprise at the true answers, in nats: less is better, and what is compared",
    "brier": "squared error of the probabilities: less is better",
    "ece": "how far confidence is from accuracy on average: less is better; chance alone keeps it above 0",
    "accuracy": "share of right answers",
    "crps": "distance of the predictive distribution from the value, in its units: less is better",
    "rmse": "root of the mean squared error, in the values' units: less is better",
    "coverage90": "share of the values inside the central 90 % interval: .9 is right",
    "width90": "width of that interval: less is better, where its share is right",
    "auroc": "1 where a score tells all of the other inputs from yours, .5 by chance",
    "fpr95": "share of your inputs that is flagged where 95 % of the others are: less is better",
    "sets": "sets of classes: the share that holds the label, their classes on average, the share with one",
}
_NAMES = {  # by what rows of the tables have in their names
    "temperature": "one number that divides the logits",
    "scale": "one factor of the variance, for each output",
    "posterior": "Gaussian processes in place of attention, whose draws are averaged: the likeliest, or the "
    "widest that the labels allow",
    "GP read-out": "a Gaussian process on what the last layer reads, in its place",
    "dropout": "the network's own, left on: its draws are averaged",
    "1 - confidence": "one minus the largest probability, which the other scores are compared with",
    "entropy": "how far the probabilities are spread over the classes",
    "energy": "large where no class has a large logit",
    "Mahalanobis": "distance from the nearest class of the training data, in what the last layer reads",
    "GP variance": "how unsure the read-out is: large far from the training data, in what the last layer reads",
    "epistemic": "how far the draws of the widest posterior disagree",
}
_PICTURES = {
    "Reliability": "accuracy in bins of confidence: below the diagonal they are overconfident, above it underconfident",
    "Errors among the surest answers": "error rate where the least sure are withheld; the temperature is that of all "
    "labels",
    "AURC": "area under that curve, the error rate on average over all shares of answers: less is better",
    "Detection of other inputs": "AUROC of scores, with twice their standard errors; full where one is advised",
    "Prediction sets": "share of the sets that hold the label, with a 95 % interval, and their classes on average",
    "Values inside central intervals": "below the diagonal intervals are too narrow, above it too wide",
}

_BELOW = "less than 0.0001"  # of a change without digits to show

_LISTED = 4  # sets of other inputs with numbers of their own in a sentence; the tables have all

_MOST_DIGITS, _MOST_MORE = 3, 50  # of percentages; of labels beyond those that there are, in their number

_LEAST_ECE, _LEAST_ACCURACY, _LEAST_CLAIM = 0.01, 0.005, 0.01  # changes below which nothing is said


def tables(report: Assessment) -> str:
    """The scores as text: a row per method; AUROC and FPR95 with a row per score and a column per set."""
    lines = aligned(_method_rows(report))
    for measure in ("auroc", "fpr95") if report.detection else ():
        rows = _detection_rows(report.detection, measure)
        lines += ["", *aligned([[measure.upper(), *report.detection], *rows])]
    if report.sets:
        head = [f"sets at {100 * COVERAGE:.0f} %", "coverage", "classes", "of one class"]
        rows = [[name, *(f"{value:.3f}" for value in found)] for name, found in report.sets.items()]
        lines += ["", *aligned([head, *rows])]
    return "\n".join(lines)


def _method_rows(report: Assessment) -> list[list[str]]:
    """Cells of the table of methods; with enough labels its last column is the change of the NLL against the first."""
    columns, first = _COLUMNS if report.correct else _OF_VALUES, next(iter(report.scores))
    changes = {name: "" if name == first else _written(report.differences[name]["nll"]) for name in report.scores}
    rows = [["method", *columns, f"NLL against {first}"]]
    rows += [[n, *(f"{each[column]:.4f}" for column in columns), changes[n]] for n, each in report.scores.items()]
    return rows if report.has_enough_labels else [row[:-1] for row in rows]


def _detection_rows(detection: Mapping[str, Mapping[str, Detection]], measure: str) -> list[list[str]]:
    """Cells of one measure of detection; a score that a set has not is left empty."""
    scores, sets = dict.fromkeys(score for each in detection.values() for score in each), detection.values()
    return [[score, *(f"{getattr(d[score], measure):.3f}" if score in d else "" for d in sets)] for score in scores]


def meanings(report: Assessment) -> dict[str, str]:
    """What the columns of the tables and the panels of the picture mean, by their names."""
    measures = {"auroc": "AUROC", "fpr95": "FPR95"} if report.detection else {}
    measures |= {"sets": f"sets at {100 * COVERAGE:.0f} %"} if report.sets else {}
    columns = {name: name for name in (_COLUMNS if report.correct else _OF_VALUES)}
    against = {f"NLL against {next(iter(report.scores))}": "change of the nll, ± its standard error"}
    against = against if report.has_enough_labels else {}
    rows = [*report.scores, *(score for scores in report.detection.values() for score in scores)]
    names = {name: text for name, text in _NAMES.items() if any(name in row for row in rows)}
    panels = (
        ["Reliability", "Errors among the surest answers", "AURC"]
        if report.correct
        else ["Values inside central intervals"]
    )
    panels += ["Detection of other inputs"] if report.detection else []
    panels += ["Prediction sets"] if report.sets else []
    said = [{shown: _MEANINGS[name] for name, shown in part.items()} for part in (columns, measures)]
    return said[0] | against | said[1] | names | {name: _PICTURES[name] for name in panels}


def headline(report: Assessment) -> str:
    """What was assessed, by what."""
    what = "probabilities" if report.correct else "variances"
    return f"A network's {what}, assessed on {_labels(report, report.num_labels)}"


def compared_in(report: Assessment) -> str:
    """The methods that were compared, and the other inputs."""
    methods = [name if name == "as trained" else choice.method.label for name, choice in report.choices.items()]
    others = f"; other inputs: {', '.join(report.detection)}" if report.detection else ""
    return f"{', '.join(dict.fromkeys(methods))}{others}"


def about_methods(report: Assessment) -> list[str]:
    """Lines: what is claimed and what is right, the method to use, and what the others add."""
    if not report.has_enough_labels:
        return [_too_few(report)]
    if report.is_at_chance:
        return [_doubt(report), _of_methods(report), *_left_out(report)]
    return [*_claimed(report), _of_methods(report), *_others(report)]


def _claimed(report: Assessment) -> list[str]:
    """How many answers of the network as trained are right, and how many its confidences say."""
    trained, excess = next(iter(report.outcomes.values())), _excess(report)
    if not isinstance(trained, LabelledScores):
        return [_of_errors(report)]
    is_wrong, digits = _is_wrong(excess), 1
    while True:  # as many digits as show the verdict
        right, said = (round(100.0 * float(each.mean()), digits) for each in (trained.correct, trained.confidence))
        points, error = round(abs(said - right), digits), round(100.0 * excess.error, digits)
        if (points > 2.0 * error) == is_wrong or digits == _MOST_DIGITS:
            break
        digits += 1
    numbers = f"{points:.{digits}f} ± {error:.{digits}f} points"
    verdict = f"{_side(excess)[0]}confident by {numbers}" if is_wrong else f"the {numbers} between may be chance"
    claimed = f"As trained {right:.{digits}f}% of its answers are right, and it claims {said:.{digits}f}%"
    return [f"{claimed}: {verdict}."]


def _of_errors(report: Assessment) -> str:
    """How large errors of values are, and how many of these lie inside intervals of 90 %, by the first method."""
    name = next(iter(report.scores))
    inside = np.abs(report.cumulative[name].reshape(report.num_labels, -1) - 0.5) <= 0.45
    share = Difference.of_groups(inside.mean(1), report.groups)
    by = "as trained" if name == "as trained" else f"by {_plain(report)}"
    held = f"{100 * share.mean:.1f} ± {100 * share.error:.1f} % of the values are in 90 % intervals, {by}"
    rmse, alone = _errors(report)
    worse = " It is no better than to predict that mean (are the values in the units and the order of the outputs?)."
    return f"{_error(report)}, and {held}.{worse if rmse >= alone else ''}"


def _error(report: Assessment) -> str:
    """How large errors of values are; where it says more, beside those of their mean alone."""
    found, alone = _errors(report)
    of_mean = f", that of the values' mean {alone:.3g}" if found >= alone or report.is_at_chance else ""
    return f"Its error is {found:.3g} (root mean square){of_mean}"


def _errors(report: Assessment) -> tuple[float, float]:
    """The root mean square of the errors, and that of the values' mean alone."""
    alone = float(np.square(report.labels - report.labels.mean(0)).mean()) ** 0.5
    return next(iter(report.scores.values()))["rmse"], alone


def _left_out(report: Assessment) -> list[str]:
    """What was not compared with a network at chance, and how it is."""
    call = f"cgp.assess(..., compare={list(report.left_out)})"
    return [f"What takes fits or draws was not compared: {call} does it all the same."] if report.left_out else []


def _excess(report: Assessment, method: str | None = None) -> Difference:
    """How much more the network as trained, or a method, claims than it reaches; of values, nothing."""
    outcome = next(iter(report.outcomes.values())) if method is None else report.outcomes[method]
    if not isinstance(outcome, LabelledScores):
        return Difference(0.0, 0.0)
    return Difference.of_groups(outcome.confidence - outcome.correct, report.groups)


def _is_further(report: Assessment, method: str) -> bool:
    """Whether a method's claims are wrong, and by more than those of the network as trained, beyond two errors."""
    names = method, next(iter(report.scores))
    after, before = (report.confidences[name] - report.correct[name] for name in names)
    apart = np.sign(after.mean()) * after - np.sign(before.mean()) * before
    return _is_wrong(_excess(report, method)) and Difference.of_groups(apart, report.groups).exceeds(_LEAST_CLAIM, 2.0)


def _is_wrong(excess: Difference) -> bool:
    """Whether claims differ from what is reached by more than chance would."""
    return abs(excess.mean) > 2.0 * excess.error


def _side(excess: Difference) -> tuple[str, str]:
    """What confidences are, and claims."""
    return ("over", "high") if excess.mean > 0.0 else ("under", "low")


def _doubt(report: Assessment) -> str:
    """What the outputs say of the labels: nothing; and, unless another method fits these, whether they are mixed up."""
    if not report.task.has_classes:
        asked = "" if report.method in report.beyond else " (are the values in the order of the inputs?)"
        return f"{_error(report)}: these outputs say nothing of the values{asked}."
    share = 1.0 - report.num_wrong / report.num_labels
    said = "no more than by chance: these logits say nothing of the labels"
    if report.is_useless and not report.tells_nothing("as trained"):
        said = f"and {USELESS}"
    return f"{share:.1%} of answers are right, {said}{'' if report.method in report.beyond else ASKED}."


def _of_methods(report: Assessment) -> str:
    """The method to use, of enough labels."""
    method, task = report.method, report.task
    plain = _plain(report)
    if method in report.beyond:
        better = f"its NLL is below that of {plain} by {_fall(report.beyond[method])}"
        advice = _use(report, method, report.choices[method].method.advice(task), better)
        return " ".join([advice, *_changed(report, method), *_costs(report, method)])
    if report.is_at_chance:
        return "Use the model as it is, if at all."
    if "as trained" not in report.scores:
        return f"Use {plain}."
    change = report.differences[task.parameter]["nll"]
    if method == task.parameter:
        used = f"{plain} of {report.choices[method].parameter:.3g}" if task.has_classes else plain
        return " ".join([_use(report, method, used, f"the NLL falls by {_fall(change)}"), *_costs(report, method)])
    return _as_it_is(report, change)


def _use(report: Assessment, method: str, used: str, better: str) -> str:
    """The advice to use something, why, and what it claims; where that is wrong, what to use where claims count."""
    if not report.task.has_classes:
        return f"Use {used}: {better}."
    is_further, is_known = _is_further(report, method), not report.is_at_chance
    is_mended = is_known and _is_wrong(_excess(report, method)) and _has_claims(report)
    claims = f"{report.confidences[method].mean():.1%}"
    claims += f" where {report.correct[method].mean():.1%} are right" if is_further or is_mended else ""
    is_kept = is_further and not (is_mended and _is_wrong(_excess(report)))
    ways = ["keep the model as it is"] * is_kept + [_applied(report)] * is_mended
    other = f" Where its claims count, {' or '.join(ways)}." if ways else ""
    if not is_further:
        return f"Use {used}: it then claims {claims}, and {better}.{other}"
    return f"Use {used} where the NLL counts: {better}, but it then claims {claims}.{other}"


def _has_claims(report: Assessment) -> bool:
    """Whether the claims with a temperature are not wrong, and its NLL is no higher beyond two errors."""
    name = report.task.parameter
    return not _is_wrong(_excess(report, name)) and not report.differences[name]["nll"].exceeds(0.0, 2.0)


def _applied(report: Assessment) -> str:
    """The call that takes the temperature or scale."""
    return f"report.apply(model, {report.task.parameter!r})"


def _as_it_is(report: Assessment, change: Difference) -> str:
    """Why the temperature or scale is not recommended, and what would make it so; where claims are wrong, that, too."""
    name, plain, excess = report.task.parameter, _plain(report), _excess(report)
    is_wrong, is_feared = _is_wrong(excess), report.is_clear(name, bounded=False)
    use = f"Use the model as it is{f', although its claims are too {_side(excess)[1]}' if is_wrong else ''}"
    changes = f"{_in_nats(change)}{_why_not(-change, report.errors_needed(name))}"
    apply, said = _applied(report), [f"{use}: {plain} changes its NLL by {changes}."]
    is_mended = is_wrong and _has_claims(report)
    mended = [f"Where its claims count more than its NLL, {apply} mends them, with the same answers."] * is_mended
    if not (is_wrong or is_feared) or 0.0 <= -change.mean <= LEAST_NATS:
        return " ".join([*said, *mended])
    if is_wrong:
        claim, fitted = report.confidences[name].mean(), f"{report.choices[name].parameter:.3g}"
        found = "are too few to say that" if change.mean < 0.0 else "do not show that"
        said = [f"{use}: these {_labels(report)} {found} {plain} lowers the NLL."]
        said.append(f"The likeliest, {fitted}, claims {claim:.1%} and changes it by {changes}.")
    if is_feared:
        said.append(
            "But no answer here is both sure and wrong; the few that labels can miss could cost more than that gain."
        )
    if change.mean >= 0.0:
        return " ".join([*said, "More labels may make it clear.", *mended])
    takes = f", and {apply} takes the risk" if is_feared and not mended else ""
    return " ".join([*said, f"{_more(report, name, -change)}{takes}.", *mended])


def _labels(report: Assessment, count: int | None = None) -> str:
    """How many labels there are, or so many; inputs, where labels of one depend on each other; rows of values."""
    what = "input" if report.num_inputs < report.num_labels else "label" if report.task.has_classes else "row"
    return counted(report.num_inputs if count is None else count, what)


def _more(report: Assessment, name: str, gain: Difference) -> str:
    """How many labels more would make the gain of a method clear, as far as these can say."""
    count, level = report.num_inputs, LEVEL / (len(report.beyond) if name in report.beyond else 1)
    needed = labels_needed(gain, count, harm=report.harms[name], z=report.errors_needed(name), level=level)
    more = float(f"{needed - count:.2g}")
    if not 0.0 < more <= _MOST_MORE * count:
        return "More labels may make it clear"
    return f"About {_labels(report, int(more))} more would make it clear, if the gain stays"


def _plain(report: Assessment) -> str:
    """The temperature or scale, in a sentence."""
    if report.task.has_classes:
        return "a temperature"
    return "a factor of its variance" if "as trained" in report.scores else "a constant variance"


def _too_few(report: Assessment) -> str:
    task = report.task
    if not task.has_classes:
        return f"{report.num_labels} {task.examples} say nothing of variances: at least {FEWEST_LABELS} are needed."
    which = "" if report.num_inputs >= report.num_labels else f" of {counted(report.num_inputs, 'input')}"
    labels, wrong = counted(report.num_labels, "label"), counted(report.num_wrong, "wrong answer")
    return (
        f"{labels}{which} with {wrong} say nothing of temperatures and "
        f"posteriors: at least {FEWEST_LABELS} with {FEWEST_WRONG} are needed."
    )


def _is_told(change: Difference) -> bool:
    """Whether a change has digits to show."""
    return max(abs(change.mean), change.error) >= 5e-5


def _in_nats(change: Difference) -> str:
    return f"{change} nats" if _is_told(change) else f"{_BELOW} nats"


def _fall(change: Difference) -> str:
    """How much is gained, without a sign."""
    return _in_nats(-change).lstrip("+")


def _written(change: Difference) -> str:
    """A change in a table: "none", or that it is too small for its digits, where four zeros would say neither."""
    return str(change) if _is_told(change) or not any(change) else _BELOW


def _others(report: Assessment) -> list[str]:
    """What methods that are not recommended add to the temperature or scale: nothing, harm, or what may be chance."""
    if report.method in report.beyond:
        return []
    labels = {name: report.choices[name].method.label for name in report.beyond}
    groups: dict[str, list[str]] = {"not sure": [], "level": [], "nothing": [], "worse": []}
    better = {name: _better(report, name, label) for name, label in labels.items()}
    for name, change in report.beyond.items():
        if (-change).exceeds(0.0, 2.0):
            why = _why_not(-change, report.errors_needed(name), len(report.beyond)) or _feared(report, name, -change)
            groups["not sure"].append(f"the {labels[name]} lowers the NLL by {_fall(change)}{why}")
        else:
            kind = "worse" if change.exceeds(0.0, 2.0) else "level" if better[name] else "nothing"
            groups[kind].append(f"the {labels[name]} (NLL {_in_nats(change)})")
    said = groups["not sure"]
    verbs = {
        "level": ("shows no lower NLL", "show no lower NLL"),
        "nothing": ("shows no gain", "show no gain"),
        "worse": ("is worse", "are worse"),
    }
    for kind, (one, several) in verbs.items():
        if found := groups[kind]:
            said.append(f"{_enumerated(found)} {one if len(found) == 1 else several}")
    first = [f"Beyond {_plain(report)}, {words}." for words in said[:1]]
    rest = [f"{words[0].upper()}{words[1:]}." for words in said[1:]]
    return [" ".join([*first, *rest, *(words for found in better.values() for words in found)])] if said else []


def _enumerated(things: Sequence[str]) -> str:
    """Things with commas, and "and" before the last."""
    return " and ".join(filter(None, [", ".join(things[:-1]), things[-1]]))


def _feared(report: Assessment, name: str, gain: Difference) -> str:
    """Why a gain beyond chance is not recommended: what may happen that no label has shown."""
    more = _more(report, name, gain)
    takes = f"report.apply(model, {name!r}) takes the risk"
    return f", but the few sure mistakes that these labels can miss could cost more. {more}, and {takes}"


def _why_not(gain: Difference, needed: float, methods: int = 0) -> str:
    """Why a gain is not recommended, unless it is that answers that no label has shown count, too."""
    if not _is_told(gain) or gain.mean <= 0.0:
        return ""
    if not gain.exceeds(0.0, needed):
        errors = f": it is {gain.mean / gain.error:.1f} errors, where the best of {methods} methods needs {needed:.1f}"
        return f", which may be chance{errors if methods else ''}"
    return f", which is below {LEAST_NATS} nats" if gain.mean <= LEAST_NATS else ""


def _better(report: Assessment, name: str, label: str) -> list[str]:
    """Accuracy and Brier score, where a method is better than as trained beyond two errors, and than the plain one."""
    changes, scores = report.differences[name], report.scores
    nothing, plain = Difference(0.0, 0.0), report.task.parameter
    accuracy, brier = changes.get("accuracy", nothing), changes.get("brier", nothing)
    said = []
    if accuracy.exceeds(_LEAST_ACCURACY, 2.0):
        call = f"report.apply(model, {name!r})"
        change = f"changes the accuracy by {_in_points(accuracy)}"
        said.append(f"But the {label} {change}: where right answers count more than probabilities, {call}.")
    if (-brier).exceeds(0.0, 2.0) and scores[name]["brier"] < scores[plain]["brier"] - brier.error:
        said.append(f"{'It' if said else f'But the {label}'} changes the Brier score by {brier}.")
    return said


def _changed(report: Assessment, method: str) -> list[str]:
    """How many answers a method changes, if it changes any, and what that does to the accuracy."""
    trained, found = next(iter(report.outcomes.values())), report.outcomes[method]
    if not (isinstance(trained, LabelledScores) and isinstance(found, LabelledScores)):
        return []
    share, accuracy = (found.classes != trained.classes).mean(), report.differences[method]["accuracy"]
    return [f"It changes {share:.1%} of the answers, and the accuracy by {_in_points(accuracy)}."] if share else []


def _in_points(change: Difference) -> str:
    """With as many digits as show whether it is above two errors."""
    mean, error = 100.0 * change.mean, 100.0 * change.error
    shown = {d: abs(round(mean, d)) > 2.0 * round(error, d) for d in range(1, _MOST_DIGITS + 1)}
    digits = next((d for d, is_above in shown.items() if is_above == (abs(mean) > 2.0 * error)), _MOST_DIGITS)
    return f"{mean:+.{digits}f} ± {error:.{digits}f} points"


def _costs(report: Assessment, method: str) -> list[str]:
    """What gets worse by a method against what it lowers the NLL of: calibration error or Brier score."""
    other = report.task.parameter if method in report.beyond else next(iter(report.scores))
    found, reference = report.outcomes[method], report.outcomes[other]
    if not (isinstance(found, LabelledScores) and isinstance(reference, LabelledScores)):
        return []
    before, after = report.scores[other], report.scores[method]
    brier, parts = found.differences(reference, report.groups)["brier"], []
    if _rises(before, after):
        of = f" with {_plain(report)}" if method in report.beyond else ""
        parts.append(f"its calibration error (ECE) rises from {before['ece']:.3f}{of} to {after['ece']:.3f}")
    if brier.exceeds(0.0, 2.0):
        parts.append(f"its Brier score changes by {brier}")
    said = [f"For that, {' and '.join(parts)}."] if parts else []
    trained = next(iter(report.scores.values()))
    if before is not trained and _rises(trained, after) and not _rises(before, after):
        said.append(f"Its calibration error (ECE) is {after['ece']:.3f}, and {trained['ece']:.3f} as trained.")
    return said


def _rises(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    """Whether the calibration error rises by more than what chance alone makes of it."""
    return after["ece"] - after["ece_chance"] > before["ece"] - before["ece_chance"] + _LEAST_ECE


def _listed(values: Sequence[float], form: str) -> str:
    """A few numbers, or the range of more."""
    if len(values) > _LISTED:
        return " to ".join(dict.fromkeys(form.format(end) for end in (min(values), max(values))))
    return ", ".join(map(form.format, values))


def about_detection(detection: Mapping[str, Mapping[str, Detection]], chosen: Mapping[str, str | None]) -> list[str]:
    """The detectors to use, for sets of other inputs by name; those of one verdict together, a line for each."""
    verdicts: dict[tuple[str, str], list[str]] = {}
    needed = critical_value(comparisons := num_comparisons(detection))
    for name, detectors in detection.items():
        verdicts.setdefault(_verdict(detectors, chosen[name], needed), []).append(name)
    said = [_of_sets(kind, score, {n: detection[n] for n in names}) for (kind, score), names in verdicts.items()]
    if comparisons > 1 and any(kind == "unsure" for kind, _ in verdicts):
        said.append(f"To be sure, the best of {comparisons} comparisons has to be {needed:.1f} standard errors above.")
    return said


def _verdict(detectors: Mapping[str, Detection], score: str | None, needed: float) -> tuple[str, str]:
    """The verdict on detecting a set, and the score it refers to; a gain needs so many errors to be sure."""
    if next(iter(detectors.values())).num_inputs < FEWEST_INPUTS:
        return "few", ""
    if score is not None:
        return "use", score
    best = max(detectors, key=lambda name: detectors[name].auroc)
    if not detectors[best].is_right(critical_value(len(detectors))):
        return "none", best
    gain = detectors[best].gain
    return "plain" if gain.mean <= 0.0 else "small" if gain.exceeds(0.0, needed) else "unsure", best


def _higher(scores: Mapping[str, Detection], score: str, plain: str) -> str:
    """That a score with a higher AUROC than the recommended one is not surely above the first one, if there is one."""
    best = max(scores, key=lambda name: scores[name].auroc)
    above = f"{scores[best].auroc:.3f}"
    if above == f"{scores[score].auroc:.3f}":
        return ""
    return f"; that of the {best}, {above}, is not surely above {plain}"


def _of_sets(kind: str, score: str, sets: Mapping[str, Mapping[str, Detection]]) -> str:
    """The sentence about sets of other inputs with one verdict."""
    which, plain = ", ".join(sets), next(iter(next(iter(sets.values()))))
    if kind == "few":
        return f"Too few of {which} to compare scores: at least {FEWEST_INPUTS} on either side are needed."
    aurocs, against = (_listed([each[name].auroc for each in sets.values()], "{:.3f}") for name in (score, plain))
    written = score.replace("Mahalanobis", "Mahalanobis distance").replace("epistemic", "epistemic uncertainty")
    if kind == "none":
        best = plain if score == plain else f"the {written}"
        return f"No score tells {which} from in-distribution inputs: the best, {best}, has AUROC {aurocs}."
    if kind == "plain":
        return f"Nothing tells {which} from in-distribution inputs better than {plain}: AUROC {against}."
    found = [each[score].gain for each in sets.values()]
    gains = ", ".join(map(str, found))
    if len(found) > _LISTED:
        gains = f"{_listed([gain.mean for gain in found], '{:+.3f}')}, errors up to {max(g.error for g in found):.3f}"
    numbers = f" AUROC {aurocs}, against {against} for {plain} ({gains})."
    if 1 < len(sets) <= _LISTED:
        numbers = "".join(
            f"\n  {name}: AUROC {each[score].auroc:.3f}, against {each[plain].auroc:.3f} for {plain} "
            f"({each[score].gain}){_higher(each, score, plain) if kind == 'use' else ''}."
            for name, each in sets.items()
        )
    if kind == "use":
        numbers = numbers if len(sets) > 1 else f"{numbers[:-1]}{_higher(next(iter(sets.values())), score, plain)}."
        return f"To tell {which} from in-distribution inputs, use the {written}:{numbers}"
    verdict = f"not surely above {plain}" if kind == "unsure" else f"above {plain}, by too little to count"
    return f"At telling {which} from in-distribution inputs, the {written} is {verdict}:{numbers}"
