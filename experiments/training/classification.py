"""A classifier as Lightning trains it."""

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from typing_extensions import override

from cgp.deep_gp import draws, sampling
from cgp.objectives import Objective
from cgp.schedules import linear
from experiments.configuration import MethodConfig, TrainingConfig
from experiments.metrics import mean_log_probabilities, negative_log_likelihood

__all__ = ["ClassificationModule"]


class ClassificationModule(lightning.LightningModule):
    """Minimises an objective with AdamW; logs the NLL of the mean probability on the validation set.

    The learning rate rises and falls by a cosine (one cycle); the weight α of the log-density terms
    rises linearly from 0 over the first half of the training, that of the divergences as the method says.

    Args:
        model: from images `(B, C, H, W)` to logits `(B, classes)`, or `(S, B, classes)` where it draws.
        objective: what is minimised.
        method: learning rate, weight decay and α.
        training: epochs, warm-up, draws of the validation.
    """

    def __init__(
        self, *, model: nn.Module, objective: Objective, method: MethodConfig, training: TrainingConfig
    ) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.method = method
        self.training_config = training
        self._validation: list[tuple[Tensor, Tensor]] = []

    @override
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set the weights of this step."""
        step, total = self.trainer.global_step, int(self.trainer.estimated_stepping_batches)
        warm_up, annealing = (round(share * total) for share in (self.method.warm_up, self.method.annealing))
        self.objective.set_weights(
            alpha=linear(step, max(1, total // 2), 0.0, self.method.alpha),
            beta=linear(step - warm_up, annealing) if step >= warm_up else 0.0,
        )

    @override
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Evaluate the objective.

        Args:
            batch: images and labels.

        Returns:
            The loss.
        """
        images, labels = batch
        warming_up = self.trainer.global_step < round(self.method.warm_up * self.trainer.estimated_stepping_batches)
        with sampling(self.model, "mean" if warming_up else None):
            parts = self.objective.parts(images, labels)
        logged = {f"train_{name}": value.detach() for name, value in parts.items()}
        self.log_dict(logged, on_step=False, on_epoch=True, batch_size=len(labels))
        return parts["loss"]

    @override
    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """Collect the predictions.

        Args:
            batch: images and labels.
        """
        images, labels = batch
        with sampling(self.model, "marginal"), draws(self.model, self.training_config.validation_draws):
            logits = self.model(images)
        self._validation.append((logits if logits.ndim == 3 else logits.unsqueeze(0), labels))

    def on_validation_epoch_end(self) -> None:
        """Log NLL and accuracy of the whole validation set."""
        logits = torch.cat([logits for logits, _ in self._validation], dim=1)
        labels = torch.cat([labels for _, labels in self._validation])
        self._validation.clear()
        log_p = mean_log_probabilities(logits)
        accuracy = (log_p.argmax(-1) == labels.cpu().numpy()).mean()
        self.log("validation_nll", negative_log_likelihood(log_p, labels))
        self.log("validation_accuracy", float(accuracy))

    def configure_optimizers(self) -> dict[str, Any]:
        """Build AdamW and its schedule.

        Returns:
            Optimiser and scheduler as Lightning wants them.
        """
        optimizer = torch.optim.AdamW(
            self.objective.parameters(), lr=self.method.learning_rate, weight_decay=self.method.weight_decay
        )
        total = int(self.trainer.estimated_stepping_batches)
        warmup = min(total * self.training_config.warmup_epochs / self.training_config.epochs, total - 1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=self.method.learning_rate,
            total_steps=total,
            pct_start=warmup / total if warmup > 1 else 0.0,  # the library divides by zero for a single step
            cycle_momentum=False,
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
