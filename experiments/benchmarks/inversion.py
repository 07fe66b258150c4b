"""A posterior without factorisations against one by Cholesky: seconds, error of the variance, coverage of intervals."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import torch
from jsonargparse import auto_cli
from torch import Tensor

from cgp.functional.factored import factored
from experiments.benchmarks.timing import Budget, interleaved

__all__ = ["coverage", "inversion", "iterated_inverse"]

_SEQUENCES, _TOKENS = 128, 64
_QUANTILE = 1.959963984540054 / 2**0.5
_HEADER = "| m | noise | condition | steps | × Cholesky | error of the variance | 95 % interval covers |"


def inversion(
    sizes: Sequence[int] = (8, 16, 32, 64),
    noises: Sequence[float] = (0.25, 0.01),
    steps: Sequence[int] = (4, 8, 12),
    threads: int = 2,
    seconds: float = 2.0,
) -> None:
    r"""Print the cost of :math:`a^\top(I + AA^\top/\sigma^2)^{-1}a` by products alone and what its error does.

    128 matrices (32 sequences of 64 tokens, 4 heads) in float32, features as whitened squared exponentials have them.
    Newton-Schulz from below: after k steps the variance is too small, never too large.

    Args:
        sizes: numbers m of inducing inputs.
        noises: variances of the noise.
        steps: of Newton-Schulz.
        threads: of torch.
        seconds: of each comparison.
    """
    torch.set_num_threads(threads)
    lines = [_HEADER, "|" + " ---: |" * 7]
    for size, noise in product(sizes, noises):
        lines += _lines(_features(size), noise, steps, Budget(seconds))
    sys.stdout.write("\n".join(lines) + "\n")


def iterated_inverse(matrix: Tensor, steps: int) -> Tensor:
    r"""Approach the inverse of a symmetric positive-definite matrix from below by products alone.

    .. math:: X_0 = I/\lVert B\rVert_\infty, \quad X_{k+1} = 2X_k - X_kBX_k, \quad B^{-1} - X_k = B^{-1}(I - X_0B)^{2^k}

    Args:
        matrix: B, ``(*batch, m, m)``.
        steps: k.

    Returns:
        X, ``(*batch, m, m)``.
    """
    scale = matrix.abs().sum(-1).amax(-1)
    inverse = torch.eye(matrix.shape[-1], dtype=matrix.dtype) / scale[..., None, None]
    for _ in range(steps):
        inverse = 2 * inverse - inverse @ matrix @ inverse
    return inverse


def coverage(variance: Tensor, truth: Tensor) -> Tensor:
    """How often a 95 % interval of this variance holds a draw of the true one.

    Args:
        variance: what the interval is made of.
        truth: the variance of what is drawn, of the same shape.
    """
    return torch.erf(_QUANTILE * (variance.clamp(min=0) / truth).sqrt())


def _lines(features: Tensor, noise: float, steps: Sequence[int], budget: Budget) -> Iterator[str]:
    """Lines of the table for one size and noise, one for each number of steps."""
    size = features.shape[-2]
    matrix = torch.eye(size) + features @ features.mT / noise
    calls = {"Cholesky": partial(_by_cholesky, matrix)}
    times = interleaved(calls | {str(n): partial(iterated_inverse, matrix, n) for n in steps}, budget)
    exact = _variances(features, torch.cholesky_inverse(torch.linalg.cholesky(matrix.double())))
    values = torch.linalg.eigvalsh(matrix.double())
    condition = f"{float((values[..., -1] / values[..., 0]).median()):.0f}"
    for count in steps:
        found = _variances(features, iterated_inverse(matrix, count).double())
        error, share = (found / exact - 1).abs().mean(), 100 * coverage(found, exact).mean()
        cells = (size, noise, condition, count, f"{times[str(count)].ratio:.1f}", f"{error:.0e}", f"{share:.1f} %")
        yield f"| {' | '.join(map(str, cells))} |"


def _by_cholesky(matrix: Tensor) -> Tensor:
    inverse = factored(matrix, name="matrix", jitter=0.0).inverse
    return inverse.mT @ inverse


def _variances(features: Tensor, inverse: Tensor) -> Tensor:
    wide = features.double()
    return (wide * (inverse @ wide)).sum(-2)


def _features(size: int) -> Tensor:
    """Whitened features of random points: columns of a length below one."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(_SEQUENCES, size + _TOKENS, 8, generator=generator)
    gram = torch.exp(-0.25 * torch.cdist(points, points).square())
    factor = torch.linalg.cholesky(gram[:, :size, :size] + 1e-4 * torch.eye(size))
    return torch.linalg.solve_triangular(factor, gram[:, :size, size:], upper=False)


if __name__ == "__main__":
    auto_cli(inversion)
