"""Tables of "Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes"."""

from experiments.reports.papers.specification import STANDARD_KINDS, Block, Paper, Question, TableSpec, only

__all__ = ["TABLES"]

PAPER = Paper(
    "kep-svgp",
    "kep",
    "Self-Attention through Kernel-Eigen Pair Sparse Variational Gaussian Processes",
    ("Protocol kep: the logits of 10 draws are averaged, not their probabilities.",),
)
_METRICS = ("aurc", "auroc", "fpr95", "ece", "nll", "brier")
_VISION = {
    "MSP": "softmax",
    "Temperature Scaling": "temperature",
    "MC Dropout": "mc_dropout",
    "KFLLLA": "kfllla",
    "KEP-SVGP (ours)": "kep_svgp",
    "Deep Ensembles": "ensemble_softmax",
    "KEP-SVGP Ensembles (ours)": "ensemble_kep_svgp",
}
# Concatenation needs sequences of one length: on texts the paper adds.
_TEXT = _VISION | {
    "SGPA": "sgpa",
    "KEP-SVGP (ours)": "kep_svgp_add",
    "KEP-SVGP Ensembles (ours)": "ensemble_kep_svgp_add",
}
_SHIFTED = {name: run for name, run in _VISION.items() if name != "Temperature Scaling"}
_SETS = {"SVHN": "svhn", "LSUN": "lsun_resize", "CIFAR-10": "cifar10", "CIFAR-100": "cifar100"}
_COLA = "The paper's published code selects its CoLA checkpoint on the test split; ours never see it."
_SCALES = (
    "The paper's captions are lost in our copy of its text: the scales of its numbers are inferred, see their README."
)
_OFFICIAL = ("cola-official", "cola")


def _four_sets(
    folder: str, vision: dict[str, str], text: dict[str, str], metrics: tuple[str, ...]
) -> tuple[Block, ...]:
    """Return rows in distribution; `folder` is the setting of the CIFAR models."""
    return (
        Block("CIFAR-10", (f"cifar10-{folder}", "cifar10"), vision, ("accuracy", *metrics), samples=10_000),
        Block("CIFAR-100", (f"cifar100-{folder}", "cifar100"), vision, ("accuracy", *metrics), samples=10_000),
        Block("IMDB", ("imdb",), text, ("accuracy", *metrics), samples=10_000),
        Block("CoLA", _OFFICIAL, text, ("mcc", *metrics), samples=527),
    )


def _corrupted(dataset: str, folder: str) -> Block:
    folders, question = (f"{folder}-kep", folder), Question("corrupted", STANDARD_KINDS)
    return Block(dataset, folders, _SHIFTED, ("accuracy", *_METRICS), question, shift="Avg", samples=10_000)


def _ood(dataset: str, folder: str, shift: str) -> Block:
    folders, question = (f"{folder}-kep", folder), Question("ood", (_SETS[shift],), ("MaxSoftmax",))
    return Block(dataset, folders, _SHIFTED, ("auroc", "aupr"), question, shift=shift, samples=10_000)


def _pairing() -> Block:
    rows = ("softmax", "kep_svgp_add-all-layers-e", "kep_svgp_add-all-layers-r", "kep_svgp_add-all-layers")
    methods = dict(zip(("MSP", "row2", "row3", "row4 (pair)"), rows, strict=True))
    return Block("CoLA", _OFFICIAL, methods, ("mcc", *_METRICS), samples=527, others=False)


def _merge() -> Block:
    plain = {"kep_svgp": "10", "kep_svgp_add": "1"}  # eta of the rows without a variant
    methods = {
        f"{merge} eta={eta}": run if eta == plain[run] else f"{run}-eta-{eta}"
        for merge, run in (("concatenation", "kep_svgp"), ("addition", "kep_svgp_add"))
        for eta in ("10", "1", "0.1", "0.01")
    }
    folders = ("cifar10-kep", "cifar10")
    return Block("CIFAR-10", folders, methods, ("accuracy", *_METRICS), samples=10_000, others=False)


_COST_ROWS = ("MSP", "SGPA", "KEP-SVGP (ours)")
_COST = (only(_VISION | {"SGPA": "sgpa"}, *_COST_ROWS), only(_TEXT, *_COST_ROWS), ("nll", "seconds_per_epoch"))

TABLES = (
    TableSpec(
        PAPER, "1", "Four data sets in distribution", _four_sets("kep", _VISION, _TEXT, _METRICS), (_SCALES, _COLA)
    ),
    TableSpec(
        PAPER,
        "2",
        "CIFAR-10-C and CIFAR-100-C, mean over 15 kinds and 5 severities",
        (_corrupted("CIFAR-10-C", "cifar10"), _corrupted("CIFAR-100-C", "cifar100")),
        (_SCALES,),
    ),
    TableSpec(
        PAPER,
        "3",
        "OOD detection by the largest probability",
        tuple(
            _ood(dataset, folder, shift)
            for dataset, folder in (("CIFAR-10", "cifar10"), ("CIFAR-100", "cifar100"))
            for shift in _SETS
            if shift != dataset
        ),
        (
            "The paper's AUPR counts in-distribution images as positive: inferred, see the README of the numbers.",
            "The paper does not say which cut of LSUN it takes: ours is the resized one.",
        ),
    ),
    TableSpec(
        PAPER,
        "4",
        "Cost and quality",
        _four_sets("small", *_COST),
        (
            "The paper's CIFAR models of this table have 5 (CIFAR-10) and 6 layers (CIFAR-100), as SGPA's.",
            "Seconds an epoch are on an RTX 2070 SUPER in the paper; our machine is named in each run.",
            _COLA,
        ),
    ),
    TableSpec(
        PAPER,
        "5",
        "Pairing: one branch or both, CoLA, all layers",
        (_pairing(),),
        ("The paper's row labels are lost in our copy: which row is which single branch is not known.", _COLA),
    ),
    TableSpec(
        PAPER,
        "6",
        "Merging and eta, CIFAR-10",
        (_merge(),),
        ("Which half of the rows is concatenation is inferred, as is eta: its accuracy at 10 is that of Table 1.",),
    ),
)
