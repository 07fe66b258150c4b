"""The result of :func:`cgp.predict`: a prediction with its uncertainty, and methods to use it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cgp.extras import needs_extra
from cgp.networks.guarantees.guarantees import Guarantees, Source
from cgp.networks.model.labels import label_tensor
from cgp.spelling import counted, meant

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Prediction", "TokenLayout", "data_frame", "joined", "token_layout"]

_OF_INPUTS = ("mean", "probabilities", "total", "aleatoric", "epistemic", "labels")
_BY_NAME = ("token_variance", "ood")  # of each layer, of each detector
_PREFIX = ("class_token", "cls_token", "register_tokens", "reg_token", "dist_token", "distillation_token")


class TokenLayout(NamedTuple):
    """Number of class and register tokens, which come first, and the patches' rows and columns, None if they vary."""

    prefix: int
    grid: tuple[int, int] | None

    def patches(self, values: Tensor, grid: tuple[int, int] | None = None) -> Tensor:
        """Values ``(..., n)`` of tokens as ``(..., rows, columns)`` of patches; by default on the model's grid."""
        count = values.shape[-1] - self.prefix
        side = math.isqrt(max(count, 0))
        fits = [g for g in (grid, self.grid, (side, side)) if g is not None]
        rows, columns = fits[0] if grid is not None else next((g for g in fits if g[0] * g[1] == count), fits[0])
        if count < 1 or rows * columns != count:
            raise ValueError(
                f"grid: expected {count} patches ({values.shape[-1]} tokens, {self.prefix} of them before the "
                f"patches), got {rows} × {columns}{'' if grid else ': grid=(rows, columns) says how they lie'}"
            )
        return values[..., self.prefix :].unflatten(-1, (rows, columns))


class _Scores(dict[str, Tensor]):
    """Scores by the names of their detectors; an error says which there are."""

    def __missing__(self, name: object) -> Tensor:
        has = f"one of {[*self]}" if self else "the name of a detector, of which the model has none"
        raise KeyError(f"ood: expected {has}, got {name!r}{meant([name], self)} (report.apply, Detector.attach)")


