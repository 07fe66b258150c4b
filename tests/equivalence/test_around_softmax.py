"""A block and a converted host have the same covariance around softmax."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from cgp import CGPAttention, SparseCGPAttention
from cgp.attention import AttentionInputs
from cgp.networks.convert import ConvertedHeads, HostAttention
from tests.cgp.helpers import moved

B, H, N, S = 2, 2, 70, 4
PADDING = torch.arange(N) >= torch.tensor([N, N - 9])[:, None]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("padding", [None, PADDING])
def test_a_block_and_a_converted_host_have_one_posterior(is_sparse, is_causal, padding):
    block = (SparseCGPAttention if is_sparse else CGPAttention)(H * S, H, mean="softmax").double().eval()
    moved(block.softmax)
    torch.nn.init.zeros_(block.softmax.key_shift)  # hosts have none
    inducing = torch.randn(H, 5, S) if is_sparse else None
    heads = ConvertedHeads(H, inducing=inducing).double()
    for name, parameter in heads.named_parameters():
        parameter.data = inducing.double() if name == "inducing" else getattr(block.softmax, name).data
    if is_sparse:
        block.inducing_points.data = inducing.double()
    q, k, v = torch.randn(3, B, H, N, S).double().unbind(0)
    by_head = None if padding is None else padding[:, None]
    seen = torch.ones(N, N).tril().bool() if is_causal else torch.ones(N, N).bool()
    mask = seen if padding is None else seen & ~padding[:, None, None]
    result = heads.gaussian(HostAttention(lambda: scaled_dot_product_attention(q, k, v, mask), q, k, mask))
    expected = block.gaussian(AttentionInputs(q, k, v, None, by_head, by_head, None, is_causal))
    torch.testing.assert_close(result.variance, expected.variance, rtol=0, atol=1e-10)
    if not is_causal:
        torch.testing.assert_close(result.joint().variance, expected.joint().variance, rtol=0, atol=1e-10)
