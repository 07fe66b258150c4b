"""The tagger's report on sentences with errors, and pictures of its uncertainty word by word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cgp
from cgp.plotting import text_uncertainties
from experiments.atomic_files import write_atomically
from experiments.data.texts import read_cola
from experiments.studies.tagger.errors import Sentence, with_errors
from experiments.studies.tagger.host import host, tags, tokenizer

__all__ = ["assess", "batches", "words"]

_BATCH = 25
_SHOWN = (
    "Their going to the house by the river.",
    "She has went home, and the weather is better then yesterday.",
    "The committee that the students which the teacher praised elected resigned.",
    "Colourless green ideas sleep furiously.",
)


def assess(*, data: Path, count: int = 400, num_samples: int = 2) -> None:
    """Assess the tagger on half of the sentences, apply the recommendation, and score it on the other half.

    Args:
        data: folder with CoLA's files, of which the acceptable sentences are taken.
        count: number of sentences.
        num_samples: draws of the posterior.
    """
    texts = read_cola(data)["in_domain_train"]
    right = [text for text, label in zip(texts.texts, texts.labels, strict=True) if label == 1]
    order = torch.randperm(len(right), generator=torch.Generator().manual_seed(0))[:count].tolist()
    sentences, model = with_errors([right[index] for index in order], tags()), host()
    known, new = batches(sentences[: count // 2]), batches(sentences[count // 2 :])
    report = cgp.assess(model, known, task="tokens", num_samples=num_samples, progress=False)
    print(report, flush=True)
    for method in ("as trained", report.method):
        scores = cgp.predict(report.apply(model, method), iter(new), num_samples, task="tokens", seed=0).score()
        print(f"{method}: accuracy {scores['accuracy']:.4f}, NLL {scores['nll']:.4f}, ECE {scores['ece']:.4f}")


def words(*, out: Path = Path("docs/images/tagger-words.png")) -> None:
    """Print the tags of some sentences, and draw the variance of each word in the last layer's attention.

    Args:
        out: the picture.
    """
    model, passages = cgp.convert(host(), layers="all"), {}
    for text in _SHOWN:
        sentence = with_errors([text], tags())[0]
        (inputs, labels), *_ = batches([sentence])
        prediction = cgp.predict(model, [(inputs, labels)], 1, task="tokens")
        first = labels[0] != -100
        found = [tags()[index] for index in prediction.classes[0][first]]
        print(" ".join(f"{w}{'' if t == '$KEEP' else f' [{t}]'}" for w, t in zip(sentence.words, found, strict=True)))
        variance = list(prediction.token_variance.values())[-1][0].mean(0)[first]
        passages[text] = (
            " ".join(sentence.words),
            _by_letter(sentence.words, (variance / variance.median() - 1).clamp(min=0)),
        )
    axes: Any = text_uncertainties(passages, label="Variance above the median (share)")
    write_atomically(out, lambda aside: axes[0].figure.savefig(aside, format="png", dpi=150))


def _by_letter(words: Sequence[str], values: torch.Tensor) -> Any:
    """Values of words for each of their letters, NaN between words."""
    return np.concatenate([np.r_[np.full(len(w), v), np.nan] for w, v in zip(words, values.tolist(), strict=True)])[:-1]


def batches(sentences: Sequence[Sentence]) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    """Inputs of one length and labels, which belong to the first piece of each word."""
    number, text = {tag: index for index, tag in enumerate(tags())}, tokenizer()
    codes, read = text.encode_batch([sentence.words for sentence in sentences], is_pretokenized=True), []
    for start in range(0, len(sentences), _BATCH):
        part, encoded = sentences[start : start + _BATCH], codes[start : start + _BATCH]
        labels = torch.full((len(part), len(encoded[0].ids)), -100)
        for row, (sentence, code) in enumerate(zip(part, encoded, strict=True)):
            first: dict[int, int] = {}
            for place, word in enumerate(code.word_ids):
                if word is not None:
                    first.setdefault(word, place)
            for word, place in first.items():
                labels[row, place] = number[sentence.tags[word]]
        ids, mask = (torch.tensor([getattr(code, name) for code in encoded]) for name in ("ids", "attention_mask"))
        read.append(({"input_ids": ids, "attention_mask": mask}, labels))
    return read
