"""Learning a prior from tables by how well it predicts blocks that are hidden in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cgp.regression.evidence import dense_log_evidence

from .checks import check_count
from .pretrained import Table, penalties
from .prior import PRIOR_KERNELS, LearnedPrior, ParameterSet, PriorComponent, gram_of
from .prior_tables import tables_of
from .scaling import Scaling, stacked_rows
from .variances import Places, Variances, total_covariance

__all__ = ["learn_prior"]

Array = NDArray[np.float64]

_NOISES = (3e-5, 3e-4, 3e-3, 0.03, 0.1, 0.3, 0.8)
_LENGTHSCALES = (0.03, 3.0)  # the shortest and the longest, in standard deviations of the inputs
_SHORT = (0.012, 0.05)  # lengthscales of a component of each output's own
_OWN_SHARE = 0.1
_STRENGTHS = {"strength": (1.0, 4.0, 16.0), "noise_strength": (0.2, 1.0, 5.0)}
_LEAST_OBSERVATIONS = 4
_LARGEST_TABLE = 300  # observations
_HIDDEN = 0.25  # share of the observations
_LEARNING_RATE = 0.03
_REFINED = 4  # sets of the largest weight that a step improves
_MARGINAL = 0.5  # weight of the marginal density


class Problem(NamedTuple):
    """A table with hidden observations.

    Attributes:
        rows: of the observations, ``(n, d + 1)``.
        targets: ``(n,)``.
        hidden_rows: ``(m, d + 1)``.
        hidden_targets: ``(m,)``.
        num_processes: number P of outputs.
    """

    rows: Tensor
    targets: Tensor
    hidden_rows: Tensor
    hidden_targets: Tensor
    num_processes: int


def learn_prior(
    tables: Any,
    *,
    window: Any = None,
    num_sets: int = 12,
    kernels: Sequence[str] = ("rbf", "matern12", "matern32", "matern52"),
    num_lengthscales: int = 7,
    periods: Sequence[float] = (),
    standardised: bool = True,
    num_steps: int = 100,
    seed: int = 0,
) -> LearnedPrior:
    r"""Learn the parameter sets of a prior from tables, by the density of blocks that are hidden in them.

    .. math:: \max_{\theta, w} \sum_t \tfrac12\,\log \frac{\sum_k w_k\,p(y_t, h_t \mid \theta_k)}
        {\sum_k w_k\,p(y_t \mid \theta_k)}\Big/|h_t| + \tfrac12\,\operatorname{mean}_i \log \sum_k \pi_{tk}\,
        p(h_{ti} \mid y_t, \theta_k)

    y are the observations of a table, h the hidden ones, and π the weights of the sets by evidence. Sets are chosen one
    by one from a grid of kernels and lengthscales; then their lengthscales, expected variances and weights follow the
    gradient. Blocks are as long as the gaps in the tables; in tables without gaps they are single values, pieces and
    ends.

    Args:
        tables: pairs of inputs ``(n, d)`` and outputs ``(n,)`` or ``(n, P)`` with NaN for what was not observed; or a
            frame of pandas, whose index is the input and whose columns are outputs.
        window: of a frame, the length of the tables that it is cut into: a duration such as ``"3D"`` for times, whose
            unit becomes a day, or a number in units of the index.
        num_sets: largest number of sets.
        kernels: kernels of the components, of "rbf", "matern12", "matern32", "matern52".
        num_lengthscales: number of lengthscales to choose from, from 0.03 to 3 standard deviations of the inputs; for
            smooth functions with little noise want 13, as no "rbf" is near enough otherwise.
        periods: periods of periodic components, in units of the inputs (``standardised=False``).
        standardised: whether every table is standardised, as a fit does; otherwise inputs and outputs of all tables are
            taken to be in the same units.
        num_steps: number of gradient steps, each with one table.
        seed: seed of the hidden blocks and of the order of the tables.

    Returns:
        The prior.

    Raises:
        ValueError: if there are too few observations, or an argument is out of range.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> x = np.linspace(0, 6, 25)[:, None]
        >>> tables = [(x, np.sin(x + phase)) for phase in generator.uniform(0, 6, 4)]
        >>> prior = learn_prior(tables, num_sets=2, kernels=["rbf"], num_steps=5)
        >>> len(prior.sets) <= 2
        True
    """
    check_count("num_sets", num_sets, 1)
    check_count("num_steps", num_steps, 0)
    check_count("num_lengthscales", num_lengthscales, 1)
    wrong = [kernel for kernel in kernels if kernel not in PRIOR_KERNELS[:-1]]
    if wrong or not kernels:
        raise ValueError(f"kernels: expected some of {PRIOR_KERNELS[:-1]}, got {tuple(kernels)}")
    if len(periods) and standardised:
        raise ValueError("periods: expected none with standardised=True: they are in units of the inputs")
    if not all(0.0 < period < math.inf for period in periods):
        raise ValueError(f"periods: expected positive numbers, got {tuple(periods)}")
    generator = np.random.default_rng(seed)
    problems = _problems(tables_of(tables, window), standardised, generator)
    lengthscales = np.geomspace(*_LENGTHSCALES, num_lengthscales).round(3).tolist()
    prior = _candidates(kernels, lengthscales, periods, problems, standardised)
    prior = _selected(prior, problems, num_sets)
    prior = _strengthened(prior, problems)
    return _refined(prior, problems, num_steps, generator)


def _problems(tables: Iterable[tuple[Array, Array]], standardised: bool, generator: Any) -> list[Problem]:
    """Tables with hidden blocks, without those that have too few observations."""
    tables = [_small(X, y) for X, y in tables]
    lengths = [length for _, y in tables for column in y.T for length in _gap_lengths(column)]
    problems = []
    for X, y in tables:
        y = y[:, (~np.isnan(y)).sum(0) >= _LEAST_OBSERVATIONS]
        if not y.size:
            continue
        hidden = _hidden(y, lengths, generator)
        known = np.where(hidden, np.nan, y)
        if standardised:
            X, scaling = Scaling.of(X).apply(X), Scaling.of_outputs(known)
            y, known = scaling.apply(y), scaling.apply(known)
        observed = ~np.isnan(known)
        rows, hidden_rows = (torch.as_tensor(stacked_rows(X, which)) for which in (observed, hidden))
        problems.append(
            Problem(
                rows,
                torch.as_tensor(y.T[observed.T]),
                hidden_rows,
                torch.as_tensor(y.T[hidden.T]),
                y.shape[1],
            )
        )
    if not problems:
        raise ValueError(f"tables: expected some with {_LEAST_OBSERVATIONS} observations of an output, got none")
    return problems


def _small(X: Array, y: Array) -> tuple[Array, Array]:
    """The part of a table with at most so many observations: its middle."""
    order = np.argsort(X[:, 0], kind="stable")
    count = max(int(len(X) * min(_LARGEST_TABLE / max((~np.isnan(y)).sum(), 1), 1.0)), 2)
    first = (len(X) - count) // 2
    part = order[first : first + count]
    return X[part], y[part]


def _gap_lengths(column: Array) -> list[int]:
    """Lengths of runs of missing values between observed ones."""
    seen = np.flatnonzero(~np.isnan(column))
    steps = np.diff(seen) - 1
    return [int(step) for step in steps if step > 0]


def _hidden(y: Array, lengths: Sequence[int], generator: Any) -> NDArray[np.bool_]:
    """Observed values to hide, about a quarter, with at least two of every output that remain."""
    count, hidden = len(y), np.zeros(y.shape, dtype=bool)
    choices = list(lengths) or [1] * 6 + [max(count // 6, 1)] * 2 + [max(count // 5, 1)]
    observed = ~np.isnan(y)
    for _ in range(20 * y.size):
        length, output = int(generator.choice(choices)), int(generator.integers(y.shape[1]))
        length = min(length, count // 3 + 1)
        first = count - length if generator.random() < 0.2 else int(generator.integers(count - length + 1))
        trial = hidden[:, output].copy()
        trial[first : first + length] = True
        if (observed[:, output] & ~trial).sum() >= max(2, 0.4 * observed[:, output].sum()):
            hidden[:, output] = trial
        if (hidden & observed).sum() >= _HIDDEN * observed.sum():
            break
    return hidden & observed


def _candidates(
    kernels: Sequence[str],
    lengthscales: Sequence[float],
    periods: Sequence[float],
    problems: Sequence[Problem],
    standardised: bool,
) -> LearnedPrior:
    """All sets to choose from, equally probable."""
    span, spread, level = 1.0, 1.0, 1.0
    if not standardised:
        span = float(np.median([problem.rows[:, :-1].std(0).mean() for problem in problems if len(problem.rows) > 1]))
        spread = float(torch.cat([problem.targets for problem in problems]).square().mean())
        means = [problem.targets.mean() ** 2 for problem in problems]
        level = max(0.1 * float(torch.stack(means).mean()), 1e-6 * spread)
    several = any(problem.num_processes > 1 for problem in problems)
    sets: list[tuple[PriorComponent, ...]] = []
    for kernel in kernels:
        for length in lengthscales:
            main = PriorComponent(kernel, length * span, spread)
            sets.append((main,))
            for short in _SHORT if several or standardised else ():
                if short < 0.3 * length:
                    own = PriorComponent(kernel, short * span, _OWN_SHARE * spread, correlated=False)
                    sets.append((main, own))
    for period in periods:
        sets += [(PriorComponent("periodic", length, spread, float(period)),) for length in (0.3, 0.6, 1.0, 2.0)]
    weighted = tuple(ParameterSet(components, 1.0 / len(sets)) for components in sets)
    noises = tuple(noise * spread for noise in _NOISES)
    return LearnedPrior(weighted, noises, (1.0 / len(noises),) * len(noises), level, standardised=standardised)


class Densities(NamedTuple):
    """Log-densities under every set, one column each.

    Attributes:
        evidence: of the observations of each table, ``(t, K)``.
        joint: of observations and hidden values, ``(t, K)``.
        marginal: of the hidden values, table after table, ``(m, K)``.
        table: table of each hidden value, ``(m,)``.
    """

    evidence: Tensor
    joint: Tensor
    marginal: Tensor
    table: Tensor

    def score(self, log_weights: Tensor) -> Tensor:
        """Mean over tables of joint and marginal log-density of a hidden value under weighted sets."""
        count = torch.zeros(len(self.evidence), dtype=torch.float64)
        count = count.index_add(0, self.table, torch.ones(len(self.table), dtype=torch.float64)).clamp(min=1.0)
        evidence = (self.evidence + log_weights).logsumexp(-1)
        joint = ((self.joint + log_weights).logsumexp(-1) - evidence) / count
        posterior = self.evidence + log_weights - evidence.unsqueeze(-1)
        values = (self.marginal + posterior[self.table]).logsumexp(-1)
        marginal = torch.zeros_like(joint).index_add(0, self.table, values) / count
        return ((1.0 - _MARGINAL) * joint + _MARGINAL * marginal).mean()


def _selected(prior: LearnedPrior, problems: Sequence[Problem], num_sets: int) -> LearnedPrior:
    """The sets that together predict best, chosen one by one, with the levels of noise weighted by their evidence."""
    tables = [_densities(prior, problem) for problem in problems]
    merged = _merged(tables)
    chosen: list[int] = []
    best = -math.inf
    while len(chosen) < min(num_sets, len(prior.sets)):
        scores = []
        for k in range(len(prior.sets)):
            members = [*chosen, k]
            evidence, joint, marginal = (values[:, members] for values in merged[:3])
            part = Densities(evidence, joint, marginal, merged.table)
            scores.append(float(part.score(_logarithms([1.0 / len(members)] * len(members)))))
        k = int(np.argmax(scores))
        if scores[k] <= best + 1e-4 or k in chosen:
            break
        chosen, best = [*chosen, k], scores[k]
    sets = tuple(prior.sets[k]._replace(weight=1.0 / len(chosen)) for k in chosen)
    return prior._replace(sets=sets, noise_weights=_noise_weights(prior._replace(sets=sets), problems))


def _strengthened(prior: LearnedPrior, problems: Sequence[Problem]) -> LearnedPrior:
    """The prior with those strengths that predict best."""
    log_weights = _logarithms([each.weight for each in prior.sets])

    def score(trial: LearnedPrior) -> float:
        return float(_merged([_densities(trial, problem) for problem in problems]).score(log_weights))

    prior = max((prior._replace(strength=value) for value in _STRENGTHS["strength"]), key=score)
    return max((prior._replace(noise_strength=value) for value in _STRENGTHS["noise_strength"]), key=score)


def _noise_weights(prior: LearnedPrior, problems: Sequence[Problem]) -> tuple[float, ...]:
    """How often outputs of the tables have each level of noise, none of them never."""
    total = torch.ones(len(prior.noises), dtype=torch.float64)
    for problem in problems:
        scores = Table.of(problem.rows, problem.targets, problem.num_processes, prior).scores()
        total += scores.flatten(0, 1).softmax(0).reshape(scores.shape).sum((0, 2))
    return tuple((total / total.sum()).tolist())


def _merged(tables: Sequence[Densities]) -> Densities:
    lengths = [len(each.marginal) for each in tables]
    table = torch.arange(len(tables)).repeat_interleave(torch.tensor(lengths))
    evidence, joint, marginal = (torch.cat([each[i] for each in tables]) for i in range(3))
    return Densities(evidence, joint, marginal, table)


def _densities(prior: LearnedPrior, problem: Problem) -> Densities:
    """Log-densities of a table under every set, at the level of noise of the largest evidence for each output."""
    table = Table.of(problem.rows, problem.targets, problem.num_processes, prior)
    members = table.likely_members(len(prior.sets))
    variances = table.variances(members)
    with torch.no_grad():
        columns = [_column(prior.sets[m.number], v, problem, prior) for m, v in zip(members, variances, strict=True)]
    order = torch.tensor([member.number for member in members]).argsort()
    evidence, joint, marginal = (torch.stack(parts, dim=-1)[..., order] for parts in zip(*columns, strict=True))
    taken = penalties(prior, members, len(problem.targets), problem.num_processes)[order]
    return Densities(
        (evidence + taken)[None], (joint + taken)[None], marginal, torch.zeros(len(marginal), dtype=torch.long)
    )


def _column(
    parameters: ParameterSet,
    variances: Variances,
    problem: Problem,
    prior: LearnedPrior,
    *,
    log_lengths: Tensor | None = None,
    log_shares: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Evidence, joint log-density and marginal log-densities of a table, with gradients by lengthscales and shares."""
    rows = torch.cat([problem.rows, problem.hidden_rows])
    count, components = len(problem.rows), parameters.components
    inputs, place = rows[:, :-1].unique(dim=0, return_inverse=True)
    lengths = [None] * len(components) if log_lengths is None else list(log_lengths.exp())
    grams = torch.stack([gram_of(c, inputs, lengthscale=length) for c, length in zip(components, lengths, strict=True)])
    if log_shares is not None:  # estimated variances are proportional to those expected
        factor = (log_shares - log_shares.detach()).exp()
        variances = variances._replace(outputs=variances.outputs * factor[:, None, None])
    S = total_covariance(grams, Places(place, rows[:, -1].long()), variances, prior.level)
    y = torch.cat([problem.targets, problem.hidden_targets])
    K, cross = S[:count, :count], S[:count, count:]
    L = torch.linalg.cholesky(K)
    white = torch.linalg.solve_triangular(L, torch.cat([cross, y[:count, None]], dim=-1), upper=False)
    mean = white[:, :-1].mT @ white[:, -1]
    variance = S.diagonal()[count:] - white[:, :-1].square().sum(0)
    marginal = -0.5 * ((y[count:] - mean).square() / variance + (2.0 * math.pi * variance).log())
    return dense_log_evidence(K, y[:count]), dense_log_evidence(S, y), marginal


