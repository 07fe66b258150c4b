"""Deep ensembles, of saved predictions."""

from collections.abc import Sequence

import numpy as np

from experiments.runs.prediction import Predictions

__all__ = ["joined"]


def joined(members: Sequence[Predictions]) -> Predictions:
    r"""Join the draws of several models: their mean probability is that of the ensemble.

    .. math:: p(y \mid x) = \frac1K \sum_k \frac1S \sum_s \mathrm{softmax}(f_{ks}(x))

    Args:
        members: predictions of the same inputs.

    Returns:
        K S draws.

    Raises:
        ValueError: if the inputs, their labels or the number of draws differ.

    Source:
        Lakshminarayanan et al. (2017), Simple and Scalable Predictive Uncertainty Estimation, equation (2).

    Example:
        >>> member = Predictions(np.zeros((10, 4, 3), np.float32), np.arange(4), None)
        >>> joined([member] * 5).logits.shape
        (50, 4, 3)
    """
    first = members[0]
    for member in members[1:]:
        if member.logits.shape != first.logits.shape:
            raise ValueError(
                f"members: expected logits of one shape (S, N, C), got {first.logits.shape} and {member.logits.shape}"
            )
        if not np.array_equal(member.ids, first.ids):
            raise ValueError(
                "members: expected predictions of the same examples, got other ids: the members need one split "
                "(data.split_seed: 0, not null)"
            )
        if (member.labels is None) != (first.labels is None) or (
            member.labels is not None and not np.array_equal(member.labels, first.labels)
        ):
            raise ValueError("members: expected the same labels, got others")
    return first._replace(logits=np.concatenate([member.logits for member in members]))
