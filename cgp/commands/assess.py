"""``cgp assess``: saved predictions of a classifier in, which of its uncertainties to use out."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from cgp.spelling import as_share, counted, meant

from .assessed import AS_SAVED, Answering, InSets, how_many, said_by, write_answers
from .terminal import check_extras, check_files, check_pictures, check_places, folded, write_picture

__all__ = ["EXAMPLES", "add_to", "run"]

EXAMPLES = """  cgp assess held_out.csv --picture report.png
  cgp assess logits.npy labels.npy
  cgp assess held_out.npz --train train.npz --ood other.npz --risk 0.05
  cgp assess held_out.npz --risk 0.05 --out report.json --answer new.npz answers.csv
  cgp assess held_out.npz --train train.npz --held-out further.npz --risk 0.05 --answer new.npz answers.csv
"""

_LEVEL, _TRAINED = 0.95, "as trained"
_ROUNDED = 1e-4  # the most that a row of logarithms of probabilities in single precision is off
_BESIDE = {"level": ("risk",), "sets": ("answer", "out"), "held_out": ("risk", "sets"), "method": ("answer",)}

_WHAT = """Say how far the probabilities of a classifier can be trusted, from saved predictions:

  np.savez("held_out.npz", logits=logits, labels=labels, features=features)

or as a .csv with a header: a column 'label', and one for each class, of logits
or probabilities (rows sum to 1, with six decimals or more: rounded zeros leave
the temperature a guess). Labels are numbers from 0 in the order of the columns,
or their names. Columns of text, and 'id' or 'index', are written into the table
of --answer. A .csv has no features. A .npz may have:

  logits         (N, C), or (S, N, C) of draws or members, whose probabilities
                 are averaged
  probabilities  in their place, such as behind a softmax
  labels         (N,), whole numbers from 0 to C - 1; files of --ood and
                 --answer need none
  classes        (C,), names of the classes as text: labels may be such names
  features       (N, d), what the last layer reads: used with --train, by a
                 read-out and scores of the representation

Printed are what to do, then the scores; ± is a standard error. Values with
variances, several labels of an input, and posteriors of attention need the
model itself: cgp.assess in Python."""


def add_to(commands: Any) -> None:
    """Add the command's parser to the others."""
    assess = commands.add_parser(
        "assess",
        help="say how far the probabilities of a classifier can be trusted",
        description=_WHAT,
        epilog=f"examples:\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    assess.add_argument(
        "predictions",
        type=Path,
        nargs="+",
        help="npz or csv of labelled inputs that did not train the model, or two .npy, of logits and of labels",
    )
    assess.add_argument("--train", type=Path, metavar="FILE.npz", help="training inputs, with labels and features")
    assess.add_argument(
        "--ood", type=Path, nargs="+", default=[], metavar="FILE", help="npz or csv of inputs unlike the training data"
    )
    assess.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="reliability, risk and detection, also .pdf or .svg"
    )
    assess.add_argument(
        "--risk",
        type=float,
        metavar="SHARE",
        help="say which answers to give, such that at most this share of them is wrong",
    )
    assess.add_argument(
        "--level", type=float, metavar="PROBABILITY", help="with --risk: the probability with which that holds (0.95)"
    )
    assess.add_argument(
        "--held-out",
        type=Path,
        metavar="FILE",
        help="npz or csv of further labels, so that --risk, --sets and --answer beside them are of what is advised, "
        "or of --method: without, they are of the network as trained",
    )
    assess.add_argument(
        "--out",
        type=Path,
        metavar="FILE.json",
        help="all scores, and temperatures and thresholds with formulas and constants, to use without cgp; not a GP "
        "read-out, by which --answer answers",
    )
    assess.add_argument(
        "--answer",
        type=Path,
        nargs=2,
        metavar=("FILE", "TABLE"),
        help="answer the new inputs of FILE, an npz or csv: TABLE, a csv, has their classes and confidences, and "
        "what is flagged (unlike the labelled inputs: look at it, whatever its confidence) or withheld",
    )
    assess.add_argument(
        "--sets",
        type=float,
        metavar="PROBABILITY",
        help="with --answer or --out: sets of classes that hold the right one with this probability, such as 0.9",
    )
    assess.add_argument("--method", help="with --answer: a row of the table, such as temperature, not what is advised")
    assess.add_argument("--seed", type=int, default=0, help="of the folds that temperatures are fitted on (0)")


