"""From rows to a page: goals first, then every table, the CSV and the pictures."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmarks.calls import MEASURES
from experiments.benchmarks.cases import BLOCKS, CENTRE, LABELS, REFERENCE, Case
from experiments.benchmarks.goals import grid_case, outcomes
from experiments.benchmarks.pictures import save_pictures
from experiments.benchmarks.rows import Row
from experiments.benchmarks.slopes import slope_table
from experiments.reports.demo_tables import write_csv
from experiments.storage import write_text

__all__ = ["command", "write_report"]

Table = list[list[str]]


def write_report(rows: Sequence[Row], out: Path, docs: Path | None, note: str = "") -> None:
    """Write page, CSV and pictures into the folder, and into the documentation if one is given.

    Args:
        rows: all that was measured.
        out: folder of the benchmark.
        docs: folder of the documentation, or None.
        note: a sentence on the circumstances.
    """
    kept = [row for row in rows if row["suite"] != "machine"]
    for page, images, data in (
        (out / "benchmarks.md", out / "images", out / "benchmarks.csv"),
        *(((docs / "benchmarks.md", docs / "images", docs / "results" / "benchmarks.csv"),) if docs else ()),
    ):
        keys = dict.fromkeys(key for row in kept for key in row)
        write_csv(data, [{key: row.get(key, "") for key in keys} for row in kept])
        pictures = save_pictures(kept, images)
        links = {name: path.relative_to(page.parent).as_posix() for name, path in pictures.items()}
        write_text(page, _page(rows, links, data.relative_to(page.parent).as_posix(), note))


def _page(rows: Sequence[Row], pictures: dict[str, str], data: str, note: str) -> str:
    machine = next(row for row in rows if row["suite"] == "machine")
    parts = [
        "# Benchmarks",
        _preamble(machine, data),
        f"**{note}**" if note else "",
        "## Goals",
        "Ratios to softmax attention of the same sizes in the same run: medians, quartiles beside them.",
        _markdown(_goal_table(rows)),
        *_picture(pictures, "length"),
        "## Against softmax attention",
        *_ratio_tables(rows),
        _SLOPES,
        _markdown(slope_table(rows)),
        "## What is kept for the backward pass, and how many operations there are",
        *_picture(pictures, "memory"),
        _markdown(_count_table(rows)),
        "## Against the papers' formulas as printed",
        _TRANSCRIBED,
        _markdown(_time_table(rows, "transcriptions")),
        "## Predictions",
        _markdown(_time_table(rows, "prediction")),
        "`posterior(x)` with its mean and variance read, against the forward pass of the same block:",
        _markdown(_time_table(rows, "posterior")),
        "## Seconds an epoch",
        _EPOCHS,
        *(_markdown(_epoch_table(rows, suite)) for suite in _suites(rows, "vit ")),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_SLOPES = """Slopes p of the lines above on logarithmic axes, seconds a sequence ∝ nᵖ and so on, by least squares; \
bytes kept likewise."""

_TRANSCRIBED = """Written for the benchmark from the papers: explicit inverses, an n × n covariance for every column, \
n × n draws, all differences in one tensor. On one thread, because explicit inverses of batches are unsound on \
more (a fault of batched LU on CPUs)."""

_EPOCHS = """Training steps of the papers' vision transformers (forward, objective, backward, Adam; batches of 64 \
random images of 32 × 32 pixels), the fastest step scaled to 45 000 images. No epoch was run."""


def _preamble(machine: Row, data: str) -> str:
    return f"""Written by the command from what it measured; not edited.

```
{command()}
```

{machine["processor"]}, {machine["cores"]} cores, threads: {machine["threads"]}, torch {machine["torch"]}, Python \
{machine["python"]}, commit {machine["commit"]}, {machine["date"]}. A matrix product of 1024 × 1024 reaches \
{machine["matmul_rate"] / 1e9:.0f} GFLOP/s there.

All calls of a group run interleaved in one process, every other round backwards; a ratio is the median over the \
rounds of a call's seconds by softmax attention's in the same round (one projection in, \
`scaled_dot_product_attention`, one out). A large block was freed before the first measurement, so that the C \
library keeps memory for the next call: in a young process calls with large intermediate results pay for their \
pages each time. Unless a column says otherwise: batches of {CENTRE.batch}, n = \
{CENTRE.tokens}, d = {CENTRE.width}, h = {CENTRE.heads}, m = {CENTRE.inducing}, float32, eager. All rows with their \
quartiles and minima are in [the CSV]({data}). What was tried, and what lost, is in \
[the note](notes/speed.md), what it means for larger machines in [scaling](scaling.md)."""


def command() -> str:
    """The command that runs now, folders left out."""
    arguments = list(sys.argv[1:])
    if "--note" in arguments:
        at = arguments.index("--note")
        del arguments[at : at + 2]
    for flag, word in (("--out", "OUT"), ("--docs", "docs")):
        if flag in arguments[:-1]:
            arguments[arguments.index(flag) + 1] = word
    return shlex.join(["python", "-m", "experiments.benchmarks", *arguments])


