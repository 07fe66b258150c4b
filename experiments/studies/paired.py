"""Rows of a sweep against softmax with a temperature, input by input: tables of docs/notes/where-it-pays-measured.md.

Every row with and without a temperature, which is fitted to its own validation predictions.
`python -m experiments.studies.paired RUNS/cola --sets '[test, out-of-domain]' --measures '["MCC %", NLL, "ECE %"]'`
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.tasks.metrics import auroc
from experiments.evaluation import mean_probabilities, uncertainty
from experiments.evaluation.metrics import Array
from experiments.evaluation.paired import MEASURES, Scored, auroc_difference, difference
from experiments.grids import markdown_table
from experiments.reports.scores import BASELINE, Statistic
from experiments.runs import Run, find_runs
from experiments.runs.parsing import run_functions

__all__ = ["cells", "table"]


_SCALED = "temperature"  # such rows are skipped: every row gets a temperature here


def table(runs: Path, *, sets: list[str] | None = None, measures: list[str] | None = None) -> None:
    """Print the tables in Markdown: one per group of input sets, one per OOD set.

    Args:
        runs: folder of the runs of one setting.
        sets: input sets with labels; "corrupted" is the mean over all corrupted sets.
        measures: metrics, among accuracy %, MCC %, NLL, ECE %, AURC ‰.
    """
    names, by_method = measures or ["accuracy %", "NLL", "ECE %"], _by_method(runs)
    if unknown := set(names) - set(MEASURES):
        raise ValueError(f"measures: expected some of {', '.join(MEASURES)}, got {', '.join(sorted(unknown))}")
    labels = {method: next(iter(of_seeds.values())).label for method, of_seeds in by_method.items()}
    temperatures = {run.folder: _temperature(run) for of_seeds in by_method.values() for run in of_seeds.values()}
    for group in sets or ["test"]:
        scored = {method: _scored(of_seeds, group, temperatures) for method, of_seeds in by_method.items()}
        _, reference = scored[BASELINE]
        rows = [
            [f"{labels[method]}{end}", len(by_seed), *cells(names, by_seed, reference)]
            for method, pair in scored.items()
            for end, by_seed in zip(("", " + temperature"), pair, strict=True)
        ]
        _print(group, ["method", "seeds", *names, *(f"Δ {name}" for name in names)], rows)
    predicted = {name for run in by_method[BASELINE].values() for name in run.predicted}
    for name in sorted(name for name in predicted if name.startswith("ood-")):
        _detection(by_method, labels, name)


def cells(measures: Sequence[str], runs: Mapping[int, Scored], reference: Mapping[int, Scored]) -> list[str]:
    """The measures over the seeds, and their differences from the reference (empty for the reference)."""
    chosen = [MEASURES[name] for name in measures]
    levels = [
        Statistic.of([measure(scored) for scored in runs.values()]).text(digits=measure.digits) for measure in chosen
    ]
    return levels + ["" if runs is reference else difference(measure, runs, reference) for measure in chosen]


def _by_method(folder: Path) -> dict[str, dict[int, Run]]:
    """The trained runs of each method by seed, the baseline first."""
    by_method: dict[str, dict[int, Run]] = defaultdict(dict, {BASELINE: {}})
    for run in find_runs([folder]):
        if not run.method.startswith(_SCALED):
            by_method[run.method][run.seed] = run
    if not by_method[BASELINE]:
        raise ValueError(f"runs: expected runs of {BASELINE} among them, got {', '.join(by_method)} in {folder}")
    return by_method


def _scored(
    runs: Mapping[int, Run], group: str, temperatures: Mapping[Path, float]
) -> tuple[dict[int, Scored], dict[int, Scored]]:
    """Scores of each seed as trained, and with its temperature; several sets are concatenated."""
    plain: dict[int, Scored] = {}
    cooled: dict[int, Scored] = {}
    for seed, run in runs.items():
        names = [name for name in run.predicted if name == group or name.startswith(f"{group}-")]
        if not names:
            raise ValueError(f"sets: expected input sets that are predicted, got {group!r} for {run.folder}")
        parts = [run.predictions(name) for name in names]
        for scored, t in ((plain, 1.0), (cooled, temperatures[run.folder])):
            scored[seed] = Scored.of(np.stack([mean_probabilities(part.logits / t) for part in parts]), _labels(parts))
    return plain, cooled


def _labels(parts: list[Any]) -> Array:
    if any(not np.array_equal(part.ids, parts[0].ids) for part in parts):
        raise ValueError("sets: expected the same inputs in every set of a group, got others")
    return np.stack([part.labels for part in parts])


def _temperature(run: Run) -> float:
    validation = run.predictions("validation")
    return fit_temperature(validation.logits, validation.labels)


def _detection(by_method: Mapping[str, Mapping[int, Run]], labels: Mapping[str, str], name: str) -> None:
    """AUROC of detecting the inputs of a set among the test inputs, by parts of the predictive uncertainty."""
    scores: dict[tuple[str, str], dict[int, tuple[Array, Array]]] = defaultdict(dict)
    for method, runs in by_method.items():
        for seed, run in runs.items():
            logits = [run.predictions(part).logits for part in ("test", name)]
            inside, outside = map(uncertainty, logits)
            scores[method, "total"][seed] = inside.total, outside.total
            if len(logits[0]) > 1:
                scores[method, "epistemic"][seed] = inside.epistemic, outside.epistemic
    rows = []
    for (method, part), pairs in scores.items():
        area = Statistic.of([auroc(*pair) for pair in pairs.values()]).text(digits=3)
        gain = auroc_difference(pairs, scores[BASELINE, "total"]) if (method, part) != (BASELINE, "total") else ""
        rows.append([labels[method], part, len(pairs), area, gain])
    _print(name, ["method", "uncertainty", "seeds", "AUROC", "AUROC − softmax's"], rows)


def _print(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n{markdown_table(header, rows)}", end="")


if __name__ == "__main__":
    run_functions(table, "studies.paired", as_positional=True)
