"""The table and the pictures of the comparison, from saved predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cgp.plotting import shift_curves
from experiments.evaluation import classification_report, detection_auroc, uncertainty
from experiments.reports.demo_tables import write_csv
from experiments.runs.prediction import Predictions, load_predictions
from experiments.runs.provenance import provenance
from experiments.storage import write_atomically, write_json, write_text

__all__ = ["write_report"]

_COLUMNS = {  # key: title, scale, digits, +1 where more is better
    "accuracy": ("Acc % ↑", 100, 1, 1),
    "nll": ("NLL ↓", 1, 3, -1),
    "ece": ("ECE % ↓", 100, 1, -1),
    "aurc": ("AURC ‰ ↓", 1000, 1, -1),
    "corrupted_accuracy": ("corrupted Acc % ↑", 100, 1, 1),
    "corrupted_nll": ("corrupted NLL ↓", 1, 3, -1),
    "corrupted_ece": ("corrupted ECE % ↓", 100, 1, -1),
    "corrupted_aurc": ("corrupted AURC ‰ ↓", 1000, 1, -1),
}
_FOLDER = "corrupted-"
_DRAWN = (  # more lines than this are a thicket
    "softmax, as trained",
    "temperature",
    "temperature, a fifth disturbed",
    "MC dropout",
    "GP in the second layer and temperature, a tenth disturbed",
    "GP in the second layer and temperature, a fifth disturbed",
)


def write_report(out: Path, rows: Mapping[str, Path], sets: Sequence[str]) -> None:
    """Write `conversion.md`, `conversion.csv`, `conversion-sets.csv` and a picture.

    Args:
        out: the folder to write.
        rows: folder of the predictions of each method; those that lack a set are left out.
        sets: names of the input sets.
    """
    complete = {name: folder for name, folder in rows.items() if all((folder / f"{s}.npz").exists() for s in sets)}
    if not complete:
        return
    scored = {name: _scores(folder, sets) for name, folder in complete.items()}
    table = [_row(name, scored[name], complete[name]) for name in complete]
    write_csv(out / "conversion.csv", table)
    write_csv(out / "conversion-sets.csv", [{"method": n} | row for n, found in scored.items() for row in found])
    write_text(out / "conversion.md", _markdown(table))
    write_json(out / "provenance.json", provenance())
    _picture(out, scored)


def _scores(folder: Path, sets: Sequence[str]) -> list[dict[str, Any]]:
    """One row an input set."""
    test = load_predictions(folder / "test.npz")
    familiar = uncertainty(test.logits)
    rows = []
    for name in sets:
        found = load_predictions(folder / f"{name}.npz")
        if found.labels is None:
            rows.append({"set": name} | _detection(familiar, found))
        else:
            report = classification_report(found.logits, found.labels)
            rows.append({"set": name} | {key: getattr(report, key) for key in ("accuracy", "nll", "ece", "aurc")})
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return [{key: row.get(key, "") for key in keys} for row in rows]


def _detection(familiar: Any, found: Predictions) -> dict[str, float]:
    strange = uncertainty(found.logits)
    epistemic = detection_auroc(familiar.epistemic, strange.epistemic) if len(found.logits) > 1 else float("nan")
    return {"auroc": detection_auroc(familiar.total, strange.total), "auroc_epistemic": epistemic}


def _row(name: str, scores: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """One row of the table: the test set, the mean over corruptions, each OOD set."""
    by_name = {row["set"]: row for row in scores}
    corrupted = [row for row in scores if row["set"].startswith(_FOLDER)]
    keys = ("accuracy", "nll", "ece", "aurc")
    means = {f"corrupted_{key}": float(np.mean([row[key] for row in corrupted])) for key in keys}
    strange = {row["set"].removeprefix("ood-"): row["auroc"] for row in scores if row["set"].startswith("ood-")}
    fit = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    return {
        "method": name,
        **{key: by_name["test"][key] for key in keys},
        **means,
        **{f"auroc_{key}": value for key, value in strange.items()},
        "fit_seconds": fit["seconds"],
    }


def _markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table, the best of each column in bold."""
    columns = dict(_COLUMNS)
    for key in table[0]:
        if key.startswith("auroc_"):
            columns[key] = (f"AUROC {key.removeprefix('auroc_')} % ↑", 100, 1, 1)
    titles = ["method", *(title for title, *_ in columns.values()), "fit, s"]
    lines = [f"| {' | '.join(titles)} |", f"| --- |{' ---: |' * (len(titles) - 1)}"]
    for row in table:
        cells = [_cell(row[key], [other[key] for other in table], *columns[key][1:]) for key in columns]
        lines.append(f"| {row['method']} | {' | '.join(cells)} | {row['fit_seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def _cell(value: float, values: Sequence[float], scale: float, digits: int, sign: int) -> str:
    text = f"{value * scale:.{digits}f}"
    best = max(values, key=lambda other: sign * other)
    return f"**{text}**" if text == f"{best * scale:.{digits}f}" else text


def _picture(out: Path, scored: Mapping[str, list[dict[str, Any]]]) -> None:
    """NLL against the severity of corruption."""
    severities = sorted({int(row["set"].rsplit("-", 1)[1]) for row in _corrupted(next(iter(scored.values())))})
    curves = {
        name: [_mean_at(rows, "nll", 0)] + [_mean_at(rows, "nll", severity) for severity in severities]
        for name, rows in scored.items()
        if name in _DRAWN
    }
    axes = shift_curves([0, *severities], curves, ylabel="NLL")
    axes.set_xlabel("Severity of corruption")
    write_atomically(out / "corruption.png", lambda aside: axes.figure.savefig(aside, dpi=200))


def _corrupted(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["set"].startswith(_FOLDER)]


def _mean_at(rows: Sequence[Mapping[str, Any]], key: str, severity: int) -> float:
    if severity == 0:
        return float(next(row[key] for row in rows if row["set"] == "test"))
    return float(np.mean([row[key] for row in _corrupted(rows) if row["set"].endswith(f"-{severity}")]))
