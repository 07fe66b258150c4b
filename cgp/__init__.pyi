from . import (
    assessment,
    attention,
    conversion,
    functional,
    imputation,
    kernels,
    model,
    operators,
    plotting,
    prediction,
    regression,
    variational,
)
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
from .prediction.predict import predict, predict_batches
from .prediction.prediction import Prediction
from .prediction.readout import GPReadout
from .prediction.storage import from_pretrained, save_pretrained

__version__: str

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
    "assessment",
    "attention",
    "calibrate",
    "conversion",
    "convert",
    "describe",
    "freeze",
    "from_pretrained",
    "functional",
    "generate",
    "imputation",
    "kernels",
    "model",
    "operators",
    "pipeline",
    "plotting",
    "predict",
    "predict_batches",
    "prediction",
    "regression",
    "save_pretrained",
    "variational",
    "with_held_out",
]
