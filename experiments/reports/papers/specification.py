"""What a table of a paper asks of our runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from experiments.evaluation import Protocol
from experiments.reports.papers.names import CATEGORIES

__all__ = ["CALIBRATION", "PAPERS", "Block", "Paper", "Question", "TableSpec", "by_category", "cost", "only"]

CALIBRATION = ("accuracy", "nll", "mce", "ece")


@dataclass(frozen=True)
class Paper:
    """Title of a paper, and what any comparison with it must know."""

    title: str
    remarks: tuple[str, ...]


PAPERS: Mapping[str, Paper] = {
    "cgpt": Paper(
        "Revisiting Kernel Attention with Correlated Gaussian Process Representation",
        (
            "Protocol cgpt: calibration errors are means over batches, of 1,000 images or of 32 texts.",
            "Small batches inflate them: perfectly calibrated predictions score an ECE of 0.03 and 0.16.",
        ),
    ),
    "kep-svgp": Paper(
        "Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes",
        ("Protocol kep: the logits of 10 draws are averaged, not their probabilities.",),
    ),
    "sgpa": Paper(
        "Calibrating Transformers via Sparse Gaussian Processes",
        (
            "Protocol sgpa: every class is binned, and probabilities of exactly 1 are dropped.",
            "The slides print no numbers for this comparison; their figures show it.",
        ),
    ),
}


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
        name: on the command line.
        paper: key of `PAPERS`, and of `reported.csv`.
        number: as printed, "II" or "Figure II".
        title: what it shows.
        protocol: how the paper computes its metrics.
        blocks: its rows.
        notes: what is inferred or doubtful, or deviates from the paper in every run.
    """

    name: str
    paper: str
    number: str
    title: str
    protocol: Protocol
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()


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
