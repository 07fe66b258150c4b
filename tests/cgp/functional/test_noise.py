"""Noise from a source per thread; concurrent threads are in tests/cgp/networks/predict/test_predict.py."""

import torch

from cgp.functional.noise import noise, standard_normal


def test_global_generator_is_left_alone_within_and_used_without():
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    with noise(1), noise(2, sign=-1.0):
        inner = standard_normal(torch.zeros(3))
    assert torch.equal(standard_normal(torch.zeros(3)), expected)
    with noise(2):
        assert torch.equal(standard_normal(torch.zeros(3)), -inner)
    generator = torch.Generator().manual_seed(7)
    with noise(1):
        given = standard_normal(torch.zeros(3), (), generator)
    assert torch.equal(given, torch.randn(3, generator=torch.Generator().manual_seed(7)))


def test_compiled_code_draws_from_the_global_generator():
    compiled = torch.compile(lambda x: x + standard_normal(x), backend="eager", fullgraph=True)
    torch.manual_seed(0)
    expected = torch.randn(3)
    torch.manual_seed(0)
    with noise(1):
        assert torch.equal(compiled(torch.zeros(3)), expected)
