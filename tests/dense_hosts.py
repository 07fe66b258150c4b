"""Converted hosts of transformers against dense algebra in float64: every call of attention, mean, variance and draws.

`python -m tests.dense_hosts` converts every layer of the families of `experiments.studies.coverage`, with random
weights, and prints a table. What the plain host hands to `scaled_dot_product_attention` is the oracle's input; families
that do not call it are left out. Of each host:

- mean and deviation: the largest errors over the largest of them, and the mean square of draws in dense variances.
  Queries that the mask of their own keys calls padding have the variance 0, and nobody else has.
- padding, right and left: the same errors of a padded row against the row without its padding. A host whose attention
  itself moves with the padding (places that are counted with it, windows) is "its own".
- cache: the same errors of the last tokens after a cache of the first against all tokens at once. `cgp.predict` with
  that cache must leave it as it is, and draw the same from it twice.
"""

from __future__ import annotations

import argparse
import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from cgp import convert, predict
from cgp.networks.convert import ConvertedHeads
from cgp.networks.model.inputs import is_cache, with_own_caches
from experiments.studies import coverage
from tests.cgp.networks.convert import oracle

SCALES: dict[str, Any] = oracle.SCALES
LENGTH, REAL = 9, 6  # tokens of a sequence, and of one that is padded
_MOST = 1e5  # queries times keys of a call, over its heads: the oracle takes one query after another
_DRAWS = 64
_MOVED = 1e-3  # of a mean, by padding: the mean is the host's own
HEAD = ("host", "calls", "mean", "deviation", "draws", "right padding", "left padding", "cache")


Figure = float | str  # an error, or a word where there is none


class Row(NamedTuple):
    """The figures of a host."""

    calls: int
    mean: float
    deviation: float
    draws: float
    right: Figure
    left: Figure
    cache: Figure


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


def compare(computed: Any, expected: oracle.Dense) -> tuple[float, float, float]:
    """Errors of mean and standard deviation over the largest of them, and the spread of draws.

    Returns:
        Both errors, and the mean square of draws in dense variances.
    """
    variance, mean = computed.variance.double().reshape(-1), computed.mean.double().reshape(-1)
    is_padding, sees = variance == 0, expected.seen.any(-1).reshape(-1)
    other = expected.variance.reshape(-1)
    deviation = (variance.sqrt() - other.sqrt())[~is_padding].abs().max() / other.max().sqrt()
    rows = sees.repeat_interleave(expected.mean.shape[-1])
    apart = (mean - expected.mean.reshape(-1))[rows].abs().max() / expected.mean.abs().max()
    drawn = (computed.rsample("marginal", torch.Size([_DRAWS])) - computed.mean).double().square().mean(0).mean(-1)
    spread = (drawn.reshape(-1) / other)[~is_padding & (other > 1e-3 * other.max())].mean()
    return float(apart), float(deviation), float(spread)


@torch.no_grad()
def against_dense(model: nn.Module, copy: nn.Module, inputs: Any) -> tuple[int, float, float, float]:
    """Calls, the largest errors, and the spread of draws that is furthest from 1."""
    with pytest.MonkeyPatch.context() as patch:
        expected = oracle.fused_calls(patch, _MOST)
        coverage._call(model, inputs)
    seen = posteriors(copy, inputs)
    if len(seen) != len(expected):
        raise LookupError(f"{len(seen)} calls through heads, {len(expected)} of torch's function")
    rows = [compare(computed, other) for computed, other in zip(seen, expected, strict=True)]
    means, deviations, spreads = zip(*rows, strict=True)
    return len(rows), max(means), max(deviations), max(spreads, key=lambda x: abs(x - 1.0))


def posteriors(copy: nn.Module, inputs: Any) -> list[Any]:
    """Those of every call, on the mean's path."""
    seen = watch(copy)
    coverage._call(copy, with_own_caches(inputs))
    return seen


def apart(
    one: Sequence[Any], other: Sequence[Any], chosen: Callable[[Tensor], Tensor], *, last: bool = False
) -> Figure:
    """The largest error of a mean or deviation over calls.

    Args:
        one: posteriors.
        other: posteriors that they are compared with.
        chosen: takes the first's rows ``(B, ..., N, s)`` that are the other's.
        last: whether the other's are the last N.

    Returns:
        "its own" if a mean moves, which is the host's attention.
    """
    if len(one) != len(other):
        return f"{len(one)} calls, {len(other)}"
    errors = []
    for left, right in zip(one, other, strict=True):
        pairs = [(left.mean, right.mean), (left.variance[..., None].sqrt(), right.variance[..., None].sqrt())]
        parts = [(chosen(a)[..., -b.shape[-2] if last else 0 :, :], b) for a, b in pairs]
        if all(a.shape == b.shape for a, b in parts):
            errors.append([float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in parts])
    if not errors:
        return "other shapes"
    return "its own" if max(mean for mean, _ in errors) > _MOVED else max(map(max, errors))


