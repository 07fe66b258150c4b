"""How a model predicts: the methods that calibration prepares, and the settings that a model keeps."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from cgp.networks.guarantees.conformal import values_needed
from cgp.networks.guarantees.guarantees import Source
from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.fingerprints import logit_temperature, modules_with_temperature
from cgp.networks.model.inputs import call_model
from cgp.networks.model.named import Named
from cgp.networks.model.repeated import check_apart, keys_of
from cgp.networks.model.shared_prefix import SharedPrefix
from cgp.networks.model.structural_copy import structural_copy, uncompiled
from cgp.networks.tasks import Task
from cgp.spelling import counted, meant
from cgp.warning import is_inside_cgp, warn_user

from .readout import GPReadout, ReadoutPrediction

if TYPE_CHECKING:
    from .prediction import Prediction

__all__ = [
    "RATE",
    "Method",
    "Settings",
    "Training",
    "as_assessed",
    "forget_held_out",
    "has_settings",
    "method_of",
    "rate_of",
    "settings_of",
    "source_of",
    "with_settings",
]

_SETTINGS = "cgp_settings"

RATE = 0.05
"""Share of in-distribution inputs that predictions flag, by all detectors together, in expectation."""


class Training:
    """What a network was trained on: its representation and the labels.

    Args:
        model: the network.
        task: takes the representation.
        data: labelled batches.

    Raises:
        ValueError: if the labels do not fit what the network returns.

    Attributes:
        task: the task.
        returned: what the network returns of the first batch, without draws.
        features: ``(N, d)``, float64.
        labels: ``(N,)`` int, or values ``(N, C)`` in float64.
        keys: of the inputs, by :func:`cgp.networks.model.repeated.keys_of`.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module, task: Task, data: Any) -> None:
        plain, self.task = SharedPrefix(as_assessed(model)).model, task  # in eval mode, without the model's own .eval()
        seen = list(task.read(data, model, "train", every=True))
        prefix = SharedPrefix(plain)
        prefix.set_sampling("mean")
        self.returned = prefix.run(lambda model: call_model(model, seen[0].inputs))
        self.features = torch.cat([task.features(plain, batch.inputs).double().cpu() for batch in seen])
        labels = torch.cat([batch.labels.cpu() for batch in seen if batch.labels is not None])
        self.keys = [key for batch in seen for key in keys_of(batch)]
        self.labels = labels.double() if labels.is_floating_point() else labels
        task.check_training(self.labels, tuple(task.rows(self.returned).shape))

    def check_apart(self, keys: Sequence[int]) -> None:
        """Refuse what many of some held-out inputs are among."""
        check_apart("train", keys, self.keys)

    @cached_property
    def process(self) -> GPReadout:
        """The Gaussian process from the representation to the labels."""
        return GPReadout(self.features, self.labels, task="classification" if self.task.has_classes else "regression")


@dataclass
class Method(Named, argument="method"):
    """A way of predicting with a network that is given; a subclass with a name is known by it.

    A method of your own says how a copy of the network is changed (:meth:`apply`) and changed back (:meth:`undo`).
    :func:`cgp.calibrate` then fits its temperature or scale, :func:`cgp.assess` compares it, and
    :func:`cgp.save_pretrained` keeps what :meth:`state` returns.

    Args:
        scaled: whether the temperature or scale is fitted; otherwise it stays what it was.

    Attributes:
        label: name in tables.
        words: what it is, in a sentence.
        draws: whether predictions by it are averages of draws.
        needs_train: whether :meth:`fit` needs labelled training data.
    """

    scaled: bool = True

    label: ClassVar[str] = ""
    words: ClassVar[str] = ""
    draws: ClassVar[bool] = False
    needs_train: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):
            cls.label, cls.words = cls.label or cls.name, cls.words or cls.name

    @classmethod
    def rows(cls) -> dict[str, dict[str, Any]]:
        """Its options in the rows of a report, by the row's name; a label alone is the method with all defaults."""
        names = (cls.label, *(f"{cls.label} + {parameter}" for parameter in ("temperature", "scale")))
        return {name: {} for name in names}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """By which methods are asked for: their own names, and those of rows."""
        return tuple(dict.fromkeys([*cls.known, *(row for kind in cls.known.values() for row in kind.rows())]))

    @classmethod
    def named(cls, thing: Any) -> Self:
        """The method of a name, its own or that of its row in a report, or the object itself."""
        if isinstance(thing, str) and thing not in cls.known:
            for kind in cls.known.values():
                if thing in (rows := kind.rows()):
                    found: Self = kind(**rows[thing])
                    return found
            near = meant([thing], cls.names())
            raise ValueError(f"{cls.argument}: expected one of {cls.names()}, got {thing!r}{near}")
        return super().named(thing)

    def title(self, task: Task) -> str:
        """Its name in the tables of a report."""
        return f"{self.label} + {task.parameter}" if self.scaled else self.label

    def advice(self, task: Task) -> str:
        """What a report says of it."""
        return f"{self.words} with a {task.parameter}" if self.scaled else self.words

    def obstacle(self, model: nn.Module, task: Task) -> str | None:
        """Why the method cannot be used, as an error message, or None."""
        return None

    def fit(self, training: Training) -> Self:
        """The method fitted to what the network was trained on, if it needs that."""
        return self

    def apply(self, model: nn.Module) -> nn.Module:
        """A copy of a network, or one that shares its tensors, changed so that it predicts by the method.

        Args:
            model: a copy whose modules may be changed, but none of whose tensors.

        Returns:
            The changed copy.
        """
        return model

    def undo(self, model: nn.Module) -> None:
        """Change a copy that :meth:`apply` changed back, in place."""

    def read(self, model: nn.Module, inputs: Any) -> ReadoutPrediction | None:
        """The mean and variance of values in place of what the network returns, of a regression; None is the latter."""
        return None


