"""The typed configuration of a training run; `experiments/configs` holds the values."""

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["EvaluationConfig", "MethodConfig", "ModelConfig", "TrainerConfig", "TrainingConfig", "check_counts"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of the transformer, the same for every method.

    Args:
        depth: number of layers.
        embed_dim: width of the tokens.
        mlp_dim: width of the hidden layer of the perceptrons.
        num_heads: number of attention heads.
        dropout: probability of dropping an entry of the embedding and of each branch.
        patch_size: of images, the side of a patch in pixels.
        pooling: of images, how the tokens become one vector; texts are averaged over their tokens.
    """

    depth: int
    embed_dim: int
    mlp_dim: int
    num_heads: int
    dropout: float
    patch_size: int | None = None
    pooling: Literal["mean", "sequence"] = "mean"

    def __post_init__(self) -> None:
        check_counts("model", self, "depth", "embed_dim", "mlp_dim", "num_heads", "patch_size")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout: expected a probability in [0, 1), got {self.dropout}")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The training budget, the same for every method.

    Args:
        epochs: passes over the training examples.
        batch_size: examples a step, over all devices together.
        warmup_epochs: epochs over which the learning rate rises.
        gradient_clip: largest norm of the gradient; None for no limit.
        validation_draws: draws of the predictions on which the best epoch is selected.
        optimizer: "adamw" decouples the weight decay, "adam" adds it to the gradient.
        schedule: of the learning rate after the warm-up: "one_cycle" (a cosine to nearly 0, its warm-up a cosine too),
            "cosine" or "linear" to `final_learning_rate`, or "constant".
        final_learning_rate: where "cosine" and "linear" end.
        monitor: decides the best epoch, on validation data alone; "last" takes the last epoch.
        augmentation: of training images: "crop_and_flip" pads by four pixels, crops at random, mirrors every second.
        bucket: batches whose texts are sorted by length together, so that a batch holds texts of about one length.
        share: of the epochs and the warm-up that is trained: 0.02 makes 12 of 600 epochs, and 4 of the 200 of a row
            that another one starts from.
    """

    epochs: int
    batch_size: int
    warmup_epochs: float
    gradient_clip: float | None
    validation_draws: int
    optimizer: Literal["adamw", "adam"] = "adamw"
    schedule: Literal["one_cycle", "cosine", "linear", "constant"] = "one_cycle"
    final_learning_rate: float = 1e-5
    monitor: Literal["validation_nll", "validation_accuracy", "validation_mcc", "last"] = "validation_nll"
    augmentation: Literal["none", "crop_and_flip"] = "none"
    bucket: int = 50
    share: float = 1.0

    def __post_init__(self) -> None:
        check_counts("training", self, "epochs", "batch_size", "validation_draws", "bucket")
        if self.warmup_epochs < 0:
            raise ValueError(f"training.warmup_epochs: expected none or more, got {self.warmup_epochs}")
        if not 0 < self.share <= 1:
            raise ValueError(f"training.share: expected a share of the epochs in (0, 1], got {self.share}")

    @property
    def passes(self) -> int:
        """Number of epochs that are trained, at least one."""
        return max(1, round(self.share * self.epochs))


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """Where and how a training runs; results do not depend on it but for rounding, and for draws on several devices.

    Args:
        accelerator: what to train on.
        devices: processes of one machine, each with a device.
        num_nodes: number of machines.
        strategy: "auto" for one device, "ddp" for several.
        precision: of the arithmetic outside Gaussian-process algebra, which stays in float32.
        progress: whether to show a progress bar.
        logs: whether to write CSV and TensorBoard logs.
        threads: of each process on the CPU; None leaves torch's choice.
    """

    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: Literal["auto", "ddp"] = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    progress: bool = True
    logs: bool = True
    threads: int | None = None

    def __post_init__(self) -> None:
        check_counts("trainer", self, "devices", "num_nodes", "threads")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What is predicted with the trained models.

    Args:
        draws: draws of a prediction.
        strengths: of the demo: strengths of shift, of 1 to 5.
        batch_size: examples that are predicted at a time.
        full: predict all corrupted test images at all severities, not a fixed part of them.
    """

    draws: int
    strengths: tuple[int, ...] = (1, 2, 3, 4, 5)
    batch_size: int = 256
    full: bool = False

    def __post_init__(self) -> None:
        check_counts("evaluation", self, "draws", "batch_size")


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """One row of the table: an attention and what was selected for it on validation data.

    Args:
        label: name in tables and pictures.
        attention: which attention.
        options: keyword arguments of the attention, or of what `kind` names.
        learning_rate: largest learning rate.
        weight_decay: weight decay of the optimiser.
        alpha: weight of the log-density terms at the end of their annealing.
        alpha_start: their weight at the beginning.
        alpha_annealing: share of the training over which it rises linearly.
        layers: which layers have this attention, "all" or "last"; the others have softmax.
        warm_up: share of the training in which stochastic layers return their means and divergences do not count.
        annealing: share of the training, after that, over which the weight of the divergences rises from 0 to 1.
        init_from: row of the same data and seed whose weights the training starts from.
        kind: "attention", or a change of the softmax transformer of that name ("mfvi", "sngp"), or a method derived
            from trained runs of `base` without training ("temperature", "mc_dropout", "kfllla", "ensemble").
        base: row that a derived method needs.
    """

    label: str
    attention: Literal["softmax", "kernel", "cgp", "sparse_cgp", "sgpa", "kep_svgp", "primal"] = "softmax"
    options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float
    weight_decay: float = 0.0
    alpha: float = 0.0
    alpha_start: float = 0.0
    alpha_annealing: float = 0.5
    layers: Literal["all", "last"] = "all"
    warm_up: float = 0.0
    annealing: float = 0.0
    init_from: str | None = None
    kind: Literal["attention", "mfvi", "sngp", "temperature", "mc_dropout", "kfllla", "ensemble"] = "attention"
    base: str | None = None


def check_counts(part: str, configuration: object, *names: str) -> None:
    """Refuse counts below one; None is no limit.

    Args:
        part: of the command line that the configuration is.
        configuration: holds the counts.
        *names: of them.

    Raises:
        ValueError: if one is below one.
    """
    for name in names:
        count = getattr(configuration, name)
        if count is not None and count < 1:
            raise ValueError(f"{part}.{name}: expected at least 1, got {count}")
