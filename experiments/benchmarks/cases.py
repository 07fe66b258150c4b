"""What is measured: sizes, and the blocks at a size."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from cgp.attention import (
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    SGPAttention,
    SparseCGPAttention,
)
from experiments.benchmarks.reference import MultiheadReference

__all__ = ["BLOCKS", "CENTRE", "LABELS", "REFERENCE", "Case", "block_cases", "build_blocks"]

REFERENCE = "softmax"
KEP_RANK = 10


class Case(NamedTuple):
    """Sizes and circumstances of one group of measurements.

    Attributes:
        tokens: n.
        batch: sequences.
        width: d.
        heads: h.
        inducing: m of the sparse blocks.
        precision: "float32", or "bfloat16" for autocast.
        execution: "eager" or "compiled".
    """

    tokens: int
    batch: int = 32
    width: int = 128
    heads: int = 4
    inducing: int = 16
    precision: str = "float32"
    execution: str = "eager"


CENTRE = Case(64)


def _drawn(block: type[nn.Module], sampling: str = "marginal", **options: Any) -> Callable[[Case], nn.Module]:
    """A block whose forward gives mean, variance and one draw, without a regulariser."""

    def build(case: Case) -> nn.Module:
        sized = {"num_inducing": case.inducing} if block in (SparseCGPAttention, SGPAttention) else {}
        made = block(case.width, case.heads, **sized, **options)
        made.sampling = sampling
        return made.eval()

    return build


def _with_objective(case: Case) -> nn.Module:
    return CGPAttention(case.width, case.heads, coupling="latent").train()


BLOCKS: Mapping[str, Callable[[Case], nn.Module]] = {
    REFERENCE: lambda case: MultiheadReference(case.width, case.heads),
    "kernel": lambda case: KernelAttention(case.width, case.heads).eval(),
    "sparse-direct": _drawn(SparseCGPAttention, objective=None),
    "sparse-direct-joint": _drawn(SparseCGPAttention, "joint", objective=None),
    "sparse-latent": _drawn(SparseCGPAttention, objective=None, coupling="latent"),
    "exact-direct": _drawn(CGPAttention, objective=None),
    "exact-latent": _drawn(CGPAttention, objective=None, coupling="latent"),
    "exact-latent-objective": _with_objective,
    "softmax-sparse": _drawn(SparseCGPAttention, mean="softmax"),
    "softmax-bounded": _drawn(SparseCGPAttention, mean="softmax", statistics="bounded"),
    "sgpa": _drawn(SGPAttention),
    "kep": _drawn(KEPSVGPAttention, "joint", rank=KEP_RANK, ksvd_loss=None),
}

LABELS: Mapping[str, str] = {
    REFERENCE: "softmax attention",
    "kernel": "kernel attention",
    "sparse-direct": "sparse correlated GP, direct",
    "sparse-direct-joint": "sparse correlated GP, direct, joint draw",
    "sparse-latent": "sparse correlated GP, latent",
    "exact-direct": "exact correlated GP, direct",
    "exact-latent": "exact correlated GP, latent",
    "exact-latent-objective": "exact correlated GP, latent, with its objective",
    "softmax-sparse": "softmax's mean, sparse covariance",
    "softmax-bounded": "softmax's mean, bounded sparse covariance",
    "sgpa": "SGPA, decoupled",
    "kep": "KEP-SVGP, joint draw",
}

_CUBIC = ("exact-direct", "exact-latent", "exact-latent-objective")
_LARGEST = {**dict.fromkeys(_CUBIC, 512), "sgpa": 1024}
# Compiling is slow on a CPU: what differs in kind is enough.
_COMPILED = (REFERENCE, "kernel", "sparse-direct", "sparse-latent", "exact-direct")


def build_blocks(case: Case) -> dict[str, nn.Module]:
    """The blocks that are measured at a size, the reference first; those cubic or quadratic in n stop at some n.

    Args:
        case: the size.

    Example:
        >>> "exact-direct" in build_blocks(Case(4096, batch=1))
        False
    """
    names = [name for name in BLOCKS if case.tokens <= _LARGEST.get(name, case.tokens)]
    if case.execution == "compiled":
        names = [name for name in names if name in _COMPILED]
    return {name: BLOCKS[name](case) for name in names}


def block_cases(quick: bool) -> list[Case]:
    """The grid: one axis at a time through the centre (B 32, n 64, d 128, h 4, m 16, float32, eager).

    Args:
        quick: two tiny sizes, for tests.
    """
    if quick:
        return [Case(17, batch=2, width=16, heads=2, inducing=4), Case(24, batch=2, width=16, heads=2, inducing=4)]
    lengths = [CENTRE._replace(tokens=n) for n in (17, 64, 256, 512)]
    lengths += [CENTRE._replace(tokens=1024, batch=8), CENTRE._replace(tokens=4096, batch=4)]
    widths = [CENTRE._replace(width=384, heads=12), CENTRE._replace(tokens=197, batch=8, width=768, heads=12)]
    ranks = [CENTRE._replace(inducing=m) for m in (8, 32)]
    batches = [CENTRE._replace(batch=size) for size in (1, 8, 128)]
    halves = [CENTRE._replace(precision="bfloat16"), CENTRE._replace(tokens=512, batch=8, precision="bfloat16")]
    return [*lengths, *widths, *ranks, *batches, *halves, CENTRE._replace(execution="compiled")]
