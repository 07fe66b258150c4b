"""The Lightning module of a classifier, with its optimizer and the schedules of its rates and weights."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import lightning
import torch
import torch.distributed
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR
from typing_extensions import override

from cgp.networks.model.inputs import call_model
from cgp.networks.model.objective import Objective
from experiments.configuration import MethodConfig, TrainingConfig
from experiments.evaluation import matthews_correlation, mean_log_probabilities, negative_log_likelihood
from experiments.training.batches import Batch
from experiments.training.drawing import drawing

__all__ = ["ClassificationModule", "build_optimizer", "learning_rate_factor", "linear", "rate_schedule"]

_OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}


def build_optimizer(
    parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]], method: MethodConfig, training: TrainingConfig
) -> torch.optim.Optimizer:
    """Build the optimizer of parameters, or of groups of them with different learning rates."""
    return _OPTIMIZERS[training.optimizer](parameters, lr=method.learning_rate, weight_decay=method.weight_decay)


def rate_schedule(
    optimizer: torch.optim.Optimizer, method: MethodConfig, training: TrainingConfig, total: int
) -> LRScheduler:
    """Build the schedule of the learning rate, one value per step."""
    warmup = total * training.warmup_epochs / training.epochs
    if training.schedule == "one_cycle":
        warmup = min(warmup, total - 1)
        return OneCycleLR(
            optimizer,
            max_lr=[group["lr"] for group in optimizer.param_groups],
            total_steps=total,
            pct_start=warmup / total if warmup > 1 else 0.0,  # the library divides by zero for a single step
            cycle_momentum=False,
        )
    end = training.final_learning_rate / method.learning_rate
    return LambdaLR(
        optimizer,
        lambda step: learning_rate_factor(step, total, warmup=round(warmup), end=end, schedule=training.schedule),
    )


def learning_rate_factor(step: int, total: int, *, warmup: int, end: float, schedule: str) -> float:
    """Learning rate of a step relative to the largest one: it increases linearly, then decreases."""
    if step < warmup:
        return (step + 1) / warmup
    fallen = linear(step - warmup, total - warmup)
    return 1.0 + (end - 1.0) * (fallen if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * fallen)))


def linear(step: int, num_steps: int, start: float = 0.0, end: float = 1.0) -> float:
    """Linear from start to end, then constant: CGPT's annealing of alpha, SGPA's of the divergence."""
    return start + (end - start) * (min(step / num_steps, 1.0) if num_steps > 0 else 1.0)


_NEW_RATE = 10
_Predicted = tuple[Tensor, Tensor, Tensor]  # logits (S, B, C), labels (B,), positions (B,)


class ClassificationModule(lightning.LightningModule):
    """Minimises an objective; logs NLL, accuracy and MCC of the mean probability on the whole validation set.

    The weights α of the log-density terms and β of the divergences increase linearly, as the method specifies. On
    several processes the gradients are those of one process on the joined batch, and the validation scores are those of
    the joined set. `new` parameters, which a pretrained model does not have, learn ten times as fast as the others.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        objective: Objective,
        method: MethodConfig,
        training: TrainingConfig,
        new: Sequence[nn.Parameter] = (),
    ) -> None:
        super().__init__()
        known = {id(parameter) for parameter in new}
        self.groups: list[dict[str, Any]] = [{"params": [p for p in objective.parameters() if id(p) not in known]}]
        if new:
            self.groups.append({"params": list(new), "lr": _NEW_RATE * method.learning_rate})
        self.model = model
        self.objective = objective
        self.method = method
        self.training_config = training
        self._validation: list[_Predicted] = []
        self._sums: dict[str, Tensor] = {}
        self._seen = 0
        self._total = 0

    @override
    def on_train_start(self) -> None:
        """Count the steps once; Lightning would count them at every step."""
        self._total = int(self.trainer.estimated_stepping_batches)

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set the weights of this step."""
        method, step = self.method, self.trainer.global_step
        rising = int(method.alpha_annealing * self._total)
        self.objective.set_weights(
            alpha=linear(step, rising, method.alpha_start, method.alpha),
            beta=linear(step, round(method.annealing * self._total)),
        )

    @override
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Evaluate the objective; the mean over the processes is that of the joined batch."""
        parts = self.objective.parts(batch.inputs, batch.labels)
        count = len(batch.labels)
        for name, value in parts.items():  # Lightning's logging at every step costs as much as a small layer
            self._sums[name] = self._sums.get(name, 0.0) + count * value.detach()
        self._seen += count
        return parts["loss"] * batch.weight

    @override
    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Collect the predictions."""
        with drawing(self.model, self.training_config.validation_draws):
            logits = call_model(self.model, batch.inputs)
        logits = logits if logits.ndim == 3 else logits.unsqueeze(0)
        part = slice(None) if batch.weight else slice(0)
        positions = batch.positions.to(batch.labels.device)
        self._validation.append((logits[:, part].float(), batch.labels[part], positions[part]))

    def on_validation_epoch_end(self) -> None:
        """Log the scores of the whole validation set, and this process' means over the epoch."""
        self.log_dict({f"train_{name}": value / self._seen for name, value in self._sums.items()})
        self._sums, self._seen = {}, 0
        logits, labels = self._gathered()
        log_p = mean_log_probabilities(logits)
        predicted = log_p.argmax(-1)
        self.log("validation_nll", negative_log_likelihood(log_p, labels))
        self.log("validation_accuracy", float((predicted == labels.numpy()).mean()))
        self.log("validation_mcc", matthews_correlation(predicted, labels))

    def _gathered(self) -> tuple[Tensor, Tensor]:
        """Predictions and labels of all processes, in the order of the examples."""
        predictions = _joined(self._validation)
        self._validation.clear()
        parts: list[Any] = [predictions]
        if self.trainer.world_size > 1:
            parts = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(parts, predictions)
        logits, labels, positions = _joined(parts)
        order = positions.argsort()
        return logits[:, order], labels[order]

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Build the optimizer and its schedule in Lightning's format."""
        chosen = build_optimizer(self.groups, self.method, self.training_config)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = rate_schedule(chosen, self.method, self.training_config, total)
        return {"optimizer": chosen, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _joined(parts: Sequence[_Predicted]) -> _Predicted:
    """Join parts along the examples, on the CPU."""
    columns = zip(*parts, strict=True)
    logits, labels, positions = (torch.cat(column, dim).cpu() for column, dim in zip(columns, (1, 0, 0), strict=True))
    return logits, labels, positions
