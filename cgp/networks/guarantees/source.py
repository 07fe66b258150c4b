"""Where a prediction comes from: held-out labels guarantee something of what is predicted by the same model alike."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

__all__ = ["Source", "check_same_source"]


class Source(NamedTuple):
    """What made a prediction.

    Attributes:
        weights: fingerprint of the model's weights.
        calibration: temperature, scale, read-out and kind of draws, in words.
        asked: options of :func:`cgp.predict` that change what it predicts, in words by name.
    """

    weights: int
    calibration: str
    asked: dict[str, str]

    @classmethod
    def of_content(cls, content: dict[str, Any] | None) -> Self | None:
        """The source from its attributes as values of JSON; None where there were none."""
        return None if content is None else cls(**content)


def check_same_source(known: Source | None, source: Source | None) -> None:
    """Raise unless a held-out prediction was made as another prediction; of one of unknown source nothing is said.

    Args:
        known: of the held-out prediction.
        source: of the prediction.

    Raises:
        ValueError: if they differ; the message says in what.

    Example:
        >>> check_same_source(Source(1, "T=1", {"noise": "1"}), Source(1, "T=1", {"noise": "0.01"}))
        Traceback (most recent call last):
        ...
        ValueError: held_out: expected a prediction with noise=0.01 as this one, got noise=1 (predict both alike)
    """
    if known is None or source is None:
        return
    if known.weights != source.weights:
        raise ValueError(
            "held_out: expected a prediction by the weights of this one, got one by others (a model trained on since, "
            "or another): predict the held-out data again, or cgp.with_held_out(model, data)"
        )
    if known.calibration != source.calibration:
        raise ValueError(
            f"held_out: expected a prediction by the model as it is calibrated ({source.calibration}), got "
            f"({known.calibration}): predict the held-out data again, or cgp.with_held_out(model, data)"
        )
    for name, value in source.asked.items():
        if known.asked.get(name, value) != value:
            raise ValueError(
                f"held_out: expected a prediction with {name}={value} as this one, got {name}={known.asked[name]} "
                "(predict both alike)"
            )
