"""Vocabulary of words as symbols, built from the training part only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

__all__ = ["PADDING", "UNKNOWN", "Vocabulary", "words"]

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
