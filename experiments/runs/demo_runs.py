"""One unit of work: a method with a seed, from data to saved predictions, resumable at any moment."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_model

from experiments.evaluation.diagnostics import DIAGNOSTICS
from experiments.configuration import EvaluationConfig, MethodConfig, ModelConfig, TrainingConfig
from experiments.data import ImageSplits, digits, digits_splits
from experiments.data.examples import DataDescription, Examples
from experiments.evaluation.diagnostics import write_diagnostics
from experiments.methods.build import build
from experiments.runs.prediction import InputSet, input_sets, predict_logits, predictive_variance, save_predictions
from experiments.storage import write_atomically, write_json
from experiments.training import ClassificationModule, fit

__all__ = ["EXAMPLES", "Run", "perform"]

EXAMPLES = 5
"""Number of test images whose predictive variance is kept for the pictures."""

_SUMMARY = "run.json"
_DIGITS = DataDescription(
    kind="image", num_classes=10, image_shape=(1, 8, 8), mean=(digits.MEAN,), deviation=(digits.STANDARD_DEVIATION,)
)


class Run(NamedTuple):
    """A method with a seed.

    Attributes:
        name: name of the method in the configuration.
        method: the method.
        seed: decides split, start, order of the images, and draws.
        model: sizes.
        training: the budget.
        evaluation: what is predicted; nothing but the training where it is missing.
    """

    name: str
    method: MethodConfig
    seed: int
    model: ModelConfig
    training: TrainingConfig
    evaluation: EvaluationConfig | None

    def folder(self, root: Path) -> Path:
        """Return the folder of the run within that of the application's output."""
        return root / "runs" / self.name / f"seed-{self.seed}"

    def is_complete(self, root: Path) -> bool:
        """Say whether everything of the run is done."""
        return (self.folder(root) / _SUMMARY).exists()

    @property
    def epochs(self) -> int:
        """Number of epochs of the training."""
        return self.training.passes

    def perform(self, root: Path, report: Callable[[int], None]) -> None:
        """Do what is not done yet."""
        perform(self, root, report)

    def summary(self, root: Path) -> dict[str, Any]:
        """Return the summary of a complete run."""
        return json.loads((self.folder(root) / _SUMMARY).read_text(encoding="utf-8"))


def perform(run: Run, root: Path, report: Callable[[int], None] = lambda epochs: None) -> dict[str, Any]:
    """Train, predict and save; do only what is not done yet.

    Args:
        run: what to do.
        root: the application's output folder.
        report: called with the number of epochs done.

    Returns:
        The summary: history, best epoch, validation NLL, seconds an epoch.
    """
    folder = run.folder(root)
    if run.is_complete(root):
        report(run.epochs)
        return run.summary(root)
    splits = digits_splits(run.seed)
    torch.manual_seed(run.seed)
    module = build(
        run.method,
        model=run.model,
        training=run.training,
        description=_DIGITS,
        num_data=len(splits.train.labels),
    )
    checkpoints = folder / "checkpoints"
    summary = fit(module, splits, training=run.training, seed=run.seed, folder=checkpoints, report=report)._asdict()
    write_atomically(folder / "weights.safetensors", lambda aside: save_model(module.model, str(aside)))
    if run.evaluation is not None:
        _predict(module, splits, run, run.evaluation, folder)
    summary["parameters"] = sum(parameter.numel() for parameter in module.model.parameters())
    write_json(folder / _SUMMARY, summary)
    shutil.rmtree(checkpoints)
    return summary


def _predict(
    module: ClassificationModule, splits: ImageSplits, run: Run, evaluation: EvaluationConfig, folder: Path
) -> None:
    """Save the predictions on every input set, and the predictive variance over a few images."""
    for inputs in input_sets(splits, evaluation, run.seed):
        path = folder / "predictions" / f"{inputs.name}.npz"
        if not path.exists():
            logits = predict_logits(module.model, inputs.images, num_samples=evaluation.draws, seed=run.seed)
            save_predictions(path, logits, inputs)
    _save_variance(module, _first_of_each_class(splits), folder / "predictions" / "patch-variance.npz")
    write_diagnostics(module.model, Examples(*splits.test), folder / DIAGNOSTICS)


def _first_of_each_class(splits: ImageSplits) -> InputSet:
    """Return the first test image of each of the first classes."""
    test = splits.test
    first = torch.stack([(test.labels == label).nonzero()[0, 0] for label in range(EXAMPLES)])
    return InputSet("examples", test.images[first], test.ids[first], test.labels[first])


def _save_variance(module: ClassificationModule, inputs: InputSet, path: Path) -> None:
    """Save the variance `(L, N, n)` of each patch in each layer, where the model has one."""
    variance = predictive_variance(module.model, inputs.images)
    if variance is not None:
        write_atomically(
            path, lambda aside: np.savez_compressed(aside, variance=variance.numpy(), ids=inputs.ids.numpy())
        )
