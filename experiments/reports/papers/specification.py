"""Specification of the papers' tables (`tables.yaml`), and the names of metrics and methods in tables."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from experiments.atomic_files import read_yaml
from experiments.configuration import Protocol
from experiments.data import corruption

__all__ = ["CATEGORIES", "METRICS", "ORDER", "STANDARD_KINDS", "TABLES", "Block", "Metric", "Paper", "TableSpec"]


class Metric(NamedTuple):
    """Default format of a metric, unless a paper has another."""

    label: str
    better: Literal["high", "low"]
    scale: float = 100.0
    digits: int = 2
    unit: str = ""  # unit of the natural value


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

ORDER = (
    *("softmax", "temperature", "mc_dropout", "kfllla", "mfvi", "sngp", "kernel_symmetric", "kernel_asymmetric"),
    *("kernel_start", "sgpa", "kep_svgp", "kep_svgp_add", "cgpt", "scgpt", "cgp_direct", "scgp_direct"),
    *("cgp_observed", "scgp_observed", "cgp_softmax"),
)
"""Methods in the order of the tables, by the names of their folders."""

CATEGORIES: Mapping[str, tuple[str, ...]] = {name.capitalize(): kinds for name, kinds in corruption.CATEGORIES.items()}
"""The 19 corruptions of CIFAR-10-C by category."""

STANDARD_KINDS: tuple[str, ...] = tuple(kind for kind in corruption.CORRUPTIONS if kind not in corruption.EXTRA)
"""The 15 corruptions without the extra ones."""


class Paper(NamedTuple):
    """A paper: its key in `reported.csv`, its protocol, with which the names of its tables begin, and its remarks."""

    key: str
    protocol: Protocol
    title: str
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """The rows of a table that share a data set and a question; `tables.yaml` explains the fields.

    `kind` names the predictions of a run that are used, or (cost) its record; the mean over `members` and
    `detectors` is reported. Blocks with `others` also show methods that are not in the paper.
    """

    dataset: str
    folders: tuple[str, ...]
    methods: Mapping[str, str]
    metrics: tuple[str, ...]
    kind: Literal["test", "out-of-domain", "corrupted", "ood", "cost"] = "test"
    members: tuple[str, ...] = ()
    detectors: tuple[str, ...] = ()
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


class TableSpec(NamedTuple):
    """A table of a paper, or the numbers of one of its figures; `number` is as printed: "II", "figure-II"."""

    paper: Paper
    number: str
    title: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.paper.protocol}-{self.number}"


def _specified() -> Iterator[TableSpec]:
    for entry in read_yaml(Path(__file__).with_name("tables.yaml"))["papers"]:
        paper = Paper(entry["key"], entry["protocol"], entry["title"], tuple(entry["remarks"]))
        for table in entry["tables"]:
            blocks = tuple(block for values in table["blocks"] for block in _blocks(values))
            yield TableSpec(paper, str(table["number"]), table["title"], blocks, tuple(table.get("notes", ())))


def _blocks(values: Mapping[str, Any]) -> Iterator[Block]:
    """Make a block, or one for each category of corruption and one for their mean."""
    fields: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in values.items()}
    block = Block(**fields)
    if values.get("members") == "standard":
        yield dataclasses.replace(block, members=STANDARD_KINDS)
    elif values.get("members") == "categories":
        for shift, kinds in CATEGORIES.items():
            yield dataclasses.replace(block, shift=shift, members=kinds)
        every = tuple(kind for kinds in CATEGORIES.values() for kind in kinds)
        yield dataclasses.replace(block, shift="Avg", members=every)
    else:
        yield block


TABLES: Mapping[str, TableSpec] = {spec.name: spec for spec in _specified()}
