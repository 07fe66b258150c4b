"""Training of one row with one seed, and everything that it predicts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from cgp.assessment.detectors import pooled_features
from cgp.model.blocks import draws, eval_mode, sampling, seeded
from cgp.model.likelihoods import CategoricalLikelihood
from cgp.model.objective import Objective
from experiments.evaluation import mean_log_probabilities, mean_probabilities, negative_log_likelihood
from experiments.methods import last_layer_laplace, mc_dropout_logits
from experiments.storage import read_json, write_atomically, write_json
from experiments.studies.encoder.network import Upper, own_parameters, upper
from experiments.studies.encoder.states import States, host, states

__all__ = ["NUM_INTENTS", "fit", "trained"]

NUM_INTENTS = 150
_DEPTH = 6  # layers of the host
_DROPOUT = 0.1
_BATCH = 32
_BATCHES_OF_LIKE_LENGTH = 50
_OWN_RATE = 10  # how much faster parameters learn that the host does not have
_TRAINING_DRAWS = 2
_DRAWS = 10


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
    """Fine-tune the upper layers and predict; what is there already is not done again.

    Args:
        row: softmax, kernel, sgpa, kep_svgp, sparse_cgp or cgp_softmax.
        data: folder that holds clinc150/.
        out: folder to write.
        seed: of start, order and draws.
        replaced: how many of the last layers have the row's attention.
        trained_layers: how many of the last layers are trained.
        epochs: passes over the training sentences.
        learning_rate: largest one of the parameters that the host has.

    Returns:
        The folder of the run.
    """
    folder = out / f"{row}-{replaced}" / f"seed-{seed}"
    options = {"trained_layers": trained_layers, "epochs": epochs, "learning_rate": learning_rate}
    if (folder / "run.json").exists():
        return folder
    parts = states(data, out, _DEPTH - trained_layers)
    torch.manual_seed(seed)
    model = _network(row, replaced, trained_layers, parts)
    history = _train(model, parts, folder, epochs=epochs, learning_rate=learning_rate)
    load_model(model, str(folder / "weights.safetensors"))
    _predict(model.eval(), parts, folder, baselines=row == "softmax")
    write_json(folder / "run.json", {"row": row, "replaced": replaced, "seed": seed, **options, "history": history})
    return folder


def trained(out: Path, run: str, data: Path) -> tuple[Upper, dict[str, States]]:
    """The network of a finished run in eval mode, and the states that it reads."""
    options = read_json(out / run / "run.json")
    parts = states(data, out, _DEPTH - options["trained_layers"])
    model = _network(options["row"], options["replaced"], options["trained_layers"], parts)
    load_model(model, str(out / run / "weights.safetensors"))
    return model.eval(), parts


def _network(row: str, replaced: int, layers: int, parts: dict[str, States]) -> Upper:
    sample = parts["train"].batch(torch.arange(0, len(parts["train"].lengths), len(parts["train"].lengths) // _BATCH))
    return upper(host(), row, replaced, layers, sample, num_classes=NUM_INTENTS, dropout=_DROPOUT)


def _train(
    model: Upper, parts: dict[str, States], folder: Path, *, epochs: int, learning_rate: float
) -> list[dict[str, float]]:
    """Write the weights of the epoch with the smallest validation NLL; return what each epoch reached."""
    train, count = parts["train"], len(parts["train"].lengths)
    objective = Objective(model, CategoricalLikelihood(NUM_INTENTS), count, num_samples=_TRAINING_DRAWS)
    own = own_parameters(model)
    ours = {id(parameter) for parameter in own}
    groups = [{"params": [p for p in model.parameters() if id(p) not in ours]}, {"params": own}]
    optimiser = torch.optim.AdamW(groups, weight_decay=0.01)
    rates, steps = [learning_rate, _OWN_RATE * learning_rate], epochs * -(-count // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps, pct_start=0.1)
    history: list[dict[str, float]] = []
    for epoch in range(epochs):
        start = time.process_time()
        model.train()
        for rows in _shuffled(train.lengths):
            optimiser.zero_grad(set_to_none=True)
            objective(train.batch(rows), train.labels[rows]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
        seconds = time.process_time() - start
        logits, labels = _logits(model, parts["val"]), parts["val"].labels
        nll = negative_log_likelihood(mean_log_probabilities(logits), labels)
        right = float((mean_probabilities(logits).argmax(-1) == labels.numpy()).mean())
        if nll <= min((past["validation_nll"] for past in history), default=nll):
            write_atomically(folder / "weights.safetensors", lambda aside: save_model(model, str(aside)))
        history.append({"epoch": epoch, "validation_nll": nll, "validation_accuracy": right, "cpu_seconds": seconds})
        print(f"{folder}: {history[-1]}", flush=True)
    return history


def _shuffled(lengths: Tensor) -> Iterator[Tensor]:
    """Batches of sentences of like length, in random order."""
    found: list[Tensor] = []
    for chunk in torch.randperm(len(lengths)).split(_BATCHES_OF_LIKE_LENGTH * _BATCH):
        found += chunk[lengths[chunk].argsort(stable=True)].split(_BATCH)
    yield from (found[index] for index in torch.randperm(len(found)).tolist())


@torch.no_grad()
def _logits(model: Upper, data: States, seed: int = 0) -> Tensor:  # shape: (S, N, C)
    """Logits of every marginal draw; of one where nothing draws."""
    with eval_mode(model), sampling(model, "marginal"), draws(model, _DRAWS), seeded(seed, torch.device("cpu")):
        parts = [model(**batch) for batch in data.in_order()]
    return torch.cat([part if part.dim() == 3 else part[None] for part in parts], 1)


@torch.no_grad()
def _predict(model: Upper, parts: dict[str, States], folder: Path, *, baselines: bool) -> None:
    """Write logits `(S, N, C)` and the head's inputs `(N, d)` of every part; of softmax also the baselines' logits."""
    found: dict[str, Tensor] = {}
    for name, data in parts.items():
        found[f"{name}.features"] = torch.cat([pooled_features(model, batch) for batch in data.in_order()])
        found[f"{name}.labels"] = data.labels
        if name != "train":
            found[f"{name}.logits"] = _logits(model, data)
        if name != "train" and baselines:
            found[f"{name}.dropout"] = mc_dropout_logits(model, data.in_order(), _DRAWS)
    if baselines:
        found |= _laplace(model, found)
    arrays = {name: values.numpy() for name, values in found.items()}
    write_atomically(folder / "predictions.npz", lambda aside: np.savez(aside, **arrays))


def _laplace(model: Upper, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Logits by draws of the head; its prior precision is chosen on every fourth validation sentence."""
    some = [found["val.features"][::4]], found["val.labels"][::4]
    batches = list(found["train.features"].split(1000))
    with torch.enable_grad():
        posterior = last_layer_laplace(model.head, batches, found["train.labels"], validation=some)
    return {
        f"{name}.laplace": posterior.draw_logits([found[f"{name}.features"]], _DRAWS, torch.Generator().manual_seed(0))
        for name in ("val", "test", "oos_test")
    }
