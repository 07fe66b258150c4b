"""`python -m experiments.studies.causal_text --out DIR`: uncertainty of a language model given its prompt."""

import codecs
import contextlib
import importlib
import io
import re
import time
from collections.abc import Mapping
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jsonargparse import auto_cli
from rich.console import Console
from torch import nn

from cgp import CategoricalLikelihood, Objective, SoftmaxAttention, SparseCGPAttention, freeze, predict
from cgp.plotting import text_uncertainties
from experiments.data.partition import generator_for
from experiments.reports.demo_tables import console_of_width
from experiments.runs.provenance import provenance
from experiments.storage import OutputFolder, open_output, write_atomically, write_json
from models import CausalTransformer

__all__ = ["Corpus", "causal_text", "corpus"]

LATIN = (  # Caesar, Commentarii de bello Gallico
    "Gallia est omnis divisa in partes tres, quarum unam incolunt Belgae, aliam Aquitani, tertiam qui ipsorum lingua "
    "Celtae, nostra Galli appellantur."
)
UNKNOWN = "�"
_STRETCH, _EVERY = 400, 10
_SHOWN = 0.97
_SIZES: Mapping[str, int] = {"depth": 2, "embed_dim": 64, "mlp_dim": 128, "num_heads": 4}


class Corpus(NamedTuple):
    """English prose in characters.

    Attributes:
        train: nine tenths of it.
        test: what was held out, a stretch after every nine.
        alphabet: the characters of the training part, after one that stands for all others.
    """

    train: str
    test: str
    alphabet: str

    def encode(self, text: str) -> torch.Tensor:  # shape: (len(text),) int64
        """Return the number of each character."""
        numbers = {character: number for number, character in enumerate(self.alphabet)}
        return torch.tensor([numbers.get(character, 0) for character in text])

    def decode(self, symbols: torch.Tensor) -> str:
        """Return the text of numbers (n,)."""
        return "".join(self.alphabet[number] for number in symbols.tolist())


def corpus() -> Corpus:
    """Return Python's "Zen" (public domain) and scikit-learn's descriptions of its data sets (BSD licence).

    Example:
        >>> text = corpus()
        >>> text.decode(text.encode("data sets"))
        'data sets'
    """
    with contextlib.redirect_stdout(io.StringIO()):
        zen = codecs.decode(importlib.import_module("this").s, "rot13")
    folder = resources.files("sklearn.datasets.descr")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".rst")), key=lambda file: file.name)
    documents = [_prose(text) for text in (zen, *(file.read_text(encoding="utf-8") for file in files))]
    whole = " ".join(documents)
    stretches = [whole[start : start + _STRETCH] for start in range(0, len(whole), _STRETCH)]
    test = "".join(stretches[_EVERY - 1 :: _EVERY])
    train = "".join(stretch for place, stretch in enumerate(stretches, 1) if place % _EVERY)
    return Corpus(train, test, UNKNOWN + "".join(sorted(set(train))))


def _prose(text: str) -> str:
    """Remove rules and indentation: what is left has single spaces."""
    return " ".join(re.sub(r"[=\-*~^]{3,}", " ", text).split())


def causal_text(
    *,
    out: Path = Path("runs/causal-text"),
    seed: int = 0,
    steps: int = 700,
    batch_size: int = 12,
    length: int = 96,
    num_inducing: int = 16,
    num_samples: int = 16,
    learning_rate: float = 1e-2,
) -> Path:
    """Train a model of characters with softmax and with causal sparse GP attention, and show where it is unsure.

    Args:
        out: folder to write; a complete run in it is left alone, and a sibling taken.
        seed: of start, order and draws.
        steps: optimiser steps.
        batch_size: passages a step.
        length: characters of a passage.
        num_inducing: inducing inputs a head.
        num_samples: draws of a prediction.
        learning_rate: the largest of the schedule.

    Returns:
        The folder that was written.
    """
    options = {key: value for key, value in locals().items() if key != "out"}
    text, console = corpus(), console_of_width(100)
    with open_output(out, options) as output:
        console.print(output.message, highlight=False)
        sparse = partial(SparseCGPAttention, num_inducing=num_inducing)
        methods = {
            "softmax": SoftmaxAttention,
            "sparse_cgp": sparse,
            "sparse_cgp_softmax_mean": partial(sparse, mean="softmax", statistics="learned"),
        }
        results, models = {}, {}
        for name, attention in methods.items():
            torch.manual_seed(seed)
            sizes = {"vocabulary_size": len(text.alphabet), "max_length": length, **_SIZES}
            models[name] = CausalTransformer(attention=attention, **sizes)
            start = time.perf_counter()
            _train(models[name], text, seed, steps, batch_size, learning_rate)
            results[name] = {"seconds": time.perf_counter() - start} | _evaluate(models[name], text, num_samples)
            console.print(f"{name}: {_sentence(results[name])}", highlight=False)
        _conclude(models["sparse_cgp"], text, results, num_samples, output, console)
    return output.path


