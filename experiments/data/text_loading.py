"""Text sets in three parts, with words as symbols or as an encoder's states."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from experiments.configuration import DataConfig
from experiments.data.contextual import contextual_states
from experiments.data.examples import DataDescription, DataSplits, Examples
from experiments.data.partition import limited, partition
from experiments.data.texts import Texts, read_clinc150, read_cola, read_imdb, read_sst2

__all__ = ["PADDING", "TEXT_SETS", "UNKNOWN", "Vocabulary", "load_texts", "words"]

PADDING, UNKNOWN = 0, 1
_RESERVED = 2
_MARKUP = re.compile(r"<[^<>]{1,20}>")
_WORD = re.compile(r"\w+(?=n't)|n't|'\w+|\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Split a text into lower-case words and signs; markup such as line breaks is removed."""
    return _WORD.findall(_MARKUP.sub(" ", text).lower())


class Vocabulary:
    """Symbols of words, at most `size` with the reserved ones: 0 is padding, 1 is every unknown word."""

    def __init__(self, texts: Iterable[str], *, size: int | None = None, min_count: int = 1) -> None:
        counts = Counter(word for text in texts for word in words(text))
        ranked = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        kept = ranked if size is None else ranked[: max(size - _RESERVED, 0)]
        self._numbers = {word: number for number, word in enumerate(kept, _RESERVED)}

    def __len__(self) -> int:
        return len(self._numbers) + _RESERVED

    def encode(self, texts: Sequence[str], *, max_length: int) -> tuple[Tensor, Tensor]:
        """Return words as symbols `(N, n)`, and padding; texts are cut; an empty text is one unknown word."""
        rows = [self._row(text, max_length) for text in texts]
        longest = max((len(row) for row in rows), default=1)
        tokens = torch.full((len(rows), longest), PADDING)
        for row, numbers in zip(tokens, rows, strict=True):
            row[: len(numbers)] = torch.tensor(numbers)
        return tokens, tokens == PADDING

    def _row(self, text: str, max_length: int) -> list[int]:
        return [self._numbers.get(word, UNKNOWN) for word in words(text)[:max_length]] or [UNKNOWN]


_Rows = dict[str, tuple[Texts, Tensor]]
"""The texts of each part, by name: a set of texts and the positions in it."""

_MAX_LENGTH = {"cola": 64, "imdb": 512, "sst2": 64, "clinc150": 32}


def load_texts(data: DataConfig, seed: int) -> DataSplits:
    """Read a text set, and convert its words to symbols or contextual states."""
    rows = TEXT_SETS[data.name](data, seed if data.split_seed is None else data.split_seed)
    taken, reductions = limited({name: len(places) for name, (_, places) in rows.items()}, data, "texts")
    rows = {name: (texts, places[taken[name]]) for name, (texts, places) in rows.items()}
    train, places = rows["train"]
    if len({train.labels[place] for place in places.tolist()}) < 2:
        raise ValueError(f"{data.data_root}: expected training texts of two classes of {data.name}, got one")
    max_length = data.max_length or _MAX_LENGTH[data.name]
    parts, sizes = _embedded(rows, data, max_length)
    differences = {words: None for texts, _ in rows.values() for words in texts.deviations}
    if data.name == "cola":
        embeddings = "learned" if data.encoder is None else f"frozen states of {Path(data.encoder).name}"
        differences[f"token embeddings are {embeddings}; the papers' ELMo is no longer obtainable"] = None
    description = DataDescription(
        kind="text",
        num_classes=len(train.classes),
        max_length=max_length,
        class_names=train.classes,
        deviations=(*differences, *reductions),
        **sizes,
    )
    return DataSplits(parts.pop("train"), parts.pop("validation"), parts.pop("test"), description, parts)


