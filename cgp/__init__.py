"""Honest uncertainty for transformers: correlated Gaussian process attention in the GPyTorch ecosystem."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assessment.assess import assess
    from .assessment.assessment import Assessment
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
    from .conversion import convert, describe
    from .imputation import CorrelatedGPImputer, GapReport, assess_gaps
    from .model.blocks import freeze
    from .model.likelihoods import CategoricalLikelihood, HomoscedasticLikelihood
    from .model.objective import Objective
    from .prediction.calibrate import calibrate
    from .prediction.calibration import Calibration
    from .prediction.detectors import Detector
    from .prediction.generate import Generation, generate
    from .prediction.holding import with_held_out
    from .prediction.pipelines import pipeline
    from .prediction.predict import predict
    from .prediction.prediction import Prediction
    from .prediction.readout import GPReadout
    from .prediction.storage import from_pretrained, save_pretrained

__version__ = "0.1.0"

__all__ = [
    "Assessment",
    "CGPAttention",
    "Calibration",
    "CategoricalLikelihood",
    "CorrelatedGPImputer",
    "Detector",
    "GPReadout",
    "GapReport",
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
    "assess_gaps",
    "calibrate",
    "convert",
    "describe",
    "freeze",
    "from_pretrained",
    "generate",
    "pipeline",
    "predict",
    "save_pretrained",
    "with_held_out",
]

# linear_operator is imported with a call that torch deprecates: no user of cgp can change that.
warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated", category=FutureWarning)

# Names are imported when they are first used: the command line answers before torch is there.
_HOMES = {
    "Assessment": "assessment.assessment",
    "CGPAttention": "attention",
    "Calibration": "prediction.calibration",
    "CategoricalLikelihood": "model.likelihoods",
    "CorrelatedGPImputer": "imputation",
    "Detector": "prediction.detectors",
    "GPReadout": "prediction.readout",
    "GapReport": "imputation",
    "Generation": "prediction.generate",
    "HomoscedasticLikelihood": "model.likelihoods",
    "KEPSVGPAttention": "attention",
    "KernelAttention": "attention",
    "Objective": "model.objective",
    "Prediction": "prediction.prediction",
    "PrimalAttention": "attention",
    "SGPAttention": "attention",
    "SharedInducingPoints": "attention",
    "SoftmaxAttention": "attention",
    "SparseCGPAttention": "attention",
    "StandardSGPAttention": "attention",
    "assess": "assessment.assess",
    "assess_gaps": "imputation",
    "calibrate": "prediction.calibrate",
    "convert": "conversion",
    "describe": "conversion",
    "freeze": "model.blocks",
    "from_pretrained": "prediction.storage",
    "generate": "prediction.generate",
    "pipeline": "prediction.pipelines",
    "predict": "prediction.predict",
    "save_pretrained": "prediction.storage",
    "with_held_out": "prediction.holding",
}
_ROOMS = (
    "assessment",
    "attention",
    "conversion",
    "functional",
    "imputation",
    "kernels",
    "model",
    "operators",
    "plotting",
    "prediction",
    "regression",
    "variational",
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
