"""The command line: ``cgp fill readings.csv --out filled.csv``. Nothing heavy is imported before the input is read."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from cgp import __version__

__all__ = ["main"]

_EXAMPLES = """examples:
  cgp fill readings.csv --out filled.csv --picture gaps.png
  cgp fill soil.csv --inputs x y --out filled.csv --std errors.csv
  cgp fill readings.csv --out filled.csv --assess scores.png
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: those of the command line; None takes them from there.

    Returns:
        The exit status: 0, or 1 where the input cannot be used.
    """
    parsed = _parser().parse_args(arguments)
    if parsed.command == "version":
        sys.stdout.write(f"cgp {__version__}\n")
        return 0
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show
            for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
                warnings.filterwarnings("ignore", category=category)
            _fill(parsed)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        sys.stderr.write(f"cgp fill: {' '.join(str(error).split())}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cgp",
        description="Correlated Gaussian processes for tables with gaps.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("version", help="print the version")
    fill = commands.add_parser("fill", help="fill the gaps of a table", description="Fill the gaps of a table.")
    fill.add_argument("table", type=Path, help="csv or parquet, with a header")
    fill.add_argument("--out", type=Path, required=True, help="where the filled table is written, csv or parquet")
    fill.add_argument("--std", type=Path, help="where standard deviations are written: 0 for what was observed")
    fill.add_argument("--picture", type=Path, help="where a picture of gaps and fillings is written")
    fill.add_argument(
        "--assess",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="PICTURE",
        help="compare it with lines, ridge and others on hidden values, print the scores, and fill with the best",
    )
    where = fill.add_mutually_exclusive_group()
    where.add_argument("--index", help="column with the times (or numbers) of the rows; otherwise one is looked for")
    where.add_argument("--inputs", nargs="+", metavar="COLUMN", help="columns that say where a row is, such as lat lon")
    fill.add_argument(
        "--missing",
        nargs="+",
        type=float,
        default=[],
        metavar="CODE",
        help="numbers such as -200 that stand for a missing value",
    )
    fill.add_argument("--seed", type=int, default=0, help="of everything random (0)")
    return parser


def _fill(parsed: argparse.Namespace) -> None:
    _check_paths(parsed)
    from .files import read_file, usable_columns, write_file

    source = read_file(parsed.table)
    names = usable_columns(source, parsed.index, parsed.inputs, parsed.missing)
    for text in names.notes:
        _say(text)
    started = time.monotonic()
    from cgp.imputation.imputer import CorrelatedGPImputer

    options: dict[str, Any] = {"inputs": names.inputs or None, "missing_values": [*parsed.missing, float("nan")]}
    imputer = CorrelatedGPImputer(**options, random_state=parsed.seed)
    imputer = imputer.fit(names.frame) if parsed.assess is None else _best(imputer, names.frame, parsed.assess)
    filled, std = imputer.transform(names.frame), imputer.std_
    _write_picture(lambda: imputer.plot()[0].figure, parsed.picture)
    for path, values in ((parsed.out, filled), (parsed.std, std)):
        if path is not None:
            write_file(source.assign(**{name: values[name].to_numpy() for name in std.columns}), path)
    seconds = time.monotonic() - started
    _say(f"filled {names.gaps} values of {len(std.columns)} columns in {seconds:.0f} s: {parsed.out}")


def _check_paths(parsed: argparse.Namespace) -> None:
    """Refuse what cannot come to anything, before anything heavy is imported."""
    if not parsed.table.is_file():
        raise FileNotFoundError(f"{parsed.table}: no such file")
    pictures = [path for path in (parsed.picture, parsed.assess) if path is not None and path.name]
    for path in filter(None, (parsed.out, parsed.std, *pictures)):
        if not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"{path}: no folder {path.absolute().parent}")
    needed = {"pandas": "frames"} | ({"matplotlib": "plot"} if pictures else {})
    for package, extra in needed.items():
        if find_spec(package) is None:
            raise ImportError(f'needs {package}, which the extra {extra!r} installs: pip install "cgp[{extra}]"')


def _best(imputer: Any, frame: Any, picture: Path) -> Any:
    """The imputer that the referee recommends, its report on the standard output stream."""
    from cgp.imputation.referee import assess_gaps

    report = assess_gaps(frame, imputer)
    sys.stdout.write(f"{report}\n")
    _write_picture(report.plot, picture if picture.name else None)
    return report.best()


def _write_picture(draw: Callable[[], Any], path: Path | None) -> None:
    if path is None:
        return
    import matplotlib as mpl

    from cgp.model.weights import write_aside

    mpl.use("agg")
    figure = draw()
    write_aside(path, lambda aside: figure.savefig(aside, format=path.suffix.lstrip(".") or "png"))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _show(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """As the module warnings calls it; the place in the code says nothing to a user."""
    _say(f"cgp fill: warning: {message}")
