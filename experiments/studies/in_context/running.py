"""Train models on streams of functions and score them, one folder for each run."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from experiments.atomic_files import write_atomically, write_json
from experiments.studies.in_context.families import Family, family, truth
from experiments.studies.in_context.models import MODELS, TRUTH, Entry, marginal_density, trained_for
from experiments.studies.in_context.predictive import function_scores, scores
from experiments.studies.in_context.tasks import Stream, Tasks

__all__ = ["POINTS", "fit", "train"]

POINTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
"""Where the learning curve is measured, in parts of the training."""

_WARMUP = 50
_CLIP = 1.0
_MEMORY = 9  # the average of the weights reaches back over about a tenth of the steps


def train(
    *,
    out: Path = Path("runs/in-context"),
    families: Sequence[str] = ("mixture",),
    models: Sequence[str] = tuple(MODELS),
    seeds: Sequence[int] = (0,),
    data: Path | None = None,
    share: float = 1.0,
    functions: int = 256,
    chain: int = 128,
) -> None:
    """Train and score every model of every family that has no result yet, on one thread.

    Args:
        out: folder to write.
        families: names of families of functions.
        models: names of models.
        seeds: of weights and training tasks.
        data: folder with multioutput/weather_south_coast, for the family "windows".
        share: of each model's steps.
        functions: number of functions of each test set.
        chain: number of them on which neural processes are asked for a joint density, by the chain rule.
    """
    if unknown := set(models) - set(MODELS):
        raise ValueError(f"models: expected some of {', '.join(MODELS)}, got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    for name in families:
        chosen = family(name, functions=functions, data=data)
        _score_truth(chosen, out / name / TRUTH / "seed-0")
        for seed in seeds:
            for model in models:
                folder = out / name / model / f"seed-{seed}"
                if (folder / "run.json").exists():
                    continue
                print(folder, file=sys.stderr, flush=True)
                _run(chosen, trained_for(name, model), seed, share, chain, folder)


def _run(chosen: Family, entry: Entry, seed: int, share: float, chain: int, folder: Path) -> None:
    """Train, score and write: the scores first, so that a run with its file is complete."""
    steps = max(1, round(share * entry.steps))
    validation = [drawn.tasks for drawn in chosen.validation.values()]
    model, curve = fit(entry, chosen.stream, validation, seed=seed, steps=steps)
    known = set(chosen.validation) | {"forecast"}
    sets = {key: drawn for key, drawn in chosen.test.items() if key in known}
    shifted = {key: drawn for key, drawn in chosen.test.items() if key not in known}
    _write(folder, scores(model, sets, chain=chain) | scores(model, shifted, chain=0))
    size = sum(parameter.numel() for parameter in model.parameters())
    write_json(
        folder / "run.json", {"steps": steps, "parameters": size, "curve": curve, "seconds": curve[-1]["seconds"]}
    )


def _score_truth(chosen: Family, folder: Path) -> None:
    """Scores of the processes that the functions were drawn from, where they are Gaussian."""
    table: dict[str, Any] = {}
    for name, drawn in chosen.test.items():
        law = truth(drawn)
        if law is not None:
            of_set = function_scores(law, drawn.tasks.y_targets)
            table |= {f"{name}.{key}": values.numpy() for key, values in of_set.items()}
    if table:
        _write(folder, table)


def _write(folder: Path, table: dict[str, Any]) -> None:
    write_atomically(folder / "scores.npz", lambda aside: np.savez(aside, **table))


def fit(
    entry: Entry, stream: Stream, validation: Sequence[Tasks], *, seed: int, steps: int
) -> tuple[nn.Module, list[dict[str, float]]]:
    """Train at a constant rate and average the weights: the curve at any step is the result of a training so long.

    Args:
        entry: the model.
        stream: draws training tasks.
        validation: tasks of the learning curve.
        seed: of the weights and the tasks.
        steps: their number.

    Returns:
        The averaged model, and points of its curve: step, processor seconds of the training, validation loss in nats a
        target (one by one).
    """
    torch.manual_seed(seed)
    model = entry.build()
    average = AveragedModel(model, avg_fn=_recent)
    optimizer = torch.optim.AdamW(model.parameters(), lr=entry.rate, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=_WARMUP)
    due, curve, seconds = {max(1, round(part * steps)) for part in POINTS}, [], 0.0
    generator = torch.Generator().manual_seed(seed)
    for step in range(1, steps + 1):
        tasks = stream(generator)
        started = time.process_time()
        _step(model, entry.loss(model, tasks), optimizer)
        average.update_parameters(model)
        warmup.step()
        seconds += time.process_time() - started
        if step in due:
            loss = _validation_loss(average.module, validation)
            curve.append({"step": step, "seconds": round(seconds, 2), "loss": loss})
            print(f"  step {step:6d}  {seconds:6.1f} s  validation {loss:.4f}", file=sys.stderr, flush=True)
    return average.module.eval(), curve


def _step(model: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
    optimizer.step()


def _recent(average: Tensor, value: Tensor, number: Any) -> Tensor:
    """Polynomial-decay averaging (Shamir & Zhang 2013)."""
    return average + (value - average) * (_MEMORY + 1) / (number + _MEMORY + 1)


@torch.no_grad()
def _validation_loss(model: nn.Module, validation: Sequence[Tasks]) -> float:
    """Nats a target, with the model as it predicts; its mode in training is put back."""
    was_training = model.training
    model.eval()
    losses = [float(marginal_density(model, tasks)) for tasks in validation]
    model.train(was_training)
    return sum(losses) / len(losses)
