"""What is compared: a trained softmax transformer, and everything that is made of it without training again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

import cgp
from experiments.data import LabelledImages, corrupted_digits
from experiments.data.partition import generator_for
from experiments.methods import last_layer_laplace, mc_dropout_logits
from experiments.studies.conversion.parts import CifarParts

__all__ = ["METHODS", "TEMPERED", "Fitted", "Task", "Tempered", "timed", "validation_part"]

BATCH = 250
_CALIBRATION_BATCH = 125
_SHARES = {"clean": 0.0, "tenth": 0.1, "fifth": 0.2, "disturbed": 0.5}
_KINDS = ("noise", "blur", "contrast", "occlusion", "rotation")


class Task(NamedTuple):
    """What a method has to work with.

    Attributes:
        model: the trained transformer, in eval mode; not to be changed.
        parts: the data; test images are not for fitting.
        draws: number S of draws.
        steps: of the calibration.
    """

    model: nn.Module
    parts: CifarParts
    draws: int
    steps: int


class Fitted(NamedTuple):
    """A method that can predict.

    Attributes:
        logits: from images `(N, C, H, W)` to logits `(S, N, classes)`.
        note: what was found in fitting, in words.
    """

    logits: Callable[[Tensor], Tensor]
    note: str = ""


class Tempered(NamedTuple):
    """A row that divides the logits of another row by a temperature.

    Attributes:
        base: that row.
        validation: on which validation images the temperature is fitted (see `validation_part`).
    """

    base: str
    validation: str


def validation_part(parts: CifarParts, kind: str) -> LabelledImages:
    """Return the validation images, some disturbed by noise, blur, contrast, occlusion or rotation at strength 1 to 5.

    Args:
        parts: the data.
        kind: "clean", or how many are disturbed: a "tenth", a "fifth", or half of them ("disturbed").
    """
    part, share = parts.calibration, _SHARES[kind]
    images = part.images.clone()
    order = torch.randperm(len(images), generator=generator_for("disturbed", len(images)))[: round(share * len(images))]
    cells = [(kind, strength) for kind in _KINDS for strength in range(1, 6)]
    for number, (kind, strength) in enumerate(cells):
        chosen = order[number :: len(cells)]
        if len(chosen):
            images[chosen] = corrupted_digits(images[chosen], kind, strength, seed=number)
    return part._replace(images=images)


@torch.no_grad()
def _plain(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model(part) for part in images.split(BATCH)])[None]


def _original(task: Task) -> Fitted:
    return Fitted(partial(_plain, task.model))


def _mc_dropout(task: Task) -> Fitted:
    return Fitted(partial(mc_dropout_logits, task.model, num_samples=task.draws, seed=0, batch_size=BATCH))


def _laplace(task: Task) -> Fitted:
    train, calibration = task.parts.train, task.parts.calibration
    posterior = last_layer_laplace(
        task.model,
        train.images,
        train.labels,
        prior_precision="validation",
        validation=(calibration.images, calibration.labels),
        batch_size=BATCH,
    )

    def draw(images: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return posterior.draw_logits(images, task.draws, generator, batch_size=BATCH)

    return Fitted(draw, f"prior precision {posterior.prior_precision:.3g}")


def _gaussian_process(
    task: Task,
    *,
    attention: str,
    layers: str | Sequence[int],
    sampling: str,
    validation: str,
    temperature: bool = False,
) -> Fitted:
    """Convert, calibrate, predict."""
    inputs = task.parts.train.images[:64] if attention == "sparse_cgp" else None
    converted = cgp.convert(task.model, attention, layers, inputs=inputs)
    part = validation_part(task.parts, validation)
    order = torch.randperm(len(part.labels), generator=generator_for("batches"))
    loader = [(part.images[rows], part.labels[rows]) for rows in order.split(_CALIBRATION_BATCH)]
    options = {"steps": task.steps, "num_samples": 4, "sampling": sampling, "temperature": temperature}
    found = cgp.calibrate(converted, loader, **options)
    return Fitted(partial(_draws, converted, sampling, task.draws), str(found))


def _draws(model: nn.Module, sampling: str, num_samples: int, images: Tensor) -> Tensor:
    """Logarithms of the probabilities of each draw: logits up to a constant a draw."""
    prediction = cgp.predict(
        model,
        images,
        num_samples,
        sampling=sampling,
        antithetic=True,
        seed=0,
        batch_size=BATCH,
        keep_draws=True,
        keep_variance=False,
    )
    assert prediction.draws is not None
    return prediction.draws.clamp(min=torch.finfo(torch.float32).tiny).log()


_bounded = partial(_gaussian_process, attention="cgp", sampling="joint")
_second = partial(_bounded, layers=[1], temperature=True)

METHODS: Mapping[str, Callable[[Task], Fitted]] = {
    "softmax, as trained": _original,
    "MC dropout": _mc_dropout,
    "last-layer Laplace": _laplace,
    "GP in the last layer": partial(
        _gaussian_process,
        attention="sparse_cgp",
        layers="last",
        sampling="marginal",
        validation="clean",
    ),
    "GP in the second layer and temperature, a tenth disturbed": partial(_second, validation="tenth"),
    "GP in the second layer and temperature, a fifth disturbed": partial(_second, validation="fifth"),
    "GP in the first layer, a fifth disturbed": partial(_bounded, layers=[0], validation="fifth"),
    "GP in the first layer, disturbed": partial(_bounded, layers=[0], validation="disturbed"),
    "sparse GP in the first layer, disturbed": partial(
        _bounded, attention="sparse_cgp", layers=[0], validation="disturbed"
    ),
}

TEMPERED: Mapping[str, Tempered] = {
    "temperature": Tempered("softmax, as trained", "clean"),
    "temperature, a tenth disturbed": Tempered("softmax, as trained", "tenth"),
    "temperature, a fifth disturbed": Tempered("softmax, as trained", "fifth"),
    "temperature, disturbed": Tempered("softmax, as trained", "disturbed"),
}


def timed(method: Callable[[Task], Fitted], task: Task) -> tuple[Fitted, float]:
    """Fit a method.

    Args:
        method: of `METHODS`.
        task: what it works with.

    Returns:
        What can predict, and the seconds that the fit took.
    """
    start = time.perf_counter()
    fitted = method(task)
    return fitted, time.perf_counter() - start