def _cola(data: DataConfig, seed: int) -> _Rows:
    """Split CoLA by the protocol that `split` names."""
    train, dev, out = read_cola(data.data_root, unchecked=data.unchecked).values()
    both = Texts(train.texts + dev.texts, train.labels + dev.labels, train.deviations + dev.deviations, train.classes)
    if data.split == "official":
        test = torch.arange(len(train.texts), len(both.texts))
        first, validation = partition(len(train.texts), [data.validation], "cola", "official", seed)
    elif data.split == "pooled":
        rest, test = partition(len(both.texts), [0.2], "cola", "pooled", seed)
        kept, held_out = partition(len(rest), [data.validation], "cola", "pooled validation", seed)
        first, validation = rest[kept], rest[held_out]
    else:
        first, validation, test = partition(len(both.texts), [0.1, 0.2], "cola", "selected", seed)
    return {"train": (both, first), "validation": (both, validation), "test": (both, test), "out-of-domain": _all(out)}


def _imdb(data: DataConfig, seed: int) -> _Rows:
    """Split all reviews 70 : 10 : 20."""
    reviews = read_imdb(data.data_root, unchecked=data.unchecked)["reviews"]
    parts = partition(len(reviews.texts), [0.1, 0.2], "imdb", seed)
    return {name: (reviews, part) for name, part in zip(("train", "validation", "test"), parts, strict=True)}


def _sst2(data: DataConfig, seed: int) -> _Rows:
    """The published parts; out of domain, IMDB's reviews that are no longer than the longest test sentence."""
    root = data.data_root
    parts = read_sst2(root, unchecked=data.unchecked)
    rows = {"train": _all(parts["train"]), "validation": _all(parts["dev"]), "test": _all(parts["test"])}
    if not ((root / "imdb" / "imdb.jsonl.xz").exists() or (root / "aclImdb").is_dir()):
        return rows
    reviews = read_imdb(root, unchecked=data.unchecked)["reviews"]
    longest = max(len(text.split()) for text in parts["test"].texts)
    lengths = torch.tensor([len(text.split()) for text in reviews.texts])
    return rows | {"out-of-domain": (reviews, (lengths <= longest).nonzero()[:, 0])}


def _clinc150(data: DataConfig, seed: int) -> _Rows:
    """The published parts; the sentences out of scope belong to no class."""
    parts = read_clinc150(data.data_root, unchecked=data.unchecked)
    names = {"train": "train", "validation": "val", "test": "test", "ood-out-of-scope": "oos_test"}
    return {name: _all(parts[part]) for name, part in names.items()}


def _all(texts: Texts) -> tuple[Texts, Tensor]:
    return texts, torch.arange(len(texts.texts))


TEXT_SETS: Mapping[str, Callable[[DataConfig, int], _Rows]] = MappingProxyType(
    {"cola": _cola, "imdb": _imdb, "sst2": _sst2, "clinc150": _clinc150}
)
"""The text sets by name, and how each is split."""


def _embedded(rows: _Rows, data: DataConfig, max_length: int) -> tuple[dict[str, Examples], dict[str, Any]]:
    """The examples of each part, and the size of the vocabulary or of the states."""
    texts = {name: [part.texts[place] for place in places.tolist()] for name, (part, places) in rows.items()}
    encode: Callable[[Sequence[str]], tuple[Tensor, Tensor]]
    if data.encoder is None:
        vocabulary = Vocabulary(texts["train"], size=data.vocabulary_size, min_count=data.min_count)
        encode = partial(vocabulary.encode, max_length=max_length)
    else:
        encode = partial(contextual_states, encoder=data.encoder, max_length=max_length, cache=data.cache_folder)
    parts = {}
    for name, (part, places) in rows.items():
        tokens, padding = encode(texts[name])
        labels = torch.tensor(part.labels)[places]
        parts[name] = Examples({"tokens": tokens, "padding_mask": padding}, labels, places)
    sizes = {"vocabulary_size": len(vocabulary)} if data.encoder is None else {"input_dim": tokens.shape[-1]}
    return parts, sizes
