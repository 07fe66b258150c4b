"""Learning from many tables of one kind: a covariance on many time scales, and a law of whole tables about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from cgp.functional.gappy_tables import Cells, TableLaw, covariance_of_cells
from cgp.kernels.canonical_kernel import PriorModule, log_prior
from cgp.regression.covariances.multiscale import MultiScale, start_at_factors
from cgp.regression.covariances.rows import grid_covariances
from cgp.regression.observations import column_order, paired_correlation
from cgp.regression.solvers.exact import dense_log_evidence

from .descent import Descent
from .fitting import Progress

__all__ = ["LawChoice", "PanelCovariance", "batches_of", "fit_covariance", "fitted_law"]

KERNELS = ("matern32", "matern12")  # compared by evidence
NUM_STEPS = 600
_LONGEST = 10.0  # lengthscale to start with, in spans of a table; the shortest is a median lag
_LEARNING_RATE, _LARGEST_STEP = 0.05, 5.0
_CELLS = 600  # observed cells of a window
_STEP_CELLS = 1200  # of a step's windows
_FEWEST, _MOST = 8, 64  # windows of a step
_ENTRIES = 2**22  # of the roots of a batch

_WEIGHTS = (math.inf, 1000.0, 300.0, 100.0, 30.0)  # of the parametric covariance, in tables
_MEAN_WEIGHT = 20.0
FREEDOM = 30.0  # of the scales of tables, where they vary
_EM_STEPS = 4
_LEAST_TABLES = 50  # that a free covariance is offered to
_MOST_CELLS = 600  # of such a table
_HELD_OUT = 5  # one table in so many


class PanelCovariance(PriorModule):
    r"""The covariance of all readings of a table, T rows of P columns, on many time scales, with noise.

    .. math:: C_{(t,p),(t',r)} = \sum_c \big(A_cA_c^\top\big)_{pr}\,\kappa_c(t - t') + \delta\,\sigma_p^2

    Args:
        structure: with periods in median lags.
        kernel: name of the canonical covariance.
        columns: P.
        span: of a table, in median lags, the units of the times.
    """

    def __init__(self, structure: MultiScale, kernel: str, columns: int, span: float) -> None:
        super().__init__()
        self.covar_module = structure.between(columns, 1.0, max(_LONGEST * span, 1.0), kernel)
        self.register_normal("log_noise", torch.full((columns,), -3.0, dtype=torch.float64), -3.0, 2.0)

    def forward(self, times: Tensor) -> Tensor:
        """The covariance ``(*batch, T·P, T·P)`` at times ``(*batch, T)``, columns fastest."""
        grams, mixing = grid_covariances(self.covar_module, times.unsqueeze(-1))
        covariance = torch.einsum("...cij,cpq->...ipjq", grams, mixing).flatten(-4, -3).flatten(-2)
        return covariance + torch.diag_embed((self.log_noise.exp() + 1e-5).repeat(times.shape[-1]))


class LawChoice(NamedTuple):
    """A law of tables, and what the evidence chose.

    Attributes:
        law: of the tables.
        weight: of the parametric covariance, in tables; infinite where there is no other.
        has_means: whether each cell has a mean of its own.
    """

    law: TableLaw
    weight: float
    has_means: bool


@dataclass(frozen=True)
class _Windows:
    """Batches of windows of tables: of all rows, or of consecutive ones where tables are long."""

    times: Tensor  # (T,) or (B, T)
    values: Tensor  # (B, T, P)
    generator: torch.Generator

    def __iter__(self) -> _Windows:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        count, rows, _ = self.values.shape
        seen = max(float((~self.values.isnan()).sum()) / (count * rows), 1.0 / rows)
        length = min(max(int(_CELLS / seen), 2), rows)
        size = min(max(int(_STEP_CELLS / (seen * length)), _FEWEST), _MOST, count)
        chosen = torch.randperm(count, generator=self.generator)[:size]
        first = int(torch.randint(rows - length + 1, (), generator=self.generator))
        times = self.times if self.times.dim() == 1 else self.times[chosen]
        part = slice(first, first + length)
        return times[..., part], self.values[chosen, part].flatten(1)


def fit_covariance(
    covariance: PanelCovariance,
    times: Tensor,
    values: Tensor,
    *,
    num_steps: int = NUM_STEPS,
    seed: int = 0,
    progress: Progress | None = None,
) -> PanelCovariance:
    r"""Maximise the evidence of random batches of tables, or of windows of long ones, by Adam.

    .. math:: \max_\theta\; \mathbb E\Big[\frac{\sum_b \log N(x_{b,O}; 0, C_{OO})}{\sum_b |O_b|}\Big]
        + \frac{\log p(\theta)}{n}

    Args:
        covariance: of the readings of a table.
        times: of T rows, those of all tables ``(T,)`` or of each ``(B, T)``.
        values: in standardised units, NaN where missing, ``(B, T, P)``.
        num_steps: number of steps.
        seed: of the batches.
        progress: called with the number of the step and the loss.

    Returns:
        The covariance, its parameters learned; the order of the columns changes nothing but theirs.
    """
    stacked = values.flatten(0, 1).numpy()
    order = torch.as_tensor(column_order(np.arange(float(len(stacked)))[:, None], stacked))
    values = values[..., order]
    start_at_factors(covariance.covar_module, paired_correlation(values.flatten(0, 1)))
    parameters = [parameter for parameter in covariance.parameters() if parameter.requires_grad]
    descent = Descent(parameters, _LEARNING_RATE, num_steps)
    total = (~values.isnan()).sum()
    windows = _Windows(times, values, torch.Generator().manual_seed(seed))
    for step, (at, tables) in zip(range(num_steps), windows, strict=False):
        cells = Cells.of(~tables.isnan())
        if not cells.known.any():
            continue
        evidence = dense_log_evidence(covariance_of_cells(covariance(at), cells), cells.values(tables))
        padding = 0.5 * math.log(2.0 * math.pi) * (~cells.known).sum()
        loss = -(evidence.sum() + padding) / cells.known.sum() - log_prior(covariance) / total
        descent.zero_grad()
        loss.backward()
        clip_grad_norm_(parameters, _LARGEST_STEP)
        descent.step()
        if progress is not None:
            progress(step + 1, float(loss.detach()))
    for name, parameter in covariance.named_parameters():
        if ".loadings." in name or name == "log_noise":
            parameter.data = parameter.data[order.argsort()]
    return covariance.requires_grad_(False)


@torch.no_grad()
def fitted_law(covariance: Tensor, tables: Tensor, seed: int = 0) -> LawChoice:
    """The law of tables about a parametric covariance, each of its freedoms chosen by evidence.

    Means of each cell, and a covariance that is learned freely about the parametric one, are offered to fifty tables
    and more of at most 600 cells, and chosen by the evidence of a fifth of the tables that they were not learned from,
    both of a normal law and of one where tables vary in scale: the less free of both. That they vary is chosen by the
    evidence of all.

    Args:
        covariance: of the cells of a table, ``(D, D)``.
        tables: in standardised units, NaN where missing, ``(B, D)``.
        seed: of the tables that are held out.

    Returns:
        The law, learned from all tables.
    """
    centre = TableLaw(torch.zeros(len(covariance), dtype=covariance.dtype), covariance)
    laws, offer = (centre, centre.varying(FREEDOM)), (math.inf, math.inf)
    if len(tables) >= _LEAST_TABLES and len(covariance) <= _MOST_CELLS:
        order = torch.as_tensor(np.random.default_rng(seed).permutation(len(tables)))
        offer = max(_chosen(law, tables[order]) for law in laws)
    batches = _sorted_batches(tables)
    learned = [_learned(law, law, batches, *offer) for law in laws]
    law = max(learned, key=lambda law: _total(law, batches))
    return LawChoice(law, offer[0], offer[1] < math.inf)


def _chosen(centre: TableLaw, tables: Tensor) -> tuple[float, float]:
    """The weights of the covariance and of the mean with the largest evidence of held-out tables."""
    held = torch.arange(len(tables)) % _HELD_OUT == 0
    test, others = _sorted_batches(tables[held]), _sorted_batches(tables[~held])
    law, chosen = centre, (math.inf, math.inf)
    best = _total(centre, test)
    for weight in _WEIGHTS:
        law = _learned(law, centre, others, weight, _MEAN_WEIGHT)
        evidence = _total(law, test)
        if evidence < best:
            break
        best, chosen = evidence, (weight, _MEAN_WEIGHT)
    return chosen


def _total(law: TableLaw, batches: tuple[Tensor, ...]) -> float:
    return float(sum(law.log_evidence(batch).sum() for batch in batches))


def batches_of(tables: Tensor) -> tuple[Tensor, ...]:
    """Tables ``(B, D)`` in batches whose matrices fit into memory."""
    longest = max(int(tables.isnan().sum(-1).max()), int((~tables.isnan()).sum(-1).max()))
    return tables.split(max(_ENTRIES // (longest * tables.shape[-1]), 1))


def _sorted_batches(tables: Tensor) -> tuple[Tensor, ...]:
    """The batches of tables in the order of how much they show, so that those of one need little padding."""
    return batches_of(tables[(~tables.isnan()).sum(-1).argsort(stable=True)])


def _learned(
    law: TableLaw, centre: TableLaw, batches: tuple[Tensor, ...], weight: float, mean_weight: float
) -> TableLaw:
    if mean_weight == math.inf:
        return centre
    for _ in range(_EM_STEPS):
        law = law.refined(centre, batches, weight, mean_weight)
    return law