def padded(model: nn.Module, copy: nn.Module, side: str) -> Figure:
    """A padded row against that row alone."""
    inputs = coverage._transformers_inputs(model)
    if "input_ids" not in inputs or "attention_mask" not in inputs:
        return "no mask"
    real = slice(0, REAL) if side == "right" else slice(LENGTH - REAL, LENGTH)
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1] = 0
    mask[1, real] = 1
    alone = {name: value[1:] if isinstance(value, Tensor) else value for name, value in inputs.items()}
    alone |= {"input_ids": inputs["input_ids"][1:, real], "attention_mask": mask[1:, real]}
    inputs["attention_mask"] = mask
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        alone["position_ids"] = torch.arange(REAL)[None]
    return apart(posteriors(copy, inputs), posteriors(copy, alone), partial(_second, real=real))


def _second(values: Tensor, real: slice) -> Tensor:
    """The second row of a batch; of tokens of the length of the sequence, the real ones."""
    row = values[1:] if len(values) == 2 else values[:0]
    return row[..., real, :] if row.shape[-2] == LENGTH else row


def cached(model: nn.Module, copy: nn.Module, plain: nn.Module) -> Figure:
    """The last tokens after a cache of the first against all at once; and what `predict` makes of the cache."""
    inputs = coverage._transformers_inputs(model)
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    if "past_key_values" not in inspect.signature(model.forward).parameters or name not in inputs:
        return "no cache"
    inputs.pop("attention_mask", None)
    tokens = inputs.pop(name)
    first, rest = tokens[:, :-3], tokens[:, -3:]
    cache = getattr(coverage._call(model, {**inputs, name: first, "use_cache": True}), "past_key_values", None)
    if not is_cache(cache):
        return "no cache"
    given = {**inputs, name: rest, "past_key_values": cache, "use_cache": True}
    before = [x.clone() for x in tensors_of(cache)]
    whole = posteriors(copy, {**inputs, name: tokens, "use_cache": False})
    error = apart(whole, posteriors(copy, given), lambda values: values, last=True)
    options: dict[str, Any] = {"task": None, "output": _first_output, "seed": 0, "keep_draws": True}
    one, other = (predict(plain, given, 4, **options) for _ in range(2))
    after = tensors_of(cache)
    if len(after) != len(before) or not all(map(torch.equal, before, after)):
        return "**changed**"
    assert one.draws is not None
    assert other.draws is not None
    return error if torch.equal(one.draws, other.draws) and bool((one.draws.std(0) > 0).any()) else "**other draws**"


def _first_output(output: Any) -> Tensor:
    return coverage._tensors(output)[0]


def tensors_of(value: Any) -> list[Tensor]:
    """All tensors of a cache, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [x for part in value for x in tensors_of(part)]
    return tensors_of(vars(value)) if hasattr(value, "__dict__") and "ache" in str(type(value).__mro__) else []


def row_of(host: coverage.Host) -> Row:
    """The figures of a host.

    Args:
        host: with its inputs.

    Returns:
        A word in place of a figure that it does not have.
    """
    torch.manual_seed(0)
    model = host.build().eval()
    inputs = host.inputs(model)
    plain = convert(model, "cgp", "all", strict=False, **SCALES)
    copy = convert(model, "cgp", "all", strict=False, **SCALES)
    figures = against_dense(model, copy, inputs)
    checks = (
        partial(padded, model, copy, "right"),
        partial(padded, model, copy, "left"),
        partial(cached, model, copy, plain),
    )
    return Row(*figures, *map(_tried, checks))


@torch.no_grad()
def _tried(check: Callable[[], Figure]) -> Figure:
    torch.manual_seed(1)
    try:
        return check()
    except Exception as error:  # noqa: BLE001 (a library's models fail in every way)
        return f"{type(error).__name__}: {str(error)[:60]}".replace("|", "/").replace("\n", " ")


def summary(rows: Sequence[Row]) -> str:
    """The worst figures of all hosts, and how many have each."""
    parts = [f"{len(rows)} hosts, {sum(row.calls for row in rows)} calls"]
    parts += [f"mean {max(row.mean for row in rows):.1e}, deviation {max(row.deviation for row in rows):.1e}"]
    parts += [f"draws {min(row.draws for row in rows):.3f} to {max(row.draws for row in rows):.3f}"]
    for name in ("right", "left", "cache"):
        figures = [value for row in rows if isinstance(value := getattr(row, name), float)]
        parts += [f"{name} {len(figures)}, up to {max(figures, default=0.0):.1e}"]
    return "; ".join(parts)


def main() -> None:
    """Print a line for every family, and what they have together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, nargs=2, default=(1, 1), metavar=("K", "OF"), help="every OF-th family")
    first, step = parser.parse_args().part
    print(f"| {' | '.join(HEAD)} |\n|---|{'--:|' * (len(HEAD) - 1)}", flush=True)
    rows, left_out = [], []
    for name, make in list(coverage._LIBRARIES["transformers"]().items())[first - 1 :: step]:
        try:
            rows.append(row_of(make()))
        except Exception as error:  # noqa: BLE001 (a library's models fail in every way)
            left_out.append(f"{name}: {type(error).__name__}: {str(error)[:80]!r}")
            continue
        calls, mean, deviation, draws, *others = rows[-1]
        cells = [name, str(calls), f"{mean:.1e}", f"{deviation:.1e}", f"{draws:.3f}"]
        cells += [f"{value:.1e}" if isinstance(value, float) else value for value in others]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{summary(rows)}\n\nLeft out:\n" + "\n".join(left_out))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