@dataclass(frozen=True, repr=False)
class Prediction(Guarantees):
    r"""The prediction of a model, with its uncertainty.

    Attributes:
        task: as given to :func:`cgp.predict`.
        mean: outputs averaged over the draws, ``(N, ..., C)``: logits (divided by the temperature), values or
            embeddings.
        probabilities: averaged over the draws, ``(N, ..., C)``; None without classes.
        total: uncertainty of the prediction. With classes, the entropy of ``probabilities`` in nats, ``(N, ...)``
            (multi-label: of each label, ``(N, ..., C)``); for regression, the variance ``(N, ..., C)``; None for
            embeddings.
        aleatoric: uncertainty within a draw: the average entropy of the draws, or the noise variance. None if the draws
            do not determine it.
        epistemic: disagreement of the draws: the mutual information of label and draw in nats, or the variance of the
            draws. None for a single draw and for models without stochastic layers.
        draws: probabilities or outputs of each draw, ``(S, N, ..., C)``; None by default.
        token_variance: for each stochastic layer, by its name in the model, the predictive variance of each head and
            token given the mean of the layers below, ``(N, h, n)``, in units of the head outputs squared; empty if it
            was not kept.
        layout: the tokens that are patches, and their places.
        num_samples: number S of draws.
        labels: labels given with the inputs, or None.
        ood: for each detector that the model has (:meth:`cgp.Detector.attach`, :meth:`cgp.Assessment.apply`), by its
            name, a score that is large where an input is of another kind, ``(N,)``.
        limits: for each detector by its name, the score above which it flags an input.
        held_out: the prediction of labelled inputs that the model keeps (:func:`cgp.with_held_out`), or None.
        source: the weights, the calibration and the options that made it, which those of a held-out prediction have to
            be; None if unknown.
        method: what it is by, in the words of a report, such as "posterior + temperature 1.2"; "" if unknown.

    Example:
        >>> from torch import nn
        >>> from cgp import SparseCGPAttention, predict
        >>> model = nn.Sequential(SparseCGPAttention(8, 2), nn.Flatten(), nn.Linear(32, 3))
        >>> with torch.random.fork_rng():
        ...     prediction = predict(model, torch.zeros(5, 4, 8), 8, seed=0)
        >>> prediction.abstain(coverage=0.8).sum()
        tensor(1)
    """

    task: str | None
    mean: Tensor
    probabilities: Tensor | None
    total: Tensor | None
    aleatoric: Tensor | None
    epistemic: Tensor | None
    draws: Tensor | None
    token_variance: dict[str, Tensor]
    layout: TokenLayout
    num_samples: int
    labels: Tensor | None = field(default=None)
    ood: dict[str, Tensor] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    held_out: Prediction | None = field(default=None)
    source: Source | None = field(default=None, repr=False)
    method: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ood", _Scores(self.ood))

    def __repr__(self) -> str:
        """One line."""
        shape = " × ".join(map(str, self.mean.shape))
        parts = [*filter(None, [self.task or "embedding", self.method])]
        parts += [f"{shape} outputs", counted(self.num_samples, "draw")]
        named = ("total", self.total), ("epistemic", self.epistemic)
        parts += [f"{name} {float(values.float().mean()):.3g}" for name, values in named if values is not None]
        return f"Prediction({', '.join(parts)})"

    def __len__(self) -> int:
        """The number N of inputs."""
        return len(self.mean)

    def __getitem__(self, inputs: Any) -> Prediction:
        """The prediction of some of the inputs, such as those that are kept.

        ``prediction[~prediction.abstain(coverage=0.9)]`` has the surest nine tenths.

        What holds for all inputs on average, the share of sets that have the truth or the risk of what is kept, need
        not hold for a chosen part: the held-out prediction that it comes from is left out.

        Args:
            inputs: bool ``(N,)``, integers ``(K,)``, or a slice.

        Returns:
            Of K inputs.

        Raises:
            TypeError: if it is a single number or a name.
            ValueError: if a mask has another length.
        """
        if isinstance(inputs, slice):
            inputs = range(len(self))[inputs]
        elif isinstance(inputs, str) or not hasattr(inputs, "__len__"):
            raise TypeError(f"prediction[...]: expected a mask, integers or a slice such as [2:3], got {inputs!r}")
        which = torch.as_tensor(inputs, device=self.mean.device)
        if which.dtype == torch.bool and which.shape != (len(self),):
            raise ValueError(f"prediction[...]: expected a mask of {len(self)} inputs, got {tuple(which.shape)}")
        rows = which.nonzero().squeeze(-1) if which.dtype == torch.bool else which.long()
        parts: dict[str, Any] = {name: getattr(self, name) for name in _OF_INPUTS}
        parts = {name: None if values is None else _rows(values, rows) for name, values in parts.items()}
        for name in _BY_NAME:
            parts[name] = {each: _rows(values, rows) for each, values in getattr(self, name).items()}
        parts["draws"] = None if self.draws is None else self.draws[:, rows.to(self.draws.device)]
        return replace(self, **parts, held_out=None)

    @property
    def logits(self) -> Tensor:
        """Logits averaged over the draws, ``(N, ..., C)``."""
        self._classes("logits")
        return self.mean

    @property
    def classes(self) -> Tensor:
        """The most probable class, ``(N, ...)``."""
        return self._classes("classes").argmax(-1)

    @property
    def confidence(self) -> Tensor:
        """The largest probability, ``(N, ...)``."""
        return self._classes("confidence").amax(-1)

    @property
    def flags(self) -> dict[str, Tensor]:
        """Whether each input is flagged, ``(N,)`` bool: "flag", or of several detectors "flag: energy" and the like.

        Of inputs such as those that detectors were fitted to, at most 5 % are in expectation, by all of them together:
        each of K has the threshold of a rate of 5 % / K (:meth:`cgp.Detector.threshold`).
        """
        found = {name: self.ood[name] > limit for name, limit in self.limits.items()}
        return {"flag" if len(found) == 1 else f"flag: {name}": flags for name, flags in found.items()}

    def patch_variance(self, layer: int | str = -1, grid: tuple[int, int] | None = None) -> Tensor:
        """The variance of the patches of an image, one map per head.

        Args:
            layer: name of a stochastic layer, or its position among them.
            grid: rows and columns of the patches; None is the model's, or a square.

        Returns:
            ``(N, h, rows, columns)``; class and register tokens are left out.

        Raises:
            ValueError: if there is no stochastic layer, or not this one, or the patches do not fill the grid.
        """
        names = list(self.token_variance)
        if not names:
            raise ValueError(
                "patch_variance: expected a prediction by stochastic attention layers, got one without any: "
                "model = cgp.convert(model) before cgp.predict, if it has attention"
            )
        if isinstance(layer, int) and -len(names) <= layer < len(names):
            layer = names[layer]
        if layer not in self.token_variance:
            raise ValueError(f"layer: expected one of {names} or its position, got {layer!r}")
        return self.layout.patches(self.token_variance[layer], grid)

    def score(self, labels: Any = None) -> dict[str, float]:
        """Score the prediction against the truth.

        Args:
            labels: ``(N, ...)`` int, where −100 is left out; for several labels ``(N, ..., C)`` in {0, 1}; values
                ``(N, ..., C)`` for regression. None takes those that came with the inputs.

        Returns:
            With classes, :func:`cgp.networks.tasks.metrics.classification_scores` (multi-label: of every label by
            itself); for regression "rmse" and, where there is a variance, "nll" and "crps" per value (Gaussian,
            :func:`cgp.comparisons.gaussian_scores`) and "coverage90", the share of the values inside the central 90 %
            interval.

        Raises:
            TypeError: if labels are names: pass their numbers.
            ValueError: if there are no labels, their shape does not fit, they are no class indices (0 or 1 where there
                are several), or the prediction of a labelled input is not finite.
        """
        labels = self.labels if labels is None else label_tensor(labels)
        if labels is None:
            raise ValueError("labels: expected the true labels, got None (the inputs came without)")
        return self._task.score(self, labels.to(self.mean.device))

    def to_frame(self) -> pd.DataFrame:
        """A table with one row per prediction; needs pandas.

        Returns:
            The index counts inputs (and tokens). Columns "class", "confidence", "total", "aleatoric", "epistemic",
            and :attr:`flags`; for several labels, regression and embeddings one column for each output instead.

        Raises:
            ImportError: if pandas is not installed.
        """
        columns = self._columns()
        shape = next(iter(columns.values())).shape
        names = ["input", *(f"position {i}" for i in range(1, len(shape)))] if len(shape) != 2 else ["input", "token"]
        index: Any = range(shape[0]) if len(shape) == 1 else [range(size) for size in shape]
        return data_frame({n: values.flatten().cpu().numpy() for n, values in columns.items()}, index, names)

    def plot(self, labels: Any = None, *, ax: Axes | None = None) -> Axes:
        """Draw a reliability diagram where there are labels, or else what share of the inputs is how uncertain.

        Args:
            labels: as for :meth:`score`.
            ax: axes to draw in; None makes a figure.

        Returns:
            The axes.

        Raises:
            TypeError: if labels are names: pass their numbers.
            ValueError: if there is no uncertainty to draw, or labels are none for these inputs.
        """
        from cgp import plotting
        from cgp.plotting.style import percent

        labels = self.labels if labels is None else label_tensor(labels)
        if labels is not None and self._task.name == "classification":
            labels = self._task.labels(labels.to(self.mean.device), tuple(self.mean.shape))
            real, right = self._task.present(labels), self.classes == labels
            return plotting.reliability_diagram(self.confidence[real].cpu(), right[real].cpu(), ax=ax)
        named = {"total": self.total, "epistemic": self.epistemic}
        share = np.linspace(0.0, 1.0, 201)
        kept = {name: values.cpu().double().numpy() for name, values in named.items() if values is not None}
        if not any(np.isfinite(values).all() and values.size for values in kept.values()):
            got = "none" if kept and not len(self) else "NaN or infinity" if kept else "one without"
            raise ValueError(f"plot: expected answers with finite uncertainties, got {got}")
        unit = "nats" if self.probabilities is not None else "variance"
        if self._task.kind == "classification":
            unit += f", at most {math.log(self.mean.shape[-1]):.2g}"
        lines = {name: np.quantile(values, share) for name, values in kept.items()}
        names = {"xlabel": "Share of inputs that are surer", "ylabel": f"Uncertainty ({unit})"}
        ax = plotting.curves(share, lines, **names, ax=ax)
        percent(ax.xaxis)
        ax.set(xlim=(0, 1), ylim=(0, None))
        return ax

    def _columns(self) -> dict[str, Tensor]:
        named = {"total": self.total, "aleatoric": self.aleatoric, "epistemic": self.epistemic}
        kept = {name: values for name, values in named.items() if values is not None}
        columns = self._task.columns(self)
        if all(values.dim() < self.mean.dim() for values in kept.values()):  # of each answer, not of each output
            return columns | kept | (self.flags if self.mean.dim() == 2 else {})  # inputs are flagged, and no tokens
        return columns | {f"{name} {i}": v[..., i] for name, v in kept.items() for i in range(v.shape[-1])}

    def _classes(self, name: str) -> Tensor:
        if self.probabilities is None:
            raise ValueError(f"{name}: expected a prediction of classes, got task={self.task!r}")
        return self.probabilities


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    return values[rows.to(values.device)]


