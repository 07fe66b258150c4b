"""What methods, metrics and corruptions are called: in the papers, in the folders of runs, and in our tables."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from experiments.data import corruption

__all__ = ["CATEGORIES", "METRICS", "ORDER", "STANDARD_KINDS", "Metric"]


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

ORDER = (
    *("softmax", "temperature", "mc_dropout", "kfllla", "mfvi", "sngp", "kernel_symmetric", "kernel_asymmetric"),
    *("kernel_start", "sgpa", "kep_svgp", "kep_svgp_add", "cgpt", "scgpt", "cgp_direct", "scgp_direct", "cgp_softmax"),
)
"""Methods in the order of the tables, by the names of their folders."""

CATEGORIES: Mapping[str, tuple[str, ...]] = {name.capitalize(): kinds for name, kinds in corruption.CATEGORIES.items()}
"""The 19 corruptions of CIFAR-10-C by category."""

STANDARD_KINDS: tuple[str, ...] = tuple(kind for kind in corruption.CORRUPTIONS if kind not in corruption.EXTRA)
"""The 15 that are not extras."""