def _refined(prior: LearnedPrior, problems: Sequence[Problem], num_steps: int, generator: Any) -> LearnedPrior:
    """The sets after gradient steps, each for one table and the sets of the largest weight there."""
    log_lengths = [_logarithms([c.lengthscale for c in each.components]) for each in prior.sets]
    log_shares = [_logarithms([c.share for c in each.components]) for each in prior.sets]
    logits = _logarithms([each.weight for each in prior.sets])
    parameters = [value.requires_grad_() for value in (*log_lengths, *log_shares, logits)]
    optimizer = torch.optim.Adam(parameters, lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(num_steps, 1))
    for step in range(num_steps):
        if step % len(problems) == 0:
            order = generator.permutation(len(problems))
        problem, current = problems[order[step % len(problems)]], _with_values(prior, log_lengths, log_shares, logits)
        table = Table.of(problem.rows, problem.targets, problem.num_processes, current)
        members = table.likely_members(_REFINED)
        variances = table.variances(members)
        numbers = [member.number for member in members]
        columns = [
            _column(current.sets[k], v, problem, current, log_lengths=log_lengths[k], log_shares=log_shares[k])
            for k, v in zip(numbers, variances, strict=True)
        ]
        evidence, joint, marginal = (torch.stack(parts, dim=-1) for parts in zip(*columns, strict=True))
        taken = penalties(current, members, len(problem.targets), problem.num_processes)
        which = torch.zeros(len(marginal), dtype=torch.long)
        densities = Densities((evidence + taken)[None], (joint + taken)[None], marginal, which)
        loss = -densities.score(logits.log_softmax(0)[numbers])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
    return _with_values(prior, log_lengths, log_shares, logits)


def _logarithms(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).log()


def _with_values(
    prior: LearnedPrior, log_lengths: Sequence[Tensor], log_shares: Sequence[Tensor], logits: Tensor
) -> LearnedPrior:
    """The prior with other lengthscales, shares and weights."""
    sets = []
    weights = logits.detach().softmax(0).tolist()
    for each, lengths, shares, weight in zip(prior.sets, log_lengths, log_shares, weights, strict=True):
        values = zip(each.components, lengths.exp().tolist(), shares.exp().tolist(), strict=True)
        components = [c._replace(lengthscale=length, share=share) for c, length, share in values]
        sets.append(ParameterSet(tuple(components), weight))
    return prior._replace(sets=tuple(sets))
