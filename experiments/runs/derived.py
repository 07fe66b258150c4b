"""Names of what is derived from the runs of another method: ensembles of them, a temperature for each."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

__all__ = ["derivation", "derived_label"]

_LABELS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"ensemble": "Ensemble of {}".format, "temperature": "{}, temperature".format}
)
"""The label of what is derived from that of the other method, by how it is derived."""


def derivation(method: str) -> tuple[str | None, str]:
    """Say how a method is derived and from which.

    Args:
        method: its name.

    Returns:
        "ensemble" or "temperature", None if the name is not that of a derived method; and the name of the other method.

    Example:
        >>> derivation("ensemble_kep_svgp"), derivation("kep_svgp"), derivation("temperature")
        (('ensemble', 'kep_svgp'), (None, 'kep_svgp'), (None, 'temperature'))
    """
    kind, separator, base = method.partition("_")
    return (kind, base) if separator and kind in _LABELS else (None, method)


def derived_label(kind: str, label: str) -> str:
    """Return the label of a derived method.

    Args:
        kind: "ensemble" or "temperature".
        label: of the other method.

    Example:
        >>> derived_label("temperature", "SGPA")
        'SGPA, temperature'
    """
    return _LABELS[kind](label)
