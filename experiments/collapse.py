"""Whether attention tells the tokens of an input apart, in words."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ["collapse_in_words", "collapse_of_run"]

_THE_SAME = 0.995


def collapse_of_run(diagnostics: Path) -> str | None:
    """Read whether the attention of a trained model has collapsed.

    Args:
        diagnostics: the run's `diagnostics.npz`; need not be there.

    Returns:
        What :func:`collapse_in_words` says.
    """
    if not diagnostics.exists():
        return None
    with diagnostics.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return collapse_in_words(arrays["attention_similarity"]) if "attention_similarity" in arrays.files else None


def collapse_in_words(similarity: Sequence[float]) -> str | None:
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
