"""Predictions of a run on an input set, computed once."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cgp.networks.model.blocks import stochastic_layers
from cgp.networks.model.inputs import call_model, to_device
from experiments.configuration import RunConfig
from experiments.data import corruption_source, input_sets, requested_ood
from experiments.data.examples import Batches, DataSplits, InputSet
from experiments.data.images import image_files
from experiments.data.ood import folder_inputs
from experiments.data.partition import generator_for
from experiments.evaluation import mean_probabilities, uncertainty
from experiments.evaluation.diagnostics import write_diagnostics
from experiments.grids import Cell, Fitted, Grid, write_csv
from experiments.methods import OF_PREDICTIONS
from experiments.runs.run import Run, needed_runs
from experiments.saved_predictions import Predictions, predict_missing, save_predictions
from experiments.training.drawing import drawing

__all__ = [
    "drawn_logits",
    "logits_of_set",
    "predict_images",
    "predict_sets",
    "recorded_inputs",
    "with_inputs",
]

_SHOWN = 20  # rows of images in the terminal


def logits_of_set(model: nn.Module, inputs: InputSet, config: RunConfig) -> Tensor:  # shape: (S, N, classes)
    """Draw logits in the order of the inputs; texts of similar length share a batch."""
    batches = Batches(inputs, config.evaluation.batch_size)
    return batches.in_order(drawn_logits(model, batches, num_samples=config.evaluation.draws, seed=config.seed))


@torch.no_grad()
def drawn_logits(
    model: nn.Module, batches: Iterable[Any], *, num_samples: int, seed: int
) -> Tensor:  # shape: (S, N, classes)
    """Draw logits of batches; the state of the global generator is restored.

    :func:`cgp.predict` keeps probabilities, and protocols average logits. It also runs the draws one after the other,
    so that its memory does not grow with them: of a digits transformer that takes 1.1 (all layers sparse) to 1.7 times
    (KEP-SVGP) the processor time of the draws of a batch in one pass, which is what runs use.
    """
    device = next(model.parameters()).device
    model.eval()
    with torch.random.fork_rng(), drawing(model, num_samples):
        torch.manual_seed(generator_for("predict", seed).initial_seed())
        parts = [call_model(model, to_device(part, device)).cpu() for part in batches]
    logits = torch.cat(parts, dim=-2)
    return logits if logits.ndim == 3 else logits.unsqueeze(0)


def predict_sets(run: Run, config: RunConfig, model: nn.Module, splits: DataSplits) -> dict[str, Any]:
    """Predict the missing input sets of a run and write its diagnostics; return the record of the inputs."""
    sources = predict_missing(
        input_sets(config.data, splits, config.seed, full=config.evaluation.full),
        run.prediction_file,
        lambda inputs: logits_of_set(model, inputs, config),
        draws=config.evaluation.draws if stochastic_layers(model) else 1,
        sources=run.sources if run.is_complete else {},
    )
    write_diagnostics(model, splits.test, run.diagnostics)
    return recorded_inputs(sources)


def recorded_inputs(sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the entries of `run.json` about the predicted inputs."""
    corrupted = [source for name, source in sources.items() if name.startswith("corrupted-")]
    generated = any(source.startswith("generated") for source in corrupted)
    origin = ("generated" if generated else "official") if corrupted else None
    return {"sources": dict(sources), "corruptions": origin}


def with_inputs(run: Run, *, ood: Sequence[str] = (), full: bool = False) -> RunConfig:
    """Return the configuration of a run with more input sets."""
    config = run.config
    if (ood or full) and run.description.kind != "image":
        raise ValueError(f"ood, full: expected a run on images, got texts in {run.folder}")
    if full and corruption_source(config.data) is None:
        raise ValueError(
            f"full: expected a run that predicts corrupted images, got none in {run.folder}; name kinds first, by the "
            "row again with --data.corruptions.kinds"
        )
    sets = tuple(dict.fromkeys((*requested_ood(config.data), *ood)))
    data = dataclasses.replace(config.data, ood=sets) if ood else config.data
    evaluation = dataclasses.replace(config.evaluation, full=full or config.evaluation.full)
    return dataclasses.replace(config, data=data, evaluation=evaluation)


def predict_images(run: Run, folder: Path) -> Fitted:
    """Predict a folder of images anew: class and uncertainties of each file, the first ones for the terminal."""
    inputs, record = folder_inputs(folder, run.description), run.record
    place, before = str(folder.resolve()), dict(record.get("images") or {})
    other = before.get(inputs.name, place)
    if other != place and Path(other).is_dir():
        raise ValueError(f"images: expected a folder of another name than {other}, got {place}; rename one of them")
    logits = _logits_of_images(run, inputs)
    path = run.prediction_file(inputs.name)
    save_predictions(path, Predictions(logits, inputs.ids.numpy(), None))
    run.complete(record | {"images": before | {inputs.name: place}})
    rows = _image_rows(run, logits, [str(file.relative_to(folder)) for file in image_files(folder)])
    write_csv(path.with_suffix(".csv"), rows)
    title = f"{len(rows):,} images of {folder}, all in {path.with_suffix('.csv')}"
    shown = [
        [Cell(f"{value:.3f}" if isinstance(value, float) else str(value)) for value in row.values()]
        for row in rows[:_SHOWN]
    ]
    return Fitted(Grid(list(rows[0]), shown, title=title))


def _logits_of_images(run: Run, inputs: InputSet) -> np.ndarray[Any, Any]:  # shape: (S, N, classes)
    """The logits of a trained model, or of a method derived from the logits of others."""
    config = run.config
    if config.method.base is None:
        return logits_of_set(run.model(), inputs, config).numpy()
    bases = needed_runs(config, run.out)
    if config.method.kind not in OF_PREDICTIONS:
        raise ValueError(
            f"run: expected a trained model or a method of predictions ({', '.join(OF_PREDICTIONS)}), got "
            f"{config.method.kind} in {run.folder}; predict the images with {bases[0].folder}"
        )
    return OF_PREDICTIONS[config.method.kind]([_logits_of_images(base, inputs) for base in bases], run.record["chosen"])


def _image_rows(run: Run, logits: np.ndarray[Any, Any], files: list[str]) -> list[dict[str, Any]]:
    """Class, its probability, and both uncertainties of each file."""
    probabilities, unsure = mean_probabilities(logits), uncertainty(logits)
    names = run.description.class_names or tuple(str(label) for label in range(logits.shape[-1]))
    return [
        {
            "file": file,
            "class": names[int(probabilities[place].argmax())],
            "probability": float(probabilities[place].max()),
            "total uncertainty": float(unsure.total[place]),
            "epistemic uncertainty": float(unsure.epistemic[place]),
        }
        for place, file in enumerate(files)
    ]
