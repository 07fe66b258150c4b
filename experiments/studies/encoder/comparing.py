"""The rows side by side: scores of the test sentences, and what tells sentences out of scope."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.neighbors import NearestNeighbors

from cgp.assessment.detectors import Mahalanobis, standardised
from cgp.model import metrics
from experiments.evaluation import fit_temperature, mean_logits, mean_probabilities, uncertainty
from experiments.storage import read_json

__all__ = ["table"]

Array = NDArray[Any]

_REFERENCE = "softmax-1 + temperature"
_NEIGHBOUR = 50
_RESAMPLES = 200


class _Predicted(NamedTuple):
    """Test sentences of one method: its loss, whether it is right, its confidence, each `(N,)`."""

    loss: Array
    right: Array
    confidence: Array


class _Detected(NamedTuple):
    """One score: AUROC, FPR95, and the share of the others that each sentence out of scope or in scope beats."""

    auroc: float
    fpr95: float
    outside: Array
    inside: Array


def table(*, out: Path = Path("runs/encoder")) -> None:
    """Print both tables of the runs that are there, in Markdown.

    Args:
        out: folder of the runs.
    """
    predicted: dict[str, dict[int, _Predicted]] = defaultdict(dict)
    detected: dict[tuple[str, str], dict[int, _Detected]] = defaultdict(dict)
    seconds: dict[str, list[float]] = defaultdict(list)
    for path in sorted(out.glob("*/seed-*/run.json")):
        name, seed, run = path.parts[-3], int(path.parent.name.split("-")[1]), read_json(path)
        seconds[name].append(sum(epoch["cpu_seconds"] for epoch in run["history"]))
        with np.load(path.with_name("predictions.npz")) as arrays:
            found = dict(arrays)
        for method, probabilities in _methods(name, found).items():
            predicted[method][seed] = _examples(probabilities, found["test.labels"])
        for score, (inside, outside) in _detectors(found).items():
            detected[name, score][seed] = _detection(inside, outside)
    base = np.mean(seconds["softmax-1"])
    cost = {name: float(np.mean(values) / base) for name, values in seconds.items()}
    lines = [*_prediction_lines(predicted, cost), "", *_detection_lines(detected)]
    sys.stdout.write("\n".join(lines) + "\n")


def _methods(name: str, found: dict[str, Array]) -> dict[str, Array]:
    """Probabilities of the test sentences by each method that a run gives."""
    kinds = {name: "logits", "MC dropout": "dropout", "last-layer Laplace": "laplace"}
    probabilities = {}
    for method, kind in kinds.items():
        if f"test.{kind}" in found:
            validation, test = found[f"val.{kind}"], found[f"test.{kind}"]
            probabilities[method] = mean_probabilities(test)
            temperature = fit_temperature(validation, found["val.labels"])
            probabilities[f"{method} + temperature"] = mean_probabilities(test / temperature)
    return probabilities


def _detectors(found: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Scores in and out of scope that are large where sentences are foreign."""
    temperature = fit_temperature(found["val.logits"], found["val.labels"])
    norms = {part: found[f"{part}.features"].astype(np.float64) for part in ("train", "val", "test", "oos_test")}
    unit = {part: values / np.linalg.norm(values, axis=1, keepdims=True) for part, values in norms.items()}
    distance = Mahalanobis(norms["train"], found["train.labels"])
    neighbours = NearestNeighbors(n_neighbors=_NEIGHBOUR).fit(unit["train"])
    energy: Callable[[str], Array] = lambda part: -logsumexp(mean_logits(found[f"{part}.logits"]), axis=-1)  # noqa: E731
    scales = standardised(energy("val")), standardised(distance(norms["val"]))
    scores: dict[str, Callable[[str], Array]] = {
        "1 - confidence": lambda part: 1 - mean_probabilities(found[f"{part}.logits"] / temperature).max(-1),
        "energy": energy,
        "Mahalanobis": lambda part: distance(norms[part]),
        "Mahalanobis + energy": lambda part: scales[0](energy(part)) + scales[1](distance(norms[part])),
        "50th neighbour": lambda part: neighbours.kneighbors(unit[part])[0][:, -1],
    }
    if len(found["test.logits"]) > 1:
        scores["epistemic"] = lambda part: uncertainty(found[f"{part}.logits"] / temperature).epistemic
    for name, kind in (("MC dropout", "dropout"), ("last-layer Laplace", "laplace")):
        if f"test.{kind}" in found:
            scores[f"{name}, entropy"] = lambda part, kind=kind: uncertainty(found[f"{part}.{kind}"]).total
    return {name: (score("test"), score("oos_test")) for name, score in scores.items()}


