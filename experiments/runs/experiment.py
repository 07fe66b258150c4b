"""A row of a table as a typed configuration."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.configuration import EvaluationConfig, MethodConfig, ModelConfig, TrainingConfig
from experiments.configuration import DataConfig

__all__ = ["CONFIGS", "Experiment", "as_plain"]

CONFIGS = Path(__file__).parents[1] / "configs"
"""The rows: `<data>/<method>.yaml`, and `<data>/common.yaml` for what the rows of one data set share."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One row of a table with a seed: what is trained on what, and what is predicted.

    Args:
        name: `<data>/<method>`, the folder of its runs.
        data: the data set and what is predicted beside its test part.
        model: sizes of the transformer.
        method: the attention, or what is derived from another row.
        training: the budget.
        evaluation: draws and scope of the predictions.
        seed: decides start, order of the examples and draws, and the split where the data say so.
        deviations: in words, what departs from the paper.
        reduced: in words, what was reduced besides.
    """

    name: str
    data: DataConfig
    model: ModelConfig
    method: MethodConfig
    training: TrainingConfig
    evaluation: EvaluationConfig
    seed: int = 0
    deviations: list[str] = field(default_factory=list)
    reduced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        parts = self.name.split("/")
        if len(parts) != 2 or not all(part and not part.startswith(".") for part in parts):
            raise ValueError(f"name: expected <data>/<method>, got {self.name!r}")
        if self.seed < 0:
            raise ValueError(f"seed: expected none or a positive whole number, got {self.seed}")

    @property
    def epochs(self) -> int:
        """Number of epochs of the training; what is derived counts as one."""
        return self.training.passes if self.method.base is None else 1

    def folder(self, out: Path) -> Path:
        """Return the folder of the run."""
        return out / self.name / f"seed-{self.seed}"

    def beside(self, method: str) -> str:
        """Return the name of another row of the same data."""
        return f"{self.name.split('/')[0]}/{method}"

    def needs(self) -> list[tuple[str, int]]:
        """Return row and seed of every run that must be complete before this one begins."""
        other = self.method.init_from if self.method.base is None else self.method.base
        if other is None:
            return []
        count = int(self.method.options.get("members", 5)) if self.method.kind == "ensemble" else 1
        return [(self.beside(other), count * self.seed + member) for member in range(count)]

    def plain(self) -> dict[str, Any]:
        """Return the values as YAML knows them."""
        return as_plain(asdict(self))


def as_plain(value: Any) -> Any:
    """Return a value as YAML reads it back: no tuples, no paths.

    Args:
        value: of a configuration.

    Example:
        >>> as_plain({"severities": (1, 3), "root": Path("data")})
        {'severities': [1, 3], 'root': 'data'}
    """
    if isinstance(value, Mapping):
        return {key: as_plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value
