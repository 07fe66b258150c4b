"""What a structure is: how outputs are related, under a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor

from cgp.spelling import meant

if TYPE_CHECKING:
    from cgp.regression.observations import Observations

__all__ = ["Auto", "Named", "Structure", "check_count", "count"]


def check_count(name: str, value: Any, least: int) -> None:
    """Reject values that are not an integer count, or are too small."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")


def count(default: Any, least: int = 1) -> Any:
    """An option that is a count: its default and the least that it may be; None is allowed where it is the default."""
    return field(default=default, metadata={"least": least})


@dataclass(frozen=True)
class Named:
    """A frozen dataclass with a name, by which it can be asked for and is written to files.

    A direct subclass is a family, such as the structures; each further subclass with a ``name`` is one of the family
    from the moment its module is imported.

    Attributes:
        name: of the kind.
    """

    name: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Named]]]
    _family: ClassVar[str]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Named in cls.__bases__:
            cls._kinds, cls._family = {}, cls.__name__.lower()
        elif "name" in vars(cls):
            other = cls._kinds.get(cls.name)
            if other is not None and other.__qualname__ != cls.__qualname__:
                raise ValueError(f"{cls._family}: expected a new name, got {cls.name!r}, which {other.__name__} has")
            cls._kinds[cls.name] = cls

    def __post_init__(self) -> None:
        for option in fields(self):
            value, least = getattr(self, option.name), option.metadata.get("least")
            if least is not None and not (value is None and option.default is None):
                check_count(option.name, value, least)

    @classmethod
    def of(cls, value: Any) -> Self:
        """The object that a name stands for, with its defaults; an object of the family is returned as it is.

        Args:
            value: name or object.

        Returns:
            The object.

        Raises:
            ValueError: if it is neither.
        """
        found = cls._kinds[value]() if isinstance(value, str) and value in cls._kinds else value
        if not isinstance(found, cls):
            names = tuple(cls._kinds)
            raise ValueError(
                f"{cls._family}: expected one of {names} or its object, got {value!r}{meant([value], names)}"
            )
        return found

    def content(self) -> dict[str, Any]:
        """The name and the options, as values for JSON."""
        return {"name": self.name, **{option.name: getattr(self, option.name) for option in fields(self)}}

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> Self:
        """The object of :meth:`content`.

        Args:
            content: name and options.

        Returns:
            An equal object.

        Raises:
            ValueError: if its name is not known.
        """
        options = dict(content)
        name = options.pop("name")
        if name not in cls._kinds:
            raise ValueError(
                f"{cls._family}: expected one of {tuple(cls._kinds)}, got {name!r}: import the module that defines it"
            )
        made = cls._kinds[name](**options)
        assert isinstance(made, cls)
        return made


@dataclass(frozen=True)
class Structure(Named):
    """How outputs are related.

    One of your own is a subclass with a ``name`` and :meth:`covariance`, a frozen dataclass if it has options. Once it
    is imported, it is one of the structures by its name, in files too.

    Attributes:
        kernel: name of the canonical covariance where the user gives none.
        inference: name of the only inference that fits it; None where every other does.

    Example:
        >>> class Copies(Structure):
        ...     name = "copies"
        ...
        ...     def covariance(self, observations, kernel): ...
        >>> Structure.of("copies")
        Copies()
    """

    kernel: ClassVar[str] = "rbf"
    inference: ClassVar[str | None] = None

    def covariance(self, observations: Observations, kernel: str | Kernel) -> AdditiveKernel:
        """The covariance of rows (input, output), before a fit.

        Args:
            observations: standardised, which say how many outputs and inputs there are.
            kernel: the canonical covariance, by its name or as a GPyTorch kernel.

        Returns:
            A sum of :class:`.RowKernel`, in float64.
        """
        raise NotImplementedError

    def start(self, covariance: AdditiveKernel, observations: Observations) -> Tensor | None:
        """Set initial values that observations suggest, if any; returns noise variances ``(P,)`` that they suggest."""
        return None

    def resolved(self, observations: Observations) -> Structure:
        """The same structure, without options that observations in the user's units decide."""
        return self

    def variants(self, observations: Observations) -> Mapping[str, Structure]:
        """What is fitted for this structure, by a label each; the best of several by the information criterion."""
        return {self.name: self}

    def obstacle(self, observations: Observations, kernel: str | Kernel | None, num_inducing: int | None) -> str | None:
        """What is in the way of a fit, as "argument: expected …", or None."""
        return None


@dataclass(frozen=True)
class Auto(Structure):
    """Several structures are fitted and averaged, or that of long series is taken.

    Args:
        num_components: of each; None is 1, and for "factors" the number that the criterion selects.
    """

    name = "auto"
    num_components: int | None = count(None)
