"""Train and score what is missing, one folder for each run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.atomic_files import write_atomically, write_json
from experiments.studies.in_context.families import Family, family, truth
from experiments.studies.in_context.models import MODELS, TRUTH, Entry, trained_for
from experiments.studies.in_context.scoring import function_scores, scores
from experiments.studies.in_context.training import fit

__all__ = ["train"]


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
