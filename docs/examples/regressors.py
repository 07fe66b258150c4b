"""
Regression with correlated outputs
==================================

The same correlated Gaussian process that attends also does regression on its own. Two stock indices follow one
market; where the quotations of one are missing, the other says something about them.
"""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib import cbook
from scipy.stats import norm

from cgp.plotting import (
    curves,
    filled_maps,
    filled_table,
    interval_coverage,
    method_scores,
    pair_correlations,
    posterior_bands,
    residual_maps,
    residual_panels,
)
from cgp.regression import NUTS, CorrelatedGPRegressor

# %%
# Two indices, one with gaps
# --------------------------
# matplotlib brings monthly prices of stocks and of two American indices. We take logarithms over fifteen years, and
# hide every third year of the NASDAQ.

path_to_prices = Path(cbook.get_sample_data("Stocks.csv", asfileobj=False))
with path_to_prices.open() as file:
    rows = csv.DictReader(line for line in file if not line.startswith("#"))
    table = [row for row in rows if row["^GSPC"] and row["^IXIC"]]  # the others are days of dividends
years = np.array([int(row["Date"][:4]) + (int(row["Date"][5:7]) - 0.5) / 12 for row in table])
logarithms = np.log([[float(row["^GSPC"]), float(row["^IXIC"])] for row in table])
window = (years > 2000) & (years < 2015)
x, complete = years[window][:, None], logarithms[window]
hidden = np.floor(x[:, 0]) % 3 == 0
observed = complete.copy()
observed[hidden, 1] = np.nan

regressor = CorrelatedGPRegressor(kernel="matern32", random_state=0).fit(x, observed)
mean, sd = regressor.predict(x, return_std=True)
axes = posterior_bands(
    x[:, 0], mean, sd, observed_x=x[:, 0], observed_y=observed, names=["log S&P 500", "log NASDAQ"], xlabel="Year"
)
axes[1].plot(x[hidden, 0], complete[hidden, 1], ".", color="#D55E00", ms=3, label="hidden from the model")
axes[1].legend(loc="upper left")

# %%
# As a table (`CorrelatedGPImputer` takes one and draws it so, `imputer.plot()`): where the gaps are, and what fills
# them, with the correlation of the columns beside it.

gaps = np.isnan(observed)
filled_table(x[:, 0], np.where(gaps, mean, observed), gaps * sd, gaps, names=["S&P 500", "NASDAQ"], xlabel="Year")
pair_correlations(regressor.correlation_, names=["S&P 500", "NASDAQ"])

# %%
# Every observation predicted from all others, in units of the standard deviation that the prediction has
# (`imputer.plot_residuals()`): 95 % should be in the band, in no pattern. The end of the boom in 2000 is one.

left_out, left_out_sd = regressor.leave_one_out()
residual_panels(x[:, 0], (observed - left_out) / left_out_sd, names=["S&P 500", "NASDAQ"], xlabel="Year")

# %%
# Where rows are places, each column with gaps is a map, and what was filled has a ring. Two made-up quantities at sixty
# sites, the second one seen at every other site. So are the errors of what was observed:

generator = np.random.default_rng(0)
places = generator.uniform((6.0, 46.0), (9.0, 47.5), size=(60, 2))
field = np.sin(2 * places[:, 0]) + np.cos(3 * places[:, 1])
sites = np.column_stack([field, 2 * field]) + 0.1 * generator.normal(size=(60, 2))
sites[::2, 1] = np.nan
of_sites = CorrelatedGPRegressor(kernel="matern32", structure="coregionalised", random_state=0).fit(places, sites)
mean_sites, sd_sites = of_sites.predict(places, return_std=True)
unseen = np.isnan(sites)
filled_sites = np.where(unseen, mean_sites, sites)
labels = {"names": ["first", "second"], "labels": ("longitude", "latitude"), "degrees": True}
filled_maps(places, filled_sites, unseen * sd_sites, unseen, **labels)
left_out_sites, left_out_sd_sites = of_sites.leave_one_out()
residual_maps(places, (sites - left_out_sites) / left_out_sd_sites, **labels)

# %%
# What was hidden says which way of filling it is better (`cgp.assess_gaps` hides values itself, and draws this):

