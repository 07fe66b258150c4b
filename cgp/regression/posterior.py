"""What observations say of outputs: a mixture of Gaussian posteriors, in the user's units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils import check_random_state
from torch import Tensor

from .likelihood import every_process
from .observations import Observations, Parts, Units
from .solvers.model import MOST_ENTRIES, RegressionModel, first_member

__all__ = ["Marginals", "Posterior"]

Array = NDArray[Any]


class Marginals(NamedTuple):
    """Means and standard deviations, of one shape."""

    mean: Array
    sd: Array


class Posterior:
    r"""The posterior of P outputs at any inputs: the mixture of S models or samples of parameters, all of equal weight.

    .. math:: \bar\mu = \tfrac1S\sum_s\mu_s, \qquad \tfrac1S\sum_s C_s + (\mu_s-\bar\mu)(\mu_s-\bar\mu)^\top

    Arrays of inputs ``(t, d)`` in, arrays with an axis of P outputs out. It does not change: :meth:`conditioned` gives
    another one.

    Args:
        models: in standardised units, conditioned on the same observations; with samples, one batch member per sample.
        units: of inputs and outputs.
        observed: whether each output was observed, ``(N, P)``, in the order of the models' observations.
        conditions: the models' :meth:`.RegressionModel.condition`, if they are there already.
    """

    def __init__(
        self, models: Sequence[RegressionModel], units: Units, observed: Parts, conditions: list[Any] | None = None
    ) -> None:
        self.models = [model.requires_grad_(False) for model in models]
        self.units, self.observed = units, observed
        # With many samples it is computed on demand, batch by batch: all together may not fit into memory.
        if conditions is None:
            held = sum(model.held_entries() for model in self.models if model.batch())
            conditions = [model.condition() if held <= MOST_ENTRIES else None for model in self.models]
        self.conditions = conditions

    @property
    def num_outputs(self) -> int:
        """P."""
        return self.models[0].num_processes

    def marginals(self, X: Array, *, include_noise: bool = True) -> Marginals:
        """Mean and standard deviation of every output at inputs ``(t, d)``, ``(t, P)`` each."""
        mean, variance = _mixed(*self.members(X, include_noise=include_noise))
        return Marginals(self.units.outputs.undo(mean), np.sqrt(variance) * self.units.outputs.unit)

    def covariance(self, X: Array, *, include_noise: bool = True) -> tuple[Array, Array]:
        """The mean ``(t, P)`` and the covariance ``(t, P, t, P)`` of all outputs at inputs ``(t, d)``."""
        means, covariances = self.joint_members(X, include_noise=include_noise)
        centre, unit, shape = means.mean(0), self.units.outputs.unit, (len(X), self.num_outputs)
        covariance = covariances.mean(0) + (means - centre).T @ (means - centre) / len(means)
        blocks = covariance.reshape(*shape, *shape) * unit[:, None, None] * unit
        return self.units.outputs.undo(centre.reshape(shape)), blocks

    def log_density(self, X: Array, y: Array) -> Array:
        r"""Log-density of each of some new observations ``(t, P)``, :math:`\log\tfrac1S\sum_s N(y; \mu_s, v_s)`.

        Args:
            X: inputs, ``(t, d)``.
            y: ``(t, P)``.

        Returns:
            In nats, in the units of y; NaN where y is NaN.
        """
        values = self.units.outputs.apply(y)
        mean, variance = self.members(X, include_noise=True)
        each = -0.5 * ((values - mean) ** 2 / variance + np.log(2.0 * np.pi * variance))
        density: Array = logsumexp(each - np.log(len(each)), axis=0)
        return density - np.log(self.units.outputs.unit)

    def draw(self, X: Array, count: int, random_state: Any = 0, *, include_noise: bool = False) -> Array:
        """Joint draws of all outputs at inputs ``(t, d)``, ``(count, t, P)``."""
        draws = self._drawn(self._rows(X), count, random_state, include_noise)
        return self.units.outputs.undo(draws.reshape(count, len(X), self.num_outputs))

    def draw_at(
        self, X: Array, outputs: Array, count: int, random_state: Any = 0, *, include_noise: bool = False
    ) -> Array:
        """Joint draws at inputs ``(t, d)``, each of one output ``(t,)``, ``(count, t)``."""
        outputs = np.asarray(outputs)
        draws = self._drawn(self._places(X, outputs), count, random_state, include_noise)
        return self.units.outputs.chosen(outputs).undo(draws)

    def totals(
        self, X: Array, outputs: Array, weights: Array, sums: Array, *, include_noise: bool = True
    ) -> tuple[Array, Array]:
        r"""Weighted sums over inputs, each of one output, with their variances.

        .. math:: w_a^\top\mu, \qquad w_a^\top C w_a \; (+ \sum_i w_{ai}^2\sigma_{p_i}^2)

        With noise, an input that occurs several times counts as several observations.

        Args:
            X: inputs, ``(t, d)``.
            outputs: index of the output at each input, ``(t,)``.
            weights: ``(t,)``.
            sums: index of the sum that each belongs to, ``(t,)``; each of 0 … A-1 occurs.
            include_noise: whether observations are summed, or latent functions.

        Returns:
            Means and variances, ``(A,)`` each. For a series, in time linear in its rows.

        Raises:
            ValueError: if inputs or outputs have invalid shapes or values.
        """
        outputs = np.asarray(outputs)
        rows, scaling = self._places(X, outputs), self.units.outputs.chosen(outputs)
        weights, sums = np.asarray(weights, dtype=np.float64), np.asarray(sums, dtype=np.int64)
        inner, count = torch.as_tensor(weights * scaling.unit), int(sums.max()) + 1

        def totals(model: RegressionModel, known: Any) -> tuple[Tensor, Tensor]:
            means = model.moments(rows, known, noisy=include_noise).mean.double()
            ask = model.reading_total_variances if include_noise else model.total_variances
            return _summed(inner * means, sums, count), ask(rows, inner, torch.as_tensor(sums), known).double()

        origin = np.bincount(sums, weights * scaling.undo(np.zeros(len(sums))), minlength=count)
        mean, variance = _mixed(*self._asked(totals))
        return origin + mean, variance

    def expansion_variances(
        self, X: Array, outputs: Array, functions: tuple[Array, Array], sums: Array, *, include_noise: bool = True
    ) -> Array:
        r"""Variances of sums of functions of outputs, of all members of the mixture.

        .. math:: \sum_{ij}\sum_{k \ge 1} c_{ki}c_{kj}R_{ij}^k, \qquad R_{ij} = \frac{C_{ij}}{s_i s_j}

        Args:
            X: inputs, ``(t, d)``.
            outputs: index of the output at each input, ``(t,)``.
            functions: coefficients c of the Hermite polynomials of standardised readings, ``(S, K, t)``, and standard
                deviations s of the readings by :meth:`members`, ``(S, t)``.
            sums: as in :meth:`totals`.
            include_noise: whether C is that of readings, each with noise of its own, or of what is beneath.

        Returns:
            ``(S, A)``.
        """
        rows, number = self._places(X, np.asarray(outputs)), torch.as_tensor(np.asarray(sums, dtype=np.int64))
        counts = [model.batch().numel() for model in self.models]
        members = zip(*(torch.as_tensor(part).split(counts) for part in functions), strict=True)
        parts = [
            model.expansion_variances(rows, each, number, known, noisy=include_noise).reshape(-1, int(sums.max()) + 1)
            for model, known, each in zip(self.models, self.conditions, members, strict=True)
        ]
        return torch.cat([part.double() for part in parts]).numpy()

    def leave_one_out(self) -> Marginals:
        """Every observation predicted from all others, with fixed parameters, ``(N, P)``; NaN where there is none."""
        means, variances = self._asked(lambda model, _: model.leave_one_out())
        centre, variance = _mixed(means, variances)
        both = np.full((2, *self.observed.whole.shape), np.nan)
        for p, (column, rows) in enumerate(self._places_of_outputs()):
            both[:, column, p] = centre[rows], np.sqrt(variance)[rows]
        return Marginals(self.units.outputs.undo(both[0]), both[1] * self.units.outputs.unit)

    def given(self, kept: Array) -> Posterior:
        """The posterior given some of the observations only, with the same parameters.

        Args:
            kept: which of them, ``(N, P)``; of each output at least one.

        Returns:
            Another posterior.
        """
        rows = torch.zeros(self.models[0].train_targets.shape[-1], dtype=torch.bool)
        for p, (column, places) in enumerate(self._places_of_outputs()):
            rows[places] = torch.as_tensor(kept[column, p])
        observed = Parts.of(self.observed.whole & torch.as_tensor(kept), dim=0)
        return Posterior([model.of_rows(rows) for model in self.models], self.units, observed)

    def conditioned(self, X: Array, y: Array) -> Posterior:
        """The posterior given further observations, with the same parameters and units.

        For a series, rows that are not before the latest one are filtered from the last state: this, and predictions at
        later inputs, take a time that does not grow with the number of observations before.

        Args:
            X: inputs, ``(k, d)``.
            y: ``(k, P)``, NaN where not observed.

        Returns:
            Another posterior.
        """
        values = self.units.outputs.apply(y)[:, np.argsort(self.units.numbers)]
        further = Observations(self._inputs(X), values)
        pairs = zip(self.models, self.conditions, strict=True)
        extended = [model.extended(further.rows, further.targets, known) for model, known in pairs]
        models, conditions = [model for model, _ in extended], [known for _, known in extended]
        return Posterior(models, self.units, self.observed.appended(torch.as_tensor(~np.isnan(y))), conditions)

    def members(self, X: Array, *, include_noise: bool) -> tuple[Array, Array]:
        """Means and variances of all members of the mixture, in standardised units, ``(S, t, P)`` each."""
        rows, shape = self._rows(X), (-1, len(X), self.num_outputs)
        means, variances = self._asked(lambda model, known: model.moments(rows, known, noisy=include_noise))
        return means.reshape(shape), variances.reshape(shape)

    def joint_members(self, X: Array, *, include_noise: bool) -> tuple[Array, Array]:
        """Means ``(S, t·P)`` and covariances ``(S, t·P, t·P)`` of all members, in standardised units."""
        rows = self._rows(X)

        def joint(model: RegressionModel, known: Any) -> tuple[Tensor, Tensor]:
            if include_noise:
                mean, covariance = model.joint_readings(rows, known)
                return mean, covariance.flatten(-2)
            posterior = model.posterior(rows, known)
            return posterior.mean, posterior.covariance_matrix.flatten(-2)

        means, covariances = self._asked(joint)
        return means, covariances.reshape(-1, len(rows), len(rows))

    def _asked(self, ask: Callable[[Any, Any], tuple[Tensor, Tensor]]) -> tuple[Array, Array]:
        """Two results ``(..., n)`` of every model, one row for each member of the mixture, ``(S, n)``."""
        with torch.no_grad():
            parts = [ask(model, known) for model, known in zip(self.models, self.conditions, strict=True)]
        first, second = (
            np.concatenate([value.numpy().reshape(-1, value.shape[-1]) for value in values])
            for values in zip(*parts, strict=True)
        )
        return first, second

    def _places_of_outputs(self) -> Iterator[tuple[Array, Array]]:
        """Of each output which inputs have an observation, and its rows, which are in that order."""
        numbers = first_member(self.models[0])[0][:, -1].numpy()
        for number, column in zip(self.units.numbers, self.observed.whole.numpy().T, strict=True):
            yield column, np.flatnonzero(numbers == number)

    def _inputs(self, X: Array) -> Array:
        """Inputs in standardised units."""
        if np.ndim(X) != 2 or np.shape(X)[1] != len(self.units.inputs.unit):
            raise ValueError(f"X: expected shape (t, {len(self.units.inputs.unit)}), got {np.shape(X)}")
        return self.units.inputs.apply(X)

    def _rows(self, X: Array) -> Tensor:
        """Every output at every input, output fastest."""
        rows = every_process(torch.as_tensor(self._inputs(X)), self.num_outputs)
        return rows[:, self.units.numbers].flatten(0, 1)

    def _places(self, X: Array, outputs: Array) -> Tensor:
        """Rows of inputs, each of one output."""
        if outputs.shape != (len(X),) or outputs.dtype.kind not in "iu":
            raise ValueError(f"outputs: expected {len(X)} integers, got {outputs.dtype} of shape {outputs.shape}")
        if len(X) and not 0 <= outputs.min() <= outputs.max() < self.num_outputs:
            raise ValueError(f"outputs: expected 0 to {self.num_outputs - 1}, got {outputs.min()} to {outputs.max()}")
        return torch.as_tensor(np.column_stack([self._inputs(X), self.units.numbers[outputs].astype(np.float64)]))

    def _drawn(self, rows: Tensor, count: int, random_state: Any, noisy: bool) -> Array:
        """Draws at standardised rows in standardised units, ``(count, t)``."""
        if count < 1:
            raise ValueError(f"n_samples: expected at least 1, got {count}")
        generator = check_random_state(random_state)
        sizes = [model.batch().numel() for model in self.models]
        members = generator.randint(sum(sizes), size=count)
        source = torch.Generator().manual_seed(int(generator.randint(2**31 - 1)))
        counts = np.split(np.bincount(members, minlength=sum(sizes)), np.cumsum(sizes)[:-1])
        draws = np.empty((count, len(rows)))
        parts = []
        for model, each, known in zip(self.models, counts, self.conditions, strict=True):
            if each.any():
                ask = model.draw_readings if noisy else model.draw
                parts.append(ask(rows, each.tolist(), known, generator=source).numpy())
        draws[np.argsort(members)] = np.concatenate(parts)
        return draws


def _mixed(means: Array, variances: Array) -> tuple[Array, Array]:
    """Mean and variance of the mixture of members ``(S, ...)``."""
    mean = means.mean(0)
    return mean, variances.mean(0) + ((means - mean) ** 2).mean(0)


def _summed(values: Tensor, sums: Array, count: int) -> Tensor:
    """Values ``(..., t)`` added up by the index of their sum, ``(..., A)``."""
    zero = torch.zeros(*values.shape[:-1], count, dtype=values.dtype)
    return zero.index_add(-1, torch.as_tensor(sums), values)
