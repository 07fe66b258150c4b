"""A few steps on a handful of examples: whether a row works, not what it is worth."""

import dataclasses

from experiments.runs.experiment import Experiment

__all__ = ["smoked"]

_TRAIN, _HELD_OUT = 16, 8
_DRAWS = 2


def smoked(experiment: Experiment) -> Experiment:
    """Cap what takes time: two epochs of four steps, two draws, a handful of examples.

    Args:
        experiment: a row.

    Returns:
        The same row, marked as reduced.
    """
    limits = {f"limit_{part}": _HELD_OUT for part in ("validation", "test", "ood")}
    corruptions = dataclasses.replace(experiment.data.corruptions, kinds=(), limit=_HELD_OUT)
    data = dataclasses.replace(experiment.data, limit_train=_TRAIN, corruptions=corruptions, **limits)
    training = dataclasses.replace(
        experiment.training, epochs=2, share=1.0, batch_size=4, warmup_epochs=0, validation_draws=_DRAWS
    )
    evaluation = dataclasses.replace(experiment.evaluation, draws=_DRAWS, full=False)
    words = [*experiment.reduced, "smoke test: a few steps on a handful of examples"]
    return dataclasses.replace(experiment, data=data, training=training, evaluation=evaluation, reduced=words)
