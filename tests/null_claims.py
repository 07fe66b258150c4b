"""How often ``cgp.assess`` recommends something where there is nothing to recommend.

``python -m tests.null_claims --trials 200`` prints two tables of claims and trials, for docs/notes/reliability.md:

- detectors: "other" inputs are digits of the same kind as the validation data, drawn anew in each trial,
- methods: labels are drawn from the model's own probabilities, so that it is perfectly calibrated; logits that are
  normal numbers, and the digits model, with few and many labels,
- sure and wrong: logits that are .6 of what they should be, but for a share that is 30 for a wrong class. Most
  labels ask for a temperature that adds nats on the average of all.

``--power`` prints how often a temperature is recommended where one is needed, which the bounds cost.

The sentence of a report is what is judged, so that the command runs on other versions of the library as well.
"""

import argparse
import re
from collections.abc import Iterator

import torch
from torch import nn

from cgp import assess
from tests.cgp.networks.model.digits import digits, trained

DETECTOR = re.compile(r"use the \S")
METHOD = re.compile(r"\bUse (?!the model as it is)")


def detector_claims(trials: int, others: int) -> int:
    """Reports that recommend a detector, of nine, where both sets are digits that the model has not seen."""
    x, y = digits()
    train, claims = [(x[:100], y[:100])], 0
    for trial in range(trials):
        order = 800 + torch.randperm(997, generator=torch.Generator().manual_seed(trial))
        known, rest = order[:200], order[200 : 200 + others]
        ood = {"others": x[rest]}
        report = assess(trained(), [(x[known], y[known])], train=train, ood=ood, num_samples=4, seed=trial)
        claims += bool(DETECTOR.search(report.sentence))
    return claims


class Logits(nn.Module):
    """Logits that are the inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def temperature_claims(trials: int, labels: int, scale: float, classes: int) -> int:
    """Reports that recommend a temperature for normal logits, whose labels are drawn from their probabilities."""
    generator, claims = torch.Generator().manual_seed(0), 0
    for trial in range(trials):
        logits = scale * torch.randn(labels, classes, generator=generator)
        y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
        claims += bool(METHOD.search(assess(Logits(), [(logits, y)], seed=trial).sentence))
    return claims


def sure_and_wrong(
    labels: int, classes: int, scale: float, share: float, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that are too small by .6, apart from a share that is 30 for a wrong class, and labels."""
    logits = scale * torch.randn(labels, classes, generator=generator)
    y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    sure = (torch.rand(labels, generator=generator) < share)[:, None]
    return torch.where(sure, 30.0 * torch.eye(classes)[(y + 1) % classes], 0.6 * logits), y


def sure_claims(trials: int, labels: int, classes: int, scale: float, share: float) -> tuple[int, int]:
    """Reports that recommend a temperature there, and those that would by standard errors alone."""
    generator, claims, clear = torch.Generator().manual_seed(0), 0, 0
    for trial in range(trials):
        report = assess(Logits(), [sure_and_wrong(labels, classes, scale, share, generator)], seed=trial)
        claims += bool(METHOD.search(report.sentence))
        clear += report.has_enough_labels and report.is_clear("temperature", bounded=False)
    return claims, clear


def power(trials: int, labels: int, classes: int, temperature: float) -> tuple[int, int]:
    """Reports that recommend a temperature for logits that are too large or small by one, and by standard errors."""
    generator, claims, clear = torch.Generator().manual_seed(0), 0, 0
    for trial in range(trials):
        logits = 2.0 * torch.randn(labels, classes, generator=generator)
        y = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
        report = assess(Logits(), [(temperature * logits, y)], seed=trial)
        claims += bool(METHOD.search(report.sentence))
        clear += report.has_enough_labels and report.is_clear("temperature", bounded=False)
    return claims, clear


@torch.no_grad()
def posterior_claims(trials: int, labels: int) -> int:
    """Reports that recommend a temperature, a posterior or a read-out where labels are the digits model's own draws."""
    x, y = digits()
    train, claims = [(x[:100], y[:100])], 0
    for trial in range(trials):
        generator = torch.Generator().manual_seed(trial)
        known = x[800 + torch.randperm(997, generator=generator)[:labels]]
        drawn = torch.multinomial(trained()(known).softmax(-1), 1, generator=generator)[:, 0]
        report = assess(trained(), [(known, drawn)], train=train, num_samples=4, seed=trial)
        claims += bool(METHOD.search(report.sentence))
    return claims


def rows(trials: int) -> Iterator[tuple[str, int]]:
    """Each null hypothesis, with the number of reports that recommend something."""
    for classes, scale in ((2, 2.0), (2, 8.0), (10, 4.0)):
        for labels in (6, 25, 100):
            name = f"a temperature: {labels} labels, {classes} classes, logits N(0, {scale:g}²)"
            yield name, temperature_claims(trials, labels, scale, classes)
    yield "a detector: 100 other digits against 200", detector_claims(trials, 100)
    for labels in (25, 100):
        yield f"a method: {labels} labels drawn from the digits model", posterior_claims(trials, labels)


def bounded_rows(trials: int, *, needed: bool) -> Iterator[tuple[str, int, int]]:
    """Where bounds decide: the claims, and those by standard errors alone."""
    if needed:
        for temperature, sizes in ((2.0, (50, 80, 200)), (0.6, (200, 500, 1000, 2000))):
            for classes, labels in ((c, n) for c in (5, 10) for n in sizes):
                name = f"T = {temperature:g}: {labels} labels, {classes} classes"
                yield name, *power(trials, labels, classes, temperature)
        return
    for classes, scale, share in ((5, 4.0, 0.0135), (10, 3.0, 0.0235)):
        for labels in (30, 50, 100, 200):
            yield (
                f"sure and wrong: {labels} labels, {classes} classes",
                *sure_claims(trials, labels, classes, scale, share),
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--bounded", action="store_true", help="only the rows where bounds decide")
    given = parser.parse_args()
    trials = given.trials
    if given.power or given.bounded:
        print(f"| where | claims of {trials} | by standard errors alone |\n|---|--:|--:|")
        for name, claims, clear in bounded_rows(trials, needed=given.power):
            print(f"| {name} | {claims / trials:.1%} | {clear / trials:.1%} |", flush=True)
        return
    print(f"| recommended | claims of {trials} | share |\n|---|--:|--:|")
    for name, claims in rows(trials):
        print(f"| {name} | {claims} | {claims / trials:.1%} |", flush=True)


if __name__ == "__main__":
    main()
