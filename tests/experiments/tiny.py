"""A run of the application that takes a second."""

from experiments.configuration import (
    DataConfig,
    EvaluationConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
)
from experiments.data.examples import DataDescription

DIGITS = DataDescription(kind="image", num_classes=10, image_shape=(1, 8, 8), mean=(0.3,), deviation=(0.4,))
MODEL = ModelConfig(patch_size=4, depth=1, embed_dim=8, mlp_dim=8, num_heads=2, pooling="mean", dropout=0.1)
TRAINING = TrainingConfig(epochs=2, batch_size=600, warmup_epochs=1, gradient_clip=1.0, validation_draws=2)
SOFTMAX = MethodConfig(label="Softmax", attention="softmax", learning_rate=1e-2)
CGP = MethodConfig(label="CGP", attention="cgp", options={"objective": "marginal"}, learning_rate=1e-2, alpha=0.1)
SPARSE = MethodConfig(
    label="Sparse", attention="sparse_cgp", options={"num_inducing": 3, "objective": None}, learning_rate=1e-2
)
KERNEL = MethodConfig(label="Kernel", attention="kernel", learning_rate=1e-2)
METHODS = {"softmax": SOFTMAX, "kernel": KERNEL, "cgp": CGP, "sparse_cgp": SPARSE}


def configured(method, training=TRAINING):
    """The configuration of a method."""
    data, evaluation = DataConfig(), EvaluationConfig(draws=2)
    return RunConfig(
        name="digits/tiny", data=data, model=MODEL, method=method, training=training, evaluation=evaluation
    )
