"""The runs in Markdown: scores of the test sentences, and detection of sentences out of scope."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from cgp.networks.detect.detector import Detector
from cgp.networks.detect.scores import Mahalanobis
from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.tasks import metrics
from experiments.atomic_files import read_json
from experiments.evaluation import mean_probabilities, uncertainty
from experiments.evaluation.detection import detector_scores
from experiments.evaluation.paired import Scored, auroc_difference
from experiments.grids import markdown_table
from experiments.reports.scores import Statistic
from experiments.studies.encoder.network import OUT_OF_SCOPE
from experiments.studies.paired import cells

__all__ = ["table"]

Array = NDArray[Any]

_REFERENCE = "softmax-1 + temperature"
_BASELINES = {"MC dropout": "dropout", "last-layer Laplace": "laplace"}  # of softmax, and their arrays
_PARTS = ("train", "validation", "test", OUT_OF_SCOPE)
_NEIGHBOUR = 50
_MEASURES = ("accuracy %", "NLL", "ECE %")


def table(*, out: Path = Path("runs/encoder")) -> None:
    """Print the runs in Markdown: scores of the test sentences, and detection of sentences out of scope.

    Args:
        out: folder of the runs.
    """
    predicted: dict[str, dict[int, Scored]] = defaultdict(dict)
    detected: dict[tuple[str, str], dict[int, tuple[Array, Array]]] = defaultdict(dict)
    seconds: dict[str, list[float]] = defaultdict(list)
    for path in sorted(out.glob("*/seed-*/run.json")):
        name, seed, run = path.parts[-3], int(path.parent.name.split("-")[1]), read_json(path)
        seconds[name].append(sum(epoch["seconds"] for epoch in run["history"]))
        with np.load(path.with_name("predictions.npz")) as arrays:
            read = dict(arrays)
        for method, p in _methods(name, read).items():
            predicted[method][seed] = Scored.of(p, read["test.labels"])
        for score, pair in _detectors(read).items():
            detected[name, score][seed] = pair
    cost = {name: f"{np.mean(values) / np.mean(seconds['softmax-1']):.2f}" for name, values in seconds.items()}
    rows = [
        [method, len(of_seeds), *cells(_MEASURES, of_seeds, predicted[_REFERENCE]), cost.get(method, "")]
        for method, of_seeds in predicted.items()
    ]
    print(markdown_table(["method", "seeds", *_MEASURES, "Δ accuracy", "Δ NLL", "Δ ECE", "cost"], rows))
    rows = []
    for (name, score), pairs in detected.items():
        areas = Statistic.of([metrics.auroc(*pair) for pair in pairs.values()]).text(digits=4)
        rates = Statistic.of([metrics.fpr95(*pair) for pair in pairs.values()]).text(100, 1)
        gain = auroc_difference(pairs, detected.get(("softmax-1", score), {})) if name != "softmax-1" else ""
        rows.append([name, score, len(pairs), areas, rates, gain])
    print(markdown_table(["attention", "score", "seeds", "AUROC", "FPR95 %", "AUROC − softmax's"], rows), end="")


def _methods(name: str, arrays: dict[str, Array]) -> dict[str, Array]:
    """Probabilities of the test sentences by each method of a run."""
    probabilities = {}
    for method, kind in ({name: "logits"} | _BASELINES).items():
        if f"test.{kind}" in arrays:
            validation, test = arrays[f"validation.{kind}"], arrays[f"test.{kind}"]
            probabilities[method] = mean_probabilities(test)
            temperature = fit_temperature(validation, arrays["validation.labels"])
            probabilities[f"{method} + temperature"] = mean_probabilities(test / temperature)
    return probabilities


def _detectors(arrays: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Scores in and out of scope; larger means more likely out of scope."""
    temperature = fit_temperature(arrays["validation.logits"], arrays["validation.labels"])
    features = {part: arrays[f"{part}.features"].astype(np.float64) for part in _PARTS}
    unit = {part: values / np.linalg.norm(values, axis=1, keepdims=True) for part, values in features.items()}
    neighbours = NearestNeighbors(n_neighbors=_NEIGHBOUR).fit(unit["train"])
    mahalanobis = Mahalanobis.of_classes(features["train"], arrays["train.labels"])
    energy = {part: detector_scores("Energy", arrays[f"{part}.logits"]) for part in _PARTS[1:]}
    distance = {part: mahalanobis.distances(features[part]) for part in _PARTS[1:]}
    known = {"energy": energy["validation"], "Mahalanobis": distance["validation"]}
    summed = Detector("Mahalanobis + energy").knowing(known)

    def scores(part: str) -> dict[str, Array]:
        logits = arrays[f"{part}.logits"] / temperature
        values = {"1 - confidence": detector_scores("MaxSoftmax", logits), "energy": energy[part]}
        values["Mahalanobis"] = distance[part]
        values[summed.name] = summed.combined(values)
        values["50th neighbour"] = neighbours.kneighbors(unit[part])[0][:, -1]
        if len(logits) > 1:
            values["epistemic"] = uncertainty(logits).epistemic
        for name, kind in _BASELINES.items():
            if f"{part}.{kind}" in arrays:
                values[f"{name}, entropy"] = uncertainty(arrays[f"{part}.{kind}"]).total
        return values

    inside, outside = scores("test"), scores(OUT_OF_SCOPE)
    return {name: (inside[name], outside[name]) for name in inside}
