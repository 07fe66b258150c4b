"""Tasks with classes: one label for each input, each token or each pixel, or several labels for each input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cgp.networks.model.inputs import logits_of, logits_of_probabilities
from cgp.networks.model.labels import (
    NO_LABEL,
    check_finite,
    check_logits,
    check_not_sigmoid,
    check_outputs,
    class_indices,
    whole_numbers,
)
from cgp.warning import warn_user

from .metrics import classification_scores
from .task import Predicted, Task

__all__ = ["Classification", "Dense", "Multilabel", "Tokens"]

_LEAST_OF_A_CLASS = 2  # labels, from which a representation has a mean and a spread


class Classification(Task):
    """One label for each input; logits ``(N, C)``.

    Example:
        >>> Classification().labels(torch.tensor([True, False]))
        tensor([1, 0])
    """

    name, kind, parameter, wanted = (
        "classification",
        "classification",
        "temperature",
        "(N, C), one label for every input",
    )
    dims = 2

    @property
    def says_where_classes_are(self) -> bool:
        """Whether it is known that the classes are the last dimension."""
        return self.output not in (logits_of, logits_of_probabilities)

    def labels(self, labels: Tensor | None, shape: tuple[int, ...] | None = None, **options: Any) -> Tensor:
        """Class indices, int64."""
        return class_indices(labels, shape, **options)

    def check_training(self, labels: Tensor, shape: tuple[int, ...]) -> None:
        """Raise for labels that are none of the classes, and warn where most classes have next to none."""
        class_indices(labels, (len(labels), shape[-1]), name="train", every=True)
        few = int((labels.bincount(minlength=shape[-1]) < _LEAST_OF_A_CLASS).sum())
        if 2 * few > shape[-1]:
            warn_user(
                f"train: expected at least {_LEAST_OF_A_CLASS} labels of each class, got fewer of {few} of {shape[-1]}"
                ": a read-out and scores of the representation know next to nothing of these"
            )

    def present(self, labels: Tensor) -> Tensor:
        """Where there is a label."""
        return labels != NO_LABEL

    def flat(self, labels: Tensor) -> Tensor:
        """Class indices ``(n,)``."""
        return labels[labels != NO_LABEL]

    def check(self, outputs: Tensor) -> None:
        """Raise unless they are logits."""
        check_logits(outputs, classes_last=self.says_where_classes_are)

    def check_rows(self, rows: Tensor, labels: Tensor | None, *, name: str, first: int) -> None:
        """Raise unless they are finite logits of at least two classes, and labels one of them."""
        check_logits(rows, classes_last=self.says_where_classes_are)
        check_finite(rows, self.labels(labels, tuple(rows.shape), name=name), first=first)

    def score(self, prediction: Predicted, labels: Tensor) -> dict[str, float]:
        """The scores of :func:`cgp.networks.tasks.metrics.classification_scores`, of every labelled answer."""
        p = self._distributions(prediction)
        labels = self.labels(labels, tuple(p.shape))
        check_finite(p.log(), labels, name="prediction")
        real = self.present(labels).flatten()
        if not real.any():
            raise ValueError("labels: expected at least one label, got none")
        return classification_scores(p.flatten(0, -2)[real].cpu(), labels.flatten()[real].cpu())

    def truth(self, prediction: Predicted, labels: Tensor, name: str) -> Tensor:
        """Class indices, one for every input."""
        indices = self.labels(labels, tuple(prediction.mean.shape), name=name)
        if (indices == NO_LABEL).any():
            raise ValueError(f"{name}: expected a label for every input, got {NO_LABEL} (leave those inputs out)")
        return indices.to(prediction.mean.device)

    def columns(self, prediction: Predicted) -> dict[str, Tensor]:
        """The most probable class and its probability."""
        p = self._distributions(prediction)
        return {"class": p.argmax(-1), "confidence": p.amax(-1)}

    def sureness(self, prediction: Predicted, tolerance: float | None, *, ranks: bool = False) -> Tensor:
        """The largest probability; −∞ where there is none, so that the answer is always withheld."""
        if tolerance is not None:
            raise ValueError(f"tolerance: expected None with task={self.kind!r}, got {tolerance!r}")
        assert prediction.probabilities is not None
        return prediction.probabilities.amax(-1).nan_to_num(nan=-torch.inf)

    def right(self, prediction: Predicted, labels: Tensor, tolerance: float | None) -> Tensor:
        """Which of the most probable classes are the labels."""
        return self._distributions(prediction).argmax(-1) == labels

    def _distributions(self, prediction: Predicted) -> Tensor:
        """Probabilities ``(N, ..., C)`` that sum to one."""
        assert prediction.probabilities is not None
        return prediction.probabilities


class Tokens(Classification):
    """One label for each token, ``(N, n)``, −100 where there is none; logits ``(N, n, C)``."""

    name, wanted, dims, is_per_input = "tokens", "(N, n, C), one label for every token", 3, False
    examples = "inputs with labels"


class Dense(Classification):
    """One label for each pixel, ``(N, H, W)``; logits ``(N, C, H, W)``, whose classes come last in predictions.

    Example:
        >>> Dense().rows(torch.zeros(1, 5, 2, 3)).shape
        torch.Size([1, 2, 3, 5])
    """

    name, wanted, dims, is_per_input = "dense", "(N, C, H, W), one label for every pixel", 4, False
    examples, says_where_classes_are = "inputs with labels", True

    def outputs(self, returned: Any) -> Tensor:
        """Logits with the classes last."""
        logits = self.output(returned)
        if logits.dim() != 4:
            raise ValueError(f"model: expected logits (N, C, H, W) with task='dense', got shape {tuple(logits.shape)}")
        return logits.movedim(1, -1)


class Multilabel(Classification):
    """C labels that are there or not, ``(N, C)`` in {0, 1}; logits ``(N, C)`` of a sigmoid each.

    Example:
        >>> Multilabel().rows(torch.tensor([[3.0]]))
        tensor([[[0., 3.]]])
    """

    name, kind, wanted = "multilabel", "multilabel", "(N, C) of C labels that are there or not"
    dims, is_per_input, says_where_classes_are, examples = 3, False, True, "inputs with labels"

    def rows(self, returned: Any) -> Tensor:
        """The two classes of each label, whose softmax is the sigmoid."""
        logits = self.output(returned)
        if logits.dim() != 2:
            shape = tuple(logits.shape)
            raise ValueError(f"model: expected logits (N, C) with task='multilabel', got shape {shape}")
        if self.output is logits_of:
            check_not_sigmoid(logits)
        return torch.stack([torch.zeros_like(logits), logits], -1)

    def labels(self, labels: Tensor | None, shape: tuple[int, ...] | None = None, **options: Any) -> Tensor:
        """Class indices, int64: often the floats of a binary loss."""
        return class_indices(None if labels is None else whole_numbers(labels), shape, **options)

    def check(self, outputs: Tensor) -> None:
        """Raise unless they are logits of each label."""
        check_outputs(outputs, "logits")
        if self.output is logits_of:
            check_not_sigmoid(outputs)

    def columns(self, prediction: Predicted) -> dict[str, Tensor]:
        """The probability of each label."""
        assert prediction.probabilities is not None
        return {f"probability {i}": p for i, p in enumerate(prediction.probabilities.unbind(-1))}

    def _distributions(self, prediction: Predicted) -> Tensor:
        assert prediction.probabilities is not None
        return torch.stack([1.0 - prediction.probabilities, prediction.probabilities], -1)
