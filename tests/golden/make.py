"""Write `blocks.npz`: what the code before the rebuild (commit a2c2470) computed, in float64.

Copy this folder into a checkout of that commit and run `python -m tests.golden.make <where to write>` there.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.golden.cases import (
    BLOCKS,
    STRATEGIES,
    BlockCase,
    build_block,
    build_regressor,
    build_strategy,
    disturb,
    make_inputs,
    measure_block,
    measure_regressor,
    measure_strategy,
)

OLD_NAMES = {"approximation": "conditional"}


def main(target: Path) -> None:
    """Measure every case and write the arrays."""
    arrays: dict[str, Any] = {}
    for number, (name, case) in enumerate(BLOCKS.items()):
        torch.manual_seed(number)
        block = build_block(case, _old_options(case))
        disturb(block, number)
        _keep(arrays, f"{name}/state", block.state_dict())
        for call in case.calls:
            tokens, masks = make_inputs(call, number)
            _keep(arrays, f"{name}/{call}", measure_block(copy.deepcopy(block), tokens, masks))
    for name in STRATEGIES:
        strategy = build_strategy(name)
        disturb(strategy, 1)
        _keep(arrays, f"strategy_{name}/state", strategy.state_dict())
        _keep(arrays, f"strategy_{name}/found", measure_strategy(strategy))
    model = build_regressor()
    disturb(model, 2)
    _keep(arrays, "regressor_exact/state", model.state_dict())
    _keep(arrays, "regressor_exact/found", measure_regressor(model))
    values = np.concatenate([np.asarray(x, dtype=np.float64).ravel() for x in arrays.values()])
    shapes = [",".join(map(str, x.shape)) for x in arrays.values()]
    np.savez_compressed(target, names=np.array(list(arrays)), shapes=np.array(shapes), values=values)


def _old_options(case: BlockCase) -> dict[str, Any]:
    options = {OLD_NAMES.get(name, name): value for name, value in case.options.items()}
    return options | ({"statistics": "bounded"} if options.get("mean") == "softmax" else {})


def _keep(arrays: dict[str, Any], prefix: str, found: dict[str, Any]) -> None:
    arrays |= {f"{prefix}/{name}": x.numpy() for name, x in found.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
