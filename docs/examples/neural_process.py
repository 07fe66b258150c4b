r"""
Targets that attend to contexts
===============================

In a neural process some points of a function are observed, the contexts, and others are asked, the targets. Here the
tokens *are* the data, and the variance of attention asks the right question: how far is a target from what is known?
Targets attend to contexts by the posterior of a Gaussian process whose points are learned,

.. math::

    C(K_k + \Sigma)^{-1}V, \qquad K_q - C(K_k + \Sigma)^{-1}C^\top, \qquad
    \Sigma = \operatorname{diag}(\sigma_1^2, \dots),

with a noise for each context. The functions are two years of a stock's monthly prices.
"""

import csv
from pathlib import Path

import numpy as np
import torch
from matplotlib import cbook
from scipy.stats import norm
from torch import nn

from cgp import CGPAttention
from cgp.plotting import posterior_bands

# %%
# Functions
# ---------
# Monthly logarithms of prices in windows of 25 months: before 2010 to learn from, later ones to be asked. matplotlib
# brings them.

with Path(cbook.get_sample_data("Stocks.csv", asfileobj=False)).open() as file:
    rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
names = [name for name in rows[0] if name != "Date"]
monthly = [row for row in rows if row["IBM"]]  # the others are days of dividends
prices = torch.tensor([[float(row[name]) if row[name] else np.nan for name in names] for row in monthly])
years = torch.tensor([float(row["Date"][:4]) for row in monthly])
LENGTH = 25
torch.manual_seed(0)


def windows(values):
    """All complete windows, of every stock."""
    cut = values.log().unfold(0, LENGTH, 1).flatten(0, 1)
    return cut[~cut.isnan().any(-1)]


train, test = windows(prices[years < 2010]), windows(prices[years >= 2010])
months = torch.linspace(-1.0, 1.0, LENGTH)
print(f"{len(names)} prices, {len(train)} windows to learn from, {len(test)} later ones")

# %%
# The model
# ---------
# Queries and keys are made of the months alone, values of the prices: the attention is a regression, with a kernel that
# the network learns. ``encode`` factorises the contexts once; targets may then be asked as often as one likes. The head
# turns means and variances of the heads into a Gaussian.


class NeuralProcess(nn.Module):
    """A Gaussian for each target, from contexts that are encoded once."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.place = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width))
        self.price = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width))
        self.noise = nn.Linear(width, 1)
        self.attention = CGPAttention(width, heads, mean="regression", kernel="matern12")
        self.head = nn.Sequential(nn.Linear(width + heads, width), nn.Tanh(), nn.Linear(width, 2))

    def encode(self, x, y, padding):
        """Keys of the contexts, each with its noise."""
        place, price = self.place(x[..., None]), self.price(torch.stack([x, y], -1))
        noise = 1e-3 + nn.functional.softplus(self.noise(price)[..., 0] - 3.0)
        return self.attention.encode(place, price, key_padding_mask=padding, key_noise=noise)

    def forward(self, x, keys):
        """Mean and standard deviation at targets."""
        place = self.place(x[..., None])
        variance = self.attention.token_variance(place, keys).movedim(-2, -1)
        mean, spread = self.head(torch.cat([self.attention(place, keys), variance], -1)).unbind(-1)
        return mean, 0.02 + nn.functional.softplus(spread)


# %%
# Training
# --------
# The months that are known are drawn anew in each step, and their number for each window: the others are padding.
# Prices are relative to the mean of the known ones.


def scaled(window, hidden):
    """Prices relative to the known ones, in units of twenty per cent, and the mean that was taken away."""
    known = (~hidden).float()
    level = (window * known).sum(-1, keepdim=True) / known.sum(-1, keepdim=True)
    return (window - level) / 0.2, level


def hide(count, known):
    """All months but this number of random ones, ``(count, LENGTH)``; ``known`` is a number or one for each window."""
    return torch.rand(count, LENGTH).argsort(-1).argsort(-1) >= known


def loss_of(model, window, hidden):
    """Negative log-density of the hidden months, each."""
    y, _ = scaled(window, hidden)
    x = months.expand_as(y)
    mean, sd = model(x, model.encode(x, y, hidden))
    return -torch.distributions.Normal(mean, sd).log_prob(y)[hidden].mean()


model = NeuralProcess()
model.attention.sampling = "mean"  # the head reads the variance itself
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
STEPS = 600
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=STEPS)
for _ in range(STEPS):
    chosen = train[torch.randint(len(train), (32,))]
    loss = loss_of(model, chosen, hide(32, torch.randint(2, 20, (32, 1))))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()

# %%
# Bands as contexts arrive
# ------------------------
# Two years that the model has not seen, with 2, 5 and 12 months known. The keys are encoded once per panel, and asked
# at four targets a month. The band is narrow at what is known, wide where nothing is, and shrinks as contexts arrive:
# all panels have the same axis.

model.eval()
window, fine = test[len(test) // 2], torch.linspace(-1.0, 1.0, 4 * LENGTH - 3)
order, panels = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(1)), {}
for known in (2, 5, 12):
    hidden = torch.ones(1, LENGTH, dtype=torch.bool)
    hidden[0, order[:known]] = False
    y, level = scaled(window[None], hidden)
    with torch.no_grad():
        keys = model.encode(months[None], y, hidden)
        mean, sd = model(fine[None], keys)
    panels[f"{known} known"] = (level + 0.2 * mean)[0], 0.2 * sd[0], window.where(~hidden[0], torch.nan)

means, deviations, observed = (torch.stack(parts, -1).numpy() for parts in zip(*panels.values(), strict=True))
axes = posterior_bands(
    12 + 12 * fine.numpy(),
    means,
    deviations,
    names=list(panels),
    xlabel="month",
)
place = 12 + 12 * months
for ax, known in zip(axes, observed.T, strict=True):
    asked = np.isnan(known)
    ax.plot(place[~asked], window[~asked], "o", color="black", ms=4, label="known")
    ax.plot(place[asked], window[asked], "o", color="black", ms=4, mfc="white", mew=0.7, label="hidden")
    ax.sharey(axes[0])
axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=7, frameon=False, borderaxespad=0)
axes[0].figure.supylabel("logarithm of the price", fontsize=8)

# %%
# Are they honest?
# ----------------
# On all later windows, against a normal distribution around the known months that ignores where they lie. The bands are
# somewhat wide: the years before 2010 moved more.

torch.manual_seed(1)
print("known  log-density  without places  95 % intervals hold")
for known in (2, 5, 12):
    hidden = hide(len(test), known)
    y, _ = scaled(test, hidden)
    x = months.expand_as(y)
    with torch.no_grad():
        mean, sd = model(x, model.encode(x, y, hidden))
    values, place = y[hidden].numpy(), norm.cdf(y[hidden], mean[hidden], sd[hidden])
    density = norm.logpdf(values, mean[hidden], sd[hidden]).mean()
    of_train, _ = scaled(train, hide(len(train), known))
    plain = norm.logpdf(values, 0.0, of_train.std()).mean()
    inside = ((place > 0.025) & (place < 0.975)).mean()
    print(f"{known:5}  {density:11.2f}  {plain:14.2f}  {100 * inside:17.0f} %")
