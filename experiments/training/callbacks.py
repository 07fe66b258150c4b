"""Lightning callbacks: one random stream per step, and the history of a run."""

import time
from typing import Any

import lightning
import torch
from typing_extensions import override

from experiments.data.partition import generator_for

__all__ = ["History", "SeedEveryStep"]


class SeedEveryStep(lightning.Callback):
    """Seeds the global generator before each step, so that a resumed run draws as an uninterrupted one.

    Seeding once per epoch is not enough: creating the loader's iterator draws a number, which a resumed
    epoch does earlier.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @override
    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        names: tuple[str | int, ...] = (
            "step",
            self.seed,
            trainer.global_step,
            *([trainer.global_rank] if trainer.global_rank else []),
        )
        torch.manual_seed(generator_for(*names).initial_seed())


class History(lightning.Callback):
    """One row per epoch: loss, validation scores, seconds of training; saved in the checkpoints."""

    def __init__(self, *, lines: bool) -> None:
        self.rows: list[dict[str, float]] = []
        self.lines = lines
        self._start = 0.0
        self._seconds = 0.0

    @override
    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._start = time.perf_counter()

    @override
    def on_validation_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._seconds = time.perf_counter() - self._start  # validation is not training

    @override
    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self.rows.append({"epoch": trainer.current_epoch, **logged, "seconds": self._seconds})
        if self.lines and not trainer.global_rank:
            print(
                f"epoch {len(self.rows)} of {trainer.max_epochs}: training loss {logged['train_loss']:.4g}, validation "
                f"NLL {logged['validation_nll']:.4f}, accuracy {100 * logged['validation_accuracy']:.1f} %, "
                f"{self._seconds:.1f} s",
                flush=True,
            )

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"rows": list(self.rows)}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(state_dict["rows"])