def _train(
    model: CausalTransformer, text: Corpus, seed: int, steps: int, batch_size: int, learning_rate: float
) -> None:
    """Fit to passages from random places."""
    symbols, length = text.encode(text.train), model.embedding.max_length
    objective = Objective(model, CategoricalLikelihood(len(text.alphabet)), num_data=len(symbols))
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, learning_rate, total_steps=steps, pct_start=0.2)
    places = generator_for("causal_text", seed)
    for _ in range(steps):
        starts = torch.randint(len(symbols) - length, (batch_size, 1), generator=places)
        passages = symbols[starts + torch.arange(length + 1)]
        optimiser.zero_grad()
        objective(passages[:, :-1], passages[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    model.eval()


def _evaluate(model: CausalTransformer, text: Corpus, num_samples: int) -> dict[str, float]:
    """Bits per character of the mean prediction on what was held out, each passage from its own start."""
    passages = text.encode(text.test).unfold(0, model.embedding.max_length + 1, model.embedding.max_length)
    predicted = predict(model, passages[:, :-1], num_samples, batch_size=16, seed=0)
    targets = passages[:, 1:, None]
    right = predicted.probabilities.gather(-1, targets)[..., 0]
    return {
        "bits_per_character": -right.log2().mean().item(),
        "accuracy": (predicted.probabilities.argmax(-1) == targets[..., 0]).float().mean().item(),
        "epistemic": predicted.epistemic.mean().item(),
    }


def _sentence(result: Mapping[str, float]) -> str:
    return (
        f"{result['bits_per_character']:.2f} bits per character, {100 * result['accuracy']:.0f} % of the characters "
        f"right, trained in {result['seconds']:.0f} s"
    )


def _conclude(
    model: CausalTransformer,
    text: Corpus,
    results: dict[str, dict[str, Any]],
    num_samples: int,
    output: OutputFolder,
    console: Console,
) -> None:
    """Draw, print and write what the model makes of passages."""
    passages = _passages(text, model.embedding.max_length)
    uncertainty = {title: _epistemic(model, text, passage, num_samples) for title, passage in passages.items()}
    means = {title: values.nanmean().item() for title, values in uncertainty.items()}
    for title, mean in means.items():
        console.print(f"epistemic uncertainty, {title}: {mean:.3f} nats a character", highlight=False)
    prompt = text.encode(passages["held out"][:40])
    generator = torch.Generator().manual_seed(0)
    written = text.decode(freeze(model).generate(prompt, 80, generator=generator))
    console.print(f"goes on: {written!r}", highlight=False)
    drawn = {title: (passages[title], values) for title, values in uncertainty.items()}
    most = torch.cat(list(uncertainty.values())).nanquantile(_SHOWN).item()  # a few characters would bleach the rest
    axes = text_uncertainties(drawn, limits=(0.0, most))
    write_atomically(output.path / "uncertainty.png", axes[0].figure.savefig)
    write_json(output.path / "results.json", {"methods": results, "epistemic": means, "written": written})
    write_json(output.path / "provenance.json", provenance())
    output.complete({"seconds": sum(result["seconds"] for result in results.values())})


def _passages(text: Corpus, length: int) -> dict[str, str]:
    """Passages from the most to the least familiar."""
    held_out = text.test.lstrip()[:length]
    order = torch.randperm(len(held_out), generator=generator_for("causal_text", "shuffled")).tolist()
    return {
        "from the training text": text.train[:length],
        "held out": held_out,
        "another language": LATIN[:length],
        "held out, characters shuffled": "".join(held_out[place] for place in order),
    }


def _epistemic(model: CausalTransformer, text: Corpus, passage: str, num_samples: int) -> torch.Tensor:
    """Epistemic uncertainty of each character given those before it; none for the first."""
    predicted = predict(model, text.encode(passage)[None, :-1], num_samples, seed=0)
    return torch.cat([torch.full((1,), torch.nan), predicted.epistemic[0]])


if __name__ == "__main__":
    auto_cli(causal_text, as_positional=False, prog="python -m experiments.studies.causal_text")
