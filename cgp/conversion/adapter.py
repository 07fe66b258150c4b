"""What a family of host models has to say so that its attention can be converted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from cgp.attention import Attention

__all__ = ["Adapter", "ConvertedAttention", "Projections"]


class Projections(NamedTuple):
    """The maps of a host's attention, as its own parameters.

    Attributes:
        num_heads: h, which divides the width d.
        weights: of "query", "key" and "value", each ``(d, d)``; heads lie side by side in the rows.
        biases: of "query", "key" and "value", each ``(d,)`` or None.
        out_proj: what follows the heads side by side; kept as it is, ``nn.Identity()`` where the host has it elsewhere.
        scale: of the scores; None is :math:`s^{-1/2}`.
    """

    num_heads: int
    weights: dict[str, Tensor]
    biases: dict[str, Tensor | None]
    out_proj: nn.Module
    scale: float | None = None


class ConvertedAttention(nn.Module):
    """Base of what stands in a host's place: a block, and the calling convention of the host around it.

    A subclass has the host's ``forward`` and calls :meth:`attend`.

    Args:
        block: the attention block, which holds the host's projections.
    """

    def __init__(self, block: Attention) -> None:
        super().__init__()
        self.block = block
        self.path = ""  # where it stands in the model, for messages

    def attend(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, **options: Any) -> Tensor:
        """Call the block; what it refuses is reported with the module's place in the model.

        Args:
            query: tokens, ``(*batch, Nq, d)``.
            key: tokens, ``(*batch, Nk, d)``, or None.
            value: tokens, ``(*batch, Nk, d)``, or None.
            **options: masks, and ``token_map``.

        Returns:
            AttentionInputs ``(*batch, Nq, d)``.

        Raises:
            ValueError: if the block refuses its inputs.
        """
        try:
            return self.block(query, key, value, **options)
        except ValueError as error:
            raise self.refusal(error) from error

    def refusal(self, reason: object) -> ValueError:
        """The error that names this module.

        Args:
            reason: what is wrong.

        Returns:
            The error, to be raised.
        """
        return ValueError(f"{self.path or type(self).__name__}: {reason}")


class Adapter(ABC):
    """How the attention of one family of models is recognised, read and replaced.

    ``hosts`` are classes, or their full names, so that no library is imported to recognise its modules. A class is
    meant exactly: a subclass may compute something else.

    Example:
        >>> class Mixer(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        >>> class MixerAdapter(Adapter):
        ...     hosts = (Mixer,)
        ...
        ...     def read(self, host):
        ...         maps = {"query": host.q, "key": host.k, "value": host.v}
        ...         weights = {name: linear.weight for name, linear in maps.items()}
        ...         biases = {name: linear.bias for name, linear in maps.items()}
        ...         return Projections(2, weights, biases, host.out)
        ...
        ...     def wrap(self, host, block):
        ...         return block
        >>> MixerAdapter().recognises(Mixer()), MixerAdapter().recognises(nn.Linear(1, 1))
        (True, False)
    """

    hosts: ClassVar[tuple[str | type[nn.Module], ...]] = ()

    def recognises(self, module: nn.Module) -> bool:
        """Whether a module is an attention module of this family.

        Args:
            module: any module.

        Returns:
            Whether it is.
        """
        kind = type(module)
        return kind in self.hosts or f"{kind.__module__}.{kind.__qualname__}" in self.hosts

    @abstractmethod
    def read(self, host: nn.Module) -> Projections:
        """The host's projections.

        Args:
            host: an attention module of this family.

        Returns:
            Its own parameters, not copies.

        Raises:
            ValueError: if it is configured in a way that no block can stand in for.
        """

    @abstractmethod
    def wrap(self, host: nn.Module, block: Attention) -> nn.Module:
        """What is put in the host's place.

        Args:
            host: the module that is replaced; what it does besides attending is taken over.
            block: with the host's projections.

        Returns:
            A :class:`ConvertedAttention` with the host's calling convention, or the block itself where it has that.
        """

    def defaults(self, host: nn.Module) -> dict[str, Any]:
        """Options of a "cgp" or "scgp" block that keep what the host computes.

        Args:
            host: an attention module of this family.

        Returns:
            By name; softmax's mean, and a covariance between 0 and the amplitude squared, unless overridden.
        """
        return {"mean": "softmax", "statistics": "bounded"}

    def plain(self, host: nn.Module) -> bool:
        """Whether the tokens that attend are linear maps of the input alone.

        Args:
            host: an attention module of this family.

        Returns:
            False if the host normalises or rotates its queries and keys.
        """
        return True

    def finish(self, model: nn.Module) -> None:
        """Set right whatever around the replaced modules relied on their class.

        Args:
            model: the converted model.
        """
        return
