"""The report of runs: summary, tables and pictures in one self-contained page."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import yaml
from rich.console import RenderableType
from rich.text import Text

from cgp.plotting.style import embedded
from experiments.atomic_files import write_atomically, write_text
from experiments.evaluation import DETECTORS
from experiments.grids import Cell, Fitted, Grid, as_markdown, escape, write_csv
from experiments.reports.answer import answer, findings
from experiments.reports.assessed import Assessed
from experiments.reports.figures import Section, sections
from experiments.reports.filling import Filling
from experiments.reports.scores import COLUMNS, Result, Statistic, cells, methods, score, statistic
from experiments.runs import Run

__all__ = ["report"]

_SETS = ("accuracy", "nll", "ece", "brier", "ood_total", "ood_epistemic")
_DETECTION = {"auroc": "AUROC %", "aupr_in": "AUPR-IN %", "aupr_out": "AUPR-OUT %", "fpr95": "FPR95 %"}
_BY_KEY = {column.key: column for column in COLUMNS}
_COMPARED = "The {} kinds of attention compared:"
_MINOR = 4  # columns after these are hidden on a narrow screen


def report(
    runs: Sequence[Run],
    out: Path,
    protocol: str = "pooled",
    *,
    filling: Filling | None = None,
    assessed: Assessed | None = None,
) -> list[RenderableType]:
    """Write `report.html`, `results.csv`, `results.md`, `sets.csv`, `detection.csv` and `pictures/` of complete runs.

    Rows of the table are methods, seeds give the spread; the table and the answer are returned for the terminal. A
    filled table and an assessed network stand before them; these are then folded, without curves of training, and the
    terminal has only the findings.
    """
    results = [score(run, protocol) for run in runs]
    by_method = methods(results)
    title, grid, asked = _title(by_method, protocol), _compared(by_method), assessed is not None
    sentences = list(_answers(by_method, partial(answer, assessed=asked)))
    key = [{"method": result.run.name, "seed": result.run.seed} for result in results]
    write_csv(out / "results.csv", [labels | result.numbers for labels, result in zip(key, results, strict=True)])
    for name in ("sets", "detection"):
        rows = [labels | row for labels, result in zip(key, results, strict=True) for row in getattr(result, name)]
        if rows:
            write_csv(out / f"{name}.csv", rows)
    drawn = list(sections(by_method, without=("training",) if filling else ()))
    for panel in (panel for section in drawn for panel in section.panels):
        path = out / "pictures" / f"{panel.name}.png"
        write_atomically(path, partial(Path.write_bytes, data=panel.png))
    write_text(out / "results.md", _markdown(title, sentences, grid))
    write_text(out / "report.html", _page(title, sentences, grid, by_method, drawn, filling, assessed))
    compared = [_COMPARED.format(len(by_method)), *_answers(by_method, partial(findings, assessed=asked))]
    words = Text("\n".join(escape(sentence, "terminal") for sentence in (compared if filling else sentences)))
    return [words] if filling else [Fitted(grid._replace(title=title), more="report.html"), "", words]


def _title(by_method: Mapping[str, Sequence[Result]], protocol: str) -> str:
    settings = ", ".join(dict.fromkeys(results[0].run.setting for results in by_method.values()))
    seeds = {len(results) for results in by_method.values()}
    most = max(seeds)
    spread = "one seed" if most == 1 else f"mean ± sd over {most if len(seeds) == 1 else f'up to {most}'} seeds"
    what = f"{len(by_method)} methods" if len(by_method) > 1 else next(iter(by_method.values()))[0].label
    of_paper = "" if protocol == "pooled" else f", scored as the paper {protocol} does"
    return f"{settings}: {what}, {spread}{of_paper}"


def _answers(
    by_method: Mapping[str, Sequence[Result]], words: Callable[[Mapping[str, Sequence[Result]]], list[str]]
) -> Iterator[str]:
    """Yield the sentences for each setting."""
    settings = dict.fromkeys(results[0].run.setting for results in by_method.values())
    for setting in settings:
        of_setting = {name: results for name, results in by_method.items() if results[0].run.setting == setting}
        sentences = words(of_setting)
        yield from [f"On {setting}: {sentences[0]}", *sentences[1:]] if len(settings) > 1 else sentences


def _compared(by_method: Mapping[str, Sequence[Result]]) -> Grid:
    """Table of methods by the columns for which some run has a number."""
    shown = {}
    for column in COLUMNS:
        numbers = {name: statistic(results, column.key) for name, results in by_method.items()}
        if not all(math.isnan(number.mean) for number in numbers.values()):
            shown[column.heading] = cells(numbers, column.better, column.scale, column.digits)
    several = len({results[0].run.setting for results in by_method.values()}) > 1
    names = {name: f"{r[0].label} on {r[0].run.setting}" if several else r[0].label for name, r in by_method.items()}
    rows = [[Cell(label), *(column[name] for column in shown.values())] for name, label in names.items()]
    return Grid(["", *shown], rows)


def _mean(rows: Sequence[Mapping[str, Any]], key: str) -> Statistic:
    return Statistic.of([row[key] for row in rows if key in row])._replace(sd=math.nan)


def _sets(results: Sequence[Result]) -> Grid:
    """Input sets of a method by metrics, means over seeds."""
    sets: dict[str, list[dict[str, Any]]] = {}
    for row in (row for result in results for row in result.sets):
        sets.setdefault(row["set"], []).append(row)
    columns = [_BY_KEY[key] for key in _SETS if any(key in row for entries in sets.values() for row in entries)]
    rows = [
        [
            Cell(name),
            Cell(f"{entries[0]['n']:,}"),
            *(Cell(_mean(entries, metric.key).text(metric.scale, metric.digits)) for metric in columns),
        ]
        for name, entries in sets.items()
    ]
    return Grid(["input set", "n", *(column.heading for column in columns)], rows)


def _detectors(results: Sequence[Result]) -> Grid | None:
    """Detectors of a method, means over OOD sets and seeds."""
    detections = [row for result in results for row in result.detection]
    if not detections:
        return None
    by_detector = {detector: [row for row in detections if row["detector"] == detector] for detector in DETECTORS}
    rows = [
        [Cell(name), *(Cell(_mean(of, key).text(100, 1)) for key in _DETECTION)]
        for name, of in by_detector.items()
        if of
    ]
    return Grid(["detector", *_DETECTION.values()], rows)


def _markdown(title: str, sentences: Sequence[str], grid: Grid) -> str:
    meanings = "\n".join(
        f"- **{column.title}**: {column.meaning}." for column in COLUMNS if column.heading in grid.header
    )
    words = "\n".join(f"- {escape(sentence, 'markdown')}" for sentence in sentences)
    return f"# {escape(title, 'markdown')}\n\n{words}\n\n{as_markdown(grid)}\n{meanings}\n"


def _page(
    title: str,
    sentences: Sequence[str],
    grid: Grid,
    by_method: Mapping[str, Sequence[Result]],
    drawn: Sequence[Section],
    filling: Filling | None,
    assessed: Assessed | None,
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Not jinja's escape: invisible characters of names are replaced, too.
    environment.filters["safe_text"] = lambda value: escape(str(value), "html")
    # No line break between a number and its deviation or unit.
    environment.filters["whole"] = lambda text: re.sub(
        r" ± | (?=[%↑↓])", lambda gap: gap[0].replace(" ", "&nbsp;"), text
    )
    details = [
        {
            "label": results[0].label,
            "name": name,
            "seeds": ", ".join(str(result.run.seed) for result in results),
            "deviations": results[0].run.deviations,
            "sets": _sets(results),
            "detectors": _detectors(results),
            "config": yaml.safe_dump(results[0].run.config.plain(), sort_keys=False),
        }
        for name, results in by_method.items()
    ]
    return environment.get_template("report.html").render(
        title=title,
        sentences=sentences,
        grid=grid,
        minor=_MINOR,
        meanings=[column for column in COLUMNS if column.heading in grid.header],
        sections=[section._asdict() | {"panels": list(map(_embedded, section.panels))} for section in drawn],
        details=details,
        record=_origin(next(iter(by_method.values()))[0].run),
        filling=filling and filling._asdict() | {"table": embedded(filling.png), "hidden": embedded(filling.weeks)},
        assessed=assessed and assessed._asdict() | {"data": embedded(assessed.png)},
    )


def _embedded(panel: Any) -> dict[str, str]:
    return {"caption": panel.caption, "data": embedded(panel.png)}


def _origin(run: Run) -> dict[str, str]:
    """Provenance of the numbers, as recorded by the first run."""
    machine, versions = run.record.get("machine") or {}, run.record.get("versions") or {}
    origin = {
        "Command": run.record.get("command"),
        "Commit": run.record.get("commit"),
        "Machine": ", ".join(str(value) for value in machine.values()) if isinstance(machine, dict) else machine,
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: str(value) for name, value in origin.items() if value}
