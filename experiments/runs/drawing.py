"""Pictures of a run, from its saved predictions and its history."""

import io
from collections.abc import Callable, Iterator
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cgp.plotting import COLUMN, confidence_histograms, reliability_diagram, risk_coverage, style, training_curves
from experiments.evaluation import mean_probabilities
from experiments.runs.prediction import load_predictions
from experiments.runs.folder import RunFolder
from experiments.runs.scoring import predicted_sets
from experiments.storage import write_atomically

__all__ = ["RunPicture", "draw_run"]

_DOTS = 160


class RunPicture(NamedTuple):
    """A picture.

    Attributes:
        name: of its file.
        title: what it shows.
        png: the file.
    """

    name: str
    title: str
    png: bytes


def draw_run(folder: RunFolder) -> list[RunPicture]:
    """Draw what a run has material for, into its folder `pictures`.

    Args:
        folder: of the run.
    """
    pictures = list(_pictures(folder))
    for picture in pictures:
        path = folder.path / "pictures" / f"{picture.name}.png"
        write_atomically(path, lambda aside, png=picture.png: aside.write_bytes(png))
    return pictures


def _pictures(folder: RunFolder) -> Iterator[RunPicture]:
    history = folder.read_summary().get("history") or []
    if len(history) > 1:
        names = {"train_nll": "training NLL", "validation_nll": "validation NLL"}
        parts = {title: [row[name] for row in history] for name, title in names.items() if name in history[0]}
        epochs = [row["epoch"] + 1 for row in history]
        yield _drawn("training", "Training", lambda ax: training_curves(epochs, parts, ax=ax))
    test = load_predictions(folder.predictions / "test.npz")
    if test.labels is None:
        return
    probabilities = mean_probabilities(test.logits)
    confidence, correct = probabilities.max(-1), probabilities.argmax(-1) == test.labels
    yield _drawn(
        "reliability", "Reliability on the test set", lambda ax: reliability_diagram(confidence, correct, ax=ax)
    )
    yield _drawn(
        "risk-coverage",
        "Error rate among the most confident",
        lambda ax: risk_coverage({folder.read_summary()["label"]: (confidence, correct)}, ax=ax),
    )
    strange = next((name for name in predicted_sets(folder) if name.startswith("ood-")), None)
    ood = None
    if strange is not None:
        ood = mean_probabilities(load_predictions(folder.predictions / f"{strange}.npz").logits).max(-1)
    yield _drawn(
        "confidence",
        f"Confidence on the test set{'' if strange is None else f' and on {strange}'}",
        lambda ax: confidence_histograms(confidence[correct], confidence[~correct], ood, ax=ax),
    )


def _drawn(name: str, title: str, draw: Callable[[Axes], object]) -> RunPicture:
    with style():
        figure = Figure(figsize=(COLUMN, 2.6), layout="constrained")
        draw(figure.add_subplot())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_DOTS)
    return RunPicture(name, title, buffer.getvalue())
