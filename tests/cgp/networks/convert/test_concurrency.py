"""Threads that use one converted model do not affect each other or the model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cgp import convert, predict
from tests.cgp.networks.convert import hosts

THREADS, CALLS = 8, 50


@pytest.mark.parametrize(("make", "calls"), [(hosts.timm_vit, CALLS), (hosts.transformers_vit, 12)])
def test_concurrent_predictions_equal_sequential_ones_to_the_bit(make, calls):
    """The model is called meanwhile, too, and is as it was."""
    host = make()
    model = convert(host.model, layers=[0, 2], amplitude=0.5)
    batches = [hosts.images()[:2] for _ in range(calls)]
    batches = [{"pixel_values": x} if isinstance(host.inputs, dict) else x for x in batches]

    def run(call: int):
        return predict(model, batches[call], 4, seed=call, keep_draws=True)

    attributes = [set(vars(module)) for module in model.modules()]
    before, expected = host.run(model), [run(call) for call in range(calls)]
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(run, call) for call in range(calls)]
        assert all(torch.equal(out, before) for out in pool.map(host.run, [model] * calls))
    for result, other in zip((future.result() for future in futures), expected, strict=True):
        assert torch.equal(result.draws, other.draws)
        for name, variance in result.token_variance.items():
            assert torch.equal(variance, other.token_variance[name])
    assert torch.equal(host.run(model), before)
    torch.testing.assert_close(before, host.run(), atol=1e-5, rtol=0)
    assert [set(vars(module)) for module in model.modules()] == attributes
