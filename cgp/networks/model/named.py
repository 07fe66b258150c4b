"""Objects that are known by their names: asked for by them, and found again by them in folders."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from cgp.spelling import meant

__all__ = ["Named", "State"]

State = tuple[dict[str, Any], dict[str, Tensor]]
"""What is written to a folder: numbers and text, and tensors, by name."""


class Named:
    """An object of a kind, such as a method or a score; a subclass of the kind that has a name is known by it.

    Attributes:
        name: by which it is asked for and stored.
        known: the classes of its kind by name.
        argument: what arguments of its kind are called, for error messages.
    """

    name: ClassVar[Any]
    known: ClassVar[dict[Any, Any]]
    argument: ClassVar[str]

    def __init_subclass__(cls, argument: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if argument is not None:  # a new kind
            cls.known, cls.argument = {}, argument
        elif "name" in vars(cls):
            cls.known[cls.name] = cls

    @classmethod
    def named(cls, thing: Any) -> Self:
        """The object of a name, or the object itself."""
        if isinstance(thing, cls):
            return thing
        if thing not in cls.known:
            near = meant([thing], cls.known)
            raise ValueError(f"{cls.argument}: expected one of {tuple(cls.known)}, got {thing!r}{near}")
        found: Self = cls.known[thing]()
        return found

    def state(self) -> State:
        """What :meth:`of_state` makes the same object of: by default the fields of a dataclass, arrays as tensors."""
        own: Any = self
        values = {field.name: getattr(own, field.name) for field in fields(own)} if is_dataclass(own) else {}
        arrays = {name: torch.from_numpy(value) for name, value in values.items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in values.items() if name not in arrays}, arrays

    @classmethod
    def of_state(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """The object of what :meth:`state` returned."""
        return cls(**config, **{name: tensor.numpy() for name, tensor in tensors.items()})

    def saved(self) -> State:
        """The state, with the name."""
        config, tensors = self.state()
        return {"name": self.name, "options": config}, tensors

    @classmethod
    def of_saved(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """The object of what :meth:`saved` returned, whatever its class."""
        return type(cls.named(config["name"])).of_state(config["options"], tensors)
