"""Regression by the parameter sets of a learned prior, weighted by their evidence, without an optimizer."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cgp.regression.evidence import dense_log_evidence

from .correlation import nearest_correlation
from .forms import Cost, Form, Task, forms_of
from .model import RegressionModel
from .prior import LearnedPrior, ParameterSet, gram_of
from .prior_models import covariance_of, model_of, set_means, set_outputs
from .variances import Places, Variances, VariancesPrior, adapted, delay_step, total_covariance

__all__ = ["Pretrained", "Table", "condition_on_prior", "cost_on_prior", "penalties", "start_of"]

_ESTIMATED = 900  # observations from which variances are estimated; more cost more than they improve
_SCREENED = 96  # observations of each output by which sets are compared before that
_PIECES = 4  # of a longer table
_UNCORRELATED = 8  # observations of an output that the prior's lack of correlation counts for
_DELAY = 0.3  # expected delay of an output, in lengthscales
_DELAY_STEPS = 3
_DIFFERENCE = 1e-4  # of a derivative, in lengthscales
_STEPS = 8  # of the estimate of variances
_BUDGET = 2.5e8  # operations of a step of all members
_LEAST_MEMBERS = 3
_SECONDS, _PER_STEP = 0.05, 3e-10  # of a set, and of a step of its estimates and the cube of their observations
_EVALUATED, _KEPT = 3, 8  # evaluations of a model; matrices of a set
_NEGLIGIBLE = 0.01  # total weight of the members that are dropped


class Pretrained(NamedTuple):
    """A mixture of models with the parameters of a learned prior.

    Attributes:
        models: in eval mode, that of the largest weight first.
        weights: their posterior probabilities, ``(S,)``.
        sets: the parameter set of each.
    """

    models: list[RegressionModel]
    weights: Tensor
    sets: list[ParameterSet]


class Member(NamedTuple):
    """A parameter set with a level of noise, or a level for each output.

    Attributes:
        number: index of the set.
        noise: initial noise variance of every output, ``(P,)``.
        log_weight: logarithm of its prior probability.
    """

    number: int
    noise: Tensor
    log_weight: float


@torch.no_grad()
def condition_on_prior(rows: Tensor, targets: Tensor, num_processes: int, prior: LearnedPrior) -> Pretrained:
    r"""The parameter sets of a prior, conditioned on observations and weighted by their evidence.

    .. math:: p(y_* \mid y) = \sum_m \pi_m\, p(y_* \mid y, \theta_m), \qquad
        \pi_m \propto w_m\, p(y \mid \theta_m)\, n^{-k_m/2}

    The covariances of the outputs and their noise are estimated for every set in closed-form steps under its prior
    (:func:`.adapted`), k is the number of the former.

    Args:
        rows: ``(n, d + 1)``, the last column 0 … P-1.
        targets: ``(n,)``.
        num_processes: number P of outputs.
        prior: the sets, in the units of rows and targets.

    Returns:
        The mixture, without the members of the smallest weights, 1 % together.
    """
    prior = _possible(rows, num_processes, prior)
    table = Table.of(rows, targets, num_processes, prior)
    if num_processes > 1 and rows.shape[-1] == 2:
        table = table.delayed()
    members = table.members()
    variances = table.variances(members)
    sets = [prior.sets[member.number] for member in members]
    models = []
    if table.is_whole:
        evidence = table.evidence(members, variances)
    else:
        models = [_model(rows, targets, *pair, table) for pair in zip(sets, variances, strict=True)]
        evidence = torch.stack([model.log_evidence().double() for model in models])
    log_weights = evidence + torch.tensor([member.log_weight for member in members], dtype=torch.float64)
    log_weights = log_weights + penalties(prior, members, len(targets), num_processes)
    weights, order = log_weights.double().softmax(0).sort(descending=True)
    kept = order[: int((weights.cumsum(0) < 1.0 - _NEGLIGIBLE).sum()) + 1].tolist()
    chosen = [models[i] if models else _model(rows, targets, sets[i], variances[i], table) for i in kept]
    weights = weights[: len(kept)]
    return Pretrained(chosen, weights / weights.sum(), [sets[i] for i in kept])


def cost_on_prior(rows: Tensor, num_processes: int, prior: LearnedPrior) -> Cost:
    """Expected cost of :func:`condition_on_prior`: of the estimates of variances, and of the forms of the sets."""
    size = min(len(rows), _ESTIMATED)
    estimates = len(prior.sets) * (_SECONDS + _STEPS * _PER_STEP * size**3)
    costs = [form.cost(task) for form, task in _forms(rows, num_processes, prior).values()]
    seconds = sum(cost.seconds for cost in costs) * _EVALUATED
    return Cost(estimates + seconds, max(cost.bytes for cost in costs) + 8.0 * _KEPT * len(prior.sets) * size**2)


def _possible(rows: Tensor, num_processes: int, prior: LearnedPrior) -> LearnedPrior:
    """The prior with those sets that some form of regression can do with so many observations."""
    possible = [prior.sets[int(number)] for number in _forms(rows, num_processes, prior)]
    return prior if len(possible) == len(prior.sets) else prior.of_sets(possible)


def _forms(rows: Tensor, num_processes: int, prior: LearnedPrior) -> dict[str, tuple[Form, Task]]:
    """The form of every set, by its number, without those that no form can do."""
    sizes = len(rows), len(rows[:, :-1].unique(dim=0))
    covariances = [covariance_of(each, num_processes, rows.shape[-1] - 1) for each in prior.sets]
    return forms_of({str(number): Task(covariance, *sizes) for number, covariance in enumerate(covariances)})


class Table:
    """The observations from which variances are estimated: all, or pieces of consecutive inputs."""

    correlation: Tensor  # of neighbouring observations, (P, P)
    is_whole = True  # whether it has all observations
    delays: Tensor | None = None  # of the outputs, (P,)

    def __init__(self, inputs: Tensor, places: Places, values: Tensor, num_processes: int, prior: LearnedPrior) -> None:
        self.inputs, self.places, self.values, self.prior = inputs, places, values, prior
        self.num_processes = num_processes
        self._grams: dict[int, Tensor] = {}

    def gram(self, number: int) -> Tensor:
        """The canonical covariances of a set, ``(C, T, T)``."""
        if number not in self._grams:
            components = self.prior.sets[number].components
            self._grams[number] = torch.stack([gram_of(component, self.inputs) for component in components])
        return self._grams[number]

    @classmethod
    def of(cls, rows: Tensor, targets: Tensor, num_processes: int, prior: LearnedPrior) -> Table:
        """The table of rows ``(n, d + 1)`` and targets ``(n,)``, for the sets of a prior."""
        inputs, place = rows[:, :-1].double().unique(dim=0, return_inverse=True)
        kept = _pieces(len(inputs), math.ceil(len(inputs) * _ESTIMATED / len(targets)))
        seen = torch.isin(place, kept)
        new = torch.zeros(len(inputs), dtype=torch.long).index_put((kept,), torch.arange(len(kept)))
        places = Places(new[place[seen]], rows[seen, -1].long())
        table = cls(inputs[kept], places, targets[seen].double(), num_processes, prior)
        table.is_whole = bool(seen.all())
        table.correlation = _correlation(rows, targets.double(), num_processes)
        return table

    @property
    def _strength(self) -> float:
        """The strength of the prior, by the number of covariances for each observation."""
        return self.prior.strength * self.num_processes * (self.num_processes + 1) / 2.0 / len(self.values)

    def delayed(self) -> Table:
        """The table with delays of the outputs, estimated under its likeliest set, if their evidence is larger."""
        (member,) = self.likely_members(1)
        (variances,) = first = self.variances([member])
        component = self.prior.sets[member.number].components[0]
        if component.kernel == "matern12":  # whose correlations have no derivative
            return self
        delays, other = torch.zeros(self.num_processes, dtype=torch.float64), self
        for _ in range(_DELAY_STEPS):
            other = self._with_delays(delays)
            slopes = other.slopes(member.number)
            gradient, information = delay_step(
                other.gram(member.number), slopes, other.places, self.values, variances, self.prior.level
            )
            precision = (_DELAY * component.lengthscale) ** -2
            A = information[1:, 1:] + precision * torch.eye(self.num_processes - 1, dtype=torch.float64)
            step = torch.cholesky_solve((gradient - precision * delays)[1:, None], torch.linalg.cholesky(A))[:, 0]
            delays[1:] += step.clamp(-_DELAY * component.lengthscale, _DELAY * component.lengthscale)
            other = self._with_delays(delays)
            (variances,) = other.variances([member], start=variances, num_steps=2)
        pairs = [(self, first), (other, [variances])]
        before, after = (float(table.evidence([member], estimated)) for table, estimated in pairs)
        gained = after - before - 0.5 * (self.num_processes - 1) * math.log(len(self.values))
        return other if gained > 0.0 else self

    def _with_delays(self, delays: Tensor) -> Table:
        inputs = self.inputs[self.places.rows] + delays[self.places.outputs, None]
        places = Places(torch.arange(len(inputs)), self.places.outputs)
        other = Table(inputs, places, self.values, self.num_processes, self.prior)
        other.correlation, other.is_whole, other.delays = self.correlation, self.is_whole, delays.clone()
        return other

    def slopes(self, number: int) -> Tensor:
        """Derivatives of the canonical covariances of a set by their first argument, ``(C, T, T)``."""
        parts = []
        for component in self.prior.sets[number].components:
            h = _DIFFERENCE * component.lengthscale
            ahead, behind = (gram_of(component, self.inputs + sign * h, self.inputs) for sign in (1.0, -1.0))
            parts.append((ahead - behind) / (2.0 * h) * component.correlated)
        return torch.stack(parts)

    def members(self) -> list[Member]:
        """Members to estimate: all sets at all levels of noise if that is cheap, else the likeliest sets."""
        affordable = int(_BUDGET / len(self.values) ** 3)
        if affordable < len(self.prior.sets) * len(self.prior.noises):
            return self.likely_members(max(affordable, _LEAST_MEMBERS))
        noises = torch.tensor(self.prior.noises, dtype=torch.float64)
        return [
            Member(k, noise.expand(self.num_processes), math.log(each.weight * weight))
            for k, each in enumerate(self.prior.sets)
            for noise, weight in zip(noises, self.prior.noise_weights, strict=True)
        ]

    def likely_members(self, count: int) -> list[Member]:
        """The likeliest sets if outputs were independent, each with the noise that is expected of each output."""
        weights = torch.tensor([each.weight for each in self.prior.sets], dtype=torch.float64).log()
        levels = torch.tensor(self.prior.noise_weights, dtype=torch.float64).log()
        scores = self.scores() + levels[:, None]
        best = (weights + scores.logsumexp(1).sum(-1)).topk(min(count, len(weights))).indices
        logs = torch.tensor(self.prior.noises, dtype=torch.float64).log()
        noise = (scores.softmax(1) * logs[:, None]).sum(1).exp()
        return [Member(k, noise[k], float(weights[k])) for k in best.tolist()]

    def scores(self) -> Tensor:
        """Log evidence of every output alone, for each set and level of noise, ``(K, J, P)``."""
        shares = [torch.tensor([c.share for c in each.components], dtype=torch.float64) for each in self.prior.sets]
        grams = torch.stack([(self.gram(k) * share[:, None, None]).sum(0) for k, share in enumerate(shares)])
        noises = torch.tensor(self.prior.noises, dtype=torch.float64)
        scores = []
        for p in range(self.num_processes):
            chosen = (self.places.outputs == p).nonzero()[:, 0]
            chosen = chosen[_pieces(len(chosen), _SCREENED)]
            index = self.places.rows[chosen]
            K = grams[:, index][:, :, index].unsqueeze(1) + self.prior.level
            noise = noises[:, None, None] * torch.eye(len(index), dtype=torch.float64)
            scores.append(dense_log_evidence(K + noise, self.values[chosen].expand(len(grams), len(noises), -1)))
        return torch.stack(scores, dim=-1)

    def variances(
        self, members: list[Member], start: Variances | None = None, num_steps: int = _STEPS
    ) -> list[Variances]:
        """The variances of every member, from those of a single member if given."""
        estimated: list[Variances] = [Variances(torch.empty(0), torch.empty(0))] * len(members)
        for which in self._batches(members):
            grams, prior = self._stacked([members[i] for i in which])
            first = Variances(prior.outputs, prior.noise) if start is None else Variances(*(v[None] for v in start))
            result = adapted(grams, self.places, self.values, first, prior, num_steps=num_steps)
            for i, *values in zip(which, *result, strict=True):
                estimated[i] = Variances(*values)
        return estimated

    def evidence(self, members: list[Member], variances: list[Variances]) -> Tensor:
        """Log evidence of every member."""
        values = torch.empty(len(members), dtype=torch.float64)
        for which in self._batches(members):
            grams, _ = self._stacked([members[i] for i in which])
            both = Variances(*(torch.stack(parts) for parts in zip(*(variances[i] for i in which), strict=True)))
            covariance = total_covariance(grams, self.places, both, self.prior.level)
            values[which] = dense_log_evidence(covariance, self.values.expand(len(which), -1))
        return values

    def _batches(self, members: list[Member]) -> list[list[int]]:
        """Indices of members with equally many components."""
        counts = [len(self.prior.sets[member.number].components) for member in members]
        return [[i for i, other in enumerate(counts) if other == count] for count in sorted(set(counts))]

    def _stacked(self, members: list[Member]) -> tuple[Tensor, VariancesPrior]:
        sets = [self.prior.sets[member.number] for member in members]
        shares = torch.tensor([[c.share for c in each.components] for each in sets], dtype=torch.float64)
        noise = torch.stack([member.noise for member in members])
        grams = torch.stack([self.gram(member.number) for member in members])
        free = torch.tensor([[c.correlated for c in each.components] for each in sets])[..., None, None]
        correlated = free | torch.eye(self.num_processes, dtype=torch.bool)
        outputs = shares[..., None, None] * self.correlation * correlated
        return grams, VariancesPrior(
            outputs, correlated.double(), noise, self.prior.level, self._strength, self.prior.noise_strength
        )


def penalties(prior: LearnedPrior, members: list[Member], count: int, num_processes: int) -> Tensor:
    """What the estimates of variances take off the log evidence of members, for this number of observations."""
    sets = [prior.sets[member.number] for member in members]
    numbers = torch.tensor([_num_variances(each, num_processes) for each in sets], dtype=torch.float64)
    return -0.5 * numbers * math.log(count)


def _num_variances(parameters: ParameterSet, num_processes: int) -> int:
    """Number of variances and covariances of the outputs."""
    several = num_processes * (num_processes + 1) // 2
    return sum(several if component.correlated else num_processes for component in parameters.components)


def _correlation(rows: Tensor, targets: Tensor, num_processes: int) -> Tensor:
    """Correlations of neighbouring observations, shrunk where they are few."""
    few = len(targets) / (len(targets) + _UNCORRELATED * num_processes)
    correlation = nearest_correlation(rows.double(), targets, num_processes)
    return few * correlation + (1.0 - few) * torch.eye(num_processes, dtype=torch.float64)


def _pieces(count: int, kept: int) -> Tensor:
    """Indices of at most so many of some items in order, in evenly spaced pieces of consecutive ones."""
    if kept >= count:
        return torch.arange(count)
    length = max(kept // _PIECES, 1)
    starts = torch.linspace(0, count - length, _PIECES).round().long()
    return (starts[:, None] + torch.arange(length)).flatten().unique()


def _model(
    rows: Tensor, targets: Tensor, parameters: ParameterSet, variances: Variances, table: Table
) -> RegressionModel:
    """The model of a set with these variances."""
    model = model_of(rows, targets, parameters, table.num_processes, is_delayed=table.delays is not None)
    for component, outputs in zip(model.covar_module.kernels, variances.outputs, strict=True):
        set_outputs(component, outputs)
        if table.delays is not None:
            component.input_maps.initialize(shifts=(table.delays[1:] * component.input_maps.scales)[:, None])
    model.likelihood.noise = variances.noise
    set_means(model, table.prior.level)
    return model


def start_of(pretrained: Pretrained) -> RegressionModel:
    """The likeliest member with all variances in its first component, to start a fit."""
    best, parameters = pretrained.models[0], pretrained.sets[0]
    outputs = torch.stack([kernel.loadings() @ kernel.loadings().mT for kernel in best.covar_module.kernels]).sum(0)
    single = parameters._replace(components=parameters.components[:1])
    rows, targets = best.train_inputs[0], best.train_targets
    start = model_of(rows, targets, single, best.num_processes, is_delayed=False)
    set_outputs(start.covar_module.kernels[0], outputs.detach())
    start.likelihood.load_state_dict(best.likelihood.state_dict())
    start.mean_module.load_state_dict(best.mean_module.state_dict())
    return start
