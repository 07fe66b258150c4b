"""The picture of the learning curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from cgp.plotting import PALETTE, WIDE, style
from experiments.atomic_files import write_atomically
from experiments.studies.in_context.models import LABELS

__all__ = ["LOOKS", "draw_curves"]

_NEURAL, _ATTENTION, _FIXED, _WRITTEN, *_ = PALETTE
LOOKS: Mapping[str, tuple[str, str, str]] = {
    "tnp": (_NEURAL, "-", "o"),
    "tnp-equivariant": (_NEURAL, "--", "s"),
    "convcnp": (_NEURAL, ":", "^"),
    "tnp-gp": (_ATTENTION, "-", "o"),
    "features-8": (_ATTENTION, "--", "s"),
    "fixed-8": (_FIXED, "-", "o"),
    "fixed-8-marginal": (_FIXED, "--", "s"),
    "fixed-1": (_FIXED, ":", "^"),
    "fixed-32": (_FIXED, "-.", "D"),
    "written-8": (_WRITTEN, "-", "o"),
    "written-1": (_WRITTEN, ":", "^"),
    "deep-kernel": (PALETTE[-1], "-", "o"),
}
"""Colour, line and marker of each model."""
_TITLES = {
    "small": "small: rbf draws, saw teeth",
    "small-windows": "small: days of air temperature",
    "mixture": "mixture of four kinds",
    "windows": "days of air temperature",
}
_MARGIN = 0.05  # nats


def draw_curves(points: pd.DataFrame, picture: Path) -> None:
    """Validation loss over processor seconds: a panel for each family, a line for each training.

    A colour is a way to predict: neural processes, Gaussian-process attention, fixed kernels, kernels that a
    transformer writes, deep kernels.

    Args:
        points: rows with "family", "model", "seed", "seconds" and "loss".
        picture: file to write.
    """
    present = dict(list(points.groupby("family")))
    families = [*(name for name in _TITLES if name in present), *sorted(present.keys() - _TITLES.keys())]
    models = [name for name in LOOKS if (points["model"] == name).any()]
    columns = min(2, len(families))
    lines = -(-len(families) // columns)
    size: dict[str, Any] = {"figsize": (WIDE, 2.2 * lines + 0.8), "layout": "constrained"}
    with style():
        figure, axes = plt.subplots(lines, columns, squeeze=False, **size)
        for ax, family in zip(axes.flat, families, strict=False):
            _panel(ax, present[family], models)
            ax.set_title(_TITLES.get(family, family), loc="left")
            ax.set_xlabel("CPU seconds of training")
        for ax in axes.flat[len(families) :]:
            ax.set_visible(False)
        for ax in axes[:, 0]:
            ax.set_ylabel("validation loss, nats a target")
        handles = [Line2D([], [], **_look(name), label=LABELS[name]) for name in models]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=3.2)
        write_atomically(picture, lambda aside: figure.savefig(aside, format="png", dpi=120))
        plt.close(figure)


def _panel(ax: Axes, points: pd.DataFrame, models: Sequence[str]) -> None:
    """All trainings of a family; the axis shows the later half of each curve whole."""
    ends: list[float] = []
    for name in models:
        for _, curve in points[points["model"] == name].groupby("seed"):
            ax.plot(curve["seconds"], curve["loss"], **_look(name), lw=1.0)
            ends += list(curve["loss"])[len(curve) // 2 :]
    ax.set_ylim(min(ends) - _MARGIN, max(ends) + _MARGIN)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _look(name: str) -> dict[str, Any]:
    colour, line, marker = LOOKS[name]
    return {"color": colour, "ls": line, "marker": marker, "ms": 2.5}
