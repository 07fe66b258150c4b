"""The temperature of a model, and fingerprints of weights, so that what was fitted to a model is used with no other.

A calibration, a held-out prediction or a recommendation holds for the weights that it was made with. A fingerprint is a
checksum of the bytes of all parameters and persistent buffers in their order: equal on every device, after a copy and
after a file, another one after a step of training or a conversion to another dtype.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from .blocks import used_modules
from .structural_copy import uncompiled

__all__ = [
    "Fingerprint",
    "calibrated_weights",
    "check_calibrated",
    "fingerprint",
    "keep_weights",
    "logit_temperature",
    "mark_calibrated",
    "modules_with_temperature",
    "set_logit_temperature",
]

_TEMPERATURE, _WEIGHTS = _KEPT = ("cgp_temperature", "cgp_weights")
_PRIME, _PROBES, _BITS = 1021, 16, 2**63 - 1
_MIX = 0x9E3779B97F4A7C15  # of the golden ratio, as in hashes of integers


class Fingerprint(NamedTuple):
    """Checksums of a model's tensors: of all but the scales of converted heads, and of these."""

    host: int
    heads: int

    @property
    def whole(self) -> int:
        """Checksum of all tensors; never 0."""
        return _mixed(self.host, self.heads) or 1


class _Seen(NamedTuple):
    """A tensor's checksum, and the state in which it was read."""

    state: tuple[int, int, float]
    checksum: int


# Tensors are read again only where torch has counted a change, or some of a few numbers differ, as writing to
# ``parameter.data`` is not counted. Results do not depend on what is kept here.
_SEEN: Any = WeakIdKeyDictionary()


def fingerprint(model: nn.Module) -> Fingerprint:
    """The fingerprint of a model's weights.

    Args:
        model: any module. Wrappers of ``torch.compile`` and of data-parallel training do not count.

    Returns:
        Its checksums. Tensors that have not changed since the last call are not read again, apart from a few numbers.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> before = fingerprint(model)
        >>> fingerprint(nn.DataParallel(model)) == before
        True
        >>> with torch.no_grad():
        ...     _ = model.weight.add_(1e-3)
        >>> fingerprint(model) == before
        False
    """
    model = uncompiled(model)
    states = [module.state_dict(keep_vars=True) for module in modules_with_temperature(model)]
    of_heads = {id(tensor) for state in states for tensor in state.values()}
    tensors = list(_tensors(model))
    sums = {True: 0, False: 0}
    for tensor, checksum in zip(tensors, _checksums(tensors), strict=True):
        is_of_heads = id(tensor) in of_heads
        sums[is_of_heads] = _mixed(sums[is_of_heads], checksum)
    return Fingerprint(sums[False], sums[True])


def mark_calibrated(model: nn.Module) -> None:
    """Let a model keep the fingerprint of the weights that its temperature, scale or read-out was fitted with."""
    keep_weights(model, fingerprint(model).whole)


def check_calibrated(model: nn.Module, current: Fingerprint) -> None:
    """Raise if a model was calibrated with other weights than those of its current fingerprint."""
    if calibrated_weights(model) not in (None, current.whole):
        raise ValueError(
            "model: expected the weights that it was calibrated with, got others (it was trained on, converted to "
            "another dtype, or its files were written over): calibrate it again by cgp.calibrate or cgp.assess"
        )


def logit_temperature(model: nn.Module) -> float:
    """The temperature by which :func:`cgp.predict` divides the logits of a model; 1 unless one was set."""
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    return float(keeping[0]._buffers[_TEMPERATURE] if keeping else getattr(model, _TEMPERATURE, 1.0))


def modules_with_temperature(model: nn.Module) -> list[Any]:
    """Modules whose state dict holds the temperature: the heads of the converted layers in use."""
    return [module for module in used_modules(model).values() if _TEMPERATURE in module._buffers]


def set_logit_temperature(model: nn.Module, temperature: float) -> None:
    r"""Let :func:`cgp.predict` divide the logits of a model, :math:`p = \operatorname{softmax}(f / T)`.

    One below 1 keeps a hundredth of what it sharpens (:func:`cgp.networks.model.tempering.probabilities`).
    The output of the model itself does not change. Copies keep the temperature. A converted model has it in its state
    dict, and so in every saved file; the state dict of another model does not. Nothing is known of the weights that a
    temperature belongs to which is set by hand.

    Args:
        model: any module.
        temperature: T, positive.

    Raises:
        ValueError: if the temperature is not positive and finite.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> set_logit_temperature(model, 1.5)
        >>> logit_temperature(model)
        1.5
    """
    if not 0.0 < temperature < float("inf"):
        raise ValueError(f"temperature: expected a positive number, got {temperature!r}")
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    for module in keeping:  # a new tensor: copies share the old one
        setattr(module, _TEMPERATURE, torch.full_like(getattr(module, _TEMPERATURE), temperature))
    if not keeping:
        vars(model)[_TEMPERATURE] = float(temperature)  # of a traced module setattr is the original's
    keep_weights(model, None)


