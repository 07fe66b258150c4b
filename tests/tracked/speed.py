"""What a user waits for: a fill, a fit, a prediction, a long series, a block, a report."""

import numpy as np
import torch

import cgp
from cgp.regression import CorrelatedGPRegressor


def waves(rows: int, columns: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and outputs that follow each other, with a piece of each missing."""
    generator = np.random.default_rng(0)
    x = np.linspace(0, rows / 20, rows)
    y = np.column_stack([np.sin(x - 0.4 * column) for column in range(columns)])
    y += 0.1 * generator.standard_normal(y.shape)
    for column in range(columns):
        first = (column + 1) * rows // (columns + 2)
        y[first : first + rows // 20, column] = np.nan
    return x[:, None], y


class Regression:
    """Fits of one structure, so that seconds do not rest on which one is chosen."""

    params = (100, 400)
    param_names = ("rows",)
    timeout = 300

    def setup(self, rows: int) -> None:
        torch.set_num_threads(1)
        self.x, self.y = waves(rows)
        self.fitted = CorrelatedGPRegressor("matern32", structure="coregionalised", random_state=0).fit(self.x, self.y)

    def time_fit(self, rows: int) -> None:
        CorrelatedGPRegressor("matern32", structure="coregionalised", random_state=0).fit(self.x, self.y)

    def time_predict(self, rows: int) -> None:
        self.fitted.predict(self.x, return_std=True)


class Tables:
    """A table of an array, all defaults."""

    timeout = 300

    def setup(self) -> None:
        torch.set_num_threads(1)
        self.table = waves(60)[1]

    def time_fill(self) -> None:
        cgp.CorrelatedGPImputer(random_state=0, verbose=False).fit_transform(self.table)

    def peakmem_fill(self) -> None:
        cgp.CorrelatedGPImputer(random_state=0, verbose=False).fit_transform(self.table)


class Blocks:
    """A training step of a block, 128 tokens."""

    params = ("SoftmaxAttention", "CGPAttention", "SparseCGPAttention", "SGPAttention", "KEPSVGPAttention")
    param_names = ("block",)

    def setup(self, block: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.block = getattr(cgp, block)(64, 4)
        self.tokens = torch.randn(8, 128, 64)

    def time_training_step(self, block: str) -> None:
        self.block(self.tokens).square().mean().backward()


class Import:
    """Of the library, in a process of its own."""

    def timeraw_import(self) -> str:
        return "import cgp; cgp.CorrelatedGPImputer"
