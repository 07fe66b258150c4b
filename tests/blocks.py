"""A small block of every form in the registry, called with the width and the number of heads."""

import inspect
from collections.abc import Callable
from functools import partial

from cgp.attention import Attention
from experiments.registry import forms

_SMALL = {"num_inducing": 4, "rank": 4}


def _small(make: Callable[..., Attention]) -> Callable[..., Attention]:
    taken = inspect.signature(make).parameters
    return partial(make, **{name: size for name, size in _SMALL.items() if name in taken})


BLOCKS: dict[str, Callable[..., Attention]] = {name: _small(form.make) for name, form in forms().items()}
CORRELATED = tuple(name for name in BLOCKS if name.startswith(("cgp", "sparse_cgp")))
