"""Honest uncertainty for transformers: correlated Gaussian process attention in the GPyTorch ecosystem."""

from .assessment import Assessment, assess
from .attention import (
    CGPAttention,
    KEPSVGPAttention,
    KernelAttention,
    PrimalAttention,
    SGPAttention,
    SharedInducingPoints,
    SoftmaxAttention,
    SparseCGPAttention,
    StandardSGPAttention,
)
from .conversion import convert, describe, from_pretrained, save_pretrained
from .model.blocks import freeze
from .model.likelihoods import CategoricalLikelihood, HomoscedasticLikelihood
from .model.objective import Objective
from .prediction.calibrate import Calibration, calibrate
from .prediction.generate import Generation, generate
from .prediction.pipelines import pipeline
from .prediction.predict import predict
from .prediction.prediction import Prediction

__version__ = "0.1.0"

__all__ = [
    "Assessment",
    "CGPAttention",
    "Calibration",
    "CategoricalLikelihood",
    "Generation",
    "HomoscedasticLikelihood",
    "KEPSVGPAttention",
    "KernelAttention",
    "Objective",
    "Prediction",
    "PrimalAttention",
    "SGPAttention",
    "SharedInducingPoints",
    "SoftmaxAttention",
    "SparseCGPAttention",
    "StandardSGPAttention",
    "__version__",
    "assess",
    "calibrate",
    "convert",
    "describe",
    "freeze",
    "from_pretrained",
    "generate",
    "pipeline",
    "predict",
    "save_pretrained",
]
