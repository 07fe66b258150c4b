"""Log-log pictures of the benchmark: ratio against length, bytes kept against length and inducing inputs."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from cgp.plotting.style import PALETTE, WIDE, style
from experiments.benchmarks.cases import CENTRE, LABELS, REFERENCE
from experiments.benchmarks.rows import Row
from experiments.storage import write_atomically

__all__ = ["save_pictures"]

_SHOWN = ("kernel", "sparse-direct", "sparse-latent", "exact-direct", "softmax-sparse", "sgpa", "kep")
_MARKERS = "osD^vP*X"


def save_pictures(rows: Sequence[Row], folder: Path) -> dict[str, Path]:
    """Draw what the rows allow.

    Args:
        rows: what was measured.
        folder: where the pictures go.

    Returns:
        Paths by the name of the picture.
    """
    drawn = {"length": _length_figure(rows), "memory": _memory_figure(rows)}
    paths = {}
    for name, figure in drawn.items():
        if figure is None:
            continue
        paths[name] = folder / f"benchmark-{name}.png"
        write_atomically(paths[name], lambda path, figure=figure: figure.savefig(path))
        plt.close(figure)
    return paths


def _length_figure(rows: Sequence[Row]) -> Figure | None:
    """Ratio to softmax against n: forward, and forward with backward."""
    chosen = [row for row in rows if row["suite"] == "blocks" and _is_length(row)]
    if len({row["tokens"] for row in chosen}) < 2:
        return None
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(WIDE, 3.1), layout="constrained", sharey=True)
        for ax, measure, title in zip(axes, ("forward", "backward"), ("forward", "forward + backward"), strict=True):
            _lines(ax, [row for row in chosen if row["measure"] == measure], lambda row: row["ratio"])
            ax.axhline(1.0, color="#333333", lw=0.8, zorder=0)
            ax.set(xlabel="tokens n", title=title)
        axes[0].set_ylabel("seconds / softmax's")
        axes[0].annotate("softmax", (4096, 1.0), xytext=(0, -8), textcoords="offset points", fontsize=7, ha="right")
        _legend(figure, axes[0])
    return figure


def _memory_figure(rows: Sequence[Row]) -> Figure | None:
    """Megabytes kept a sequence against n, and against m at the centre."""
    chosen = [row for row in rows if row["suite"] == "memory"]
    lengths = [row for row in chosen if _is_length(row)]
    if len({row["tokens"] for row in lengths}) < 2:
        return None
    ranks = [row for row in chosen if row["tokens"] == CENTRE.tokens and _is_length(row, "inducing")]
    with style():
        figure, axes = plt.subplots(1, 2, figsize=(WIDE, 3.1), layout="constrained", sharey=False)
        _lines(axes[0], lengths, _megabytes, names=(REFERENCE, *_SHOWN))
        _lines(axes[1], ranks, _megabytes, names=(REFERENCE, "sparse-direct", "sparse-latent", "sgpa"), axis="inducing")
        axes[0].set(xlabel="tokens n", ylabel="MB kept for backward, a sequence")
        axes[1].set(xlabel=f"inducing inputs m (n = {CENTRE.tokens})")
        axes[1].yaxis.set_minor_formatter(FuncFormatter(lambda y, _: f"{y:g}"))  # less than a decade: no major tick
        _legend(figure, axes[0])
    return figure


def _megabytes(row: Row) -> float:
    return row["saved_bytes"] / row["batch"] / 2**20


def _is_length(row: Row, free: str = "tokens") -> bool:
    """Whether a row differs from the rest of its picture in n alone (and in the batch, which large n reduces)."""
    fields = {"width", "heads", "inducing", "precision", "execution", "tokens"} - {free}
    if free == "tokens" and row["tokens"] == CENTRE.tokens and row["batch"] != CENTRE.batch:
        return False
    if free != "tokens" and row["batch"] != CENTRE.batch:
        return False
    return all(row[field] == getattr(CENTRE, field) for field in fields) or row["width"] < 100


def _lines(
    ax: Axes,
    rows: Sequence[Row],
    value: Callable[[Row], float],
    names: Sequence[str] = _SHOWN,
    axis: str = "tokens",
) -> None:
    for name in names:
        points = sorted((row[axis], value(row)) for row in rows if row["block"] == name)
        if points:
            look = _look(name)
            ax.plot(*zip(*points, strict=True), label=LABELS[name], **look)
    ticks = sorted({row[axis] for row in rows})
    ax.set(xscale="log", yscale="log", xticks=ticks, xticklabels=[str(tick) for tick in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def _look(name: str) -> dict[str, object]:
    if name == REFERENCE:
        return {"color": "#333333", "ls": "--"}
    index = _SHOWN.index(name)
    return {"color": PALETTE[index % len(PALETTE)], "marker": _MARKERS[index]}


def _legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