def _examples(probabilities: Array, labels: Array) -> _Predicted:
    right = probabilities.argmax(-1) == labels
    return _Predicted(metrics.log_losses(probabilities, labels), right, probabilities.max(-1))


def _detection(inside: Array, outside: Array) -> _Detected:
    beaten = _placements(outside, inside)
    return _Detected(
        metrics.auroc(inside, outside), metrics.fpr95(inside, outside), beaten, 1 - _placements(inside, outside)
    )


def _placements(scores: Array, others: Array) -> Array:
    """Share of the others that each score exceeds; ties count one half."""
    others = np.sort(others)
    return (np.searchsorted(others, scores, "left") + np.searchsorted(others, scores, "right")) / (2 * len(others))


def _prediction_lines(predicted: dict[str, dict[int, _Predicted]], cost: dict[str, float]) -> list[str]:
    columns = ("method", "seeds", "accuracy %", "NLL", "ECE %", "Δ accuracy", "Δ NLL", "Δ ECE", "cost")
    lines = [f"| {' | '.join(columns)} |", f"|---|{'--:|' * (len(columns) - 1)}"]
    for method, runs in predicted.items():
        errors = [100 * metrics.calibration_error(run.confidence, run.right) for run in runs.values()]
        cells = [
            method,
            str(len(runs)),
            _spread([100 * float(run.right.mean()) for run in runs.values()], 1),
            _spread([float(run.loss.mean()) for run in runs.values()], 3),
            _spread(errors, 1),
            *([""] * 3 if method == _REFERENCE else _differences(runs, predicted[_REFERENCE])),
            f"{cost[method]:.2f}" if method in cost else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _differences(runs: dict[int, _Predicted], reference: dict[int, _Predicted]) -> list[str]:
    """Paired differences in accuracy, NLL and calibration error, over the seeds that both have."""
    pairs = [(runs[seed], reference[seed]) for seed in sorted(set(runs) & set(reference))]
    return [
        _paired([100.0 * a.right - 100.0 * b.right for a, b in pairs], 2),
        _paired([a.loss - b.loss for a, b in pairs], 4),
        _calibration_difference(pairs),
    ]


def _detection_lines(detected: dict[tuple[str, str], dict[int, _Detected]]) -> list[str]:
    lines = ["| attention | score | seeds | AUROC | FPR95 % | AUROC − softmax's |", "|---|---|--:|--:|--:|--:|"]
    for (name, score), runs in detected.items():
        reference = detected.get(("softmax-1", score), {})
        seeds = sorted(set(runs) & set(reference))
        pairs = [(runs[seed], reference[seed]) for seed in seeds]
        change = ""
        if pairs and name != "softmax-1":
            parts = [np.mean([a[side] - b[side] for a, b in pairs], axis=0) for side in (2, 3)]
            over_examples = np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))
            change = _difference([a.auroc - b.auroc for a, b in pairs], float(over_examples), 4)
        aurocs, rates = [run.auroc for run in runs.values()], [100 * run.fpr95 for run in runs.values()]
        lines.append(f"| {name} | {score} | {len(runs)} | {_spread(aurocs, 4)} | {_spread(rates, 1)} | {change} |")
    return lines


def _paired(differences: list[Array], digits: int) -> str:
    """Mean difference and the larger of its standard errors, over examples and over seeds."""
    over_examples = np.mean(differences, axis=0).std(ddof=1) / np.sqrt(len(differences[0]))
    return _difference([float(d.mean()) for d in differences], float(over_examples), digits)


def _calibration_difference(pairs: list[tuple[_Predicted, _Predicted]]) -> str:
    """The like of the calibration error, by resampling the sentences."""

    def differences(rows: Array) -> list[float]:
        errors = [[metrics.calibration_error(run.confidence[rows], run.right[rows]) for run in pair] for pair in pairs]
        return [100 * (mine - other) for mine, other in errors]

    count, generator = len(pairs[0][0].right), np.random.default_rng(0)
    resampled = [np.mean(differences(generator.integers(count, size=count))) for _ in range(_RESAMPLES)]
    return _difference(differences(np.arange(count)), float(np.std(resampled, ddof=1)), 2)


def _difference(by_seed: list[float], over_examples: float, digits: int) -> str:
    over_seeds = np.std(by_seed, ddof=1) / np.sqrt(len(by_seed)) if len(by_seed) > 1 else 0.0
    return f"{np.mean(by_seed):+.{digits}f} ± {max(over_examples, float(over_seeds)):.{digits}f}"


def _spread(values: list[float], digits: int) -> str:
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"
