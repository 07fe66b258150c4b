"""One factory per attention block and coupling, called with the width and the number of heads."""

from collections.abc import Callable
from functools import partial

from cgp import (
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    PrimalAttention,
    SGPAttention,
    SoftmaxAttention,
    SparseCGPAttention,
    StandardSGPAttention,
)
from cgp.attention import Attention

_SPARSE = partial(SparseCGPAttention, num_inducing=5)

BLOCKS: dict[str, Callable[..., Attention]] = {
    "softmax": SoftmaxAttention,
    "kernel": KernelAttention,
    "exact": CGPAttention,
    "exact latent": partial(CGPAttention, coupling="latent"),
    "exact softmax": partial(CGPAttention, mean="softmax"),
    "sparse": _SPARSE,
    "sparse latent": partial(_SPARSE, coupling="latent"),
    "sparse softmax": partial(_SPARSE, mean="softmax"),
    "sgpa": partial(SGPAttention, num_inducing=4),
    "sgpa standard": StandardSGPAttention,
    "kep-svgp": partial(KEPSVGPAttention, rank=4),
    "primal": partial(PrimalAttention, rank=4),
}
CORRELATED = tuple(name for name in BLOCKS if name.startswith(("exact", "sparse")))
