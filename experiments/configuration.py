"""The typed configuration of a training run; `experiments/configs` holds the values."""

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["EvaluationConfig", "MethodConfig", "ModelConfig", "TrainingConfig"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of the vision transformer, the same for every method.

    Args:
        patch_size: side of a patch, in pixels.
        depth: number of layers.
        embed_dim: width of the tokens.
        mlp_dim: width of the hidden layer of the perceptrons.
        num_heads: number of attention heads.
        pooling: how the tokens become one vector.
        dropout: probability of dropping an entry of the embedding and of each branch.
    """

    patch_size: int
    depth: int
    embed_dim: int
    mlp_dim: int
    num_heads: int
    pooling: Literal["mean", "sequence"]
    dropout: float


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The training budget, the same for every method.

    Args:
        epochs: passes over the training images.
        batch_size: images a step.
        warmup_epochs: epochs over which the learning rate rises; it then falls by a cosine.
        gradient_clip: largest norm of the gradient.
        validation_draws: draws for the validation NLL on which the best epoch is selected.
        accelerator: what Lightning trains on.
    """

    epochs: int
    batch_size: int
    warmup_epochs: float
    gradient_clip: float
    validation_draws: int
    accelerator: Literal["auto", "cpu", "gpu"] = "cpu"


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What is predicted with the trained models.

    Args:
        draws: draws of a prediction.
        strengths: strengths of shift, of 1 to 5.
    """

    draws: int
    strengths: tuple[int, ...] = (1, 2, 3, 4, 5)


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """One row of the table: an attention and what was selected for it on validation data.

    Args:
        label: name in tables and pictures.
        attention: which attention.
        options: keyword arguments of the attention.
        learning_rate: largest learning rate of AdamW.
        weight_decay: decoupled weight decay of AdamW.
        alpha: weight of the log-density terms at the end of training; it rises linearly from 0 over the first half.
        layers: which layers have this attention, "all" or "last"; the others have softmax.
        warm_up: share of the training in which stochastic layers return their means and divergences do not count.
        annealing: share of the training, after that, over which the weight of the divergences rises from 0 to 1.
    """

    label: str
    attention: Literal["softmax", "kernel", "cgp", "sparse_cgp", "sgpa", "kep_svgp", "primal"]
    options: dict[str, Any] = field(default_factory=dict)
    learning_rate: float
    weight_decay: float = 0.0
    alpha: float = 0.0
    layers: Literal["all", "last"] = "all"
    warm_up: float = 0.0
    annealing: float = 0.0
