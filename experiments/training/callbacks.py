"""Lightning callbacks: one random stream a step, and the history of a run."""

import time
from collections.abc import Callable
from typing import Any

import lightning
import torch
from typing_extensions import override

from experiments.data.partition import generator_for

__all__ = ["History", "SeedEveryStep"]


class SeedEveryStep(lightning.Callback):
    """Seeds the global generator before each step, so that a resumed run draws what the whole run draws.

    Once an epoch is not enough: where an epoch begins, making the loader's iterator draws a number, and a resumed
    epoch makes it earlier.

    Args:
        seed: seed of the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @override
    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seed by run and step, and by process where there are several."""
        names = ("step", self.seed, trainer.global_step, *([trainer.global_rank] if trainer.global_rank else []))
        torch.manual_seed(generator_for(*names).initial_seed())


class History(lightning.Callback):
    """One row an epoch: loss, validation scores, seconds of training; saved in the checkpoints.

    Args:
        report: called with the number of epochs done, for progress bars.
    """

    def __init__(self, report: Callable[[int], None]) -> None:
        self.rows: list[dict[str, float]] = []
        self.report = report
        self._start = 0.0
        self._seconds = 0.0

    @override
    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    @override
    def on_validation_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Stop the clock: validation is not training."""
        self._seconds = time.perf_counter() - self._start

    @override
    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Add the row of the epoch."""
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({"epoch": trainer.current_epoch, **logged, "seconds": self._seconds})
        self.report(len(self.rows))

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps.

        Returns:
            The rows so far.
        """
        return {"rows": list(self.rows)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where a checkpoint was written.

        Args:
            state_dict: from `state_dict`.
        """
        self.rows = list(state_dict["rows"])
        self.report(len(self.rows))
