"""The command line: rows by name, any value by its dotted name; an unknown key is an error with a hint."""

import inspect
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

from experiments import mistakes_in_a_line
from experiments.configuration import Protocol, RunConfig, TrainerConfig, each_seed

__all__ = ["COMMANDS", "main", "parsed_of", "parser"]

_Over = tuple[Sequence[str], Sequence[str]]
"""Names of configurations, and values such as `training.epochs=3`, that override those of every row."""

_OUT = Path("runs")
_ASSESSED = "digits/softmax"
# Those of middling length first: the first to end say how long the others will take.
_DEMO_ROWS = ("digits/scgp_observed", "digits/cgp_observed", "digits/sgpa", "digits/kep_svgp_add", _ASSESSED)
_MINUTES, _QUICK_MINUTES = 3.0, 1.0  # of the demo's training with three seeds, and of its quick form
_QUIET = 0.8  # share of a core, above which nothing else is said to be running
_PARTS = ("data", "model", "method", "training", "evaluation")
_OVER_ROWS = "--config NAME and values such as --training.epochs 3 go over every row."


def fit(config: RunConfig, *, trainer: TrainerConfig, out: Path = _OUT, smoke: bool = False) -> None:
    """Train one row with one seed, predict every input set, and report; `--config cola/softmax` names a row.

    Killed at any moment and started again, it continues, and ends with the weights of an uninterrupted run.

    Args:
        config: configuration of the row.
        trainer: where to train.
        out: folder of all runs, to write.
        smoke: run a few steps on a handful of examples, to see whether the row works.
    """
    _check_early([config], out)
    from experiments.runs.performing import perform
    from experiments.training.fit import process_rank

    run = perform(_smoked(config) if smoke else config, out=out, trainer=trainer)
    if not process_rank():
        report([run.folder])


def sweep(
    rows: list[str],
    *,
    trainer: TrainerConfig,
    over: _Over = ((), ()),
    seeds: int | tuple[int, ...] = (0, 1, 2),
    out: Path = _OUT,
    workers: int = 1,
    print: bool = False,  # noqa: A002 - the name of the option
    smoke: bool = False,
) -> None:
    """Train rows × seeds, with the rows that they need; completed runs are skipped.

    Args:
        rows: a data set ("cola"), rows ("cola/softmax"), patterns ("cola/*cgp*").
        trainer: where to train.
        over: names of configurations and values over every row.
        seeds: the seeds of each row, one or several, such as `[0,1,2]`.
        out: folder of all runs, to write.
        workers: number of processes that train at the same time, each with one thread.
        print: print one command per line instead, for a cluster.
        smoke: run a few steps on a handful of examples of each row.
    """
    from experiments.runs.parsing import resolve_rows

    configs = resolve_rows(rows, each_seed(seeds), *over)
    configs = [_smoked(config) for config in configs] if smoke else configs
    if print:
        more = [part for name in over[0] for part in ("--config", name)]
        rest = [*more, *(f"--{value}" for value in over[1]), *_changed(trainer), *(["--smoke"] if smoke else [])]
        from experiments.runs.sweeping import commands

        sys.stdout.write("".join(f"{line}\n" for line in commands(configs, out, rest)))
        return
    _performer(configs, out, trainer, workers)()


