"""A report as a file: its numbers as JSON, or a page to read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cgp.atomic_files import write_aside
from cgp.networks.detect.detector import Detector, units_of
from cgp.networks.predict.method import Settings, rate_of

from .words import compared_in, headline

if TYPE_CHECKING:
    from .assessment import Assessment

__all__ = ["beside", "flagging", "write"]

_LARGE = 10_000  # numbers of a constant that is not written as text

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{0}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }}
h1 {{ font-size: 1.4em; margin-bottom: 0 }}
pre {{ overflow-x: auto }}
dt {{ font-weight: bold }}
</style></head>
<body>
<h1>{0}</h1>
<p>Compared: {1}</p>
{2}
</body></html>
"""


def write(report: Assessment, path: Path, details: Mapping[str, Any]) -> None:
    """What :meth:`cgp.Assessment.save` writes."""
    ending = path.suffix.lower()
    if ending not in (".json", ".html") and not path.is_char_device():
        raise ValueError(f"path: expected a .json or a .html, got {str(path)!r}")
    if ending == ".html" and details:
        raise ValueError(f"{', '.join(details)}: expected a .json for further entries, got {str(path)!r}")
    if ending == ".html":
        text = _PAGE.format(*map(escape, (headline(report), compared_in(report))), report.to_html())
    else:
        numbers = _numbers(report)
        if "flag" not in details:
            named = dict.fromkeys(filter(None, report.detectors.values()))
            numbers["flag"] = flagging(report, Settings(detectors={name: report.fitted[name] for name in named}).limits)
        file = beside(path, report.fitted.values())
        apart: tuple[str, dict[str, Any]] | None = None if file is None or ending != ".json" else (file.name, {})
        content = {key: _plain(each, apart if key == "flag" else None) for key, each in {**numbers, **details}.items()}
        if file is not None and apart is not None and apart[1]:  # first, as the other names it
            write_aside(file, lambda aside: np.savez(aside, **apart[1]))
        text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False, default=str) + "\n"
    write_aside(path, lambda aside: aside.write_text(text, encoding="utf-8"))


def beside(path: Path, detectors: Iterable[Detector]) -> Path | None:
    """Where large constants of detectors lie, beside a .json; None if they have none."""
    sizes = [math.prod(each.shape) for d in detectors for score in d.terms for each in score.saved()[1].values()]
    return path.with_suffix(".constants.npz") if max(sizes, default=0) > _LARGE else None


def flagging(report: Assessment, limits: Mapping[str, float]) -> dict[str, Any]:
    """For each detector by name, the threshold of a sum of standardised scores, and the constants of each score."""
    rate = rate_of(len(limits))
    return {name: _detector(report.fitted[name], limit, rate) for name, limit in limits.items()}


def _numbers(report: Assessment) -> dict[str, Any]:
    """Tables and advice."""
    return {
        "task": report.task.name,
        "labels": report.num_labels,
        "sentence": report.sentence,
        "method": report.method,
        "methods": {name: _method(report, name) for name in report.scores},
        "detection": report.detection,
        "compared sets": report.sets,
    }


def _method(report: Assessment, name: str) -> dict[str, Any]:
    """Scores of a method, changes against the network as trained with their errors, and its temperature or scale."""
    fitted = {report.task.parameter: report.choices[name].parameter}
    return report.scores[name] | fitted | {"change": report.differences[name]}


def _detector(detector: Detector, limit: float, rate: float) -> dict[str, Any]:
    parts = []
    for score in detector.terms:
        config, tensors = score.saved()
        known = detector.parts.get(score.name)
        units = (0.0, 1.0) if known is None else units_of(known)
        said = {"score": score.name, "formula": score.formula, "mean": units[0], "deviation": units[1]}
        parts.append(said | {"constants": config["options"] | tensors})
    return {"threshold": limit, "share of the labelled": rate, "sum of (score - mean) / deviation": parts}


def _plain(value: Any, apart: tuple[str, dict[str, Any]] | None = None, name: str = "") -> Any:
    """What JSON knows, and no number that is not finite; large arrays go apart, to a file's name and its content."""
    if apart is not None and math.prod(getattr(value, "shape", ())) > _LARGE:
        apart[1][name] = np.asarray(value)
        return {"file": apart[0], "array": name}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        name = value.get("score", name)
        return {str(key): _plain(each, apart, f"{name}/{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, apart, name) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
