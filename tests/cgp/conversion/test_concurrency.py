"""Nothing that is done to a converted model is seen by another thread, or stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cgp import calibrate, convert, describe, predict
from cgp.model.inputs import call_model
from tests.cgp.conversion import hosts

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

    def plain(model: torch.nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return host.output(call_model(model, host.inputs))

    before, expected = plain(model), [run(call) for call in range(calls)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = [pool.submit(run, call) for call in range(calls)]
        assert all(torch.equal(out, before) for out in pool.map(plain, [model] * calls))
    for one, other in zip((future.result() for future in found), expected, strict=True):
        assert torch.equal(one.draws, other.draws)
        for name, variance in one.token_variance.items():
            assert torch.equal(variance, other.token_variance[name])
    assert torch.equal(plain(model), before)
    torch.testing.assert_close(before, plain(host.model), atol=1e-5, rtol=0)


def test_nothing_but_scales_is_changed_by_what_reads_a_model():
    host = hosts.timm_vit()
    model = convert(host.model, amplitude=0.3)
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    values = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    describe(model)
    predict(model, host.inputs, 4, seed=0)
    calibrate(model, [(host.inputs, torch.tensor([0, 1, 2]))], num_samples=2)
    for name, module in model.named_modules():
        assert vars(module).keys() == before[name].keys() or name == ""
    for name, tensor in model.state_dict().items():
        assert ".gp." in name or torch.equal(tensor, values[name])