def demo(
    *,
    trainer: TrainerConfig,
    over: _Over = ((), ()),
    out: Path = Path("runs/demo"),
    quick: bool = False,
    seeds: int | tuple[int, ...] = (0, 1, 2),
    workers: int = 2,
) -> None:
    """Fill a table, train a small vision transformer with five kinds of attention on digits, assess it, and report.

    Killed midway and started again, it continues.

    Args:
        trainer: where to train.
        over: names of configurations and values over every row.
        out: folder of the runs, the report and the table's picture.
        quick: one seed and few epochs, a minute on two quiet cores, for a first look.
        seeds: the seeds, one or several, such as `[0,1,2]`; each has its own split of the data.
        workers: number of processes that train at the same time, each with one thread.
    """
    from experiments.runs.parsing import resolve_rows

    chosen = each_seed(seeds)[: 1 if quick else None]
    names = ("demo", *(["demo-quick"] if quick else []), *over[0])
    configs = resolve_rows(list(_DEMO_ROWS), chosen, names, over[1])
    perform = _performer(configs, out, trainer, workers, are_alike=True)
    begin, computed = time.monotonic(), time.process_time()
    filling = _filled_table(out / "table.png", quick)
    share = (time.process_time() - computed) / (time.monotonic() - begin)
    expected = _expected(_QUICK_MINUTES if quick else _MINUTES * len(chosen) / 3, share)
    _print_heading("2. How sure is a network?", expected)
    sys.stdout.write(
        f"A small vision transformer learns handwritten digits, with {len(_DEMO_ROWS)} kinds of attention\n"
    )
    perform()
    assessed = _assessed_network(out)
    _report([out / row for row in _DEMO_ROWS], out, filling=filling, assessed=assessed)
    sys.stdout.write(f"Took {(time.monotonic() - begin) / 60:.1f} minutes\n")


def _print_heading(title: str, expected: str) -> None:
    from experiments.grids import console_of_width

    console_of_width(160).print(f"[bold]{title}[/bold] ({expected})", highlight=False)


def _filled_table(picture: Path, quick: bool) -> Any:
    """Fill a table and print how well."""
    from experiments.grids import Fitted, console_of_width
    from experiments.reports.filling import fill_air

    console = console_of_width(160)
    _print_heading("1. A table with gaps", "some seconds")
    # Several structures are compared by default; the quick form takes the first of them.
    filling = fill_air(picture, structure="coregionalised" if quick else "auto")
    parts = filling.what, Fitted(filling.errors), filling.held, "", Fitted(filling.means), filling.known
    console.print(*parts, sep="\n", highlight=False)
    console.print(f"Picture: {picture}\n", highlight=False, soft_wrap=True)
    return filling


def _assessed_network(out: Path) -> Any:
    """Assess one of the trained networks and print what its report says."""
    from experiments.grids import console_of_width
    from experiments.reports.assessed import assess_run
    from experiments.runs import find_runs

    assessed = assess_run(find_runs([out / _ASSESSED])[0])
    console = console_of_width(160)
    console.print("", f"{assessed.what}:", assessed.sentence, "", sep="\n", highlight=False, markup=False)
    return assessed


def _expected(minutes: float, share: float) -> str:
    """How long the rest takes, given how much of a core the first part was given."""
    quiet = f"About {minutes:.0f} minute{'s' if minutes > 1 else ''} on two quiet cores"
    if share > _QUIET:
        return quiet
    return f"{quiet}; this one gave us {share:.0%} of its time, so rather {math.ceil(minutes / share)}"


def predict(run: Path, *, images: Path | None = None, ood: tuple[str, ...] = (), full: bool = False) -> None:
    """Predict a folder of images, or the missing input sets of a run, with a trained run.

    Writes `predictions/<set>.npz` and the report; for images also a CSV file with class and uncertainties of each.

    Args:
        run: folder of a complete run.
        images: folder of images, with or without sub-folders; None for the input sets of the run.
        ood: further OOD sets, such as `["svhn"]`: names, folders of images or .npz files.
        full: corrupt all test images at all five severities.
    """
    from experiments.grids import console_of_width
    from experiments.runs.performing import predict_again
    from experiments.runs.predicting import predict_images, with_inputs
    from experiments.runs.run import Run

    trained = Run(run)
    _ = trained.record  # whether it is complete
    if images is not None and (ood or full):
        raise ValueError("images: expected alone; ood and full are about the run's own input sets")
    with trained.locked(wait=False):
        if images is None:
            predict_again(with_inputs(trained, ood=ood, full=full), trained)
        else:
            console_of_width(160).print(predict_images(trained, images))
    report([run])