lines = np.interp(x[:, 0], x[~hidden, 0], complete[~hidden, 1])
errors = {"lines": lines - complete[:, 1], "correlated process": mean[:, 1] - complete[:, 1]}
squares = {name: np.square(error[hidden] / complete[:, 1].std()) for name, error in errors.items()}
scores = {name: (each.mean(), each.std(ddof=1) / np.sqrt(len(each))) for name, each in squares.items()}
method_scores({"hidden years": scores}, xlabel="squared error in variances", chosen="correlated process")

# %%
# Alone, the NASDAQ knows nothing of its gaps but what stands at their ends:

alone = CorrelatedGPRegressor(kernel="matern32", random_state=0).fit(x, observed[:, 1:])
mean_alone, sd_alone = (np.ravel(values) for values in alone.predict(x, return_std=True))
truth = complete[hidden, 1]
for name, m, s in (("both", mean[hidden, 1], sd[hidden, 1]), ("alone", mean_alone[hidden], sd_alone[hidden])):
    error = np.sqrt(np.mean((m - truth) ** 2))
    print(f"{name:6} RMSE {error:.3f}  log-density {norm.logpdf(truth, m, s).mean():.2f}")

# %%
# Are the intervals honest?
# -------------------------
# The predictive distribution function at what was hidden. A curve above the diagonal has intervals that are too
# wide, one below it too narrow. (Hide the four years from 2005 in one piece instead, and the 95 % intervals of the pair
# hold half of the months: the indices drifted apart meanwhile, which a stationary model does not know.)

both = norm.cdf(truth, mean[hidden, 1], sd[hidden, 1])
single = norm.cdf(truth, mean_alone[hidden], sd_alone[hidden])
interval_coverage({"both indices": both, "alone": single})

# %%
# The covariance between the indices
# ----------------------------------
# Of the prior that was learned, from one index to the other over time. A ridge beside the diagonal would be a delay.

steps = torch.linspace(-1.5, 1.5, 60, dtype=torch.float64)[:, None]
rows = [torch.cat([steps, torch.full_like(steps, p)], -1) for p in regressor.posterior_.units.numbers]
with torch.no_grad():
    cross = regressor.model_.covar_module(*rows).to_dense()
figure, ax = plt.subplots(figsize=(3.4, 2.9), layout="constrained")
largest = cross.abs().amax().item()
image = ax.imshow(cross, cmap="RdBu_r", vmin=-largest, vmax=largest, origin="lower", extent=(-1.5, 1.5, -1.5, 1.5))
figure.colorbar(image, label="covariance")
ax.set(xlabel="NASDAQ, time (standardised)", ylabel="S&P 500, time (standardised)")

# %%
# Inducing inputs
# ---------------
# For more observations than a Cholesky factorisation can bear. They lie in the canonical space, each with loadings of
# its own: the first of them is the common part of both indices.

sparse = CorrelatedGPRegressor(kernel="matern32", num_inducing=30, random_state=0).fit(x, observed)
model = sparse.model_
component = model.covar_module.kernels[0]
with torch.no_grad():
    mapped, places = component.points(model.train_inputs[0]), model.inducing_points()[0]
figure, ax = plt.subplots(figsize=(3.4, 2.9), layout="constrained")
for p, label in zip(sparse.posterior_.units.numbers, ("S&P 500", "NASDAQ"), strict=True):
    here = model.train_inputs[0][:, -1] == p
    ax.scatter(mapped.inputs[here, 0], mapped.loadings[here, 1], s=7, alpha=0.5, label=label)
ax.scatter(places.inputs[:, 0], places.loadings[:, 1], s=26, marker="X", color="black", label="inducing inputs")
ax.set(xlabel="time, mapped", ylabel="loading on the second process")
ax.legend()

# %%
# Few observations
# ----------------
# Then the parameters themselves are uncertain. ``inference="nuts"`` samples them; the intervals become wider, and
# honest. Chains should look like one band.

few = CorrelatedGPRegressor(inference=NUTS(num_chains=2, num_warmup=60, num_samples=60), random_state=0)
few.fit(x[::9], complete[::9, 0])
chains = {name: value.flatten(2) for name, value in few.samples_.chains.items()}
name = next(key for key in chains if "noise" in key)
samples = {f"chain {number}": chain for number, chain in enumerate(chains[name][..., 0], 1)}
curves(range(1, 61), samples, xlabel="Sample", ylabel="noise")
