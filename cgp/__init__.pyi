from . import (
    attention,
    functional,
    kernels,
    networks,
    operators,
    plotting,
    regression,
    statespace,
    tables,
    variational,
)
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
from .networks.assess.assess import assess
from .networks.assess.assessment import Assessment
from .networks.convert import convert, describe, replace_attention
from .networks.detect.detector import Detector
from .networks.methods.calibrate import calibrate
from .networks.methods.calibration import Calibration
from .networks.methods.known import Posterior
from .networks.model.blocks import freeze
from .networks.model.objective import CategoricalLikelihood, HomoscedasticLikelihood, Objective
from .networks.predict.generate import Generation, generate
from .networks.predict.pipelines import pipeline
from .networks.predict.predict import predict, predict_batches, with_held_out
from .networks.predict.prediction import Prediction
from .networks.predict.readout import GPReadout
from .networks.pretrained import from_pretrained, save_pretrained
from .regression import CorrelatedGPRegressor
from .tables import CorrelatedGPImputer, GapReport, assess_gaps

__version__: str

__all__ = [
    "Assessment",
    "CGPAttention",
    "Calibration",
    "CategoricalLikelihood",
    "CorrelatedGPImputer",
    "CorrelatedGPRegressor",
    "Detector",
    "GPReadout",
    "GapReport",
    "Generation",
    "HomoscedasticLikelihood",
    "KEPSVGPAttention",
    "KernelAttention",
    "Objective",
    "Posterior",
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
    "attention",
    "calibrate",
    "convert",
    "describe",
    "freeze",
    "from_pretrained",
    "functional",
    "generate",
    "kernels",
    "networks",
    "operators",
    "pipeline",
    "plotting",
    "predict",
    "predict_batches",
    "regression",
    "replace_attention",
    "save_pretrained",
    "statespace",
    "tables",
    "variational",
    "with_held_out",
]