def report(
    runs: list[Path],
    *,
    out: Path | None = None,
    protocol: Protocol = "pooled",
) -> None:
    """Score the saved predictions of runs: a table, its summary in sentences, `report.html`, CSV files and pictures.

    Args:
        runs: folders of runs, or folders that contain runs, such as `runs/cola`.
        out: folder to write; by default that of the run, or the common parent of several runs.
        protocol: protocol of the classification metrics.
    """
    _report(runs, out, protocol)


def _report(runs: list[Path], out: Path | None, protocol: Protocol = "pooled", **shown: Any) -> None:
    """Write the report and print its table and sentences, or the findings alone where a filled table came first."""
    from experiments.runs import find_runs

    complete = find_runs(runs)  # before the slow imports: an error is there at once
    from experiments.grids import console_of_width
    from experiments.reports.page import report as written

    place = out or Path(os.path.commonpath([run.folder for run in complete]))
    console = console_of_width(160)
    for part in written(complete, place, protocol, **shown):
        console.print(part, highlight=False)
    console.print(
        f"Report: {place / 'report.html'} (all numbers, pictures, and what they mean)", highlight=False, soft_wrap=True
    )


def list_rows(*, rows: str = "*/*", runs: Path = _OUT) -> None:
    """List the rows, what each is, and which of their runs are complete.

    Args:
        rows: a data set ("cola") or a pattern ("*/sgpa").
        runs: folder of all runs.
    """
    from experiments.grids import console_of_width
    from experiments.runs.listing import row_table

    console_of_width(160).print(row_table(rows, runs))


def table(
    name: str = "list",
    *,
    runs: Path = _OUT,
    out: Path | None = None,
    format: Literal["terminal", "markdown", "csv"] = "terminal",  # noqa: A002 - the name of the option
    protocol: Protocol | None = None,
) -> None:
    """Print a table of a paper with our numbers beside the printed ones, recomputed from saved predictions.

    Without complete runs our numbers are those recorded in docs/results/papers, whose pages it has written.

    Args:
        name: name of a table, or "cgpt", "kep", "sgpa" or "all"; "list" shows all tables and how much is measured.
        runs: folder of all runs, with sub-folders `<data>/<method>/seed-<n>/`.
        out: file, or folder for one file per table; by default the table is printed.
        format: terminal, markdown (pivot: methods by metrics) or csv (tidy: one row per number, natural units).
        protocol: protocol of our numbers, pooled, cgpt, kep or sgpa; by default that of the table's paper.
    """
    from experiments.reports.papers import table as printed

    printed(name, runs=runs, out=out, format=format, protocol=protocol)


COMMANDS: dict[str, Callable[..., None]] = {
    **{function.__name__: function for function in (demo, fit, sweep, predict, report, table)},
    "list": list_rows,
}


def parser(chosen: str | None = None) -> Any:
    """Build the parser with its subcommands.

    Args:
        chosen: the command that will be used; for the others only names and summaries are built.
    """
    from experiments.runs.parsing import HintingParser

    top = HintingParser(allow_abbrev=False, prog="python -m experiments", description="Train, compare, report.")
    subcommands = top.add_subcommands(required=True, dest="command")
    for name, function in COMMANDS.items():
        sub = HintingParser(allow_abbrev=False) if name != chosen else _parser_of(function)
        subcommands.add_subcommand(name, sub, help=(function.__doc__ or "").partition("\n")[0])
    return top


