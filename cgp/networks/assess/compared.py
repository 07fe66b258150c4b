"""What a report compares: methods, detectors and prediction sets, by name or as objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from cgp.networks.detect.detector import DETECTORS, Detector
from cgp.networks.detect.scores import InputScore
from cgp.networks.guarantees.conformal import SetScore
from cgp.networks.methods.known import Posterior
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.inputs import logits_of_probabilities
from cgp.networks.predict.method import Method, Training
from cgp.networks.tasks import Classification, Task
from cgp.spelling import meant

__all__ = ["Comparable", "Compared", "Entry", "compared", "entries_of"]

Comparable = str | Method | Detector | InputScore | SetScore

_FIRST, *_OTHERS = DETECTORS[:3]
_METHODS = ("posterior", "readout", "dropout")
_DETECTORS = (_FIRST, *_OTHERS, "widest posterior's entropy", "epistemic", *DETECTORS[3:])


class Entry(NamedTuple):
    """A row of the report; without a key, a posterior of which an amplitude is chosen by the criterion."""

    method: Method
    key: float | str | None = 0.0
    criterion: str = "likelihood"
    fits: bool = True

    @property
    def is_advised(self) -> bool:
        """Whether the report may recommend it: not a wider posterior, nor one without its temperature."""
        return self.criterion == "likelihood" and self.fits == self.method.scaled


def entries_of(task: Task, plain: Method, methods: Sequence[Method]) -> dict[str, Entry]:
    """The rows of a report by name; a classifier's posterior has one without a temperature and one of the widest."""
    entries = {"as trained": Entry(plain, fits=False)} if task.has_distribution else {}
    entries[task.parameter] = Entry(plain)
    for method in methods:
        key = None if isinstance(method, Posterior) else method.name
        if key is None and task.has_classes:
            entries["posterior"] = Entry(method, key, fits=False)
        entries[method.title(task)] = Entry(method, key, fits=method.scaled)
        if key is None and task.has_classes:
            entries["widest posterior"] = Entry(method, key, "widest")
    return entries


class Compared(NamedTuple):
    """What is compared.

    Attributes:
        methods: besides the temperature or scale alone.
        detectors: the first one is what the others are compared with.
        sets: scores of classes.
        left_out: names of methods and detectors that were possible, but are not compared.
    """

    methods: list[Method]
    detectors: list[Detector]
    sets: list[SetScore]
    left_out: tuple[str, ...] = ()

    @property
    def posterior(self) -> Posterior | None:
        """The posterior among the methods."""
        return next((method for method in self.methods if isinstance(method, Posterior)), None)

    @property
    def brief(self) -> Compared:
        """What is read off the network's outputs: no method, and no detector of draws or training data."""
        detectors = [each for each in self.detectors if not (each.draws or each.needs_train)]
        left = [each.name for each in self.methods] + [d.name for d in self.detectors if d not in detectors]
        return self._replace(methods=[], detectors=detectors, left_out=tuple(left))

    def fitted(self, training: Training | None) -> Compared:
        """The same, fitted to the training data where it needs some."""
        if training is None:
            return self
        methods = [method.fit(training) if method.needs_train else method for method in self.methods]
        return self._replace(methods=methods, detectors=[each.trained(training) for each in self.detectors])


def compared(compare: Sequence[Comparable] | None, model: nn.Module, task: Task, training: Training | None) -> Compared:
    """What is asked for by names or objects, or for None all that the model and the data allow."""
    found = Compared([], [], [])
    for thing in _things(compare, model, task):
        if obstacle := _obstacle(thing, found, model, task, training):
            if compare is None:
                continue
            raise ValueError(obstacle)
        if isinstance(thing, SetScore):
            found.sets.append(thing)
        elif isinstance(thing, Detector):
            found.detectors.append(thing)
        elif thing.name != task.parameter:  # which is compared in any case
            found.methods.append(thing)
    return found


def _things(compare: Sequence[Comparable] | None, model: nn.Module, task: Task) -> list[Method | Detector | SetScore]:
    """What is asked for as objects, methods first, with what is always compared."""
    if isinstance(compare, str):
        raise ValueError(f"compare: expected a list of names or objects, got the text {compare!r}")
    names: Sequence[Comparable] = (*_METHODS, *_DETECTORS) if compare is None else compare
    if compare is None and stochastic_layers(model):  # whose draws would be dropout's, too
        names = [name for name in names if name != "dropout"]
    things = [_named(each, task) for each in names]
    if _scores_inputs(task) and all(each.name != _FIRST for each in things):
        things.append(Detector(_FIRST, task))
    return sorted(things, key=lambda each: (not isinstance(each, Method), each.name != _FIRST))


def _named(thing: Comparable, task: Task) -> Method | Detector | SetScore:
    if isinstance(thing, Detector):
        if thing.task not in (task, Classification()):
            raise ValueError(
                f"compare: expected a detector that takes logits and features as the report does, got {thing.name!r} "
                "with another task (pass task= to assess)"
            )
        return replace(thing, task=task)
    if isinstance(thing, Method | SetScore):
        return thing
    if isinstance(thing, InputScore):
        return Detector(thing, task)
    if thing in Method.names():
        return Method.named(thing)
    if thing in SetScore.known:
        return SetScore.named(thing)
    if not set(thing.split(" + ")) <= set(InputScore.known):
        sums = (name for name in DETECTORS if " + " in name)
        names = (*Method.names(), *InputScore.known, *sums, *SetScore.known)
        near = meant([thing], names)
        got = f"compare: got {thing!r}{near}; " if near else "compare: "  # before the many names
        raise ValueError(f"{got}expected some of {names}, or objects{'' if near else f', got {thing!r}'}")
    return Detector(thing, task)


def _obstacle(
    thing: Method | Detector | SetScore, found: Compared, model: nn.Module, task: Task, training: Training | None
) -> str | None:
    """Why something cannot be compared, or None."""
    if not isinstance(thing, SetScore) and thing.needs_train and training is None:
        return f"train: expected labelled training data to compare {thing.name!r}, got None"
    if isinstance(thing, Method):
        return thing.obstacle(model, task)
    if not _scores_inputs(task):
        which = f"task={task.name!r}, where inputs have no class each"
        return f"compare: expected methods only with {which}, got {thing.name!r}"
    if isinstance(thing, Detector) and task.output is logits_of_probabilities and "energy" in thing.name:
        return f"compare: expected scores of probabilities with output='probabilities', got {thing.name!r}, of logits"
    if isinstance(thing, Detector) and thing.draws and found.posterior is None:
        return f"compare: expected 'posterior' beside {thing.name!r}, which is of its draws"
    return None


def _scores_inputs(task: Task) -> bool:
    return task.has_classes and task.is_per_input
