"""Copies of a model that share its tensors."""

import functools
import sys
import threading

import torch
from torch import nn

from cgp.networks.model.structural_copy import structural_copy, uncompiled, with_own_buffers


class Entangled(nn.Module):
    """Holds its modules in every way that is found in libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.tied = self.linear
        self.listed, self.paired, self.named = [self.linear], (self.other,), {"linear": self.linear}
        self.bound, self.partial = self.linear.forward, functools.partial(nn.Module.__call__, self.other)
        self.linear.forward = functools.partial(type(self.linear).forward, self.linear)
        self.other.register_forward_hook(self.hook)
        self.seen: list[torch.Tensor] = []

    def hook(self, module, args, output):
        self.seen.append(output)

    def forward(self, x):
        return self.partial(self.bound(self.listed[0](x))) + self.paired[0](self.named["linear"](x))


def test_references_stay_within_the_copy():
    model, x = Entangled().train(), torch.randn(2, 3)
    before = [dict(vars(module)) for module in model.modules()]
    copy = structural_copy(model)
    assert torch.equal(copy(x), model(x))
    assert len(copy.seen) == len(model.seen) == 2  # hooks that are methods write to their own copy
    assert copy.training
    assert copy.tied is copy.linear is copy.listed[0] is copy.named["linear"] is copy.bound.__self__
    assert copy.linear is not model.linear
    assert all(a is b for a, b in zip(copy.parameters(), model.parameters(), strict=True))
    copy.eval()
    copy.linear.forward = lambda x: 0 * x
    del model.seen[:]
    assert [dict(vars(module)) for module in model.modules()] == before
    assert model.training
    assert torch.equal(copy(x), copy.partial(copy.bound(0 * x)) + copy.other(0 * x))


def test_wrappers_come_off():
    inner = nn.Sequential(nn.Linear(2, 2))
    whole = nn.Sequential(torch.compile(inner, backend="eager"), nn.ReLU())
    whole.compile(backend="eager")
    copy = structural_copy(whole)
    assert type(copy[0]) is nn.Sequential
    assert copy._compiled_call_impl is None
    assert uncompiled(nn.DataParallel(torch.compile(inner, backend="eager"))) is inner
    scripted = nn.Sequential(torch.jit.script(nn.Linear(2, 2)))
    assert structural_copy(scripted)[0] is scripted[0]


def test_a_model_is_copied_while_another_thread_changes_its_attributes():
    """As a training step does; before, an iteration over them failed now and then."""
    model, stop = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20))), threading.Event()

    def change():
        while not stop.is_set():
            for module in model:
                module.passing = module._buffers["passing"] = None
                del module.passing

    interval, thread = sys.getswitchinterval(), threading.Thread(target=change)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(200):
            assert structural_copy(model)[0].weight is model[0].weight
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_buffers_of_its_own_are_equal_and_tied_as_those_of_the_model():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3), torch.jit.script(nn.BatchNorm1d(3)))
    model[1].running_mean = model[0].running_mean
    copy = with_own_buffers(structural_copy(model))
    assert copy[0].running_mean is copy[1].running_mean is not model[0].running_mean
    assert torch.equal(copy[0].running_var, model[0].running_var)
    copy[0].running_mean += 1
    assert not model[1].running_mean.any()
    assert copy[0].weight is model[0].weight
    assert copy[2] is model[2]
