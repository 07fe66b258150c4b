"""The compared methods: those that are trained, and those derived from trained runs.

- `build`, `network`: from a row's configuration to a model and its objective.
- `mean_field(model)` and `sngp(model)` change a transformer in place before training; `fit_covariance(model, batches)`
  after it completes SNGP.
- `DERIVED[kind](runs, Request(data, evaluation, folder), **options) -> Result`: temperature, MC dropout, last-layer
  Laplace and ensembles, from runs to files of predictions; as functions of a model `mc_dropout_logits` and
  `last_layer_laplace`. Batches are any iterable that can be iterated twice.
- `with drawing(model, num_samples): model(inputs) -> (S, N, C)` for mean-field layers, SNGP heads and attention blocks
  alike.
"""

from experiments.methods.deriving import DERIVED, OF_PREDICTIONS, Request
from experiments.methods.last_layer import last_layer_laplace
from experiments.methods.mc_dropout import mc_dropout_logits
from experiments.methods.mean_field import mean_field
from experiments.methods.sngp import fit_covariance, sngp

__all__ = [
    "DERIVED",
    "OF_PREDICTIONS",
    "Request",
    "fit_covariance",
    "last_layer_laplace",
    "mc_dropout_logits",
    "mean_field",
    "sngp",
]
