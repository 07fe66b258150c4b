"""A complete run, as methods that start from it or are derived from it see it."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_model
from torch import nn

from experiments.data.examples import DataDescription
from experiments.methods import network
from experiments.prediction import Predictions, load_predictions
from experiments.runner.experiment import Experiment
from experiments.runner.folder import RunFolder
from experiments.runner.parsing import experiment_of

__all__ = ["TrainedRun", "needed_runs"]


class TrainedRun:
    """A trained model with its configuration and its predictions.

    Args:
        folder: of a complete run.

    Raises:
        ValueError: if it holds none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._files = RunFolder(self.folder)
        self.summary: dict[str, Any] = self._files.read_summary()
        self.config: Experiment = experiment_of(self._files.plain_config())

    @property
    def description(self) -> DataDescription:
        """What the model knows of its data."""
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in self.summary["data"].items()}
        return DataDescription(**plain)

    def model(self) -> nn.Module:
        """Build the model with its weights, in eval mode, on the CPU.

        Raises:
            ValueError: if the run has no weights: a derived method has none of its own.
        """
        if not self._files.weights.exists():
            raise ValueError(f"run: expected a trained model, got {self.folder} without weights")
        config = self.config
        model = network(config.method, model=config.model, training=config.training, description=self.description)
        load_model(model, str(self._files.weights))
        return model.eval()

    def predictions(self, name: str) -> Predictions:
        """Read the predictions on an input set.

        Args:
            name: of the input set, such as "test".
        """
        return load_predictions(self._files.predictions / f"{name}.npz")


def needed_runs(experiment: Experiment, out: Path) -> list[TrainedRun]:
    """Return the runs that a run starts from or is derived from.

    Args:
        experiment: of the run.
        out: folder of all runs.

    Raises:
        ValueError: if one is not complete; says how to make it.
    """
    runs = []
    for name, seed in experiment.needs():
        path = out / name / f"seed-{seed}"
        if not RunFolder(path).is_complete:
            command = f"python -m experiments fit --config {name} --seed {seed} --out {out}"
            raise ValueError(f"{experiment.name}: expected a complete run in {path}; make it by {command}")
        runs.append(TrainedRun(path))
    return runs
