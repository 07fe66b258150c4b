"""A row of a table as a typed configuration, and where the rows lie."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from experiments.configuration import EvaluationConfig, MethodConfig, ModelConfig, TrainingConfig
from experiments.data.configuration import DataConfig

__all__ = ["CONFIGS", "Experiment", "config_files", "row_names"]

CONFIGS = Path(__file__).parents[1] / "configs"
"""The rows: `<data>/<method>.yaml`, and `<data>/common.yaml` for what the rows of one data set share."""

_COMMON = "common.yaml"
_NOT_ROWS = {"reduced"}


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
        departures: in words, what departs from the paper.
        reduced: in words, what was reduced besides.
    """

    name: str
    data: DataConfig
    model: ModelConfig
    method: MethodConfig
    training: TrainingConfig
    evaluation: EvaluationConfig
    seed: int = 0
    departures: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = self.name.split("/")
        if len(parts) != 2 or not all(part and not part.startswith(".") for part in parts):
            raise ValueError(f"name: expected <data>/<method>, got {self.name!r}")

    @property
    def epochs(self) -> int:
        """Number of epochs of the training; what is derived counts as one."""
        return self.training.epochs if self.method.base is None else 1

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
        return _plain(asdict(self))


def config_files(config: str) -> list[Path]:
    """Find the files that a name stands for, in the order in which they are merged.

    Args:
        config: a row ("cola/softmax"), an override ("reduced/cifar10"), or the path of a file. What the rows of a
            folder share (`common.yaml`) comes before a row of it. A folder without rows, such as `cola-official`, has
            those of the folder that its name begins with.

    Raises:
        ValueError: if there is no such row or file.

    Example:
        >>> [file.name for file in config_files("cola/softmax")]
        ['common.yaml', 'softmax.yaml']
        >>> ["/".join(file.parts[-2:]) for file in config_files("cola-official/softmax")]
        ['cola/common.yaml', 'cola-official/common.yaml', 'cola/softmax.yaml']
    """
    path = Path(config)
    if path.suffix != ".yaml":
        path = CONFIGS / f"{config}.yaml"
    folders = [path.parent]
    if path.parent.name in _settings():
        folders = [_settings()[path.parent.name], path.parent]
        path = folders[0] / path.name
    if not path.is_file():
        near = get_close_matches(config, row_names(), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "`python -m experiments list` shows them"
        raise ValueError(f"config: expected a file or a row ({hint}), got {config!r}")
    common = [folder / _COMMON for folder in folders]
    return [*(file for file in common if file.is_file() and file != path), path]


def row_names(pattern: str = "*") -> list[str]:
    """List the rows.

    Args:
        pattern: of a data set ("cola"), or of rows ("cola/*", "*/sgpa").

    Raises:
        ValueError: if none fits.

    Example:
        >>> row_names("cola/soft*")
        ['cola/softmax']
    """
    pattern = pattern if "/" in pattern else f"{pattern}/*"
    names = {f"{file.parent.name}/{file.stem}" for file in _rows(CONFIGS.iterdir())}
    for setting, folder in _settings().items():
        names |= {f"{setting}/{file.stem}" for file in _rows([folder])}
    found = sorted(name for name in names if fnmatch(name, pattern))
    if not found:
        raise ValueError(f"rows: expected rows such as cola, cola/softmax or '*/sgpa', got {pattern!r}")
    return found


def _rows(folders: Iterable[Path]) -> list[Path]:
    """The files of rows in folders."""
    inside = [file for folder in folders if folder.name not in _NOT_ROWS for file in folder.glob("*.yaml")]
    return [file for file in inside if file.name != _COMMON]


def _settings() -> dict[str, Path]:
    """The folders without rows, with the folder whose rows they have."""
    lone = [file.parent for file in CONFIGS.glob(f"*/{_COMMON}") if not _rows([file.parent])]
    return {folder.name: CONFIGS / folder.name.rpartition("-")[0] for folder in lone}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value
