"""Seeds of draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

__all__ = ["draw_noises", "seeds_from"]


def draw_noises(num_samples: int, seeds: Callable[[], int], *, antithetic: bool = True) -> Iterator[tuple[int, float]]:
    """Seed and sign of the noise of each of S draws; antithetic ones use a seed twice, the second time reflected."""
    for index in range(num_samples):
        if not antithetic or index % 2 == 0:
            seed = seeds()
        yield seed, -1.0 if antithetic and index % 2 else 1.0


def seeds_from(seed: int | None) -> Callable[[], int]:
    """Seeds of one draw after another, from a generator of their own; None takes its seed from torch's global one."""
    generator = torch.Generator()
    generator.manual_seed(int(torch.randint(2**62, ())) if seed is None else seed)
    return lambda: int(torch.randint(2**62, (), generator=generator))
