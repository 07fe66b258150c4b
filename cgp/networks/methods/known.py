"""The calibration methods: a temperature or a scale alone, a posterior, and a read-out."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from cgp.attention import SamplingMixin
from cgp.networks.convert.convert import convert
from cgp.networks.convert.sites import attention_sites
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.diagnostics import call_with_features, pooled_features
from cgp.networks.model.inputs import logits_of
from cgp.networks.model.named import State
from cgp.networks.model.structural_copy import with_own_buffers
from cgp.networks.predict.method import Method, Training, as_assessed
from cgp.networks.predict.readout import GPReadout, ReadoutPrediction
from cgp.networks.tasks import Task, as_task

from .amplitudes import with_amplitudes

__all__ = ["Posterior", "Readout", "Scale", "Temperature"]


class _WithoutDraws(Method):
    """The network without draws of its stochastic layers."""

    def apply(self, model: nn.Module) -> nn.Module:
        """A network whose stochastic layers return their mean."""
        for layer in stochastic_layers(model):
            vars(layer)["stochastic"] = False
        return model

    def undo(self, model: nn.Module) -> None:
        """Let the stochastic layers draw again."""
        for module in model.modules():
            if isinstance(module, SamplingMixin):
                vars(module).pop("stochastic", None)


class _ParameterAlone(_WithoutDraws):
    """What a task fits, and nothing else."""

    @classmethod
    def rows(cls) -> dict[str, dict[str, Any]]:
        """Its row has its own name."""
        return {cls.label: {}}

    def obstacle(self, model: nn.Module, task: Task) -> str | None:
        """A temperature is of logits, a scale of a variance."""
        if task.parameter != self.name:
            return f"method: expected {task.parameter!r} with task={task.name!r}, got {self.name!r}"
        return None if self.scaled else f"scaled: expected True with method={self.name!r}, got False"


class Temperature(_ParameterAlone):
    r"""One number, by which the logits of any classifier are divided: :math:`p = \operatorname{softmax}(f / T)`.

    Note:
        Guo et al., On Calibration of Modern Neural Networks (ICML 2017).
    """

    name = "temperature"


class Scale(_ParameterAlone):
    """The variance of each output's errors, or the factor of the variance that a network returns."""

    name = "scale"


