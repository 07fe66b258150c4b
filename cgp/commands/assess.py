"""``cgp assess``: saved predictions of a classifier in, which of its uncertainties to use out."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

from .terminal import check_extras, check_files, check_pictures, check_places, write_picture

__all__ = ["EXAMPLES", "add_to", "run"]

EXAMPLES = """  cgp assess held_out.npz --picture report.png
  cgp assess held_out.npz --train train.npz --ood other.npz --risk 0.05
"""

_WHAT = """Say how far the probabilities of a classifier can be trusted, from saved predictions:

  np.savez("held_out.npz", logits=logits, labels=labels, features=features)

with logits (N, C), labels (N,) and, for scores of the representation, features (N, d), what the last layer reads.
Draws or members (S, N, C) are averaged. Posteriors of attention need the model itself: cgp.assess in Python."""


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
    assess.add_argument("--seed", type=int, default=0, help="of the folds (0)")


def run(parsed: argparse.Namespace) -> None:
    """Assess the predictions of a parsed command line."""
    _check(parsed)
    from .predictions import check_alike, read_predictions

    known = read_predictions(parsed.predictions)
    others = {path: read_predictions(path, labelled=False) for path in parsed.ood}
    seen = None if parsed.train is None else read_predictions(parsed.train)
    if seen is not None and known.features is None:
        raise ValueError(f"{parsed.predictions}: expected features (N, d), as --train compares them, got none")
    for path, part in {**others, **({} if seen is None else {parsed.train: seen})}.items():
        check_alike(path, part, known)
    report = _assessed(known, seen, {path.stem: part for path, part in others.items()}, parsed.seed)
    advice = [report.sentence, *_advice(report), *([] if parsed.risk is None else [_withheld(report, parsed.risk)])]
    sys.stdout.write("\n\n".join([report.table(), *(textwrap.fill(part, 100) for part in advice)]) + "\n")
    write_picture(report.plot, parsed.picture)


def _check(parsed: argparse.Namespace) -> None:
    """Refuse what cannot come to anything, before anything heavy is imported."""
    check_files([parsed.predictions, *filter(None, [parsed.train]), *parsed.ood])
    check_places([parsed.picture])
    check_pictures(filter(None, [parsed.picture]))
    check_extras({"matplotlib": "plot"} if parsed.picture else {})
    if parsed.risk is not None and not 0.0 < parsed.risk < 1.0:
        raise ValueError(f"--risk: expected a share in (0, 1), got {parsed.risk}")
    names = [path.stem for path in parsed.ood]
    if len(set(names)) < len(names):
        raise ValueError(f"--ood: expected files of different names, got {' '.join(names)}")


def _assessed(known: Any, seen: Any, others: dict[str, Any], seed: int) -> Any:
    """The report of :func:`cgp.assess` on a model whose inputs are its saved outputs."""
    import numpy as np
    import torch
    from torch import nn

    from cgp.networks.assess.assess import assess
    from cgp.networks.tasks import Classification

    classes = known.logits.shape[1]

    class Saved(nn.Module):
        def forward(self, saved: torch.Tensor) -> torch.Tensor:
            return saved[:, :classes]

    def inputs(part: Any) -> torch.Tensor:
        with_features = known.features is not None
        return torch.from_numpy(np.hstack([part.logits, *([part.features] if with_features else [])]))

    def labelled(part: Any) -> Any:
        return None if part is None else [(inputs(part), torch.from_numpy(part.labels))]

    return assess(
        Saved(),
        labelled(known),
        train=labelled(seen),
        ood={name: inputs(part) for name, part in others.items()},
        task=Classification(features=lambda _, saved: saved[:, classes:]),
        seed=seed,
    )


def _advice(report: Any) -> list[str]:
    """What to do, in numbers."""
    lines, temperature = [], report.choices[report.method].parameter
    if report.method == "temperature":
        lines.append(f"Divide the logits by {temperature:.4g}, fitted to all labels.")
    elif report.method != "as trained":
        lines.append("The read-out is made in Python: cgp.assess(model, held_out, train=train).apply(model).")
    for name in dict.fromkeys(filter(None, report.detectors.values())):
        limit = report.fitted[name].threshold(0.05)
        above = _rounded_up(limit, report.fitted[name].known)
        lines.append(f"Flag inputs whose {name} is above {above}: 5 % of the labelled ones are.")
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


def _withheld(report: Any, risk: float) -> str:
    """Which answers to withhold; the confidences as trained, since the labels have chosen nothing of them."""
    from cgp.networks.guarantees.conformal import labels_needed, risk_threshold

    level, confidence = 0.95, report.confidences["as trained"]
    threshold = risk_threshold(confidence, report.correct["as trained"], risk, level)
    if threshold is None:
        return (
            f"No share of the answers keeps to a risk of {risk:g} with a confidence of {level:g} "
            f"(at least {labels_needed(risk, level)} labels are needed; there are {len(confidence)})."
        )
    among = f"at most {100 * risk:.3g} % of them are wrong, with a confidence of {level:g}."
    if threshold < 0:
        return f"Answer always: {among}"
    kept = 100 * (confidence > threshold).mean()
    where = f"the largest probability, as trained, is above {_rounded_up(threshold, confidence)}"
    return f"Answer where {where}, {kept:.0f} % of the inputs: {among}"
