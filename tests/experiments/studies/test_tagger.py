"""The sentences with errors: undoing what the tags say gives the correct ones back."""

import re

from experiments.studies.tagger import with_errors

TAGS = ["$KEEP", "$APPEND_,", "$CASE_CAPITAL", *(f"$REPLACE_{w}" for w in ("their", "to", "a", "were", "gone", "than"))]
TEXTS = [
    "They went to their house, and a dog barked.",
    "Nobody has gone further than Ann.",
    "We were late.",
    "it rains",
    "Too few, too late.",
] * 8


def corrected(sentence):
    words = []
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        if tag.startswith("$REPLACE_"):
            word = tag.removeprefix("$REPLACE_")
        words += [word[0].upper() + word[1:] if tag == "$CASE_CAPITAL" else word]
        words += [","] if tag == "$APPEND_," else []
    return words


def test_tags_undo_the_errors():
    sentences = with_errors(TEXTS, TAGS)
    for text, sentence in zip(TEXTS, sentences, strict=True):
        assert corrected(sentence) == re.findall(r"\w+(?:'\w+)?|[^\w\s]", text)
    wrong = [sum(tag != "$KEEP" for tag in sentence.tags) for sentence in sentences]
    assert set(wrong[::2]) == {0}
    assert set(wrong[1::2]) == {0, 1}  # one error each, where there is a place for it
    assert {tag for sentence in sentences for tag in sentence.tags} <= set(TAGS)
    assert with_errors(TEXTS, TAGS) == sentences
    assert with_errors(TEXTS, TAGS, seed=1) != sentences


def test_unknown_tags_are_not_used():
    assert all(set(sentence.tags) == {"$KEEP"} for sentence in with_errors(TEXTS, ["$KEEP"]))
