"""The deterministic blocks of this package: the reference models hold them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from cgp.attention import Attention, KernelAttention, SoftmaxAttention

from .adapter import Adapter, Projections

__all__ = ["NativeAdapter"]


class NativeAdapter(Adapter):
    """Reads and replaces :class:`~cgp.SoftmaxAttention` and :class:`~cgp.KernelAttention`; each keeps its mean."""

    hosts = (SoftmaxAttention, KernelAttention)

    def read(self, host: nn.Module) -> Projections:
        """The block's projections.

        Args:
            host: the block.

        Returns:
            Its own parameters.
        """
        assert isinstance(host, Attention)
        parts = len(host.processes)
        weights = dict(zip(host.processes, host.in_proj.weight.chunk(parts), strict=True))
        biases: dict[str, Tensor | None] = dict.fromkeys(host.processes)
        if host.in_proj.bias is not None:
            biases.update(zip(host.processes, host.in_proj.bias.chunk(parts), strict=True))
        if "query" not in weights:  # queries share the keys' map
            weights["query"], biases["query"] = weights["key"], biases["key"]
        return Projections(host.num_heads, weights, biases, host.out_proj)

    def wrap(self, host: nn.Module, block: Attention) -> Attention:
        """The block itself: it is called as its host was.

        Args:
            host: the block that is replaced.
            block: with its projections.

        Returns:
            The block.
        """
        return block

    def defaults(self, host: nn.Module) -> dict[str, Any]:
        """The mean that the host has, and its kernel.

        Args:
            host: the block.

        Returns:
            By name.
        """
        if isinstance(host, KernelAttention):
            return {"mean": "kernel", "kernel": host.canonical.name}
        return super().defaults(host)