def run(parsed: argparse.Namespace) -> None:
    """Assess the predictions of a parsed command line."""
    _check(parsed)
    from .predictions import check_features

    known, seen, others, further, new = _read(parsed)
    shifted = _shifted({parsed.predictions[0]: known} | seen | others | further | new)
    network = _Network(known, has_logits=not shifted)
    for part in further.values():
        network.check_unseen(part, [known, *seen.values()])
    report = network.assessed(seen.get(parsed.train), {path.stem: part for path, part in others.items()}, parsed.seed)
    limits = _limits(report)
    guaranteed = parsed.risk is not None or parsed.sets is not None
    answers = network.answers(report, parsed.method, further, is_guaranteed=guaranteed)
    for path, part in new.items():
        check_features(path, part, known, answers.users)
    answering = None if parsed.risk is None else _answering(answers, parsed.risk, parsed.level or _LEVEL)
    sentence = _in_flags(report.sentence)
    advice = [
        sentence,
        *_of_energy(shifted, others),
        *_of_zeros(known),
        *_advice(report, limits, known.of, answers, _places(parsed, [report.fitted[name] for name in limits])),
    ]
    advice += [] if answering is None else [_withheld(answers, answering)]
    in_sets = None if parsed.sets is None else _in_sets(answers, parsed.sets)
    advice += [] if in_sets is None else [_contained(in_sets)]
    sys.stdout.write("\n\n".join([*map(folded, advice), report.table()]) + "\n")
    write_picture(report.plot, parsed.picture)
    numbers = {name: float(limit) for name, limit in limits.items()}
    if parsed.out is not None:
        from cgp.networks.assess.written import flagging

        report.save(
            parsed.out,
            sentence=sentence,
            logits=known.of,
            classes=[*known.classes] or None,
            flag=flagging(report, numbers),
            answer=answering and answering.entry(),
            sets=in_sets and in_sets.entry(),
        )
    for part in new.values():
        found = replace(network.predicted(answers.model, part), limits=numbers)
        sets = None if parsed.sets is None else found.sets(parsed.sets, held_out=answers.known)
        write_answers(parsed.answer[1], found, answers.method, answering, sets, known.classes, part.beside)
        sys.stdout.write(f"\n{how_many(parsed.answer[1], found, answering)}\n")


def _read(parsed: argparse.Namespace) -> list[Any]:
    """What the file of labels holds, and those of --train, --ood, --held-out and --answer by their paths."""
    from .predictions import check_features, made_alike, read_predictions

    known = read_predictions(*parsed.predictions)
    labelled = (filter(None, [path]) for path in (parsed.train, parsed.held_out))
    seen, further = ({path: read_predictions(path) for path in paths} for paths in labelled)
    others, new = ({path: read_predictions(path, labelled=False) for path in p} for p in (parsed.ood, _new(parsed)))
    if not seen:
        known = known._replace(features=None)  # which only methods and scores of the training data use
    for path, part in [(parsed.predictions[0], known), *seen.items(), *others.items()]:
        check_features(path, part, known, ["--train"] if seen else [])
    others, seen, further, new = (
        {path: made_alike(path, part, known) for path, part in parts.items()} for parts in (others, seen, further, new)
    )
    return [known, seen, others, further, new]


def _shifted(parts: Mapping[Path, Any]) -> list[str]:
    """The files that have probabilities, or their logarithms: logits but for a number of each row, so no energy."""
    from scipy.special import logsumexp

    return [path.name for path, part in parts.items() if abs(logsumexp(part.logits, 1)).max() <= _ROUNDED]


def _check(parsed: argparse.Namespace) -> None:
    """Refuse what cannot come to anything, before anything heavy is imported."""
    read = [*parsed.predictions, *filter(None, [parsed.train, parsed.held_out]), *parsed.ood, *_new(parsed)]
    check_files(read)
    if len(given := parsed.predictions) > 1 and (len(given) > 2 or {path.suffix.lower() for path in given} != {".npy"}):
        raise ValueError(f"expected one file, or two .npy, of logits and of labels, got {' '.join(map(str, given))}")
    table = None if parsed.answer is None else parsed.answer[1]
    check_places([parsed.picture, parsed.out, table], read)
    for path, suffix, what in ((parsed.out, ".json", "--out"), (table, ".csv", "the table of --answer")):
        if path is not None and path.suffix.lower() != suffix and not path.is_char_device():
            raise ValueError(f"{path}: expected {suffix} for {what}, got {path.suffix!r}")
    check_pictures(filter(None, [parsed.picture]))
    check_extras({"matplotlib": "plot"} if parsed.picture else {})
    _check_numbers(parsed)
    names = [path.stem for path in parsed.ood]
    if len(set(names)) < len(names):
        raise ValueError(f"--ood: expected files of different names, got {' '.join(names)}")


