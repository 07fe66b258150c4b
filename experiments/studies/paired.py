"""Rows of a sweep against softmax with a temperature, input by input: the tables of docs/results/where-it-pays.md.

Every row with and without a temperature, which is fitted to its own validation predictions.
`python -m experiments.studies.paired RUNS/cola --sets test out-of-domain --measures "MCC %" NLL "ECE %"`
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgp.model.metrics import auroc
from experiments.evaluation import fit_temperature, mean_probabilities, uncertainty
from experiments.evaluation.paired import MEASURES, Scored, auroc_difference, difference
from experiments.reports.scores import BASELINE, Statistic
from experiments.runs import Run, find_runs

__all__ = ["table"]

Array = NDArray[Any]

_DERIVED = ("temperature", "temperature_")


def table(runs: Path, *, sets: list[str] | None = None, measures: list[str] | None = None) -> None:
    """Print the tables in Markdown: one for each group of input sets, one for each set out of distribution.

    Args:
        runs: folder of the runs of one setting.
        sets: input sets with labels; "corrupted" stands for all that are, over whose kinds and severities is averaged.
        measures: metrics, of accuracy %, MCC %, NLL, ECE %, AURC ‰.
    """
    names, found = measures or ["accuracy %", "NLL", "ECE %"], _by_method(runs)
    if unknown := set(names) - set(MEASURES):
        raise ValueError(f"measures: expected some of {', '.join(MEASURES)}, got {', '.join(sorted(unknown))}")
    chosen = {name: MEASURES[name] for name in names}
    reference = found[BASELINE]
    for group in sets or ["test"]:
        scored = {method: _scored(of_seeds, group) for method, of_seeds in found.items()}
        best = {seed: cooled for seed, (_, cooled) in scored[BASELINE].items()}
        print(f"\n{group}\n\n| method | seeds | {' | '.join([*chosen, *(f'Δ {name}' for name in chosen)])} |")
        print("|---|" + "--:|" * (1 + 2 * len(chosen)))
        for method, of_seeds in scored.items():
            label = next(iter(found[method].values())).label
            for end, cooled in (("", 0), (" + temperature", 1)):
                own = {seed: pair[cooled] for seed, pair in of_seeds.items()}
                levels = [Statistic.of(list(map(one, own.values()))).text(digits=one.digits) for one in chosen.values()]
                against = [difference(one, own, best) for one in chosen.values()]
                against = [""] * len(chosen) if (method, cooled) == (BASELINE, 1) else against
                print(f"| {label}{end} | {len(own)} | {' | '.join([*levels, *against])} |")
    for name in sorted({name for run in reference.values() for name in run.predicted if name.startswith("ood-")}):
        _detection(found, name)


def _by_method(folder: Path) -> dict[str, dict[int, Run]]:
    """The trained runs of each method by seed, the baseline first."""
    found: dict[str, dict[int, Run]] = defaultdict(dict, {BASELINE: {}})
    for run in find_runs([folder]):
        if not run.method.startswith(_DERIVED):
            found[run.method][run.seed] = run
    if not found[BASELINE]:
        raise ValueError(f"runs: expected runs of {BASELINE} among them, got {', '.join(found)} in {folder}")
    return found


def _scored(runs: dict[int, Run], group: str) -> dict[int, tuple[Scored, Scored]]:
    """Scores of each seed as trained and with a temperature; of several sets one after the other."""
    scored = {}
    for seed, run in runs.items():
        names = [name for name in run.predicted if name == group or name.startswith(f"{group}-")]
        if not names:
            raise ValueError(f"sets: expected input sets that are predicted, got {group!r} for {run.folder}")
        parts = [run.predictions(name) for name in names]
        plain, cooled = (
            Scored.of(np.stack([mean_probabilities(part.logits / t) for part in parts]), _labels(parts))
            for t in (1.0, _temperature(run))
        )
        scored[seed] = plain, cooled
    return scored


def _labels(parts: list[Any]) -> Array:
    if any(not np.array_equal(part.ids, parts[0].ids) for part in parts):
        raise ValueError("sets: expected the same inputs in every set of a group, got others")
    return np.stack([part.labels for part in parts])


def _temperature(run: Run) -> float:
    validation = run.predictions("validation")
    return fit_temperature(validation.logits, validation.labels)


def _detection(found: dict[str, dict[int, Run]], name: str) -> None:
    """AUROC of the inputs of a set among the test inputs, by parts of the predictive uncertainty."""
    scores: dict[tuple[str, str], dict[int, tuple[Array, Array]]] = defaultdict(dict)
    for method, runs in found.items():
        for seed, run in runs.items():
            inside, outside = (uncertainty(run.predictions(part).logits) for part in ("test", name))
            scores[method, "total"][seed] = inside.total, outside.total
            if len(run.predictions("test").logits) > 1:
                scores[method, "epistemic"][seed] = inside.epistemic, outside.epistemic
    print(f"\n{name}\n\n| method | uncertainty | seeds | AUROC | AUROC − softmax's |\n|---|---|--:|--:|--:|")
    for (method, part), pairs in scores.items():
        label = next(iter(found[method].values())).label
        area = Statistic.of([auroc(*pair) for pair in pairs.values()]).text(digits=3)
        gain = auroc_difference(pairs, scores[BASELINE, "total"]) if (method, part) != (BASELINE, "total") else ""
        print(f"| {label} | {part} | {len(pairs)} | {area} | {gain} |")


if __name__ == "__main__":
    from jsonargparse import auto_cli

    auto_cli(table, as_positional=True, prog="python -m experiments.studies.paired")
