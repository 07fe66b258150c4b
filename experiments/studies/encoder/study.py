"""Fine-tune the upper layers and predict; assess a run; and the runs in Markdown."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

import cgp
from cgp.networks.detect.detector import DETECTORS, Detector
from cgp.networks.detect.scores import Mahalanobis
from cgp.networks.methods import Posterior
from cgp.networks.methods.temperature_scaling import fit_temperature
from cgp.networks.model.diagnostics import pooled_features
from cgp.networks.model.objective import CategoricalLikelihood, Objective
from cgp.networks.tasks import metrics
from cgp.weights import load_weights, save_weights
from experiments.atomic_files import read_json, write_atomically, write_json
from experiments.configuration import MethodConfig, TrainerConfig, TrainingConfig
from experiments.data import Batches, DataSplits, Examples, batch
from experiments.evaluation import mean_probabilities, uncertainty
from experiments.evaluation.detection import detector_scores
from experiments.evaluation.metrics import Array
from experiments.evaluation.paired import Scored, auroc_difference
from experiments.grids import markdown_table
from experiments.methods import last_layer_laplace, mc_dropout_logits
from experiments.reports.scores import Statistic
from experiments.runs.predicting import drawn_logits
from experiments.studies.encoder.network import DEPTH, OUT_OF_SCOPE, Upper, host, new_parameters, sentences, upper
from experiments.studies.paired import cells
from experiments.training import ClassificationModule, FitSummary
from experiments.training import fit as train

__all__ = ["assess", "fit", "table"]


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


_BATCH, _PREDICTED_BATCH = 32, 64
_TRAINING_DRAWS, _DRAWS = 2, 10


def fit(
    *,
    row: str,
    data: Path,
    out: Path = Path("runs/encoder"),
    seed: int = 0,
    replaced: int = 1,
    trained_layers: int = 1,
    epochs: int = 3,
    learning_rate: float = 5e-4,
) -> Path:
    """Fine-tune the upper layers and predict; existing results are reused.

    Args:
        row: softmax, kernel, sgpa, kep_svgp, sparse_cgp or cgp_softmax.
        data: folder with clinc150/.
        out: folder to write.
        seed: seed of initial weights, order and draws.
        replaced: number of last layers with the row's attention.
        trained_layers: number of last layers that are trained.
        epochs: number of passes over the training sentences.
        learning_rate: largest learning rate of the host's parameters.

    Returns:
        The folder of the run.
    """
    folder = out / f"{row}-{replaced}" / f"seed-{seed}"
    options = {"trained_layers": trained_layers, "epochs": epochs, "learning_rate": learning_rate}
    if (folder / "run.json").exists():
        return folder
    splits = sentences(data, out, DEPTH - trained_layers)
    torch.manual_seed(seed)
    model = _network(row, replaced, trained_layers, splits)
    summary = _train(model, splits, folder, seed=seed, epochs=epochs, learning_rate=learning_rate)
    write_atomically(folder / "weights.safetensors", lambda aside: save_weights(model, aside))
    _predict(model.eval(), splits, folder, baselines=row == "softmax")
    run = {"row": row, "replaced": replaced, "seed": seed, **options, **summary._asdict()}
    write_json(folder / "run.json", run)
    return folder


def _network(row: str, replaced: int, layers: int, splits: DataSplits) -> Upper:
    count = len(splits.train)
    sample, _ = batch(splits.train, torch.arange(0, count, max(1, count // _BATCH)))
    assert isinstance(sample, Mapping), "sentences have tokens and padding"
    return upper(host(), row, replaced, layers, sample, splits.description.num_classes)


def _train(
    model: Upper, splits: DataSplits, folder: Path, *, seed: int, epochs: int, learning_rate: float
) -> FitSummary:
    """Train, and keep the weights of the epoch with the smallest validation NLL."""
    budget = TrainingConfig(
        epochs=epochs, batch_size=_BATCH, warmup_epochs=0.1 * epochs, gradient_clip=1.0, validation_draws=_DRAWS
    )
    likelihood = CategoricalLikelihood(splits.description.num_classes)
    module = ClassificationModule(
        model=model,
        objective=Objective(model, likelihood, len(splits.train), num_samples=_TRAINING_DRAWS),
        method=MethodConfig(label=folder.parent.name, learning_rate=learning_rate, weight_decay=0.01),
        training=budget,
        new=new_parameters(model),
    )
    trainer = TrainerConfig(accelerator="cpu")
    return train(module, splits, training=budget, seed=seed, folder=folder / "checkpoints", trainer=trainer)


def _predict(model: Upper, splits: DataSplits, folder: Path, *, baselines: bool) -> None:
    """Write logits `(S, N, C)` and the head's inputs `(N, d)` of every part; for softmax also the baselines' logits."""
    parts = {"validation": splits.validation, "test": splits.test, OUT_OF_SCOPE: splits.others[OUT_OF_SCOPE]}
    arrays: dict[str, Any] = {}
    for name, part in {"train": splits.train, **parts}.items():
        arrays[f"{name}.features"], arrays[f"{name}.labels"] = _features(model, part), part.known_labels
    for name, part in parts.items():
        batches = Batches(part, _PREDICTED_BATCH)
        arrays[f"{name}.logits"] = batches.in_order(drawn_logits(model, batches, num_samples=_DRAWS, seed=0))
        if baselines:
            arrays[f"{name}.dropout"] = batches.in_order(mc_dropout_logits(model, batches, _DRAWS))
    if baselines:
        arrays |= _laplace(model, arrays, list(parts))
    arrays = {name: values.numpy() for name, values in arrays.items()}
    write_atomically(folder / "predictions.npz", lambda aside: np.savez(aside, **arrays))


@torch.no_grad()
def _features(model: Upper, part: Examples) -> Tensor:
    """Inputs of the head, `(N, d)`."""
    batches = Batches(part, _PREDICTED_BATCH)
    return torch.cat([pooled_features(model, inputs) for inputs in batches])[batches.order.argsort()]


def _laplace(model: Upper, arrays: Mapping[str, Tensor], parts: list[str]) -> dict[str, Tensor]:
    """Logits by draws of the head; its prior precision is chosen on every fourth validation sentence."""
    some = [arrays["validation.features"][::4]], arrays["validation.labels"][::4]
    batches = list(arrays["train.features"].split(1000))
    posterior = last_layer_laplace(model.head, batches, arrays["train.labels"], validation=some)
    generators = (torch.Generator().manual_seed(0) for _ in parts)  # the same heads for every part
    return {
        f"{name}.laplace": posterior.draw_logits([arrays[f"{name}.features"]], _DRAWS, generator)
        for name, generator in zip(parts, generators, strict=True)
    }


def assess(
    *, data: Path, out: Path = Path("runs/encoder"), run: str = "softmax-1/seed-0", posterior: str = "last"
) -> None:
    """Compare the uncertainties of a run on the test sentences and out of scope, by `cgp.assess`.

    Args:
        data: folder with clinc150/.
        out: folder of the runs.
        run: name of the run.
        posterior: layers with a posterior: "last", or "all" trained layers.
    """
    options = read_json(out / run / "run.json")
    splits = sentences(data, out, DEPTH - options["trained_layers"])
    model = _network(options["row"], options["replaced"], options["trained_layers"], splits)
    load_weights(model, out / run / "weights.safetensors")
    known = [Batches(part, _PREDICTED_BATCH) for part in (splits.train, splits.test)]
    train_part, test = (list(zip(part, part.labels.split(_PREDICTED_BATCH), strict=True)) for part in known)
    # An iterator, because a list of dicts would be read as a list of examples.
    foreign = {"out of scope": iter(Batches(splits.others[OUT_OF_SCOPE], _PREDICTED_BATCH))}
    detectors = ("entropy", "energy", "widest posterior's entropy", "epistemic", *DETECTORS[3:])
    compare: list[Any] = [Posterior(layers=posterior), "readout", *detectors]
    print(cgp.assess(model.eval(), test, train=train_part, ood=foreign, compare=compare))
