"""Runs of a model that share the layers below its first draw."""

from __future__ import annotations

import functools
import random
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .blocks import stochastic_layers, unwrapped, used_modules
from .inputs import model_device
from .structural_copy import structural_copy, with_own_buffers

__all__ = ["SharedPrefix"]

T = TypeVar("T")


class SharedPrefix:
    """Runs of a model that share all computations before its first stochastic block.

    Modules that return before the first stochastic block attends have the same output in every draw. They are
    recorded during the first run, for any model; later runs reuse their outputs. The posterior of the first block is
    reused, too, unless the block attends more than once in a run.

    It acts on a copy of the model's modules, with buffers of its own. The inputs, and the scales of the first block,
    must be the same in every run; gradients of several runs have to be computed in one backward pass. If a kept output
    is changed in place later in the run, nothing is shared (``shares`` is False).

    Args:
        model: any module.
        training: whether modules keep their modes, for training. Otherwise all modules are in eval mode.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> prefix = SharedPrefix(nn.Sequential(nn.Linear(8, 8), SparseCGPAttention(8, 2)))
        >>> x = torch.zeros(1, 3, 8)
        >>> first, second = (prefix.run(lambda model: model(x)) for _ in range(2))
        >>> torch.equal(first, second)
        True
    """

    def __init__(self, model: nn.Module, *, training: bool = False) -> None:
        self.training, copied = training, structural_copy(model)
        self.model = copied if training else with_own_buffers(copied)
        self.is_random = False  # whether the first run drew numbers that are none of this package's
        self.silent: list[str] = []  # attention blocks that did not attend in the first run
        self.shares = False
        self.posterior: _KeptPosterior | None = None  # of the first stochastic block
        self.first: Any = None  # the first stochastic block
        self._queues: list[_Replay] | None = None  # kept outputs; None before the first run
        for module in self.model.modules():
            # Not .eval(): some libraries override it to rewrite weights, which the copy shares with the model.
            if not training and not isinstance(module, torch.jit.ScriptModule):
                module.training = False
        stochastic = set(stochastic_layers(self.model))
        self.blocks: dict[str, Any] = {n: m for n, m in used_modules(self.model).items() if m in stochastic}
        for block in self.blocks.values():
            block.num_samples = None

    def set_sampling(self, mode: str | None) -> None:
        """Set how every stochastic block draws: "mean", "marginal", "joint", or None for its default."""
        for block in self.blocks.values():
            block.sampling = mode

    def run(self, call: Callable[[nn.Module], T]) -> T:
        """Return ``call(model)``; from the second run on, only the first stochastic block and later modules compute."""
        if self._queues is None:
            return self._record(call)
        for replay in self._queues:
            replay.restart()
        return call(self.model)

    def warn(self, first: Tensor, again: Callable[[], Tensor], stacklevel: int) -> None:
        """Warn of attention that did not run at ``first``, and of a random model, by computing it ``again``."""
        if self.silent:  # where none attended the run itself was refused
            warnings.warn(
                f"model: {len(self.silent)} of {len(self.blocks)} stochastic layers did not run: "
                f"{', '.join(self.silent)}: their posterior is in no uncertainty (these inputs need no such layer, or "
                "the model goes around it)",
                stacklevel=stacklevel + 1,
            )
        if self.is_random and not torch.allclose(first, again(), rtol=1e-3, atol=1e-6, equal_nan=True):
            warnings.warn(
                "model: the model draws random numbers of its own in eval mode, so that the same inputs have other "
                "outputs in every call: no uncertainty contains them, and no guarantee holds for them (let it draw in "
                "training mode only; nn.Dropout layers draw with method='dropout')",
                stacklevel=stacklevel + 1,
            )

    def _generator_states(self) -> list[Any]:
        """States of the global random generators, which draws of this package do not touch."""
        numbers: Any = np.random.get_state()  # noqa: NPY002 (which a model may use)
        device = model_device(self.model)
        states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
        return [random.getstate(), numbers[1].tobytes(), numbers[2], *(state.numpy().tobytes() for state in states)]

    def _record(self, call: Callable[[nn.Module], T]) -> T:
        recorder = _Recorder(self.model, list(self.blocks.values()))
        before = self._generator_states()
        with recorder.watching():
            result = call(self.model)
        self.is_random = self._generator_states() != before
        self.silent = [n for n, block in self.blocks.items() if _attends(block) and block not in recorder.ran]
        if self.blocks and not recorder.ran and not self.training:
            raise ValueError(
                f"model: expected its stochastic layers to run, got none of {', '.join(self.blocks)}: its forward pass "
                "goes around them (a closure holds another module, or the layer is skipped)"
            )
        self._queues = []
        self.shares = recorder.first is not None and all(done.untouched() for done in recorder.finished)
        if self.shares:
            self._replay(recorder)
        return result

    def _replay(self, recorder: _Recorder) -> None:
        outputs: dict[tuple[Any, str], list[Any]] = {}
        for call in recorder.replayed():
            outputs.setdefault((call.module, "forward"), []).append(call.output)
        if recorder.attended == 1:  # a block used several times attends to different tokens each time
            self.first = recorder.first
            outputs[self.first, "project"] = recorder.projected
            if hasattr(self.first, "gaussian"):
                gaussian, inputs = self.first.gaussian, recorder.inputs
                self.posterior = _KeptPosterior(lambda: gaussian(inputs), recorder.posterior)
                _override(self.first, "gaussian", self.posterior)
        self._queues = []
        for (module, name), kept in outputs.items():
            if kept:
                self._queues.append(_Replay(getattr(module, name), kept))
                _override(module, name, self._queues[-1])


