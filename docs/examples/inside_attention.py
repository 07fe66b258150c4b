"""
Train, and look inside
======================

The same small vision transformer with softmax attention and with a correlated Gaussian process, trained from scratch
on digits; then a look inside: the attention matrix and its asymmetry, the similarity of tokens, and the spectrum.

The models are those of the checkout: ``PYTHONPATH=. python docs/examples/inside_attention.py`` runs this page.
"""

import torch
from sklearn.datasets import load_digits

import cgp
from cgp.networks.model.diagnostics import attention_matrix, layer_outputs, token_similarity
from cgp.plotting import attention_matrix as draw_attention_matrix
from cgp.plotting import curves
from models import DIGITS, VisionTransformer

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
labels = torch.tensor(digits.target)
train, test = torch.arange(1300), torch.arange(1300, 1797)

# %%
# Train
# -----
# :meth:`cgp.Objective.parts` returns the parts of the loss. Correlated attention has no divergence, and here no
# regulariser: its loss is the expected negative log-likelihood of the draws.


def fit(attention, epochs=6):
    """A trained model, and the mean loss in each epoch."""
    torch.manual_seed(0)
    model = VisionTransformer(**{**DIGITS, "depth": 4}, num_classes=10, attention=attention)
    objective = cgp.Objective(model, cgp.CategoricalLikelihood(10), num_data=len(train))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    history = []
    for _ in range(epochs):
        steps = []
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            parts = objective.parts(images[batch], labels[batch])
            parts["loss"].backward()
            optimizer.step()
            steps.append(float(parts["nll"].detach()))
        history.append(sum(steps) / len(steps))
    return model.eval(), history


softmax, softmax_history = fit(cgp.SoftmaxAttention)
correlated, correlated_history = fit(cgp.CGPAttention)

curves(
    range(1, len(softmax_history) + 1),
    {"softmax": softmax_history, "correlated GP": correlated_history},
    xlabel="Epoch",
    ylabel="Expected NLL (nats)",
)

# %%
# The attention matrix
# --------------------
# The matrix that multiplies the values, for one image and one head of the last layer. Queries and keys have other maps,
# so it is not symmetric; beside it the standard deviation of each query.

tokens = layer_outputs(correlated, [correlated.layers[-2]], images[test[:1]])[0]
layer = correlated.layers[-1]
x = layer.attention_norm(tokens)
matrix = attention_matrix(layer.attention, x)[0, 0]
deviation = layer.attention.token_variance(x)[0, 0].sqrt()
draw_attention_matrix(matrix, deviation)

# %%
# Over-smoothing
# --------------
# Mean cosine similarity of the tokens of an image after each layer. At 1 all tokens are equal.


def similarities(model):
    after_layers = layer_outputs(model, model.layers, images[test[:200]])
    return torch.stack([token_similarity(tokens).mean() for tokens in after_layers])


curves(
    range(1, len(softmax.layers) + 1),
    {"softmax": similarities(softmax), "correlated GP": similarities(correlated)},
    xlabel="Layer",
    ylabel="Mean cosine similarity of tokens",
)

# %%
# Spectrum
# --------
# Singular values of the attention matrices of the last layer, averaged over images and heads: how many directions
# does a head mix?


def singular_values(model):
    tokens = layer_outputs(model, [model.layers[-2]], images[test[:50]])[0]
    last = model.layers[-1]
    values = torch.linalg.svdvals(attention_matrix(last.attention, last.attention_norm(tokens))).mean((0, 1))
    return values / values[0]


spectra = {"softmax": singular_values(softmax), "correlated GP": singular_values(correlated)}
ranks = range(1, len(spectra["softmax"]) + 1)
curves(ranks, spectra, xlabel="Rank", ylabel="Singular value / largest", yscale="log")
