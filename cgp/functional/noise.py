"""Standard normal numbers for draws, from a source that is set per thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

__all__ = ["noise", "standard_normal"]


class _Source:
    """One generator per device, all with one seed, and a sign."""

    def __init__(self, seed: int, sign: float) -> None:
        self.seed, self.sign = seed, sign
        self.generators: dict[torch.device, torch.Generator] = {}

    def generator(self, device: torch.device) -> torch.Generator:
        if device not in self.generators:
            self.generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self.generators[device]


_SOURCE: ContextVar[_Source | None] = ContextVar("cgp_noise", default=None)


@contextmanager
def noise(seed: int, sign: float = 1.0) -> Iterator[None]:
    """Context that sets the source of :func:`standard_normal` for this thread.

    The same seed gives the same noise; ``sign=-1.0`` gives its negative. Torch's global generators are not used.
    Compiled code ignores the source.

    Example:
        >>> with noise(3):
        ...     draw = standard_normal(torch.zeros(4))
        >>> with noise(3, sign=-1.0):
        ...     torch.equal(standard_normal(torch.zeros(4)), -draw)
        True
    """
    token = _SOURCE.set(_Source(seed, sign))
    try:
        yield
    finally:
        _SOURCE.reset(token)


def standard_normal(like: Tensor, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers for draws, ``(*sample_shape, *batch)``, of the kind of ``like`` ``(*batch,)``."""
    # Without a generator, the source of the thread is used (see noise), or else torch's global generator.
    shape = (*sample_shape, *like.shape)
    source = None if generator is not None or torch.compiler.is_compiling() else _SOURCE.get()
    if source is None:
        return torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
    return source.sign * torch.randn(
        shape, dtype=like.dtype, device=like.device, generator=source.generator(like.device)
    )
