"""``cgp assess``: saved predictions of a classifier in, which of its uncertainties to use out."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from .assessed import ANSWERED, AS_SAVED, RATE, Answering, write_answers, write_report
from .terminal import check_extras, check_files, check_pictures, check_places, write_picture

__all__ = ["EXAMPLES", "add_to", "run"]

EXAMPLES = """  cgp assess held_out.npz --picture report.png
  cgp assess held_out.npz --train train.npz --ood other.npz --risk 0.05
  cgp assess held_out.npz --risk 0.05 --out report.json --answer new.npz answers.csv
"""

_LEVEL = 0.95

_WHAT = """Say how far the probabilities of a classifier can be trusted, from saved predictions:

  np.savez("held_out.npz", logits=logits, labels=labels, features=features)

A file may have:

  logits         (N, C), or (S, N, C) of draws or members, whose probabilities are averaged
  probabilities  in their place, such as behind a softmax: np.savez("held_out.npz", probabilities=p, labels=labels)
  labels         (N,), whole numbers from 0 to C - 1; files of --ood and --answer need none
  features       (N, d), what the last layer reads, for scores of the representation; --train needs them

Posteriors of attention need the model itself: cgp.assess in Python."""


def add_to(commands: Any) -> None:
    """Add the command's parser to the others."""
    assess = commands.add_parser(
        "assess",
        help="say how far the probabilities of a classifier can be trusted",
        description=_WHAT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    assess.add_argument("predictions", type=Path, help="npz of labelled inputs that the model was not trained on")
    assess.add_argument("--train", type=Path, help="npz of training inputs, with labels and features")
    assess.add_argument(
        "--ood", type=Path, nargs="+", default=[], metavar="FILE", help="npz of inputs unlike the training data"
    )
    assess.add_argument("--picture", type=Path, help="where reliability, risk and detection are drawn")
    assess.add_argument("--risk", type=float, help="say which answers to give, such that at most this share is wrong")
    assess.add_argument("--level", type=float, help="with --risk: the probability with which that holds (0.95)")
    assess.add_argument(
        "--out", type=Path, help="json of all scores, temperatures, and thresholds with their formulas and constants"
    )
    assess.add_argument(
        "--answer",
        type=Path,
        nargs=2,
        metavar=("FILE", "TABLE"),
        help="npz of new inputs, and the csv of their classes and confidences, of what is flagged and withheld",
    )
    assess.add_argument("--method", help="of --answer: a row of the table, in place of the one that is recommended")
    assess.add_argument("--seed", type=int, default=0, help="of the folds (0)")


def run(parsed: argparse.Namespace) -> None:
    """Assess the predictions of a parsed command line."""
    _check(parsed)
    from .predictions import check_alike, read_predictions

    known = read_predictions(parsed.predictions)
    others = {path: read_predictions(path, labelled=False) for path in parsed.ood}
    seen = {path: read_predictions(path) for path in filter(None, [parsed.train])}
    new = {path: read_predictions(path, labelled=False) for path in _new(parsed)}
    if seen and known.features is None:
        raise ValueError(f"{parsed.predictions}: expected features (N, d), as --train compares them, got none")
    for path, part in [*others.items(), *seen.items(), *new.items()]:
        check_alike(path, part, known)
    network = _Network(known)
    report = network.assessed(seen.get(parsed.train), {path.stem: part for path, part in others.items()}, parsed.seed)
    limits = {
        name: _rounded_up(report.fitted[name].threshold(RATE), report.fitted[name].known) for name in _named(report)
    }
    answering = None if parsed.risk is None else _answering(report, parsed.risk, parsed.level or _LEVEL)
    found = [network.answered(report, part, parsed.method, with_risk=answering is not None) for part in new.values()]
    sentence = _in_flags(report.sentence)
    advice = [sentence, *_advice(report, limits, known.of, with_risk=parsed.risk is not None)]
    advice += [] if answering is None else [_withheld(report, answering)]
    sys.stdout.write("\n\n".join([report.table(), *(textwrap.fill(part, 100) for part in advice)]) + "\n")
    write_picture(report.plot, parsed.picture)
    numbers = {name: float(limit) for name, limit in limits.items()}
    if parsed.out is not None:
        write_report(parsed.out, report, known.of, sentence, numbers, answering)
    for prediction, trained in found:
        write_answers(parsed.answer[1], prediction, numbers, trained, answering and answering.threshold)


def _check(parsed: argparse.Namespace) -> None:
    """Refuse what cannot come to anything, before anything heavy is imported."""
    read = [parsed.predictions, *filter(None, [parsed.train]), *parsed.ood, *_new(parsed)]
    check_files(read)
    table = None if parsed.answer is None else parsed.answer[1]
    check_places([parsed.picture, parsed.out, table], read)
    for path, suffix, what in ((parsed.out, ".json", "--out"), (table, ".csv", "the table of --answer")):
        if path is not None and path.suffix.lower() != suffix and not path.is_char_device():
            raise ValueError(f"{path}: expected {suffix} for {what}, got {path.suffix!r}")
    check_pictures(filter(None, [parsed.picture]))
    check_extras({"matplotlib": "plot"} if parsed.picture else {})
    if parsed.risk is not None and not 0.0 < parsed.risk < 1.0:
        raise ValueError(f"--risk: expected a share in (0, 1), got {parsed.risk}")
    if parsed.level is not None and (parsed.risk is None or not 0.0 < parsed.level < 1.0):
        raise ValueError(f"--level: expected a probability in (0, 1) beside --risk, got {parsed.level}")
    if parsed.method is not None and table is None:
        raise ValueError(f"--method: expected --answer beside it, got {parsed.method!r} alone")
    names = [path.stem for path in parsed.ood]
    if len(set(names)) < len(names):
        raise ValueError(f"--ood: expected files of different names, got {' '.join(names)}")


def _new(parsed: argparse.Namespace) -> list[Path]:
    """The file of new inputs, if there is one."""
    return [] if parsed.answer is None else [parsed.answer[0]]


class _Network:
    """A network whose inputs are its saved outputs."""

    def __init__(self, known: Any) -> None:
        from torch import nn

        from cgp.networks.tasks import Classification

        self.known, classes = known, known.logits.shape[1]

        class Saved(nn.Module):
            def forward(self, saved: Any) -> Any:
                return saved[:, :classes]

        self.model = Saved()
        self.task = Classification(features=lambda _, saved: saved[:, classes:])

    def assessed(self, seen: Any, others: dict[str, Any], seed: int) -> Any:
        """The report of :func:`cgp.assess`, with training data and other inputs by name."""
        import torch

        from cgp.networks.assess.assess import assess

        def labelled(part: Any) -> Any:
            return None if part is None else [(self._inputs(part), torch.from_numpy(part.labels))]

        ood = {name: self._inputs(part) for name, part in others.items()}
        held = labelled(self.known)
        return assess(self.model, held, train=labelled(seen), ood=ood, task=self.task, seed=seed)

    def answered(self, report: Any, part: Any, method: str | None, *, with_risk: bool) -> tuple[Any, Any]:
        """The predictions of inputs by the report and as trained; a risk is about the network's own classes."""
        from cgp.networks.predict.predict import predict

        try:
            chosen = method or report.method
            if method is None and with_risk and report.choices[chosen].method.needs_train:
                chosen = "temperature"
            applied = report.apply(self.model, chosen)
        except ValueError as error:
            raise ValueError(f"--{error}") from error
        inputs = self._inputs(part)
        found, own = (predict(each, inputs) for each in (applied, report.apply(self.model, "as trained", ())))
        if with_risk and method is not None and bool((found.classes != own.classes).any()):
            raise ValueError(f"--method: expected one with the network's own classes beside --risk, got {method!r}")
        return found, own

    def _inputs(self, part: Any) -> Any:
        import numpy as np
        import torch

        with_features = self.known.features is not None
        return torch.from_numpy(np.hstack([part.logits, *([part.features] if with_features else [])]))


def _named(report: Any) -> list[str]:
    """The recommended detectors."""
    return list(dict.fromkeys(filter(None, report.detectors.values())))


def _in_flags(sentence: str) -> str:
    """A sentence of a report with flags in place of calls."""
    sentence = re.sub(r" \(calibrate with method=[^)]*\)", "", sentence)
    return re.sub(r"report\.apply\(model, ('[^']*')\)", r"--answer FILE TABLE --method \1", sentence)


def _advice(report: Any, limits: dict[str, str], logits: str, *, with_risk: bool) -> list[str]:
    """What to do, in numbers."""
    lines, temperature = [], report.choices[report.method].parameter
    if report.method == "temperature" and logits == AS_SAVED:
        lines.append(f"Divide the logits by {temperature:.4g}, fitted to all labels.")
    elif report.method == "temperature":
        which = logits.removeprefix("logarithms of the ")
        lines.append(f"Raise the {which} to the power {1 / temperature:.4g} and divide each row by its sum.")
    elif report.method != "as trained":
        own = "the network's own answers, as --risk is about these: others need labels that they were not fitted to"
        by_own = with_risk and report.choices[report.method].method.needs_train
        lines.append(f"--answer FILE TABLE answers new inputs by {own if by_own else f'the {report.method}'}.")
    for name, limit in limits.items():
        lines.append(f"Flag inputs whose {name} is above {limit}: {100 * RATE:.0f} % of the labelled ones are.")
        if report.fitted[name].parts:
            lines[-1] += " It is a sum in standard deviations."
        if report.fitted[name].parts or report.fitted[name].needs_train:
            lines[-1] += " --out FILE.json has its constants, and --answer FILE TABLE flags new inputs."
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


def _answering(report: Any, risk: float, level: float) -> Answering:
    """Where to answer; by the confidences as trained, since the labels have chosen nothing of them."""
    from cgp.networks.guarantees.conformal import risk_threshold

    confidence = report.confidences["as trained"]
    threshold = risk_threshold(confidence, report.correct["as trained"], risk, level)
    limit = 1.0 if threshold is None else max(0.0, float(_rounded_up(threshold, confidence)))
    return Answering(risk, level, limit, float((confidence > limit).mean()))


def _withheld(report: Any, answering: Answering) -> str:
    """Which answers to withhold, or why all."""
    from cgp.networks.guarantees.conformal import why_none

    risk, level, threshold, share = answering
    if threshold >= 1.0:
        why = why_none(report.correct["as trained"], risk, level)
        return f"{why[0].upper()}{why[1:]}."
    among = f"at most {100 * risk:.3g} % of them are wrong, with a confidence of {level:g}."
    if threshold <= 0.0:
        return f"Answer always: {among}"
    return f"Answer where {ANSWERED}, is above {threshold}, {100 * share:.0f} % of the inputs: {among}"
