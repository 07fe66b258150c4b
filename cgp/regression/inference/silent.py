"""Learning what sums say of outputs that have no readings: their loadings, their means and their noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from cgp.kernels.canonical_kernel import noise_of_rows
from cgp.kernels.markov_forms import markov_form
from cgp.regression.series_space import SeriesComponent
from cgp.regression.solvers.model import RegressionModel
from cgp.regression.sums import Bins
from cgp.statespace.evidence import log_evidence
from cgp.statespace.readings import Reading, Readings, reading_processes
from cgp.statespace.space import state_space

from .fitting import minimise
from .sampling import with_parameters

__all__ = ["bin_evidence", "fit_silent"]

_MOST_BINS = 200  # that are learned from


def fit_silent(model: RegressionModel, bins: Sequence[Bins], step: float) -> None:
    r"""Learn the parameters of outputs without readings from their sums, with those of all others as they are.

    .. math:: \max_{\theta_p}\; \log p\big(\bar y \mid \theta\big) + \log p(\theta_p)

    :math:`\bar y` are the means of all outputs over the bins of the sums, as integrals of the processes: exact to the
    order of a step, whatever the number of rows in a bin.

    Args:
        model: of a series, fitted to the readings of the other outputs; its parameters are set.
        bins: of each such output, in units of the model.
        step: distance of two rows.
    """
    outputs = torch.tensor([each.output for each in bins])
    names = {name: each for name, each in model.named_parameters() if each.requires_grad}
    whole = {name: each.detach() for name, each in names.items() if each.shape[:1] == (model.num_processes,)}
    free = {name: each[outputs].clone().requires_grad_() for name, each in whole.items()}
    loss = with_parameters(
        model, lambda model: -sum(bin_evidence(model, each, step) for each in bins) - model.log_prior()
    )

    def filled() -> Mapping[str, Tensor]:
        return {name: whole[name].index_copy(0, outputs, value) for name, value in free.items()}

    start = torch.cat([value.detach().flatten() for value in free.values()]).double().numpy().copy()
    count = sum(int(np.isfinite(each.means[:_MOST_BINS]).sum()) for each in bins)
    minimise([*free.values()], lambda: loss(filled()) / count, [start])
    with torch.no_grad():
        for name, value in filled().items():
            names[name].copy_(value)


def bin_evidence(model: RegressionModel, bins: Bins, step: float) -> Tensor:
    """Log-density in nats of means over bins, each in units of the first bin's length."""
    some = slice(_MOST_BINS)
    low, high = (torch.as_tensor(each[some]) for each in (bins.low - 0.5 * step, bins.high + 0.5 * step))
    # The integral is read, and forgotten, where a bin begins, and read at its end; bins meet but for rounding.
    times = torch.stack([low, high], -1).flatten().cummax(0).values
    unit = high[0] - low[0]
    kinds, nothing = torch.full((len(times),), int(Reading.INTEGRAL)), torch.zeros_like(times)
    processes, loadings = [], []
    for component in map(SeriesComponent.of, model.covar_module.kernels):
        scale = component.scales[0]
        readings = Readings(scale * (times - times[0]), kinds, nothing)
        for process in reading_processes(markov_form(component.kernel), readings):
            processes.append(process)
            loadings.append(component.loadings / (scale * unit))
    space = state_space(processes, loadings, torch.arange(len(times)))
    means, lengths = torch.as_tensor(bins.means[some]), (high - low)[:, None] / unit
    outputs = torch.arange(model.num_processes)
    rows = torch.stack([torch.zeros(len(outputs)), outputs], -1).to(model.train_targets)
    noise = noise_of_rows(model.likelihood, rows) / torch.as_tensor(bins.counts[some])[:, None] * lengths**2
    residual = (means.nan_to_num() - model.mean_module(rows)) * lengths

    def at_ends(values: Tensor) -> Tensor:
        return torch.stack([torch.zeros_like(values), values], 1).flatten(0, 1)

    return log_evidence(space, at_ends(residual).double(), at_ends(noise).double(), at_ends(means.isfinite()))
