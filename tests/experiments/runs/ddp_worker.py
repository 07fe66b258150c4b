"""One process of a training that the test starts with torchrun, or alone: `python ddp_worker.py FOLDER VALUES`."""

import os
import sys
from pathlib import Path

import torch

from cgp.networks.model.blocks import attention_blocks, sampling
from experiments.configuration import TrainerConfig
from experiments.data import load
from experiments.methods.build import build
from experiments.runs.parsing import resolve
from experiments.training import classification, fit


def main():
    """Train two epochs, and save this process' first gradient, last weights and scores."""
    torch.set_num_threads(1)
    folder, world = Path(sys.argv[1]), int(os.environ.get("WORLD_SIZE", "1"))
    # No draws, of the validation either: dropout and sampling differ between processes on purpose.
    vars(classification)["drawing"] = lambda model, num_samples: sampling(model, "mean")
    sizes = ["data.limit_train=16", "training.epochs=2", "training.batch_size=6"]
    values = ["model.dropout=0", "method.alpha_start=0.5", "method.alpha=0.5"]
    experiment = resolve(["cola/cgp_direct"], [*sys.argv[2:], *sizes, *values])
    splits = load(experiment.data, 0)
    torch.manual_seed(0)
    module = build(experiment, splits.description, 16)
    for block in attention_blocks(module.model):
        block.sampling = "mean"
    gradients: list[dict[str, torch.Tensor]] = []

    def keep_first():
        if not gradients:
            gradients.append({n: p.grad.clone() for n, p in module.model.named_parameters() if p.grad is not None})

    vars(module)["on_after_backward"] = keep_first
    trainer = TrainerConfig(accelerator="cpu", devices=world, strategy="ddp" if world > 1 else "auto", progress=False)
    summary = fit(module, splits, training=experiment.training, seed=1, folder=folder / "checkpoints", trainer=trainer)
    rank = int(os.environ.get("RANK", "0"))
    scores = [{key: row[key] for key in row if key.startswith("validation")} for row in summary.history]
    torch.save(
        {"gradient": gradients[0], "weights": module.model.state_dict(), "scores": scores}, folder / f"{rank}.pt"
    )


if __name__ == "__main__":
    main()