def _parser_of(function: Callable[..., None]) -> Any:
    """A parser of a function's parameters: the first is positional, and a bool is a flag without a value."""
    from docstring_parser import DocstringStyle, parse

    from experiments.runs.parsing import HintingParser

    described = parse(function.__doc__ or "", style=DocstringStyle.GOOGLE)
    meaning = {parameter.arg_name: parameter.description for parameter in described.params}
    epilogue = f" {_OVER_ROWS}" if "over" in meaning else ""
    sub = HintingParser(allow_abbrev=False, description=f"{described.description}{epilogue}")
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.annotation is RunConfig:
            sub.add_argument(
                "--config", action="config", help="A row such as cola/softmax, or a YAML file; several are merged."
            )
            sub.add_class_arguments(RunConfig)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            kind: dict[str, Any] = {"type": Path} if "Path" in str(parameter.annotation) else {}
            count = (
                "+" if "list" in str(parameter.annotation) else None if parameter.default is parameter.empty else "?"
            )
            default = {"default": parameter.default} if count == "?" else {}
            sub.add_argument(parameter.name, help=meaning[parameter.name], nargs=count, **kind, **default)
        elif parameter.annotation is bool:
            sub.add_argument(f"--{parameter.name}", action="store_true", help=meaning[parameter.name])
    options = {
        argument.name
        for argument in parameters
        if argument.kind is argument.KEYWORD_ONLY and argument.annotation is not bool
    }
    skipped: set[str | int] = {argument.name for argument in parameters if argument.name not in options - {"over"}}
    sub.add_function_arguments(function, skip=skipped)
    return sub


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error of the user is one line on the standard error, and exit status 2; ctrl-C is 130.

    Args:
        arguments: arguments of the command line; by default those of the process.
    """
    with mistakes_in_a_line():
        _run(list(sys.argv[1:] if arguments is None else arguments))


def parsed_of(arguments: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Parse a command line.

    Args:
        arguments: arguments of the command line.

    Returns:
        The command with its values, and the overrides of the rows for a command that takes several.
    """
    from experiments.runs.parsing import expanded, split_off

    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    over: dict[str, Any] = {}
    if chosen in ("sweep", "demo"):
        names, arguments = split_off(arguments, lambda name: name == "config" or name.partition(".")[0] in _PARTS)
        configs = [value for name, value in names if name == "config"]
        over = {"over": (configs, [f"{name}={value}" for name, value in names if name != "config"])}
    top = parser(chosen)
    return top.instantiate(top.parse_args(expanded(arguments))), over


def _run(arguments: Sequence[str]) -> None:
    parsed, over = parsed_of(arguments)
    values = {key: value for key, value in parsed[parsed.command].as_dict().items() if key != "config"}
    if parsed.command == "fit":
        over = {"config": RunConfig(**{name: values.pop(name) for name in RunConfig.__dataclass_fields__})}
    COMMANDS[parsed.command](**values, **over)


def _check_early(configs: Sequence[RunConfig], out: Path) -> None:
    """Fail before the slow imports where a run has no name of its own, or the data of a training are not there."""
    from experiments.runs.identity import check_name

    for config in configs:
        check_name(config)
        if config.method.base is None and not (config.folder(out) / "run.json").exists():
            config.data.check_place()


def _performer(
    configs: list[RunConfig], out: Path, trainer: TrainerConfig, workers: int, *, are_alike: bool = False
) -> Callable[[], None]:
    """What performs runs that were checked; it ends the command if one fails."""
    _check_early(configs, out)
    from experiments.runs.sweeping import Sweep

    sweep = Sweep(out, trainer, workers, are_alike)

    def perform() -> None:
        failed = sweep.perform(configs)
        for folder, error in failed.items():
            sys.stdout.write(f"failed: {folder}: {error}\n")
        if failed:
            raise SystemExit(1)

    return perform


def _smoked(config: RunConfig) -> RunConfig:
    """Limit a configuration to two epochs of four steps, two draws and a handful of examples."""
    limits: dict[str, Any] = {f"limit_{part}": 8 for part in ("validation", "test", "ood")}
    corruptions = replace(config.data.corruptions, kinds=(), limit=8)
    return replace(
        config,
        data=replace(config.data, limit_train=16, corruptions=corruptions, **limits),
        training=replace(config.training, epochs=2, share=1.0, batch_size=4, warmup_epochs=0, validation_draws=2),
        evaluation=replace(config.evaluation, draws=2, full=False),
        reduced=[*config.reduced, "smoke test: a few steps on a handful of examples"],
    )


def _changed(trainer: TrainerConfig) -> list[str]:
    """Command-line arguments for the options that differ from their defaults."""
    values = {part.name: (getattr(trainer, part.name), part.default) for part in fields(trainer)}
    return [f"--trainer.{name}={value}" for name, (value, usual) in values.items() if value != usual]
