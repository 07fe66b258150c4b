"""What a table of a paper asks of our runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from experiments.evaluation import Protocol

__all__ = ["PAPERS", "Block", "Paper", "Question", "TableSpec"]


@dataclass(frozen=True)
class Paper:
    """Where numbers come from.

    Args:
        title: of the paper.
        authors: with the year.
        settings: what any comparison with it must know.
    """

    title: str
    authors: str
    settings: tuple[str, ...] = ()


PAPERS: Mapping[str, Paper] = {
    "cgpt": Paper(
        "Revisiting Kernel Attention with Correlated Gaussian Process Representation",
        "Bui, Tran Huu, Dinh, Nguyen and Hoang",
        (
            "Protocol cgpt: calibration errors are means over batches, of 1,000 images or of 32 texts.",
            "Small batches inflate them: perfectly calibrated predictions score an ECE of 0.03 and 0.16.",
        ),
    ),
    "kep-svgp": Paper(
        "Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes",
        "Chen, Tao, Tonin and Suykens (2024)",
        ("Protocol kep: the logits of 10 draws are averaged, not their probabilities.",),
    ),
    "sgpa": Paper(
        "Calibrating Transformers via Sparse Gaussian Processes",
        "Chen and Li (ICLR 2023), as presented in slides",
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

    kind: Literal["test", "out-of-domain", "corrupted", "ood", "cost"]
    members: tuple[str, ...] = ()
    detectors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """The rows of a table that share a data set and a question.

    Args:
        dataset: as in `reported.csv`.
        folders: names of data folders of runs in the paper's setting.
        question: what is measured.
        metrics: columns of the paper.
        methods: folders of runs by the names that the paper prints.
        shift: as in `reported.csv`.
        detector: as in `reported.csv`.
        label: of the detector in our table, where it needs another.
        samples: number of test samples of the paper, where known.
        data: what must be there to measure it, beside runs.
        substitutes: data folders of another setting, taken and named where there is no run in the paper's.
        gpu: whether the paper's setting takes a GPU.
        others: whether methods that only we have are shown too.
    """

    dataset: str
    folders: tuple[str, ...]
    question: Question
    metrics: tuple[str, ...]
    methods: Mapping[str, str]
    shift: str = ""
    detector: str = ""
    label: str = ""
    samples: int | None = None
    data: tuple[str, ...] = ()
    substitutes: tuple[str, ...] = ()
    gpu: bool = True
    others: bool = True

    @property
    def title(self) -> str:
        """Data set, shift and detector in words."""
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
        notes: what is inferred or doubtful, or departs from the paper in every run.
    """

    name: str
    paper: str
    number: str
    title: str
    protocol: Protocol
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = field(default=())