def _goal_table(rows: Sequence[Row]) -> Table:
    table = [["goal", "n", "", "bound", "measured", "quartiles", "reached"]]
    for outcome in outcomes(rows):
        goal, sign = outcome.goal, "≥" if outcome.goal.at_least else "≤"
        value = "not measured" if outcome.value is None else f"{outcome.value:.2f}"
        measure = {"backward": "forward + backward", "counts": ""}.get(goal.measure, goal.measure)
        reached = "yes" if outcome.reached else ("" if outcome.value is None else "**no**")
        table.append([goal.name, str(goal.tokens), measure, f"{sign} {goal.bound:g}", value, outcome.spread, reached])
    return table


def _ratio_tables(rows: Sequence[Row]) -> list[str]:
    """A table a measure: blocks down, cases across."""
    parts = []
    for measure, meaning in MEASURES.items():
        chosen = [row for row in rows if row["suite"] == "blocks" and row["measure"] == measure]
        cases = sorted({grid_case(row) for row in chosen}, key=_distance)
        if cases:
            parts += [f"{measure.capitalize()}: {meaning}.", _markdown(_ratio_table(chosen, cases))]
    return parts


def _ratio_table(rows: Sequence[Row], cases: Sequence[Case]) -> Table:
    cells = {(row["block"], grid_case(row)): row for row in rows}
    table = [["", *(_title(case) for case in cases)]]
    table.append(["softmax, ms", *(f"{1e3 * cells[REFERENCE, case]['seconds']:.1f}" for case in cases)])
    for block in BLOCKS:
        if block != REFERENCE:
            found = [cells.get((block, case)) for case in cases]
            table.append([LABELS[block], *("–" if row is None else f"{row['ratio']:.2f}" for row in found)])
    return table


def _distance(case: Case) -> tuple[object, ...]:
    """Lengths first, then the other axes."""
    off = [i for i, (own, centre) in enumerate(zip(case[2:], CENTRE[2:], strict=True)) if own != centre]
    return (off, case.tokens == CENTRE.tokens and case.batch != CENTRE.batch, case)


def _title(case: Case) -> str:
    names = {"tokens": "n", "batch": "B", "width": "d", "inducing": "m"}
    words = [f"n {case.tokens}"]
    for field, own in case._asdict().items():
        if field not in ("tokens", "heads") and own != getattr(CENTRE, field):
            words.append(f"{names[field]} {own}" if field in names else str(own))
    return ", ".join(words)


def _count_table(rows: Sequence[Row]) -> Table:
    chosen = [row for row in rows if row["suite"] == "memory" and grid_case(row) == CENTRE]
    chosen = chosen or [row for row in rows if row["suite"] == "memory"][: len(BLOCKS)]
    if not chosen:
        return []
    table = [["", "MB kept", "by softmax's", "GFLOP forward", "by softmax's", "GFLOP with backward", "by softmax's"]]
    table[0] += ["operations forward", "with backward", "share of the matrix-product rate"]
    softmax = next(row for row in chosen if row["block"] == REFERENCE)
    seconds = {row["block"]: row["seconds"] for row in rows if _is_centre_backward(row)}
    rate = next(row["matmul_rate"] for row in rows if row["suite"] == "machine")
    for row in chosen:
        line = [LABELS[row["block"]], f"{row['saved_bytes'] / 2**20:.1f}", _ratio(row, softmax, "saved_bytes")]
        for key in ("forward_flops", "backward_flops"):
            line += [f"{row[key] / 1e9:.2f}", _ratio(row, softmax, key)]
        line += [str(row["forward_kernels"]), str(row["backward_kernels"])]
        taken = seconds.get(row["block"])
        line.append("–" if taken is None else f"{100 * row['backward_flops'] / taken / rate:.0f} %")
        table.append(line)
    return table


def _is_centre_backward(row: Row) -> bool:
    return row["suite"] == "blocks" and row["measure"] == "backward" and grid_case(row) == CENTRE


def _ratio(row: Row, other: Row, key: str) -> str:
    return f"{row[key] / other[key]:.2f}"


def _time_table(rows: Sequence[Row], suite: str) -> Table:
    chosen = [row for row in rows if row["suite"] == suite and "seconds" in row]
    table = [["", "", "ms", "ratio", "quartiles"]]
    for row in chosen:
        spread = f"{row['ratio_low']:.2f} – {row['ratio_high']:.2f}"
        line = [row["block"], MEASURES.get(row["measure"], row["measure"])]
        table.append([*line, f"{1e3 * row['seconds']:.1f}", f"{row['ratio']:.2f}", spread])
    return table if chosen else []


def _epoch_table(rows: Sequence[Row], suite: str) -> Table:
    table = [[suite.removeprefix("vit "), "seconds a step", "seconds an epoch", "ratio", "quartiles"]]
    for row in rows:
        if row["suite"] == suite:
            spread = f"{row['ratio_low']:.2f} – {row['ratio_high']:.2f}"
            line = [row["block"], f"{row['seconds']:.3f}", f"{row['epoch_seconds']:.0f}", f"{row['ratio']:.2f}"]
            table.append([*line, spread])
    return table


def _suites(rows: Sequence[Row], prefix: str) -> list[str]:
    return list(dict.fromkeys(row["suite"] for row in rows if row["suite"].startswith(prefix)))


def _picture(pictures: dict[str, str], name: str) -> list[str]:
    return [f"![{name}]({pictures[name]})"] if name in pictures else []


def _markdown(table: Table) -> str:
    if not table:
        return ""
    head, *body = table
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