def joined(parts: Sequence[Prediction]) -> Prediction:
    """The prediction of several batches together; labels only if all have some."""
    if len({part.mean.shape[1:] for part in parts}) != 1:
        shapes = [tuple(part.mean.shape) for part in parts]
        raise ValueError(f"inputs: expected batches with outputs of one shape, got {shapes} (pad to one length)")

    def whole(name: str) -> Tensor | None:
        kept = [value for value in (getattr(part, name) for part in parts) if value is not None]
        return torch.cat(kept, 1 if name == "draws" else 0) if len(kept) == len(parts) else None

    names = ("mean", "probabilities", "total", "aleatoric", "epistemic", "draws", "labels")
    tensors: dict[str, Any] = {name: whole(name) for name in names}
    tensors |= {name: _whole_by_name([getattr(part, name) for part in parts]) for name in ("token_variance", "ood")}
    return replace(parts[0], **tensors)


def _whole_by_name(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def data_frame(columns: dict[str, Any], index: Any, names: list[str] | None = None) -> pd.DataFrame:
    """A table of pandas, which is imported only here; with several ``names``, the index has a level for each."""
    with needs_extra("frames", "to_frame"):
        import pandas as pd
    if names is not None and len(names) > 1:
        return pd.DataFrame(columns, index=pd.MultiIndex.from_product(index, names=names))
    return pd.DataFrame(columns, index=pd.Index(list(index), name=names[0] if names else None))


def token_layout(model: nn.Module) -> TokenLayout:
    """The layout of a vision model: patches, row by row, after the class and register tokens among its parameters."""
    prefix = getattr(model, "num_prefix_tokens", None)
    if not isinstance(prefix, int):
        prefix = sum(
            parameter.shape[-2]
            for name, parameter in model.named_parameters()
            if name.rpartition(".")[-1] in _PREFIX and parameter.dim() >= 2
        )
    return TokenLayout(prefix, _grid(model))


def _grid(model: Any) -> tuple[int, int] | None:
    given = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    if given is not None:
        return int(given[0]), int(given[1])
    owner = model if hasattr(model, "image_size") else getattr(model, "config", None)
    image, patch = (_pair(getattr(owner, name, None)) for name in ("image_size", "patch_size"))
    if image is None or patch is None:
        return None
    return image[0] // patch[0], image[1] // patch[1]


def _pair(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int):
        return size, size
    return (int(size[0]), int(size[1])) if isinstance(size, tuple | list) and len(size) == 2 else None
