"""What methods, metrics and corruptions are called: in the papers, in the folders of runs, and in our tables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from experiments.data import corruption
from experiments.runs.derived import derivation, derived_label

__all__ = ["CATEGORIES", "LABELS", "METRICS", "STANDARD_KINDS", "Metric", "method_label"]


class Metric(NamedTuple):
    """How a metric is shown where no paper says otherwise."""

    label: str
    better: Literal["high", "low"]
    scale: float = 100.0
    digits: int = 2
    unit: str = ""  # of the natural value


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
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
)

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "softmax": "Softmax (MSP)",
        "temperature": "Temperature scaling",
        "mc_dropout": "MC dropout",
        "kfllla": "KFLLLA",
        "mfvi": "Mean-field VI",
        "sngp": "SNGP",
        "kernel_symmetric": "Kernel (symmetric)",
        "kernel_asymmetric": "Kernel (asymmetric)",
        "kernel_start": "Kernel (asymmetric), as CGPT starts",
        "sgpa": "SGPA",
        "kep_svgp": "KEP-SVGP (concat.)",
        "kep_svgp_add": "KEP-SVGP (add.)",
        "cgpt": "CGPT",
        "scgpt": "SCGPT",
        "cgp_direct": "CGP, direct",
        "scgp_direct": "SCGP, direct",
        "cgp_softmax": "CGP, softmax kept",
    }
)
"""Names of the methods in the papers' tables, in the order of the tables, by the names of their folders."""

CATEGORIES: Mapping[str, tuple[str, ...]] = {name.capitalize(): kinds for name, kinds in corruption.CATEGORIES.items()}
"""The 19 corruptions of CIFAR-10-C by category."""

STANDARD_KINDS: tuple[str, ...] = tuple(kind for kind in corruption.CORRUPTIONS if kind not in corruption.EXTRA)
"""The 15 that are not extras."""


def method_label(name: str) -> str:
    """Return the name of a method in a table from the name of its folder.

    Example:
        >>> method_label("cgpt-alpha-0.7"), method_label("ensemble_kep_svgp"), method_label("mine")
        ('CGPT, alpha 0.7', 'Ensemble of KEP-SVGP (concat.)', 'mine')
    """
    kind, derived_from = derivation(name)
    if kind is not None:
        return derived_label(kind, method_label(derived_from))
    base, _, variant = name.partition("-")
    label = LABELS.get(base, base)
    return f"{label}, {variant.replace('-', ' ')}" if variant else label
