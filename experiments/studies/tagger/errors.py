"""Sentences with an error put in, whose tags are therefore known."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Sentence", "with_errors"]

_CONFUSED = (
    ("their", "there", "they're"), ("its", "it's"), ("your", "you're"), ("than", "then"), ("to", "too"),
    ("weather", "whether"), ("affect", "effect"), ("past", "passed"), ("lead", "led"), ("loose", "lose"),
    ("a", "an"), ("has", "have"), ("are", "is"), ("were", "was"), ("gone", "went"), ("seen", "saw"),
    ("taken", "took"), ("come", "came"), ("given", "gave"), ("known", "knew"), ("don't", "doesn't"),
)  # fmt: skip


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
