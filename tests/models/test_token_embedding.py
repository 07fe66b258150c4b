"""Embeddings of symbols and of precomputed vectors, with positions."""

import pytest
import torch

from models.token_embedding import TokenEmbedding


def test_symbols_have_a_learned_vector_and_a_position():
    embedding, tokens = TokenEmbedding(vocabulary_size=7, max_length=4, embed_dim=5), torch.tensor([[6, 0, 6]])
    expected = torch.stack([embedding.symbols.weight[i] for i in (6, 0, 6)]) + embedding.positions[:3]
    torch.testing.assert_close(embedding(tokens), expected[None])


def test_vectors_are_mapped_and_have_a_position():
    embedding, tokens = TokenEmbedding(input_dim=3, max_length=4, embed_dim=5), torch.randn(2, 4, 3)
    expected = tokens @ embedding.symbols.weight.T + embedding.symbols.bias + embedding.positions
    torch.testing.assert_close(embedding(tokens), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 4}, "expected one of them"),
        ({"vocabulary_size": 7, "input_dim": 3, "max_length": 4}, "expected one of them"),
        ({"vocabulary_size": 7, "max_length": 0}, "max_length: expected at least 1, got 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TokenEmbedding(**options, embed_dim=5)


@pytest.mark.parametrize(
    ("options", "tokens", "message"),
    [
        ({"vocabulary_size": 7}, torch.zeros(2, 3), "tokens: expected symbols"),
        ({"input_dim": 3}, torch.zeros(2, 3, dtype=torch.long), "tokens: expected embeddings"),
        ({"input_dim": 3}, torch.zeros(2, 3, 4), r"tokens: expected embeddings \(\*batch, n, 3\)"),
        ({"vocabulary_size": 7}, torch.zeros(2, 5, dtype=torch.long), "tokens: expected 1 to 4 of them, got 5"),
        ({"vocabulary_size": 7}, torch.zeros(2, 0, dtype=torch.long), "tokens: expected 1 to 4 of them, got 0"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(options, tokens, message):
    with pytest.raises(ValueError, match=message):
        TokenEmbedding(**options, max_length=4, embed_dim=5)(tokens)
