"""Comparisons of "Calibrating Transformers via Sparse Gaussian Processes", as its slides show them."""

from experiments.reports.papers.specification import CALIBRATION, Block, Paper, Question, TableSpec, by_category, cost

__all__ = ["TABLES"]

PAPER = Paper(
    "sgpa",
    "sgpa",
    "Calibrating Transformers via Sparse Gaussian Processes",
    (
        "Protocol sgpa: every class is binned, and probabilities of exactly 1 are dropped.",
        "The slides print no numbers for this comparison; their figures show it.",
    ),
)
_METHODS = {
    "MLE": "softmax",
    "TS": "temperature",
    "MCD": "mc_dropout",
    "KFLLA": "kfllla",
    "MFVI": "mfvi",
    "SNGP": "sngp",
    "SGPA": "sgpa",
    "DE": "ensemble_softmax",
    "SGPAE": "ensemble_sgpa",
}
_TEXT = ("mcc", *CALIBRATION[1:])
_COLA = ("cola-pooled", "cola")
_OOD = {"CIFAR-100": "cifar100", "SVHN": "svhn", "Mini-ImageNet": "mini_imagenet"}


def _ood(shift: str) -> Block:
    question = Question("ood", (_OOD[shift],), ("Entropy",))
    metrics = ("auroc", "aupr_out")
    return Block("CIFAR-10", ("cifar10",), _METHODS, metrics, question, shift, "Entropy", samples=10_000)


TABLES = (
    TableSpec(
        PAPER,
        "calibration",
        "Calibration in distribution, CIFAR-10 and CoLA",
        (
            Block("CIFAR-10", ("cifar10",), _METHODS, CALIBRATION, samples=10_000),
            Block("CoLA", _COLA, _METHODS, _TEXT, samples=1816),
        ),
    ),
    TableSpec(
        PAPER,
        "shift",
        "Calibration under shift, CIFAR-10-C and CoLA out of domain",
        (
            *by_category("CIFAR-10-C", "cifar10", _METHODS),
            Block("CoLA-OOD", _COLA, _METHODS, _TEXT, Question("out-of-domain"), samples=516),
        ),
    ),
    TableSpec(
        PAPER,
        "detection",
        "OOD detection by predictive entropy, CIFAR-10",
        tuple(_ood(shift) for shift in _OOD),
        ("OOD images are the positive class, as the slides say.",),
    ),
    TableSpec(
        PAPER,
        "cost",
        "Time and memory of softmax, standard and decoupled SGPA, CIFAR-10",
        (cost({"MLE": "softmax", "Standard SGPA": "sgpa-standard", "Decoupled SGPA": "sgpa"}),),
        (
            "The slides give orders, for B sequences of T tokens and M global inducing points.",
            "Softmax (MLE): time O(B T²). Standard SGPA: time O(B T³), additional memory O(T²).",
            "Decoupled SGPA: time O(B T² M + M³), additional memory O(M²).",
        ),
    ),
)
