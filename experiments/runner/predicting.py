"""Predictions of a run on an input set, made once."""

from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from experiments.data import input_sets, load
from experiments.data.examples import InputSet, batch
from experiments.data.folders import folder_inputs, image_files
from experiments.inside import write_diagnostics
from experiments.metrics import mean_probabilities, uncertainty
from experiments.prediction import drawn_logits, save_predictions
from experiments.runner.experiment import Experiment
from experiments.runner.folder import RunFolder
from experiments.runner.trained_run import TrainedRun
from experiments.tables import write_csv

__all__ = ["logits_of_set", "predict_images", "predict_set", "predict_sets"]

_SHOWN = 20  # rows of images in the terminal


def predict_set(model: nn.Module, inputs: InputSet, experiment: Experiment, folder: RunFolder) -> None:
    """Predict an input set and save the logits, unless that was done.

    Args:
        model: a trained model.
        inputs: what to predict.
        experiment: how many draws, and their seed.
        folder: of the run.
    """
    path = folder.predictions / f"{inputs.name}.npz"
    if not path.exists():
        save_predictions(path, logits_of_set(model, inputs, experiment), inputs)


def logits_of_set(model: nn.Module, inputs: InputSet, experiment: Experiment) -> Tensor:  # shape: (S, N, classes)
    """Draw logits in the order of the inputs; texts of about one length are predicted together.

    Args:
        model: from inputs to logits; put into eval mode.
        inputs: what to predict.
        experiment: draws and their seed, and how many inputs at a time.
    """
    order = torch.arange(len(inputs))
    if not isinstance(inputs.inputs, Tensor):
        order = (~inputs.inputs["padding_mask"]).sum(-1).cpu().argsort(stable=True)
    batches = (batch(inputs, part)[0] for part in order.split(experiment.evaluation.batch_size))
    drawn = drawn_logits(model, batches, num_draws=experiment.evaluation.draws, seed=experiment.seed)
    return drawn[:, order.argsort()]


def predict_sets(run: TrainedRun, *, full: bool = False) -> None:
    """Predict what is missing of a run's input sets, and look inside the model where that was not done.

    Args:
        run: a trained run.
        full: corrupt all test images at all five severities.
    """
    config = run.config
    splits = load(config.data, config.seed)
    model = run.model().to(_device())
    folder = RunFolder(run.folder)
    for inputs in input_sets(config.data, splits, config.seed, full=full):
        predict_set(model, inputs, config, folder)
    write_diagnostics(model, splits.test, folder.diagnostics)


def predict_images(run: TrainedRun, folder: Path) -> Table:
    """Predict a folder of images anew, and note the class and the uncertainties of each file.

    Args:
        run: a run that was trained on images.
        folder: images, in sub-folders or not.

    Returns:
        The first of them, for the terminal; all are in `predictions/<folder>.csv`.
    """
    inputs = folder_inputs(folder, run.description)
    logits = logits_of_set(run.model().to(_device()), inputs, run.config)
    path = RunFolder(run.folder).predictions / f"{inputs.name}.npz"
    save_predictions(path, logits, inputs)
    rows = _image_rows(run, logits, [str(file.relative_to(folder)) for file in image_files(folder)])
    write_csv(path.with_suffix(".csv"), rows)
    table = Table(*rows[0], title=f"{len(rows):,} images of {folder}, all in {path.with_suffix('.csv')}")
    for row in rows[:_SHOWN]:
        table.add_row(*(f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def _image_rows(run: TrainedRun, logits: Tensor, files: list[str]) -> list[dict[str, Any]]:
    """Class, its probability, and both uncertainties of each file."""
    probabilities, unsure = mean_probabilities(logits), uncertainty(logits)
    names = run.description.class_names or tuple(str(label) for label in range(logits.shape[-1]))
    return [
        {
            "file": file,
            "class": names[int(probabilities[place].argmax())],
            "probability": float(probabilities[place].max()),
            "total uncertainty": float(unsure.total[place]),
            "epistemic uncertainty": float(unsure.epistemic[place]),
        }
        for place, file in enumerate(files)
    ]


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
