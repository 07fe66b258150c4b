"""The methods that the papers compare with, on any torch model.

`inputs` is a tensor, a tuple or dict of arguments, or any iterable of such batches that can be run through twice (a
loader); draws come back as logits `(S, N, C)` float32 on the CPU, as predictions are saved. Nothing here changes the
model: modes, weights and the global generators are left as they were.

- `fit_temperature(logits, labels) -> float`: divide logits by it.
- `mc_dropout_logits(model, inputs, num_draws=10, *, seed=0, batch_size=256) -> (S, N, C)`.
- `last_layer_laplace(model, inputs, labels, *, prior_precision="marginal_likelihood", validation=None,
  batch_size=256) -> LastLayerPosterior`, whose `.draw_logits(inputs, num_draws=10, generator=None, *,
  batch_size=256) -> (S, N, C)`; `prior_precision` is a number, "marginal_likelihood", or "validation" with
  `validation=(inputs, labels)`.
"""

from experiments.baselines.last_layer import LastLayerPosterior, last_layer_laplace
from experiments.baselines.mc_dropout import active_dropout, mc_dropout_logits
from experiments.metrics import fit_temperature

__all__ = [
    "LastLayerPosterior",
    "active_dropout",
    "fit_temperature",
    "last_layer_laplace",
    "mc_dropout_logits",
]