def _check_numbers(parsed: argparse.Namespace) -> None:
    """Refuse a share that is none, and a flag without one that it goes with."""
    for name in ("risk", "level", "sets"):
        given = getattr(parsed, name)
        if given is not None and not 0.0 < given < 1.0:
            what = "share" if name == "risk" else "probability"
            raise ValueError(f"--{name}: expected a {what} in (0, 1), got {given}{as_share(given)}")
    for name, others in _BESIDE.items():
        given = getattr(parsed, name)
        if given is not None and all(getattr(parsed, other) is None for other in others):
            flags = " or ".join(f"--{other}" for other in others)
            raise ValueError(f"--{name.replace('_', '-')}: expected {flags} beside it, got {given} alone")


def _new(parsed: argparse.Namespace) -> list[Path]:
    """The file of new inputs, if there is one."""
    return [] if parsed.answer is None else [parsed.answer[0]]


class _Answers(NamedTuple):
    """What answers new inputs.

    Attributes:
        method: the row of the report by which it does.
        model: the model.
        is_set_aside: whether the recommended method is not that one, as no labels can guarantee it.
        known: its prediction of labels that have chosen nothing of it, None where no guarantee is asked for.
        users: what of it, and of the recommended detectors, uses features.
    """

    method: str
    model: Any
    is_set_aside: bool
    known: Any
    users: list[str]


class _Network:
    """A network whose inputs are its saved outputs."""

    def __init__(self, known: Any, *, has_logits: bool) -> None:
        from torch import nn

        from cgp.networks.tasks import Classification

        self.known, self.has_logits, classes = known, has_logits, known.logits.shape[1]

        class Saved(nn.Module):
            def forward(self, saved: Any) -> Any:
                return saved[:, :classes]

        self.model = Saved()
        self.task = Classification(features=lambda _, saved: saved[:, classes:])

    def assessed(self, seen: Any, others: dict[str, Any], seed: int) -> Any:
        """The report of :func:`cgp.assess`, with training data and other inputs by name."""
        from cgp.networks.assess.assess import assess
        from cgp.networks.detect.detector import DETECTORS, Detector

        train = None if seen is None else self._labelled(seen)
        ood = {name: self._inputs(part) for name, part in others.items()}
        # Also at chance: there is no network to run
        named = [each for each in DETECTORS if self.has_logits or "energy" not in each]
        if train is None:
            named = [each for each in named if not Detector(each).needs_train]
        else:
            named.insert(0, "readout")
        options: dict[str, Any] = {"train": train, "ood": ood, "compare": named, "task": self.task, "seed": seed}
        return assess(self.model, self._labelled(self.known), **options)

    def check_unseen(self, further: Any, fitted: Sequence[Any]) -> None:
        """Refuse labels for a guarantee that are among those that methods are fitted to."""
        from cgp.networks.model.inputs import Batch
        from cgp.networks.model.repeated import check_unseen, keys_of

        with_features = all(part.features is not None for part in (further, *fitted))
        parts = [part if with_features else part._replace(features=None) for part in (further, *fitted)]
        given, *known = (keys_of(Batch(self._inputs(part), None)) for part in parts)
        check_unseen("--held-out", given, [*chain(*known)])

    def answers(self, report: Any, method: str | None, further: dict[Path, Any], *, is_guaranteed: bool) -> _Answers:
        """What answers: a method, or the recommended one; without further labels only the network is guaranteed."""
        from .predictions import check_features

        by_itself = is_guaranteed and not further
        asked = method or (_TRAINED if by_itself else report.method)
        if asked not in report.rows:
            names = tuple(report.rows)
            what = _lacking(asked) or meant([asked], names)
            raise ValueError(f"--method: expected one of {names}, got {asked!r}{what}")
        chosen = report.rows[asked]
        if by_itself and chosen != _TRAINED:
            raise ValueError(
                f"--method: expected --held-out FILE beside it, as --risk and --sets are of the network {_TRAINED} "
                f"where no further labels are given, got {method!r} alone"
            )
        way = report.choices[chosen].method
        users = [f"the {way.label}"] if way.needs_train else []
        for path, part in further.items():
            check_features(path, part, self.known, users)
        users += [name for name in _named(report) if report.fitted[name].needs_train]
        known = None
        if is_guaranteed:
            known = self.predicted(report.apply(self.model, chosen, ()), next(iter(further.values()), self.known))
        is_set_aside = method is None and chosen != report.method
        return _Answers(chosen, report.apply(self.model, chosen), is_set_aside, known, users)

    def predicted(self, model: Any, part: Any) -> Any:
        """The prediction of a file, with its labels if it has some."""
        from cgp.networks.predict.predict import predict

        return predict(model, self._inputs(part) if part.labels is None else self._labelled(part))

    def _labelled(self, part: Any) -> Any:
        import torch

        return [(self._inputs(part), torch.from_numpy(part.labels))]

    def _inputs(self, part: Any) -> Any:
        import numpy as np
        import torch
        from scipy.special import log_softmax

        with_features = self.known.features is not None and part.features is not None
        logits = part.logits if self.has_logits else log_softmax(part.logits, 1)  # all files alike
        return torch.from_numpy(np.hstack([logits, *([part.features] if with_features else [])]))


