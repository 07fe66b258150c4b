"""What methods, metrics and corruptions are called: in the papers, in the folders of runs, and in our tables."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from experiments.runs.derived import derivation, derived_label

__all__ = ["CATEGORIES", "LABELS", "METRICS", "STANDARD_KINDS", "Metric", "kind_name", "method_label", "plain"]


class Metric(NamedTuple):
    """How a metric is shown.

    Attributes:
        label: its name in a table.
        better: the direction that is better.
        scale: what it is multiplied by where no paper says otherwise.
        digits: decimals then.
        unit: of the natural value.
    """

    label: str
    better: Literal["high", "low"]
    scale: float = 100.0
    digits: int = 2
    unit: str = ""


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "accuracy": Metric("Accuracy", "high"),
        "mcc": Metric("MCC", "high"),
        "nll": Metric("NLL", "low", 1.0, 3),
        "ece": Metric("ECE", "low", 1.0, 3),
        "mce": Metric("MCE", "low", 1.0, 3),
        "brier": Metric("Brier", "low"),
        "aurc": Metric("AURC", "low", 1000.0),
        "eaurc": Metric("E-AURC", "low", 1000.0),
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
"""Our names of the methods by the names of their folders, in the order of the tables."""

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
        "Blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
        "Weather": ("snow", "frost", "fog", "brightness", "spatter"),
        "Digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
    }
)
"""The 19 corruptions of CIFAR-10-C by category (Hendrycks and Dietterich, 2019); the last of each is an extra."""

STANDARD_KINDS: tuple[str, ...] = tuple(kind for kinds in CATEGORIES.values() for kind in kinds[:-1])
"""The 15 that are not extras."""


def plain(name: str) -> str:
    """A name without case, hyphens and underscores: how names are compared.

    Example:
        >>> plain("TinyImageNet-Crop") == plain("tiny_imagenet_crop")
        True
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


_KINDS = {plain(kind): kind for kinds in CATEGORIES.values() for kind in kinds} | {
    "elastic": "elastic_transform",
    "jpeg": "jpeg_compression",
}


def kind_name(name: str) -> str:
    """The official name of a corruption, or the name itself where it is none of the nineteen.

    Example:
        >>> kind_name("Gaussian-Noise"), kind_name("jpeg"), kind_name("rotation")
        ('gaussian_noise', 'jpeg_compression', 'rotation')
    """
    return _KINDS.get(plain(name), name)


def method_label(name: str) -> str:
    """The name of a row in a table from the name of its folder.

    Example:
        >>> method_label("cgpt-alpha-0.7"), method_label("ensemble_kep_svgp"), method_label("mine")
        ('CGPT, alpha 0.7', 'Ensemble of KEP-SVGP (concat.)', 'mine')
        >>> method_label("temperature_sgpa")
        'SGPA, temperature'
    """
    kind, derived_from = derivation(name)
    if kind is not None:
        return derived_label(kind, method_label(derived_from))
    base, _, variant = name.partition("-")
    label = LABELS.get(base, base)
    return f"{label}, {variant.replace('-', ' ')}" if variant else label