@dataclass
class Posterior(Method):
    """The width of the posterior of a converted model's attention.

    Args:
        scaled: whether the temperature or scale is fitted, too.
        criterion: "widest" or "likelihood", by which the width is chosen (:func:`cgp.calibrate`).
        layers: those that :func:`cgp.assess` converts: "last", "first", "all" or indices. A model with stochastic
            layers keeps these.
        sampling: "marginal" or "joint", the kind of draws of later predictions.
    """

    criterion: str = "widest"
    layers: str | Sequence[int] = "last"
    sampling: str = "marginal"

    name, draws = "posterior", True
    words = "the posterior of the attention, of the best likelihood,"

    def __post_init__(self) -> None:
        for name, choices in (("criterion", ("widest", "likelihood")), ("sampling", ("marginal", "joint"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: expected one of {choices}, got {getattr(self, name)!r}")
        if isinstance(self.layers, str) and self.layers not in ("last", "first", "all"):
            raise ValueError(f"layers: expected 'last', 'first', 'all' or indices, got {self.layers!r}")

    @classmethod
    def rows(cls) -> dict[str, dict[str, Any]]:
        """The likeliest, and the widest."""
        likely = {"criterion": "likelihood"}
        return {"posterior + temperature": likely, "posterior + scale": likely, "widest posterior": {}}

    def obstacle(self, model: nn.Module, task: Task) -> str | None:
        """It needs stochastic layers, or attention that can be converted."""
        if stochastic_layers(model) or attention_sites(model):
            return None
        return f"model: expected attention for method='posterior', got none in {type(model).__name__}"

    def drawing(self, model: nn.Module) -> nn.Module:
        """The model if it has stochastic layers, else a copy with a posterior."""
        if stochastic_layers(model):
            return model
        try:
            return convert(model, layers=[0] if self.layers == "first" else self.layers)
        except ValueError as error:
            raise ValueError(
                f"layers: expected attention that can be converted, got {self.layers!r} (compare=... without "
                f"'posterior' leaves it out): {error}"
            ) from error

    def widened(self, model: nn.Module, factor: float) -> nn.Module:
        """A copy of a model that draws, with amplitudes multiplied by a factor."""
        return with_amplitudes(self.drawing(model), factor)


@dataclass
class Readout(_WithoutDraws):
    """A Gaussian process on what the last linear layer reads replaces that layer (:class:`cgp.GPReadout`).

    Args:
        scaled: whether the temperature or scale is fitted, too.
        task: takes the representation and the logits from what the network returns; :meth:`fit` sets it.
        process: the process; :meth:`fit` sets it.
    """

    task: Task | None = None
    process: GPReadout | None = None

    name, needs_train = "readout", True
    label, words = "GP read-out", "a GP read-out of the representation"

    def obstacle(self, model: nn.Module, task: Task) -> str | None:
        """Every input needs one label."""
        if task.is_per_input:
            return None
        return f"method: expected another for labels that are not of inputs, with task={task.name!r}, got 'readout'"

    def fit(self, training: Training) -> Self:
        """The process of a network's training data, where its output is a tensor that can be replaced."""
        if training.task.has_classes:
            logits = training.task.output(training.returned)
            _with_logits(training.returned, logits, logits)
        return replace(self, task=training.task, process=training.process)

    def apply(self, model: nn.Module) -> nn.Module:
        """A network whose logits are the process's log-probabilities."""
        model = super().apply(model)
        assert self.process is not None
        assert self.task is not None
        if self.task.has_classes:
            reading = model if self.task.features is pooled_features else as_assessed(model)
            vars(model)["forward"] = functools.partial(_read, model.forward, reading, self)
        return model

    def undo(self, model: nn.Module) -> None:
        """Put the network's own forward back."""
        super().undo(model)
        if self.task is not None and self.task.has_classes:
            vars(model)["forward"] = vars(model)["forward"].args[0]

    def read(self, model: nn.Module, inputs: Any) -> ReadoutPrediction | None:
        """Mean and variance of values."""
        assert self.task is not None
        assert self.process is not None
        if self.task.has_classes:
            return None
        return self.process(self.task.features(with_own_buffers(as_assessed(model)), inputs).cpu())

    def state(self) -> State:
        """What the process is made of again; a task with functions of its own is not written."""
        assert self.task is not None
        assert self.process is not None
        if self.task.features is not pooled_features or self.task.output is not logits_of:
            raise ValueError(
                "model: expected a read-out with the default features and output, which can be written, got other "
                "functions (calibrate again after loading)"
            )
        numbers, tensors = self.process.state()
        return {"task": self.task.name, **numbers}, tensors

    @classmethod
    def of_state(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """The read-out of what :meth:`state` returned."""
        numbers = {name: value for name, value in config.items() if name != "task"}
        return cls(task=as_task(config["task"]), process=GPReadout.of_state(numbers, tensors))


def _read(forward: Callable[..., Any], model: nn.Module, method: Readout, *args: Any, **options: Any) -> Any:
    """What a model's ``forward`` returns, but for its logits: those of a read-out of the ``model``'s representation."""
    process, task = method.process, method.task
    assert process is not None
    assert task is not None
    if task.features is pooled_features:
        given = next(iter((*args, *options.values()))) if isinstance(model, nn.Linear) else None
        returned, features = call_with_features(model, lambda: forward(*args, **options), given)
    else:
        inputs = args[0] if len(args) == 1 and not options else args or options
        returned, features = forward(*args, **options), task.features(model, inputs)
    logits = task.output(returned)
    if logits.dim() != 2:
        raise ValueError(f"model: expected logits (N, C) for a read-out to replace, got shape {tuple(logits.shape)}")
    return _with_logits(returned, logits, process.log_probabilities(features.cpu(), logits.shape[-1]).to(logits))


def _with_logits(returned: Any, logits: Tensor, read: Tensor) -> Any:
    """What a model returned, with other logits."""
    leaves, structure = pytree.tree_flatten(returned)
    if any(leaf is logits for leaf in leaves):
        return pytree.tree_unflatten([read if leaf is logits else leaf for leaf in leaves], structure)
    if isinstance(returned, Mapping) and returned.get("logits") is logits:
        return {**returned, "logits": read}
    if getattr(returned, "logits", None) is not logits:
        raise ValueError(
            "output: expected a function that takes one of the tensors that the model returns, which a read-out "
            "replaces, got one that computes another (let the model's forward compute it)"
        )
    changed = copy.copy(returned)
    changed.logits = read
    return changed
