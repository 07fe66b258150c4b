"""Predictions of a run on an input set, made once."""

import torch
from torch import Tensor, nn

from experiments.data.examples import InputSet, batch
from experiments.prediction import drawn_logits, save_predictions
from experiments.runner.experiment import Experiment
from experiments.runner.folder import RunFolder

__all__ = ["logits_of_set", "predict_set"]


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