class _Call:
    """A finished module call and its output."""

    def __init__(self, module: nn.Module, output: Any) -> None:
        self.module, self.output = module, output
        self.versions = [(leaf, _version(leaf)) for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]

    def untouched(self) -> bool:
        return all(_version(tensor) == version for tensor, version in self.versions)

    def returned(self, tensors: Iterable[Tensor]) -> bool:
        """Whether the output contains one of the tensors."""
        ids = {id(tensor) for tensor in tensors}
        return any(id(tensor) in ids for tensor, _ in self.versions)


class _Recorder:
    """Records the calls of a copy until its first stochastic block is called, or attends without being called."""

    def __init__(self, model: nn.Module, blocks: list[Any]) -> None:
        self.modules = [m for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)]
        self.blocks = blocks
        self.open: list[tuple[Any, list[_Call]]] = [(None, [])]  # unfinished calls, with the finished calls inside
        self.finished: list[_Call] = []
        self.inside: list[_Call] = []  # finished calls within the host module of the first block's attention
        self.first: nn.Module | None = None
        self.ran: set[nn.Module] = set()  # blocks that were called or attended
        self.attended = 0  # number of attend calls of the first block
        self.inputs: Any = None  # arguments of the first block's attend
        self.projected: list[Any] = []  # results of the first block's project
        self.posterior: Any = None  # posterior of the first block, if the run computed it

    @contextmanager
    def watching(self) -> Iterator[None]:
        wrapped: list[tuple[Any, str, Callable[..., Any]]] = [(m, "forward", self._call) for m in self.modules]
        wrapped += [(b, name, self._attend) for b in self.blocks for name in ("attend", "project") if hasattr(b, name)]
        wrapped += [(b, "gaussian", self._condition) for b in self.blocks if hasattr(b, "gaussian")]
        before = [(module, name, vars(module).get(name)) for module, name, _ in wrapped]
        for module, name, wrapper in wrapped:
            method = getattr(module, name)
            _override(module, name, functools.update_wrapper(functools.partial(wrapper, module, name, method), method))
        try:
            yield
        finally:
            for module, name, override in before:
                vars(module).pop(name)
                if override is not None:
                    _override(module, name, override)

    def _call(self, module: nn.Module, _: str, forward: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if module in self.blocks:
            self._start(module)
            if not _attends(module):
                self.ran.add(module)
        if self.first is not None:
            return forward(*args, **options)
        self.open.append((module, []))
        output = forward(*args, **options)
        if self.first is None:
            self.open.pop()
            self.open[-1][1].append(_Call(module, output))
        return output

    def _attend(self, block: Any, name: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._start(block)
        if name == "attend":
            self.ran.add(block)
        result = method(*args, **options)
        if block is self.first and name == "project":
            self.projected.append(result)
        elif block is self.first:
            self.attended += 1
            self.inputs = args[0]
        return result

    def _condition(self, block: Any, _: str, gaussian: Callable[..., Any], tokens: Any) -> Any:
        posterior = gaussian(tokens)
        if block is self.first:
            self.posterior = posterior
        return posterior

    def _start(self, block: nn.Module) -> None:
        if self.first is None:
            self.first = block
            for module, calls in self.open:
                self.finished += calls
                if module is not None and any(unwrapped(child) is block for child in module.children()):
                    self.inside = calls

    def replayed(self) -> list[_Call]:
        """The finished calls whose outputs can be reused: none between scores and output of manual attention."""
        trail = getattr(self.inputs, "trail", ())
        again = {call.module for call in self.finished if call.returned(trail)}
        again |= {call.module for call in self.inside} if self.attended > 1 else set()
        return [call for call in self.finished if call.module not in again]


class _Replay:
    """A module's method that returns the kept results one after the other, and computes once they are used up."""

    def __init__(self, method: Callable[..., Any], kept: list[Any]) -> None:
        self.method, self.kept = method, kept
        self.remaining: deque[Any] = deque()

    def restart(self) -> None:
        self.remaining = deque(self.kept)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.remaining.popleft() if self.remaining else self.method(*args, **options)


class _KeptPosterior:
    """A block's ``gaussian``, computed once given the inputs of the first run, whatever the tokens are now."""

    def __init__(self, compute: Callable[[], Any], posterior: Any) -> None:
        self.compute, self.posterior = compute, posterior
        self.factor = 1.0  # of the standard deviations: the draws are those of amplitudes larger by it

    def __call__(self, tokens: Any) -> Any:
        if self.posterior is None:
            self.posterior = self.compute()
        return self.posterior if self.factor == 1.0 else _Scaled(self.posterior, self.factor)


class _Scaled:
    """A posterior whose deviations from the mean are multiplied."""

    def __init__(self, posterior: Any, factor: float) -> None:
        self.posterior, self.factor, self.mean = posterior, factor, posterior.mean

    def rsample(self, *args: Any, **options: Any) -> Tensor:
        draw: Tensor = self.posterior.rsample(*args, **options)
        return torch.lerp(self.mean, draw, self.factor)


def _attends(block: nn.Module) -> bool:
    """Whether a stochastic layer is attention, rather than dropout."""
    return hasattr(type(block), "attend")


def _override(module: Any, name: str, value: Callable[..., Any]) -> None:
    vars(module)[name] = value  # not setattr, which nn.Module and gpytorch.Module override


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
