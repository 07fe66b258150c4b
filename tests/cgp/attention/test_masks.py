"""Masks of a call, reduced to padding and causality."""

import pytest
import torch

from cgp.attention.masks import causal_mask, check_padding, read_masks

TOKENS = torch.zeros(2, 4, 8)
PADDING = torch.tensor([[False, False, False, True], [False, True, False, False]])


def additive(mask):
    return torch.zeros(mask.shape).masked_fill(mask, -torch.inf)


def read(padding=None, attn_mask=None, is_causal=False, any_mask=False, num_queries=4):
    return read_masks(TOKENS, num_queries, padding, attn_mask, is_causal, any_mask=any_mask)


@pytest.mark.parametrize("kind", [lambda mask: mask, additive])
def test_a_mask_over_pairs_with_equal_rows_is_padding(kind):
    pairs = PADDING[:, None, None, :].expand(2, 1, 4, 4)
    reading = read(attn_mask=kind(pairs))
    assert torch.equal(reading.key_padding, PADDING)
    assert (reading.attn_mask, reading.is_causal) == (None, False)
    assert torch.equal(read(attn_mask=kind(pairs[0].expand(2, 4, 4))).key_padding, PADDING[0])


@pytest.mark.parametrize("kind", [lambda mask: mask, additive])
def test_a_triangle_is_causal_and_keeps_the_padding(kind):
    reading = read(PADDING, kind(causal_mask(4, 4)))
    assert torch.equal(reading.key_padding, PADDING)
    assert (reading.attn_mask, reading.is_causal) == (None, True)


def test_the_convention_of_a_mask_is_said_where_it_is_neither():
    """A triangle for scaled_dot_product_attention, whose True is attended, is no causal mask here."""
    with pytest.raises(ValueError, match="MultiheadAttention reads it, True = not attended; .* pass ~mask"):
        read(attn_mask=~causal_mask(4, 4))


def test_an_additive_padding_mask_has_zeros_and_infinities():
    assert torch.equal(check_padding("key", TOKENS, additive(PADDING)), PADDING)
    with pytest.raises(ValueError, match="key_padding_mask: expected zeros and -inf"):
        check_padding("key", TOKENS, torch.full((2, 4), 0.5))


def test_both_kinds_of_padding_are_joined():
    last = torch.zeros(1, 4, dtype=torch.bool)
    last[:, -1] = True
    assert torch.equal(read(PADDING, last).key_padding, PADDING | last)


def test_a_mask_that_hides_nothing_changes_nothing():
    assert read(attn_mask=torch.zeros(4, 4)) == (None, None, False)


def test_other_masks_are_kept_only_where_any_is_taken():
    window = causal_mask(4, 4).T
    assert read(attn_mask=window, any_mask=True).attn_mask is window
    with pytest.raises(ValueError, match="attn_mask: expected a padding or a causal mask"):
        read(attn_mask=window)


def test_masks_that_differ_between_heads_are_refused():
    per_head = torch.stack([PADDING[:1].expand(4, 4), PADDING[1:].expand(4, 4)])[None]
    with pytest.raises(ValueError, match="attn_mask: expected a padding or a causal mask"):
        read(attn_mask=per_head)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_causal": True, "num_queries": 3}, "is_causal: expected as many queries as keys, got 3 and 4"),
        ({"attn_mask": torch.ones(4, 4)}, "attn_mask: expected zeros and -inf"),
        ({"attn_mask": torch.ones(4, 4).int()}, "attn_mask: expected bool"),
        ({"attn_mask": torch.ones(3, 3).bool()}, r"attn_mask: expected \(..., 4, 4\)"),
        ({"padding": torch.ones(2, 4)}, "key_padding_mask: expected zeros and -inf, got other biases"),
        ({"padding": torch.zeros(2, 4).int()}, "key_padding_mask: expected bool"),
        ({"padding": torch.zeros(3, 4).bool()}, r"key_padding_mask: expected shape \(2, 4\)"),
    ],
)
def test_masks_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        read(**options)


def test_padding_without_batch_dimensions_is_accepted():
    shared = PADDING[0]
    assert check_padding("query", TOKENS, shared) is shared
