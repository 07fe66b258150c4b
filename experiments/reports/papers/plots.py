"""`plot`: what the command line calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from cgp.plotting import style
from experiments.evaluation import ClassificationReport, Protocol
from experiments.reports.papers.arrays import Material
from experiments.reports.papers.cache import Cache
from experiments.reports.papers.commands import CACHE
from experiments.reports.papers.figures import FIGURES, FigureSpec
from experiments.reports.papers.measure import Meter
from experiments.reports.papers.names import plain
from experiments.reports.papers.runs import Run, find_runs
from experiments.storage import write_atomically

__all__ = ["Picture", "plot"]

Picture = Literal["png", "pdf"]


def plot(
    name: str,
    *,
    runs: Path = Path("runs"),
    out: Path = Path("figures"),
    format: Picture = "png",  # noqa: A002 - the name of the option
    data: str | None = None,
    methods: Sequence[str] | None = None,
    metric: str = "accuracy",
    protocol: Protocol = "pooled",
) -> None:
    """Draw a figure of a paper from runs: curves by corruption, histograms, spectra, cost.

    Args:
        name: cgpt-figure-II to -IV, kep-figure-2 to -4, reliability, risk-coverage, or all.
        runs: folder of runs, `<data>/<method>/seed-<n>/` beneath.
        out: a file, or a folder for a file a figure.
        format: png or pdf.
        data: name of a data folder instead of the figure's own.
        methods: names of method folders instead of the figure's own.
        metric: of the curves by corruption.
        protocol: how metrics are computed and draws averaged.

    Raises:
        ValueError: If there is no such figure, format, metric or folder, or the runs lack what it shows.
    """
    if format not in get_args(Picture):
        raise ValueError(f"format: expected one of {', '.join(get_args(Picture))}, got {format!r}")
    if metric not in ClassificationReport._fields:
        raise ValueError(f"metric: expected one of {', '.join(ClassificationReport._fields)}, got {metric!r}")
    chosen = _chosen(name)
    found = find_runs(Path(runs))
    meter = Meter(protocol, Cache(Path(runs) / CACHE))
    for key, spec in chosen.items():
        folders = (data,) if data else spec.folders
        material = _material(found, folders, methods or spec.methods, meter)
        absent = [method for method in methods or () if method not in material.runs]
        if absent:
            raise ValueError(f"methods: expected some with runs in {' or '.join(folders)}, got {', '.join(absent)}")
        path = _target(Path(out), key, format, one=len(chosen) == 1)
        if _is_saved(spec, material, metric, path):
            continue
        message = f"{key}: expected {spec.needs} in {' or '.join(folders)}, got none (other runs: --data, --methods)"
        if len(chosen) == 1:
            raise ValueError(message)
        print(f"{message} (waiting)")


def _chosen(name: str) -> dict[str, FigureSpec]:
    asked = plain(name)
    chosen = {key: spec for key, spec in FIGURES.items() if asked in ("all", plain(key))}
    if not chosen:
        raise ValueError(f"name: expected all or one of {', '.join(FIGURES)}, got {name!r}")
    return chosen


def _material(runs: Sequence[Run], folders: Sequence[str], methods: Sequence[str], meter: Meter) -> Material:
    """Runs of each method, in the first folder that has it."""
    found = {}
    for method in methods:
        for folder in folders:
            own = [run for run in runs if (run.data, run.method) == (folder, method)]
            if own:
                found[method] = own
                break
    return Material(found, meter)


def _target(out: Path, key: str, ending: str, *, one: bool) -> Path:
    return out if one and out.suffix[1:].isalpha() else out / f"{key}.{ending}"


def _is_saved(spec: FigureSpec, material: Material, metric: str, path: Path) -> bool:
    """Draw and write a figure, where the runs have what it shows."""
    with style():
        figure = spec.draw(material, metric)
        if figure is None:
            return False
        write_atomically(path, lambda aside: _write(figure, aside))
        plt.close(figure)
    print(path)
    return True


def _write(figure: Figure, path: Path) -> None:
    figure.savefig(path, bbox_inches="tight", pad_inches=0.05)