@dataclass(frozen=True)
class Settings:
    """Settings of a model for :func:`cgp.predict`, besides its temperature.

    Attributes:
        method: how it predicts; None is as it is, with its stochastic layers.
        detectors: :class:`cgp.Detector` by name.
        held_out: the prediction of labelled inputs, or None.
        scale: of a regression, the noise variance of each output, ``(C,)``, or the factor of the one that the model or
            read-out gives.
        task: "regression" where the model was calibrated for one, or None.
        has_variance_head: whether ``scale`` is the factor of a variance that the model returns.
    """

    method: Method | None = None
    detectors: Mapping[str, Any] = field(default_factory=dict)
    held_out: Prediction | None = None
    scale: Tensor | None = None
    task: str | None = None
    has_variance_head: bool = False

    @property
    def limits(self) -> dict[str, float]:
        """The scores above which predictions flag an input (:attr:`cgp.Prediction.flags`), by detectors' names."""
        rate = rate_of(len(self.detectors))
        return {name: detector.threshold(rate) for name, detector in self.detectors.items()}

    def warn_of_silent(self, caller: str) -> None:
        """Warn of detectors that flag nothing, as so many of them together have seen too few inputs."""
        rate = rate_of(len(self.detectors))
        if silent := [name for name, limit in self.limits.items() if limit == float("inf")]:
            advice = "; fewer detectors need fewer: detectors=[...]" if len(self.detectors) > 1 else ""
            warn_user(
                f"{caller}: expected at least {counted(values_needed(rate), 'labelled input')} for "
                f"{counted(len(self.detectors), 'detector')}, got {len(self.detectors[silent[0]].known)}: no input is "
                f"flagged by {' or '.join(silent)}{advice}"
            )


def rate_of(count: int) -> float:
    """The rate of each of so many detectors, by which all together flag at most :data:`RATE` (a union bound)."""
    return RATE / max(count, 1)


def settings_of(model: nn.Module) -> Settings:
    """The settings of a model; the defaults unless :func:`with_settings` made it."""
    return getattr(uncompiled(model), _SETTINGS, Settings())


def has_settings(model: nn.Module) -> bool:
    """Whether :func:`with_settings` made the model."""
    return hasattr(uncompiled(model), _SETTINGS)


def forget_held_out(model: nn.Module) -> None:
    """Drop the held-out prediction that a model keeps, which a new calibration outdates."""
    if settings_of(model).held_out is not None:
        vars(uncompiled(model))[_SETTINGS] = replace(settings_of(model), held_out=None)


def with_settings(model: nn.Module, settings: Settings) -> nn.Module:
    """A copy of a model, of its class and with its tensors, that has other settings and predicts by their method."""
    changed = as_assessed(model)
    changed = changed if settings.method is None else settings.method.apply(changed)
    vars(changed)[_SETTINGS] = settings
    vars(changed)["extra_repr"] = partial(_said, changed)
    if not isinstance(changed, torch.jit.ScriptModule):  # which a structural copy shares
        changed.register_forward_pre_hook(_warn_of_outputs)
        changed.register_state_dict_pre_hook(_warn_of_state)
    return changed


