"""The vocabulary of words."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.data.vocabulary import PADDING, UNKNOWN, Vocabulary, words

TEXTS = ["the cat sees the dog", "the dog sleeps", "a cat"]
SPLIT = {
    "Bill's cat isn't here.": ["bill", "'s", "cat", "is", "n't", "here", "."],
    "one<br /><br />two": ["one", "two"],
    "3 < 4, well-known": ["3", "<", "4", ",", "well", "-", "known"],
    "Ünïcode “quotes”": ["ünïcode", "“", "quotes", "”"],
    "": [],
}


@pytest.mark.parametrize("text", SPLIT)
def test_words(text):
    assert words(text) == SPLIT[text]


@given(st.text(max_size=60))
def test_no_letter_is_lost(text):
    plain = text.replace("<", "").replace(">", "")
    assert "".join(words(plain)) == "".join(plain.lower().split())


def test_frequent_words_come_first_and_rare_ones_are_unknown():
    vocabulary = Vocabulary(TEXTS)
    assert vocabulary.encode(["the cat dog a sees sleeps"], max_length=9)[0].tolist() == [[2, 3, 4, 5, 6, 7]]
    assert len(vocabulary) == 8
    frequent = Vocabulary(TEXTS, min_count=2)
    tokens, _ = frequent.encode(["the cat sleeps", "dog bird"], max_length=9)
    assert tokens.tolist() == [[2, 3, UNKNOWN], [4, UNKNOWN, PADDING]]
    assert len(frequent) == 5
    for size in (1, 2, 3, 5, 100):
        cut = Vocabulary(TEXTS, size=size)
        assert len(cut) == min(max(size, 2), 8)
        assert cut.encode(TEXTS, max_length=9)[0].amax() < len(cut)


def test_texts_are_cut_and_padded_at_the_end():
    tokens, padding = Vocabulary(TEXTS).encode([*TEXTS, ""], max_length=3)
    assert tokens.shape == (4, 3)
    assert padding.tolist() == [[False] * 3, [False] * 3, [False, False, True], [False, True, True]]
    assert torch.equal(tokens == PADDING, padding)
    assert tokens[3, 0] == UNKNOWN
