"""Comparison of the uncertainties of a network on held-out folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Never, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cgp.comparisons import LEVEL
from cgp.networks.detect.detector import Detector
from cgp.networks.detect.scores import DrawnScore, Seen, Widest, numbers
from cgp.networks.methods.amplitudes import AmplitudeSearch
from cgp.networks.methods.known import Posterior
from cgp.networks.methods.rows import Normals
from cgp.networks.model.fingerprints import calibrated_weights, fingerprint
from cgp.networks.model.inputs import (
    Batch,
    batches,
    check_finite_inputs,
    is_batch,
    model_device,
    refuse_labels_apart,
    to_device,
)
from cgp.networks.model.progress import Progress
from cgp.networks.model.repeated import check_apart, keep_keys, kept_keys, keys_of
from cgp.networks.model.structural_copy import uncompiled
from cgp.networks.model.tempering import harm_of_temperatures, probabilities
from cgp.networks.predict.drawing import check_samples
from cgp.networks.predict.method import Method, Settings, Training, as_assessed, method_of, with_settings
from cgp.networks.tasks import Task, as_task
from cgp.networks.tasks.metrics import LabelledScores

from .assessment import Assessment, Choice
from .claims import are_enough, compare_detectors, compare_sets, harm_seen, least_mean, of_groups, tells_nothing
from .compared import Comparable, Compared, Entry, compared, entries_of
from .tuning import Outcome, Rows, Source, Tuned, ValidationData, outcome_as_it_is, rows_of, together

__all__ = ["FOLDS", "assess"]

Array = NDArray[Any]

FOLDS = 5
"""Folds of the validation data: what scores one of them was fitted to the others."""


@torch.inference_mode(False)
@torch.no_grad()
def assess(
    model: nn.Module,
    data: Any,
    *labels: Any,
    task: str | Task = "classification",
    output: Callable[[Any], Tensor] | str | None = None,
    compare: Sequence[Comparable] | None = None,
    train: Any = None,
    ood: Mapping[str, Any] | None = None,
    num_samples: int = 8,
    seed: int = 0,
    progress: Progress = None,
    **others: Never,
) -> Assessment:
    r"""Score the uncertainty of a classifier, or of a regression, and the alternatives to it.

    The methods are compared on the same held-out labels: the model as trained; with a temperature; with the likeliest
    Gaussian-process posterior; with both; and with the widest posterior and a temperature, which :func:`cgp.calibrate`
    would choose. Temperatures and amplitudes are chosen on all of five folds except the scored one, and differences
    between methods are paired, example by example.

    With ``train``, a Gaussian-process read-out of the representation (:class:`cgp.GPReadout`) with a
    temperature is one of them; of a model with dropout, and without stochastic layers, its dropout left on.

    With ``task="regression"`` the variances of a network's errors are compared,

    .. math:: y_i \sim N\big(\mu(x_i),\; e(x_i) + s^2 v(x_i)\big)

    for each output, with a scale s² in place of the temperature: "as trained", the variance v that the network returns,
    with s² = 1; "scale", that variance or a constant one, scaled; the others add the variance e of the draws or of the
    process, and predict their mean.

    On out-of-distribution inputs, detection scores are compared: one minus the largest probability, the entropy,
    the energy :math:`-\log\sum_c e^{f_c}`, the widest posterior's entropy and its epistemic part, and with ``train``
    two of the representation: the class-conditional Mahalanobis distance and the read-out's variance, each alone
    and in a sum with the energy (both in standard deviations over the validation data).

    Args:
        model: any classifier with logits ``(N, C)`` (or those of the task), or a regression network with outputs
            ``(N, C)``, converted or not. It is not changed.
        data: labelled data that the model was not trained on: a loader or data set (see
            :func:`cgp.networks.model.inputs.batches`), or a list of batches ``(inputs, labels)``. A loader or data set
            of more than 256 MiB is not kept but read in every pass, in the same order.
        *labels: none: they belong into ``data``.
        task: "classification" of inputs; "tokens", one label for each, ``(N, n)``, where −100 is ignored;
            "multilabel", labels ``(N, C)`` in {0, 1}; or "dense", logits ``(N, C, H, W)`` and labels ``(N, H, W)``.
            Except for the first, folds and errors are of whole inputs, as their labels are dependent, and only the
            methods are compared: ``train`` and ``ood`` are None. "regression": values ``(N, C)``, without ``ood``. An
            object such as ``Regression(noise=lambda out: out[1])`` says how outputs, variances and representation are
            taken.
        output: takes the logits, or the values of a regression, from what the model returns, as of :func:`cgp.predict`:
            ``lambda out: out[0]`` from a tuple; "probabilities" takes their logarithms, rounded zeros included.
        compare: names or objects of what is compared with the model as trained and with its temperature or scale:
            methods ("posterior", "readout", "dropout", or with options such as ``Posterior(layers="all")``), detectors
            ("energy", "Mahalanobis + energy"), scores of prediction sets ("aps", "raps", "lac"), or your own. None is
            all methods and detectors that the model and the data allow; of a network that is at chance
            (:func:`cgp.networks.assess.claims.tells_nothing`) those without fits or draws, and the report names the
            rest. The posterior of a network with attention runs its layers from the last attention on some 130 times
            (15 amplitudes, 8 draws each); without it, as by ``["temperature", "energy"]``, all of it runs three times.
        train: its labelled training data, likewise, without what is in ``data``; None omits the read-out and the scores
            of the representation.
        ood: out-of-distribution inputs, or corrupted ones, by name: inputs, or functions of a batch's inputs, which are
            applied to the validation data. A list of dicts is read as a list of examples, unless they have the
            dimensions of a batch by the names of transformers: pass other batches that are dicts as an iterator.
        num_samples: number S of draws.
        seed: seed of the folds and the draws.
        progress: whether progress is shown (None: on a terminal, in passes of more than ten seconds, elsewhere in one
            line of each), or what is called with the number of batches done and of all.
        **others: none: another name is refused, with the nearest of these.

    Returns:
        The comparison, with a recommendation in a sentence.

    Raises:
        TypeError: if the model is no module, ``ood`` no mapping, labels come as an argument of their own, or an
            argument has none of these names.
        ValueError: if there are no labels, an argument is out of range, more than 5 % of the inputs of ``data`` are in
            ``train``, or of a set of ``ood`` in ``data``, or the model predicts by what :meth:`Assessment.apply` or
            :func:`cgp.calibrate` fitted, which ``cgp.predict(model, data).score()`` scores.

    Warns:
        UserWarning: if some of them are.

    Example:
        >>> x = torch.linspace(-2, 2, 60)[:, None]
        >>> report = assess(nn.Linear(1, 2), [(x, (x[:, 0] > 0).long())])
        >>> list(report.scores)
        ['as trained', 'temperature']
    """
    refuse_labels_apart("assess", labels, others, assess)
    asked = as_task(task, labelled=True, output=output)
    check_samples(num_samples, 1)
    _check(asked, train, ood)
    _refuse_advised(model, asked)
    model = as_assessed(uncompiled(model)).eval()
    training = None if train is None else Training(model, asked, train)
    what = compared(compare, model, asked, training)
    held = ValidationData(data, partial(asked.read, model=model, every=asked.is_per_input), progress)
    keep_keys(model, held.keys)
    if training is not None:
        training.check_apart(held.keys)
        keep_keys(model, training.keys)
    posterior = what.posterior or Posterior()
    drawing = model if what.posterior is None else posterior.drawing(model)
    search = AmplitudeSearch(drawing, num_samples, posterior.sampling, seed, asked)
    outcomes = list[Outcome]()
    is_costly = compare is None and what.brief.left_out
    label_of, shape = _check_labels(search, held, outcomes if is_costly else None)
    if outcomes and _is_at_chance(together(outcomes), search.task, held, label_of):
        what, search = what.brief, replace(search, model=model)
    what = what.fitted(training)
    return _Comparison(model, search, held, what, label_of, shape[-1]).report(_other_inputs(held, ood or {}, model))


class _Comparison:
    """A comparison on validation data, by draws of the network or of its converted copy."""

    def __init__(
        self,
        model: nn.Module,
        search: AmplitudeSearch,
        held: ValidationData,
        what: Compared,
        label_of: Tensor,
        size: int,
    ) -> None:
        self.size = size
        self.model, self.search, self.task, self.what = model, search, search.task, what
        self.input_of, self.column_of = label_of.unbind(1)
        generator = torch.Generator().manual_seed(search.seed)
        folds = torch.randperm(int(self.input_of.max()) + 1, generator=generator, device="cpu") % FOLDS
        fold_of = folds[self.input_of]
        sources = {method.name: self._source(method) for method in what.methods if not isinstance(method, Posterior)}
        self.plain = Method.named(self.task.parameter)
        self.tuned = Tuned(
            search, held, fold_of, draws=what.posterior is not None, sources=sources, scores=self._scores_of_batch
        )
        self.entries = entries_of(self.task, self.plain, what.methods)
        self.widest, detectors = Widest(), what.detectors
        if self.tuned.draws and what.posterior is not None:
            factor, temperature = self.tuned.whole(Entry(self.plain, None, "widest"))
            how = search.num_samples, search.mode, search.seed
            self.widest = Widest(what.posterior.layers, float(factor), temperature, *how)
        else:  # there is none, or all its draws overflow
            self.entries = {name: entry for name, entry in self.entries.items() if entry.key is not None}
            detectors = [detector for detector in detectors if not detector.draws]
            self.widest = Widest(factor=0.0)
        self.detectors: list[Detector] = [detector.drawn_by(self.widest) for detector in detectors]

    def report(self, others: Iterable[tuple[str, Iterable[Batch]]]) -> Assessment:
        """The comparison, also on other inputs by name."""
        outcomes, known = self.tuned.scored(self.entries, self.widest.factor, self._scores_of_draws)
        detectors = [detector.knowing(known) for detector in self.detectors]
        outside = {name: self._scores_of_others(data, name) for name, data in others}
        chosen = {name: (entry.method, *self.tuned.whole(entry)) for name, entry in self.entries.items()}
        choices = {n: Choice(m, key if isinstance(key, float) else 0.0, fit) for n, (m, key, fit) in chosen.items()}
        weights = fingerprint(self.model)
        fitted = {each.name: replace(each, weights=weights.host) for each in detectors}
        groups: Any = self.input_of.numpy()
        first, alone = next(iter(outcomes.values())), outcomes[self.task.parameter]
        beyond = [name for name, entry in self.entries.items() if entry.is_advised and entry.method is not self.plain]
        bounds = self._bounds(outcomes, beyond, groups)
        return Assessment(
            scores={name: outcome.summary() for name, outcome in outcomes.items()},
            differences={name: outcome.differences(first, groups) for name, outcome in outcomes.items()},
            beyond={name: outcomes[name].differences(alone, groups)["nll"] for name in beyond},
            least={name: bound for name, (bound, _) in bounds.items()},
            harms={name: harm for name, (_, harm) in bounds.items()},
            detection=compare_detectors(detectors, known, outside) if outside else {},
            sets=compare_sets(self.tuned, self.entries[self.task.parameter], self.what.sets),
            num_labels=len(groups),
            num_inputs=int(groups.max()) + 1,
            outcomes=outcomes,
            weights=weights,
            keys=kept_keys(self.model),
            labels=self.tuned.labels.cpu().numpy(),
            groups=groups,
            columns=self.column_of.numpy(),
            task=self.task,
            choices=choices,
            fitted=fitted,
            left_out=self.what.left_out,
        )

    def _bounds(
        self, outcomes: Mapping[str, Outcome], beyond: list[str], groups: Any
    ) -> dict[str, tuple[float, float]]:
        """Lower bounds of the gains that may be recommended, with 95 % in each test of a report, and possible harms."""
        first, alone = next(iter(outcomes)), self.task.parameter
        pairs = dict.fromkeys(beyond, alone) | ({} if first == alone else {alone: first})
        bounds = {}
        for name, other in pairs.items():
            gains = outcomes[other].losses - outcomes[name].losses
            harm = harm_seen(gains)
            if name == alone and self.task.has_classes:
                plan = self.tuned.plan(self.entries[name])
                harm = harm_of_temperatures((t for _, t in plan.values()), self.size)
            values, largest = of_groups(gains, groups)
            level = LEVEL / (1 if name == alone else len(beyond))
            bounds[name] = least_mean(values, -harm * largest, level), harm * largest
        return bounds

    def _source(self, method: Method) -> Source:
        """What a method predicts of the labels of a batch."""
        prepared = with_settings(self.model, Settings(method))
        search = replace(self.search, model=prepared)

        def rows(number: int, batch: Batch) -> Rows:
            assert batch.labels is not None
            if (read := method.read(prepared, batch.inputs)) is not None:
                parts = read.mean, read.variance, read.noise.expand_as(read.mean)
                return Normals(*(part.double().to(batch.labels.device) for part in parts))
            return rows_of(self.task).of_draws(
                next(search.draws([batch], (float(method.draws),), first=number))[2], batch.labels
            )

        return rows

    def _scores_of_batch(self, number: int, batch: Batch, logits: Tensor) -> dict[str, Array]:
        """Scores of inputs that need no draws."""
        seen = Seen(self.model, self.task, batch.inputs, number=number).with_logits(logits)
        scores = {score.name: score for detector in self.what.detectors for score in detector.terms}
        return {n: numbers(score.of(seen)) for n, score in scores.items() if not isinstance(score, DrawnScore)}

    def _scores_of_draws(self, rows: Rows) -> dict[str, Array]:
        """Scores of inputs by the widest posterior's draws."""
        scores = {s.name: s for each in self.detectors for s in each.terms if isinstance(s, DrawnScore)}
        draws = probabilities(rows.draws, self.widest.temperature) if scores else None
        return {name: numbers(score.of_draws(draws)) for name, score in scores.items() if draws is not None}

    def _scores_of_others(self, data: Iterable[Batch], name: str) -> dict[str, Array]:
        """All scores of other inputs, batch by batch."""
        parts, called = list[dict[str, Array]](), f"ood[{name!r}]"
        for number, batch in enumerate(data):
            first = sum(len(next(iter(part.values()))) for part in parts)
            options: dict[str, Any] = {"number": number, "first": first, "name": called, "drawing": self.search.model}
            part = dict[str, Array]()
            try:
                seen = Seen(self.model, self.task, batch.inputs, **options)
                for detector in self.detectors:
                    part |= detector.of(seen)
            except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                given, known = (_forms(each.inputs) for each in (batch, next(iter(self.tuned.held))))
                if given == known:
                    raise
                advice = "; batches that are dicts come as iter([...])" if isinstance(batch.inputs, Mapping) else ""
                got = f"{given} ({error}{advice})"
                raise ValueError(f"{called}: expected inputs as in data, {known}, got {got}") from error
            parts.append(part)
        return {score: np.concatenate([part[score] for part in parts]) for score in parts[0]}


