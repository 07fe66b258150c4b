r"""
Write a block of your own
=========================

A block is a posterior of its projected tokens. Everything else (projections, heads, masks, draws, objective,
prediction, pictures) is there already. The block of this page is plain Gaussian-process regression: values are noisy
observations at the keys, and the output is the posterior at the queries,

.. math::

    K_{qk}(K_k + \sigma^2 I)^{-1}V, \qquad K_q - K_{qk}(K_k + \sigma^2 I)^{-1}K_{kq}.

Unlike kernel attention, which only multiplies by :math:`K_{qk}`, it interpolates. (The library has it, as
``CGPAttention(mean="regression")``.)

The model is the checkout's: ``PYTHONPATH=. python docs/examples/new_block.py`` runs this page.
"""

from functools import partial

import torch
from sklearn.datasets import load_digits

import cgp
from cgp.attention import GaussianProcessAttention
from cgp.functional.correlated import ExactPosterior, ObservedKeys
from cgp.plotting import variance_maps
from models import DIGITS, VisionTransformer

# %%
# The block
# ---------
# ``tokens`` holds q, k and v as (batch, heads, n, s) and the padding as (batch, 1, n).
# :class:`~cgp.functional.correlated.ExactPosterior` computes on first access: in ``eval`` a forward pass reads
# the mean, a draw the variances, ``posterior`` the covariance.


class RegressionAttention(GaussianProcessAttention):
    """Gaussian-process regression of the values on the keys."""

    def gaussian(self, tokens):
        gram = self.canonical.gram
        return ExactPosterior(
            gram(tokens.q, tokens.k),
            ObservedKeys(gram(tokens.k), noise=self.noise, targets=tokens.v, padding=tokens.key_padding),
            self.canonical.diagonal(tokens.q),
            K_q=partial(gram, tokens.q),
            padding=tokens.query_padding,
        )


# %%
# Test it
# -------
# Compare it with the formula in float64, one sequence at a time, and check that a padded token has no effect.

block = RegressionAttention(8, 2, noise=0.1).double().eval()
x = torch.randn(2, 5, 8, dtype=torch.float64)
tokens = block.project(x)
K_qk, K_k = (block.canonical.gram(a, tokens.k) for a in (tokens.q, tokens.k))
expected = K_qk @ torch.cholesky_solve(tokens.v, torch.linalg.cholesky(K_k + 0.1 * torch.eye(5)))
torch.testing.assert_close(block.mean_heads(tokens), expected, rtol=1e-6, atol=1e-6)

padding = torch.tensor([[False, False, False, True, True]])
padded, alone = block(x[:1], key_padding_mask=padding)[:, :3], block(x[:1, :3])
print(f"padding changes the output by {float((padded - alone).abs().max().detach()):.0e}")
print("posterior:", block.posterior(x))

# %%
# In a transformer
# ----------------
# A factory ``(embed_dim, num_heads) -> block`` puts it into a reference model, and :class:`cgp.Objective`
# trains it.

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
labels = torch.tensor(digits.target)
train, test = torch.arange(1300), torch.arange(1300, 1797)

model = VisionTransformer(**DIGITS, num_classes=10, attention=partial(RegressionAttention, noise=0.1))
objective = cgp.Objective(model, cgp.CategoricalLikelihood(10), num_data=len(train))
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
for _ in range(5):
    for batch in train[torch.randperm(len(train))].split(64):
        optimizer.zero_grad()
        loss = objective(images[batch], labels[batch])
        loss.backward()
        optimizer.step()

prediction = cgp.predict(model, images[test], num_samples=8, seed=0)
right = prediction.probabilities.argmax(-1) == labels[test]
print(f"accuracy {right.float().mean():.3f}")
for name, chosen in (("right", right), ("wrong", ~right)):
    print(f"epistemic uncertainty where {name}: {prediction.epistemic[chosen].mean():.3f}")

# %%
# Its variance is in ``token_variance`` by the name of each layer, which is all that pictures need:

shown = prediction.epistemic.argsort()[[0, -2, -1]]
maps = torch.stack([prediction.patch_variance(layer)[shown].mean(1) for layer in (0, 1)], 1)
certainty = ["most certain", "least certain but one", "least certain"]
variance_maps(images[test][shown] / 2 + 0.5, maps, rows=certainty, columns=["layer 1", "layer 2"])

# %%
# Add it to the library
# ---------------------
# A block of the library has a file in ``cgp/attention``, its formula as a pure function in
# ``cgp/functional`` with a test against an independent oracle, and a class in ``tests`` that inherits the attention
# contract: shapes, masks, gradients, precision, compilation and saving are then tested automatically.
# For a loss term (a regulariser, a divergence) call ``self.register_added_loss_term(name)`` in ``__init__`` and
# ``self._add_loss(name, value, kind)`` in ``_add_losses``, and say in ``_wants_loss`` when: by default in training of a
# block with an ``objective``. Its kind is one of ``cgp.variational.loss_terms.KINDS``.
