"""Whether attention tells the tokens of an input apart, in words."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.storage import read_arrays

__all__ = ["DIAGNOSTICS", "collapse_in_words", "collapse_of_runs", "read_diagnostics"]

DIAGNOSTICS = "diagnostics.npz"
"""Name of the file in a run's folder that says what goes on inside its model."""

_THE_SAME = 0.995


def collapse_of_runs(diagnostics: Iterable[Path]) -> str | None:
    """Read whether the attention of trained models has collapsed, on average over runs of one method.

    Args:
        diagnostics: `diagnostics.npz` of each run; what is not there is left out.

    Returns:
        What :func:`collapse_in_words` says.
    """
    read = [read_diagnostics(path, "attention_similarity") for path in diagnostics]
    found = [similarity for similarity in read if similarity is not None]
    return collapse_in_words(np.mean(found, 0)) if found else None


def collapse_in_words(similarity: Sequence[float] | NDArray[Any]) -> str | None:
    """Say in which layers attention returns the same to every token: such layers see a bag of tokens.

    Args:
        similarity: mean cosine similarity of what attention returns to the tokens of an input, one a layer.

    Returns:
        A sentence without its full stop; None if no layer's similarity is above 0.995.

    Example:
        >>> collapse_in_words([0.4, 0.999])
        'attention returns the same to every token (mean cosine similarity above 0.995) in layer 2'
    """
    layers = [str(place) for place, value in enumerate(similarity, 1) if value > _THE_SAME]
    if not layers:
        return None
    where = f"layer {layers[0]}" if len(layers) == 1 else f"layers {', '.join(layers)}"
    return f"attention returns the same to every token (mean cosine similarity above {_THE_SAME}) in {where}"


def read_diagnostics(path: Path, name: str) -> NDArray[Any] | None:
    """Read what was seen inside a trained model.

    Args:
        path: `diagnostics.npz` of a run.
        name: of the array.

    Returns:
        The array, or None if the file or the array is not there.

    Raises:
        ValueError: if the file is damaged.
    """
    found = read_arrays(path, name) if path.exists() else {}
    return np.asarray(found[name], dtype=np.float64) if name in found else None