def _forms(inputs: Any) -> str:
    """Types and shapes of the tensors of an input, without the dimension of the batch."""
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]
    return ", ".join(f"{leaf.dtype} (N, {', '.join(map(str, leaf.shape[1:]))})" for leaf in leaves)


def _check(task: Task, train: Any, ood: Any) -> None:
    allowed = {"train": task.is_per_input, "ood": task.is_per_input and task.has_classes}
    for name, value in (("train", train), ("ood", ood)):
        if value is not None and not allowed[name]:
            raise ValueError(f"{name}: expected None with task={task.name!r}, got {type(value).__name__}")
    if ood is not None and not isinstance(ood, Mapping):
        raise TypeError(f"ood: expected a dict of sets by name, {{'name': inputs}}, got {type(ood).__name__}")


def _refuse_advised(model: nn.Module, task: Task) -> None:
    """Refuse a model that predicts by what labels fitted, unless its weights have changed since: none would count."""
    fitted, method = calibrated_weights(model), method_of(model, task)
    are_own = ("as trained",) if fitted else ("as trained", "posterior")
    if method not in are_own and fitted in (None, fingerprint(model).whole):
        raise ValueError(
            f"model: expected a network before report.apply or cgp.calibrate, got one that predicts by {method}, which "
            f"would be left out: cgp.predict(model, data{task.options}).score() scores what it predicts (to assess a "
            "network, do so before cgp.calibrate, which changes a posterior in place: copy.deepcopy(model) first, or "
            "load it again)"
        )


