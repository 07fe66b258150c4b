"""The methods that the papers compare with, on any torch model.

`inputs` is a tensor, a tuple or dict of arguments, or any iterable of such batches that can be run through twice (a
loader); draws come back as logits `(S, N, C)` float32 on the CPU, as predictions are saved. Nothing here changes the
model: modes, weights and the global generators are left as they were.

- `fit_temperature(logits, labels) -> float`: divide logits by it.
- `mc_dropout_logits(model, inputs, num_samples=10, *, seed=0, batch_size=256) -> (S, N, C)`.
- `last_layer_laplace(model, inputs, labels, *, prior_precision="marginal_likelihood", validation=None,
  batch_size=256) -> LastLayerPosterior`, whose `.draw_logits(inputs, num_samples=10, generator=None, *,
  batch_size=256) -> (S, N, C)`; `prior_precision` is a number, "marginal_likelihood", or "validation" with
  `validation=(inputs, labels)`.
- `mean_field(model, *, prior_deviation=0.1, initial_deviation=0.01, estimator="flipout", kl_weight=1.0) -> model`, in
  place, before training; `cgp.model.objective.Objective` collects the divergences.
- `sngp(model, *, num_features=1024, lengthscale=None, ridge=1.0, covariance="class", bound=2.0) -> model`, in place,
  before training; `fit_covariance(model, inputs, *, batch_size=256)` after it.
- `joined(predictions) -> predictions`: an ensemble of saved predictions.
- `DERIVED[kind](runs, Request(data, evaluation, folder), **options) -> Result`: from runs to files of predictions.
- `with drawing(model, num_samples, mode="marginal"): model(inputs) -> (S, N, C)` for mean-field layers, SNGP heads and
  attention blocks alike.
"""

from experiments.evaluation import fit_temperature
from experiments.methods.deriving import DERIVED, OF_PREDICTIONS, Request, Result, Run
from experiments.methods.drawing import StochasticLayer, drawing
from experiments.methods.ensemble import joined
from experiments.methods.last_layer import LastLayerPosterior, last_layer_laplace
from experiments.methods.mc_dropout import active_dropout, mc_dropout_logits
from experiments.methods.mean_field import MeanFieldLinear, mean_field
from experiments.methods.random_feature_head import RandomFeatureHead
from experiments.methods.sngp import fit_covariance, sngp
from experiments.methods.spectral import SpectralBound, bound_spectral_norm

__all__ = [
    "DERIVED",
    "OF_PREDICTIONS",
    "LastLayerPosterior",
    "MeanFieldLinear",
    "RandomFeatureHead",
    "Request",
    "Result",
    "Run",
    "SpectralBound",
    "StochasticLayer",
    "active_dropout",
    "bound_spectral_norm",
    "drawing",
    "fit_covariance",
    "fit_temperature",
    "joined",
    "last_layer_laplace",
    "mc_dropout_logits",
    "mean_field",
    "sngp",
]
