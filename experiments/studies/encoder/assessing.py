"""What `cgp.assess` says of the fine-tuned encoder."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import cgp
from experiments.studies.encoder.states import States
from experiments.studies.encoder.training import trained

__all__ = ["assess"]


def assess(
    *, data: Path, out: Path = Path("runs/encoder"), run: str = "softmax-1/seed-0", posterior: str = "last"
) -> None:
    """Compare the uncertainties of a run on the test sentences and out of scope.

    Args:
        data: folder that holds clinc150/.
        out: folder of the runs.
        run: which of them.
        posterior: layers that get one: "last", or "all" that were trained.
    """
    model, parts = trained(out, run, data)
    report = cgp.assess(
        model,
        _labelled(parts["test"]),
        train=_labelled(parts["train"]),
        ood={"out of scope": iter(parts["oos_test"].in_order())},  # a list of dicts would be one of examples
        posterior=posterior,
    )
    sys.stdout.write(f"{report}\n")


def _labelled(data: States) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    batches = data.in_order()
    return list(zip(batches, data.labels.split([len(batch["states"]) for batch in batches]), strict=True))