def _check_labels(
    search: AmplitudeSearch, held: ValidationData, outcomes: list[Outcome] | None
) -> tuple[Tensor, tuple[int, ...]]:
    """Input of each label, and which of several it is there, ``(N, 2)``, and the shape of what the model returns."""

    def take(batch: Batch, drawn: Tensor) -> None:
        if outcomes is not None and batch.labels is not None and drawn.dim() == search.task.dims + 1:
            outcomes.append(outcome_as_it_is(search.task, drawn, batch.labels))

    task, shape = search.task, search.check(held, take=take)
    if len(shape) != task.dims:
        advice = " (task='tokens' takes a label for every token)" if len(shape) == 3 else ""
        raise ValueError(f"model: expected logits {task.wanted}, got shape {shape}{advice}")
    places, first = [], 0
    for labels in held.labels:
        there = task.present(labels).nonzero().cpu()
        columns = there[:, 1] if task.is_binary else torch.zeros_like(there[:, 0])
        places.append(torch.stack([first + there[:, 0], columns], 1))
        first += len(labels)
    input_of, column_of = torch.cat(places).unbind(1)
    inputs, input_of_label = input_of.unique(return_inverse=True)
    if len(inputs) < FOLDS:
        raise ValueError(f"data: expected at least {FOLDS} {task.examples}, one a fold, got {len(inputs)}")
    return torch.stack([input_of_label, column_of], 1), shape


