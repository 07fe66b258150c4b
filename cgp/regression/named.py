"""Objects that have a name: given by it, with their defaults, or with options, and written to disk by it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from .checks import check_count

__all__ = ["Named", "count"]


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
            raise ValueError(f"{cls._family}: expected one of {tuple(cls._kinds)} or its object, got {value!r}")
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