def _warn_of_outputs(model: nn.Module, _: Any) -> None:
    """Say what a model's own outputs lack of what it predicts, where a user calls it."""
    if torch.compiler.is_compiling() or is_inside_cgp():
        return
    temperature, method = logit_temperature(model), settings_of(model).method
    lacking = {
        f"the temperature of {temperature:.4g}": temperature != 1.0,
        "the draws": bool(stochastic_layers(model)) or (method is not None and method.draws),
        "the read-out": method is not None and method.needs_train and settings_of(model).scale is not None,
    }
    if any(lacking.values()):
        left_out = " and ".join(name for name, is_so in lacking.items() if is_so)
        is_read = method is not None and method.needs_train and not lacking["the read-out"]
        left_out += ", but by the read-out" if is_read else ""
        warn_user(f"model(x): these outputs are without {left_out}: cgp.predict(model, x) has what was fitted")


def _warn_of_state(model: nn.Module, *_: Any) -> None:
    """Say what the tensors of a model lack of what it predicts by, where a user takes them."""
    if torch.compiler.is_compiling() or is_inside_cgp():
        return
    parts = _kept(model)
    if modules_with_temperature(model):
        del parts["temperature"]
    if lacking := [name for name, part in parts.items() if part]:
        warn_user(
            f"model.state_dict(): these tensors are without its {', '.join(lacking)}: cgp.save_pretrained(model, "
            "folder) writes all that it predicts by, cgp.from_pretrained(folder, network) reads it"
        )


def _said(model: nn.Module) -> str:
    """What print says of a model beside its modules: what its class does, and what it predicts by."""
    own = type(model).extra_repr(model)
    return ", ".join([*filter(None, [own]), *(f"{name}={part}" for name, part in _kept(model).items() if part)])


def _kept(model: nn.Module) -> dict[str, Any]:
    """What a model predicts by, in words by name, each empty where it has none."""
    settings, temperature = settings_of(model), logit_temperature(model)
    return {
        "method": settings.method and settings.method.name,
        "temperature": None if temperature == 1.0 else f"{temperature:.4g}",
        "scale": settings.scale is not None and _words(settings.scale, digits=4),
        "detectors": ", ".join(settings.detectors),
        "held_out": settings.held_out is not None and f"{len(settings.held_out.mean)} answers",
    }


def method_of(model: nn.Module, task: Task) -> str:
    """What a model predicts by, in the words of a report: its method, and the temperature or that there is a scale."""
    way, temperature = settings_of(model).method, logit_temperature(model)
    label = way.label if way is not None else "posterior" if stochastic_layers(model) else ""
    parts = {
        label: label not in ("", task.parameter),
        f"temperature {temperature:.4g}": task.has_classes and temperature != 1.0,
        "scale": settings_of(model).scale is not None,
    }
    return " + ".join(name for name, is_so in parts.items() if is_so) or "as trained"


def as_assessed(model: nn.Module) -> nn.Module:
    """A copy of a model, which shares its tensors, without its settings."""
    changed, method = structural_copy(model), settings_of(model).method
    if method is not None:
        method.undo(changed)
    vars(changed).pop(_SETTINGS, None)
    hooks: Any
    for hooks in (changed._forward_pre_hooks, changed._state_dict_pre_hooks):
        for key in [key for key, hook in hooks.items() if hook in (_warn_of_outputs, _warn_of_state)]:
            del hooks[key]
    return changed


def source_of(model: nn.Module, weights: int, task: Task, options: Mapping[str, Any]) -> Source:
    """What makes a model's predictions, in words that are equal after saving; of functions only that they are given."""
    settings = settings_of(model)
    method = settings.method
    parts = {"T": f"{logit_temperature(model):.9g}", "method": "none" if method is None else method.name}
    if settings.scale is not None:
        parts["scale"] = _words(settings.scale)
    if method is not None and (content := _content(method)):
        parts["fitted"] = f"{zlib.crc32(content):08x}"
    asked = {**options, "noise": getattr(task, "noise", None)}
    asked["output"] = None if task.output is type(task).__dataclass_fields__["output"].default else task.output
    words = {name: _words(value) for name, value in asked.items()}
    return Source(weights, ", ".join(f"{name}={value}" for name, value in parts.items()), words)


def _content(method: Method) -> bytes:
    """What a method was fitted to, in bytes; nothing of one that cannot be written."""
    try:
        tensors = method.state()[1]
    except ValueError:
        return b""
    return b"".join(tensors[name].cpu().numpy().tobytes() for name in sorted(tensors))


def _words(value: Any, digits: int = 9) -> str:
    if callable(value):
        return "a function"
    if isinstance(value, bool | str | torch.dtype) or value is None:
        return str(value)
    numbers = torch.as_tensor(value).detach().double().reshape(-1).tolist()
    return " ".join(f"{number:.{digits}g}" for number in numbers)