def _lacking(method: str) -> str:
    """What a method that is no row of the report needs, if there is such a method."""
    from cgp.networks.predict.method import Method

    ways = {name: way for way in Method.known.values() for name in (way.name, way.label)}
    way = ways.get(method.partition(" + ")[0])
    if way is None:
        return ""
    return (
        f" ({method} needs {'--train FILE, with features' if way.needs_train else 'the model, cgp.assess in Python'})"
    )


def _named(report: Any) -> list[str]:
    """The recommended detectors."""
    return list(dict.fromkeys(filter(None, report.detectors.values())))


def _limits(report: Any) -> dict[str, str]:
    """The scores above which an input is flagged, by the names of the recommended detectors."""
    from cgp.networks.predict.method import Settings

    named = {name: report.fitted[name] for name in _named(report)}
    return {name: _rounded_up(limit, named[name].known) for name, limit in Settings(detectors=named).limits.items()}


def _in_flags(sentence: str) -> str:
    """A sentence of a report with flags in place of calls."""
    return re.sub(r"report\.apply\(model, ('[^']*')\)", r"--answer FILE TABLE --method \1", sentence)


def _places(parsed: argparse.Namespace, detectors: Sequence[Any]) -> tuple[str, str]:
    """The files that have the numbers and the answers, or the flags that write them."""
    from cgp.networks.assess.written import beside

    apart = None if parsed.out is None else beside(parsed.out, detectors)
    return (
        "--out FILE.json" if parsed.out is None else f"{parsed.out.name}{f' with {apart.name}' if apart else ''}",
        "--answer FILE TABLE" if parsed.answer is None else parsed.answer[1].name,
    )


def _of_temperature(temperature: float, logits: str) -> list[str]:
    """How to use a temperature without this library."""
    from cgp.networks.model.tempering import KEPT

    which = logits.removeprefix("logarithms of the ")
    lines = [f"Raise the {which} to the power {1 / temperature:.4g} and divide each row by its sum."]
    if logits == AS_SAVED:
        lines = [f"Divide the logits by {temperature:.4g}, fitted to all labels."]
    if temperature < 1.0:
        kept = f"{1 - KEPT:g} of these probabilities and {KEPT:g} of those without the temperature"
        lines.append(f"Then take {kept}: it can cost no answer more than {-math.log(KEPT):.1f} nats.")
    return lines


def _of_energy(shifted: Sequence[str], others: Mapping[Path, Any]) -> list[str]:
    """Why the energy is not among the scores, where other inputs are given and it is not."""
    if not (shifted and others):
        return []
    has = "has" if len(shifted) == 1 else "have"
    why = f"it is of logits from before the softmax, and {' and '.join(shifted)} {has} probabilities"
    return [f"The energy is left out: {why}. Save logits in every file to compare it."]


def _of_zeros(known: Any) -> list[str]:
    """What right classes of probability 0 are taken for, and what would be better."""
    if not known.zeros:
        return []
    why = f": rounded to {known.step:.3g}, so zeros of an input share half of that" if known.step else ""
    zeros = f"{known.zeros} of {counted(len(known.labels), 'right class has', 'right classes have')} probability 0{why}"
    return [f"{zeros}. Logits, or more digits, say how improbable they are, and with that the temperature."]


