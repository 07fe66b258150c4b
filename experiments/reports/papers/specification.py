"""What a table of a paper asks of our runs, and what methods, metrics and corruptions are called in tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from experiments.configuration import Protocol
from experiments.data import corruption

__all__ = [
    "CALIBRATION",
    "CATEGORIES",
    "METRICS",
    "ORDER",
    "STANDARD_KINDS",
    "Block",
    "Metric",
    "Paper",
    "Question",
    "TableSpec",
    "by_category",
    "cost",
    "only",
]


class Metric(NamedTuple):
    """How a metric is shown where no paper says otherwise."""

    label: str
    better: Literal["high", "low"]
    scale: float = 100.0
    digits: int = 2
    unit: str = ""  # of the natural value


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric("Accuracy", "high"),
    "mcc": Metric("MCC", "high"),
    "nll": Metric("NLL", "low", 1.0, 3),
    "ece": Metric("ECE", "low", 1.0, 3),
    "mce": Metric("MCE", "low", 1.0, 3),
    "brier": Metric("Brier", "low"),
    "aurc": Metric("AURC", "low", 1000.0),
    "auroc": Metric("AUROC", "high"),
    "fpr95": Metric("FPR95", "low"),
    "aupr": Metric("AUPR", "high"),
    "aupr_in": Metric("AUPR-IN", "high"),
    "aupr_out": Metric("AUPR-OUT", "high"),
    "seconds_per_epoch": Metric("Seconds an epoch", "low", 1.0, 2),
    "peak_memory": Metric("Peak memory", "low", 1.0, 2, "GiB"),
}
CALIBRATION = ("accuracy", "nll", "mce", "ece")

ORDER = (
    *("softmax", "temperature", "mc_dropout", "kfllla", "mfvi", "sngp", "kernel_symmetric", "kernel_asymmetric"),
    *("kernel_start", "sgpa", "kep_svgp", "kep_svgp_add", "cgpt", "scgpt", "cgp_direct", "scgp_direct", "cgp_softmax"),
)
"""Methods in the order of the tables, by the names of their folders."""

CATEGORIES: Mapping[str, tuple[str, ...]] = {name.capitalize(): kinds for name, kinds in corruption.CATEGORIES.items()}
"""The 19 corruptions of CIFAR-10-C by category."""

STANDARD_KINDS: tuple[str, ...] = tuple(kind for kind in corruption.CORRUPTIONS if kind not in corruption.EXTRA)
"""The 15 that are not extras."""


@dataclass(frozen=True)
class Paper:
    """A paper, and what any comparison with it must know.

    Args:
        key: in `reported.csv`.
        protocol: how it computes its metrics; the names of its tables begin with it.
        title: of the paper.
        remarks: under every table.
    """

    key: str
    protocol: Protocol
    title: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """What is measured of a run.

    Args:
        kind: on which predictions, or (cost) in its record.
        members: kinds of corruption or OOD sets, whose mean is reported.
        detectors: of OOD inputs, whose mean is reported.
    """

    kind: Literal["test", "out-of-domain", "corrupted", "ood", "cost"] = "test"
    members: tuple[str, ...] = ()
    detectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """The rows of a table that share a data set and a question.

    Args:
        dataset: as in `reported.csv`.
        folders: data folders of runs: the paper's setting first, then what replaces it where it has no run.
        methods: folders of runs by the names that the paper prints.
        metrics: columns of the paper.
        question: what is measured.
        shift: as in `reported.csv`.
        detector: as in `reported.csv`.
        label: of the detector in our table, where it needs another.
        samples: number of test samples of the paper, where known.
        others: whether methods that only we have are shown too.
    """

    dataset: str
    folders: tuple[str, ...]
    methods: Mapping[str, str]
    metrics: tuple[str, ...]
    question: Question = Question()
    shift: str = ""
    detector: str = ""
    label: str = ""
    samples: int | None = None
    others: bool = True

    @property
    def title(self) -> str:
        """Data set, shift and detector."""
        sets = self.shift.count("+") + 1
        shift = f"mean of {sets} sets" if sets > 1 else self.shift
        return " · ".join(part for part in (self.dataset, shift, self.label or self.detector) if part)


@dataclass(frozen=True)
class TableSpec:
    """A table of a paper, or the numbers behind one of its figures.

    Args:
        paper: that has it.
        number: as printed: "II", or "figure-II".
        title: what it shows.
        blocks: its rows.
        notes: what is inferred or doubtful, or deviates from the paper in every run.
    """

    paper: Paper
    number: str
    title: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.paper.protocol}-{self.number}"


def only(methods: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return some of the methods, in the order of the names."""
    return {name: methods[name] for name in names}


def by_category(dataset: str, folder: str, methods: Mapping[str, str], *, others: bool = True) -> tuple[Block, ...]:
    """Return a block for each category of corruption, and one for the mean over all 19 kinds."""
    groups = dict(CATEGORIES) | {"Avg": tuple(kind for kinds in CATEGORIES.values() for kind in kinds)}
    options = {"samples": 10_000, "others": others}
    return tuple(
        Block(dataset, (folder,), methods, CALIBRATION, Question("corrupted", kinds), shift, **options)
        for shift, kinds in groups.items()
    )


def cost(methods: Mapping[str, str]) -> Block:
    """Return rows of time and memory on CIFAR-10."""
    return Block("CIFAR-10", ("cifar10",), methods, ("seconds_per_epoch", "peak_memory"), Question("cost"))