def _is_at_chance(outcome: Outcome, task: Task, held: ValidationData, label_of: Tensor) -> bool:
    """Whether enough labels show that the model as it is knows no more than chance."""
    inputs, columns = label_of.numpy().T
    labels = torch.cat([task.flat(labels) for labels in held.labels]).cpu().numpy()
    wrong = int((~outcome.correct).sum()) if isinstance(outcome, LabelledScores) else None
    return are_enough(int(inputs.max()) + 1, wrong) and tells_nothing(outcome, labels, columns, inputs)


def _other_inputs(
    known: ValidationData, sets: Mapping[str, Any], model: nn.Module
) -> Iterator[tuple[str, Iterator[Batch]]]:
    """Each set of other inputs by its name: corrupted validation data, or given data."""
    for name, data in sets.items():
        if callable(data):
            yield name, (Batch(data(batch.inputs), None) for batch in known)
            continue
        are_batches = isinstance(data, list) and not (data and isinstance(data[0], Mapping) and not is_batch(data[0]))
        yield name, _moved(name, iter(data) if are_batches else data, model, known.keys)


def _moved(name: str, data: Any, model: nn.Module, known: Sequence[int]) -> Iterator[Batch]:
    batch, keys, first = None, list[int](), 0
    if data is None or isinstance(data, str | bytes | float | int):
        _refuse_other_kind(name, repr(data))
    for batch in batches(data):
        if known and not _forms(batch.inputs):
            _refuse_other_kind(name, f"a {type(batch.inputs).__name__} without tensors")
        count = check_finite_inputs(model, batch.inputs, f"ood[{name!r}]", first)
        if not count and _forms(batch.inputs):
            raise ValueError(f"ood[{name!r}]: expected at least one input in each batch, got none")
        first += count
        keys += keys_of(batch)
        yield Batch(*to_device(tuple(batch), model_device(model)))
    if batch is None:
        raise ValueError(f"ood[{name!r}]: expected at least one batch, got none")
    check_apart(f"ood[{name!r}]", keys, known)


def _refuse_other_kind(name: str, got: str) -> NoReturn:
    raise ValueError(f"ood[{name!r}]: expected inputs as in data, batches of them, or a function of them, got {got}")