def _advice(report: Any, limits: dict[str, str], logits: str, answers: _Answers, places: tuple[str, str]) -> list[str]:
    """What to do, in numbers, with the places of further ones and of answers."""
    from cgp.networks.guarantees.conformal import values_needed
    from cgp.networks.predict.method import RATE, rate_of

    lines = _of_temperature(report.choices["temperature"].parameter, logits) if report.method == "temperature" else []
    if answers.is_set_aside:
        why = f"these labels fitted the {report.method}, and cannot guarantee it; further ones, --held-out FILE, can"
        lines.insert(0, f"But {places[1]} answers new inputs by the network {_TRAINED}: {why}.")
    elif report.method not in (_TRAINED, report.task.parameter):
        lines.append(f"{places[1]} answers new inputs {said_by(answers.method)}.")
    rate = rate_of(len(limits))
    for name, limit in limits.items():
        if limit == "inf":
            needed = f"{values_needed(rate)} labels would be needed by {counted(len(limits), 'detector')}"
            lines.append(f"No input can be flagged by its {name}: at least {needed}, there are {report.num_inputs}.")
            continue
        lines.append(f"Flag inputs whose {name} is above {limit}: at most {100 * rate:.3g} % of the labelled ones are.")
        if report.fitted[name].parts:
            lines[-1] += " It is a sum in standard deviations."
        if report.fitted[name].parts or report.fitted[name].needs_train:
            lines[-1] += f" {places[0]} has its constants, and {places[1]} flags new inputs."
    if len(limits) > 1:
        lines.append(f"All together flag at most {100 * RATE:.3g} % of inputs like the labelled ones.")
    return lines


def _rounded_up(limit: float, values: Any) -> str:
    """A limit with as few digits, at least four, as leave the same values above it."""
    from decimal import ROUND_CEILING, Decimal

    exact, least = Decimal(limit), min((float(value) for value in values if value > limit), default=float("inf"))
    if not exact.is_finite():
        return str(limit)
    for digits in range(4, 18):
        rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() + 1 - digits), rounding=ROUND_CEILING)
        if float(rounded) < least:
            return f"{rounded:f}"
    return repr(limit)


def _answering(answers: _Answers, risk: float, level: float) -> Answering:
    """Where to answer, by labels that have chosen nothing of what does; an error where they are too few for any."""
    from cgp.networks.guarantees.conformal import check_labels, risk_threshold

    check_labels(len(answers.known.labels), risk, level, "--risk")
    confidence = answers.known.confidence.double().numpy()
    threshold = risk_threshold(confidence, _right(answers.known), risk, level)
    limit = 1.0 if threshold is None else max(0.0, float(_rounded_up(threshold, confidence)))
    return Answering(answers.method, risk, level, limit, float((confidence > limit).mean()))


def _right(known: Any) -> Any:
    """Whether the answers to labelled inputs are right."""
    return (known.classes == known.labels).numpy()


def _withheld(answers: _Answers, answering: Answering) -> str:
    """Which answers to withhold, or why all."""
    from cgp.networks.guarantees.conformal import why_none

    if answering.threshold >= 1.0:
        confidence = answers.known.confidence.double().numpy()
        why = why_none(confidence, _right(answers.known), answering.risk, answering.level)
        return f"{why[0].upper()}{why[1:]}."
    among = f"at most {100 * answering.risk:.3g} % of them are wrong, with a confidence of {answering.level:g}."
    if answering.threshold <= 0.0:
        return f"Answer always: {among}"
    share = f"{100 * answering.share:.0f} % of the inputs"
    return f"Answer where {answering.of}, is above {answering.threshold}, {share}: {among}"


def _in_sets(answers: _Answers, level: float) -> InSets:
    """Which classes are in a set; an error where there are too few labels for any but all."""
    from cgp.networks.guarantees.conformal import least_probability, values_needed

    labels = answers.known.labels.numpy()
    if len(labels) < (needed := values_needed(1.0 - level)):
        raise ValueError(f"--sets: expected at least {needed} labels for a probability of {level:g}, got {len(labels)}")
    return InSets(answers.method, level, least_probability(answers.known.probabilities, labels, 1.0 - level))


def _contained(sets: InSets) -> str:
    """What sets of classes hold."""
    return (
        f"A set of classes, {said_by(sets.method)}, holds the right one with a probability of at least {sets.level:g}."
    )