def calibrated_weights(model: nn.Module) -> int | None:
    """The fingerprint of the weights that a model was calibrated with; None if it was not, or by hand."""
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    kept = int(keeping[0]._buffers[_WEIGHTS]) if keeping else vars(model).get(_WEIGHTS)
    return kept or None


def keep_weights(model: nn.Module, weights: int | None) -> None:
    """Let a model keep the fingerprint of the weights that it was calibrated with, beside its temperature."""
    model = uncompiled(model)
    keeping = modules_with_temperature(model)
    for module in keeping:  # a new tensor: copies share the old one
        setattr(module, _WEIGHTS, torch.full_like(getattr(module, _WEIGHTS), weights or 0))
    if not keeping:
        vars(model)[_WEIGHTS] = weights


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    """Parameters and persistent buffers, but for the temperature and what is kept beside it."""
    for name, value in model.state_dict(keep_vars=True).items():
        if name.rpartition(".")[-1] not in _KEPT:
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor))


def _checksums(tensors: list[Tensor]) -> list[int]:
    probes = [_probe(tensor) for tensor in tensors]
    devices = {probe.device for probe in probes}
    read = {device: iter(torch.stack([p for p in probes if p.device == device]).tolist()) for device in devices}
    return [_checksum(t, next(read[probe.device])) for t, probe in zip(tensors, probes, strict=True)]


def _checksum(tensor: Tensor, probe: float) -> int:
    version = -1 if tensor.is_inference() else tensor._version
    state, seen = (version, _place(tensor), probe), _SEEN.get(tensor)
    if seen is None or seen.state != state or version < 0:
        kind = zlib.crc32(repr((tuple(tensor.shape), str(tensor.dtype))).encode())
        content = int(_sum(tensor.detach().contiguous())) if _is_readable(tensor) else 0
        seen = _SEEN[tensor] = _Seen(state, _mixed(kind, content))
    return int(seen.checksum)


def _is_readable(tensor: Tensor) -> bool:
    """Whether a tensor has bytes: not where its values are elsewhere (meta), or are kept in another way (sparse)."""
    return tensor.layout == torch.strided and tensor.device.type != "meta" and type(tensor.data) is Tensor


def _place(tensor: Tensor) -> int:
    return tensor.data_ptr() if _is_readable(tensor) else 0


def _probe(tensor: Tensor) -> Tensor:
    """The sum of a few of a tensor's numbers, without a copy of it."""
    if not _is_readable(tensor) or tensor.is_quantized or tensor.is_complex():
        return torch.zeros((), dtype=torch.float64)
    x = tensor.detach()
    if not x.is_contiguous():
        strides = x.stride()
        x = x.permute(sorted(range(x.dim()), key=lambda dim: -strides[dim]))
    return x.reshape(-1)[:: max(x.numel() // _PROBES, 1)].sum(dtype=torch.float64)


def _sum(x: Tensor) -> Tensor:
    """A sum of the words of a contiguous tensor, weighted by their places modulo a prime: the same on every device."""
    x = x.int_repr() if x.is_quantized else torch.view_as_real(x) if x.is_complex() else x
    numbers, each = x.reshape(-1), 8 // min(x.itemsize, 8)
    count = len(numbers) // each * each
    whole, rest = numbers[:count], numbers[count:].view(torch.uint8).long()
    whole = (whole.clone() if whole.data_ptr() % 8 else whole).view(torch.int64)
    rows = len(whole) // _PRIME
    parts = [whole[: rows * _PRIME].view(rows, _PRIME).sum(0), whole[rows * _PRIME :], rest]
    values = torch.cat(parts)
    values = values ^ (values >> 32 & 0xFFFFFFFF)  # or a sign, the highest bit, would be beyond what is kept
    return (values * (2 * torch.arange(len(values), device=x.device) + 1)).sum()


def _mixed(first: int, second: int) -> int:
    return ((first + _MIX) * _MIX + second) & _BITS
