"""Masks of hosts as padding and causal order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cgp.conversion.masks import read_key_padding, read_pair_mask


@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_what_is_built_of_padding_and_order_is_read_as_such(batch, heads, n, causal, attends, additive, seed):
    lengths = torch.randint(1, n + 1, (batch,), generator=torch.Generator().manual_seed(seed))
    padding = torch.arange(n) >= lengths[:, None]
    blocked = padding[:, None, None, :].expand(batch, heads, n, n)
    if causal:
        blocked = blocked | torch.ones(n, n).triu(1).bool()
    mask = torch.zeros(blocked.shape).masked_fill(blocked, -torch.inf) if additive else blocked ^ attends
    reading = read_pair_mask(mask, torch.Size([batch]), n, n, attends=attends)
    got = torch.zeros_like(padding) if reading.key_padding_mask is None else reading.key_padding_mask
    if reading.is_causal or not causal:
        assert torch.equal(got, padding)
    meant = got[:, None, None, :].expand(batch, heads, n, n)
    if reading.is_causal:
        meant = meant | torch.ones(n, n).triu(1).bool()
    assert torch.equal(meant, blocked)  # whatever the reading, it is the same mask


def test_no_mask_is_no_mask():
    assert read_pair_mask(None, torch.Size([2]), 3, 3, attends=True) == (None, False)
    assert read_pair_mask(torch.ones(3, 3).bool(), torch.Size([2]), 3, 3, attends=True) == (None, False)
    assert read_key_padding(None, real=True) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_lowest_number_is_minus_infinity(dtype):
    mask = torch.tensor([0.0, torch.finfo(dtype).min], dtype=dtype)
    assert read_key_padding(mask, real=False).tolist() == [False, True]


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.eye(3, dtype=torch.bool), "got another"),
        (torch.randn(3, 3), "got additive biases other than 0 and -inf"),
        (torch.zeros(3, 3, dtype=torch.long), "expected bool or additive float"),
        (torch.zeros(3, 4, dtype=torch.bool), "over 3 × 3"),
        (torch.stack([torch.zeros(3, 3), torch.ones(3, 3).triu(1)]).bool()[None].expand(2, 2, 3, 3), "between heads"),
        ("causal", "expected a tensor, got str"),
    ],
)
def test_others_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        read_pair_mask(mask, torch.Size([2]), 3, 3, attends=False)
