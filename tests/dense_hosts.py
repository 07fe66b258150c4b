"""Converted hosts of transformers against dense algebra in float64: every call of attention, mean and variance.

`python -m tests.dense_hosts` converts every layer of the families of `experiments.studies.coverage`, with random
weights. What the plain host hands to `scaled_dot_product_attention` is the oracle's input; families that do not call it
are left out. Queries that the mask of their own keys calls padding have the variance 0, and nobody else has.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cgp import convert
from cgp.networks.convert import ConvertedHeads
from experiments.studies import coverage
from tests.cgp.networks.convert import oracle

SCALES: dict[str, Any] = oracle.SCALES
_MOST = 1e5  # queries times keys of a call, over its heads: the oracle takes one query after another


def watch(model: nn.Module) -> list[Any]:
    """Posteriors of every call from now on, on the mean's path."""
    seen: list[Any] = []

    def attend(heads: ConvertedHeads, inputs: Any) -> Tensor:
        seen.append(heads.gaussian(inputs))
        return seen[-1].mean.to(inputs.q.dtype)

    for module in model.modules():
        if isinstance(module, ConvertedHeads):
            heads: Any = module
            heads.sampling = "marginal"
            vars(heads)["attend"] = lambda inputs, heads=heads: attend(heads, inputs)
    return seen


def compare(computed: Any, expected: oracle.Dense) -> tuple[float, float, int]:
    """Errors of mean and standard deviation over the largest of them, and queries of the variance zero that see keys.

    Returns:
        Both errors, and the number of queries.
    """
    variance, mean = computed.variance.double().reshape(-1), computed.mean.double().reshape(-1)
    is_padding, sees = variance == 0, expected.seen.any(-1).reshape(-1)
    other = expected.variance.reshape(-1)
    deviation = (variance.sqrt() - other.sqrt())[~is_padding].abs().max() / other.max().sqrt()
    rows = sees.repeat_interleave(expected.mean.shape[-1])
    apart = (mean - expected.mean.reshape(-1))[rows].abs().max() / expected.mean.abs().max()
    return float(apart), float(deviation), int(is_padding.sum())


@torch.no_grad()
def errors(host: coverage.Host) -> tuple[int, float, float, int, int]:
    """Calls, the largest errors of mean and deviation, queries without variance, and all queries."""
    torch.manual_seed(0)
    model = host.build().eval()
    inputs = host.inputs(model)
    with pytest.MonkeyPatch.context() as patch:
        expected = oracle.fused_calls(patch, _MOST)
        coverage._call(model, inputs)
    seen = watch(copy := convert(model, "cgp", "all", strict=False, **SCALES))
    coverage._call(copy, inputs)
    if len(seen) != len(expected):
        raise LookupError(f"{len(seen)} calls through heads, {len(expected)} of torch's function")
    rows = [compare(computed, other) for computed, other in zip(seen, expected, strict=True)]
    count = sum(other.variance.numel() for other in expected)
    means, deviations, padded = zip(*rows, strict=True)
    return len(rows), max(means), max(deviations), sum(padded), count


def main() -> None:
    """Print a line for every family, and the sums."""
    total: list[float] = [0, 0, 0.0, 0.0, 0]
    for name, make in coverage._LIBRARIES["transformers"]().items():
        try:
            calls, mean, deviation, padded, count = errors(make())
        except Exception as error:  # noqa: BLE001 (a library's models fail in every way)
            print(f"{name}: left out ({type(error).__name__}: {str(error)[:80]!r})", flush=True)
            continue
        print(
            f"{name}: {calls} calls, mean {mean:.1e}, deviation {deviation:.1e}, {padded} of {count} padded", flush=True
        )
        total = [total[0] + 1, total[1] + calls, max(total[2], mean), max(total[3], deviation), total[4] + count]
    print("{} hosts, {} calls, mean {:.1e}, deviation {:.1e}, {} queries".format(*total))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
