"""A complete run, as methods that start from it or are derived from it see it."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_model
from torch import nn

from experiments.data import load
from experiments.data.examples import DataDescription
from experiments.methods.build import network
from experiments.runs.prediction import Predictions, load_predictions
from experiments.runs.experiment import Experiment
from experiments.runs.folder import RunFolder
from experiments.runs.parsing import experiment_of
from experiments.runs.rows import is_row

__all__ = ["TrainedRun", "needed_runs"]

_SPLIT = (
    *("name", "split", "split_seed", "validation", "unchecked", "limit_train", "image_size"),
    *("encoder", "max_length", "vocabulary_size", "min_count"),
)
"""What decides which examples a run learns from, and in what form; which are predicted may differ."""


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
    def out(self) -> Path:
        """The folder of all runs, in which it lies."""
        return self.folder.resolve().parents[2]

    @property
    def description(self) -> DataDescription:
        """What the model knows of its data."""
        plain = {key: tuple(value) if isinstance(value, list) else value for key, value in self.summary["data"].items()}
        return DataDescription(**plain)

    @property
    def sources(self) -> dict[str, str]:
        """What the inputs were that it predicted, in words, by the name of their set."""
        return dict(self.summary.get("sources") or {})

    def model(self) -> nn.Module:
        """Build the model with its weights, in eval mode, on the CPU.

        Raises:
            ValueError: if the run has no weights, as a derived method has none of its own, or they are damaged.
        """
        if not self._files.weights.exists():
            derived_from = self.summary.get("derived_from")
            bases = f"; predict with {self.out.joinpath(*Path(derived_from[0]).parts[-3:])}" if derived_from else ""
            raise ValueError(f"run: expected a trained model, got {self.folder} without weights{bases}")
        config = self.config
        model = network(config.method, model=config.model, training=config.training, description=self.description)
        try:
            load_model(model, str(self._files.weights))
        except SafetensorError as error:
            raise ValueError(f"{self._files.weights}: expected weights, got a damaged file ({error})") from error
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
        ValueError: if one is not complete, and says how to make it; or if it has other data.
    """
    runs = []
    for name, seed in experiment.needs():
        path = out / name / f"seed-{seed}"
        if not RunFolder(path).is_complete:
            method = name.split("/")[1]
            row = f"--config {name}" if is_row(name) else f"--config .../{method} --name {name}"
            raise ValueError(
                f"{experiment.name}: expected a complete run in {path}; make it first, by the same command with "
                f"{row} --seed {seed} (a sweep makes what its rows need)"
            )
        run = TrainedRun(path)
        _check_data(experiment, run)
        runs.append(run)
    return runs


def _check_data(experiment: Experiment, run: TrainedRun) -> None:
    """Fail where a run saw other examples: its test examples may be among the training examples here."""
    own, there = experiment.data, run.config.data
    other = [
        f"data.{name} {getattr(there, name)} there, {getattr(own, name)} here"
        for name in _SPLIT
        if getattr(there, name) != getattr(own, name)
    ]
    if other:
        raise ValueError(f"{experiment.name}: expected the data of {run.folder}, got others ({'; '.join(other)})")
    files = RunFolder(run.folder)
    if files.is_moved(experiment):
        files.check_data(load(own, run.config.seed))
