"""A model run many times, with what lies below its first stochastic block run once.

The modules that finish before the first stochastic block starts give the same in every draw. They are found while the
model runs once, whatever the model: their outputs are kept, and in later runs stand for their computation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _pytree as pytree

from cgp.attention import Attention, AttentionInputs, GaussianProcessAttention

__all__ = ["SharedPrefix", "replaced"]


class SharedPrefix:
    """What a model computes before its first stochastic block, kept from one run for later ones.

    The model must be in eval mode, and run on the same inputs: then the order of its modules is the same each time.
    Models that change a kept output in place afterwards are run whole; ``shares`` says so. Compiled models run
    uncompiled.

    Args:
        model: any module.

    Example:
        >>> from cgp import SparseCGPAttention
        >>> model = nn.Sequential(nn.Linear(8, 8), SparseCGPAttention(8, 2)).eval()
        >>> x, prefix = torch.zeros(1, 3, 8), SharedPrefix(model)
        >>> expected = prefix.record(lambda: model(x))
        >>> with prefix.replaying():
        ...     torch.equal(model(x), expected)
        True
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.first: Attention | None = None
        self.tokens: AttentionInputs | None = None
        self.shares = False
        self._calls: list[tuple[nn.Module, Any]] = []

    def record(self, run: Callable[[], Any]) -> Any:
        """Run the model once and keep what comes before the first stochastic block.

        Args:
            run: calls the model.

        Returns:
            What ``run`` returned.
        """
        recorder = _Recorder(self.model)
        with _eager(), recorder.watching():
            output = run()
        self.first, self.tokens = recorder.first, recorder.tokens
        self.shares = self.first is not None and recorder.untouched()
        if not self.shares:
            self.tokens = None
        self._calls = [(call.module, call.output) for call in recorder.finished] if self.shares else []
        return output

    @contextmanager
    def replaying(self, *, posterior: bool = False) -> Iterator[None]:
        """Let the kept outputs stand for their modules, for the time of a ``with``.

        Args:
            posterior: whether the first block's posterior is computed once within the ``with``, so that a further draw
                costs no more than itself. Its parameters must not change meanwhile; gradients of draws from it are
                to be taken in one backward pass.
        """
        outputs: dict[nn.Module, list[Any]] = {}
        for module, output in self._calls:
            outputs.setdefault(module, []).append(output)
        with _eager(), ExitStack() as stack:
            replays = [_Replay(module, kept) for module, kept in outputs.items()]
            for replay in replays:
                stack.enter_context(replaced(replay.module, "forward", replay))
            if self.first is not None and self.tokens is not None:
                tokens = self.tokens
                stack.enter_context(replaced(self.first, "project", lambda *args, **options: tokens))
                if posterior and isinstance(self.first, GaussianProcessAttention) and self.first.draws_from_gaussian:
                    stack.enter_context(replaced(self.first, "gaussian", _Once(self.first)))
            stack.callback(self.model.register_forward_pre_hook(_Restart(replays)).remove)
            yield


def _eager() -> Any:
    """What was compiled runs uncompiled: compiled code neither shows nor takes outputs of its modules."""
    return torch.compiler.set_stance("force_eager")


@contextmanager
def replaced(owner: nn.Module, name: str, value: Any) -> Iterator[None]:
    """Let a method of one module be another, for the time of a ``with``.

    Args:
        owner: the module.
        name: of the method.
        value: what stands for it.
    """
    missing = object()
    before = owner.__dict__.get(name, missing)
    owner.__dict__[name] = value
    try:
        yield
    finally:
        if before is missing:
            del owner.__dict__[name]
        else:
            owner.__dict__[name] = before


class _Call:
    """A module call that has finished, with what it returned."""

    def __init__(self, module: nn.Module, output: Any) -> None:
        self.module, self.output = module, output
        self.versions = [(leaf, leaf._version) for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]

    def untouched(self) -> bool:
        return all(tensor._version == version for tensor, version in self.versions)


class _Recorder:
    """Follows the calls of a model until its first stochastic block starts."""

    def __init__(self, model: nn.Module) -> None:
        self.known = set(model.modules())
        self.stochastic = {m for m in self.known if isinstance(m, Attention) and m.stochastic}
        self.open: list[list[_Call]] = [[]]  # the finished calls inside each call that is under way
        self.finished: list[_Call] = []
        self.first: Attention | None = None
        self.seen: list[AttentionInputs] = []  # of the first block, one a call

    @contextmanager
    def watching(self) -> Iterator[None]:
        # Global hooks: a module with hooks of its own leaves torch's fused paths.
        before = register_module_forward_pre_hook(self._enter)
        after = register_module_forward_hook(self._leave)
        with ExitStack() as stack:
            stack.callback(before.remove)
            stack.callback(after.remove)
            for block in self.stochastic:
                stack.enter_context(replaced(block, "project", _Watched(block, self)))
            yield

    def untouched(self) -> bool:
        return all(call.untouched() for call in self.finished)

    @property
    def tokens(self) -> AttentionInputs | None:
        """Of the first block; None if it attends more than once in a run, as shared layers do."""
        return self.seen[0] if len(self.seen) == 1 else None

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self.first is not None or module not in self.known:
            return
        if module in self.stochastic:
            assert isinstance(module, Attention)
            self.first = module
            self.finished = [call for calls in self.open for call in calls]
        self.open.append([])

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.first is None and module in self.known:
            self.open.pop()
            self.open[-1].append(_Call(module, output))


class _Watched:
    """A block's ``project`` that shows the recorder what it returns."""

    def __init__(self, block: Attention, recorder: _Recorder) -> None:
        self.block, self.recorder, self.project = block, recorder, block.project

    def __call__(self, *args: Any, **options: Any) -> AttentionInputs:
        tokens = self.project(*args, **options)
        if self.block is self.recorder.first:
            self.recorder.seen.append(tokens)
        return tokens


class _Replay:
    """A module's ``forward`` that returns what was kept, as often as it was called before the first block."""

    def __init__(self, module: nn.Module, kept: list[Any]) -> None:
        self.module, self.kept, self.original = module, kept, module.forward
        self.left: deque[Any] = deque(kept)

    def restart(self) -> None:
        self.left = deque(self.kept)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.left.popleft() if self.left else self.original(*args, **options)


class _Restart:
    """Before each run of the model: what was kept comes from its start again."""

    def __init__(self, replays: list[_Replay]) -> None:
        self.replays = replays

    def __call__(self, module: nn.Module, args: Any) -> None:
        for replay in self.replays:
            replay.restart()


class _Once:
    """A block's ``gaussian``, computed once."""

    def __init__(self, block: Attention) -> None:
        assert isinstance(block, GaussianProcessAttention)
        self.compute = block.gaussian
        self.posterior: Any = None

    def __call__(self, tokens: AttentionInputs) -> Any:
        if self.posterior is None:
            self.posterior = self.compute(tokens)
        return self.posterior
