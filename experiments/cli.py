"""The command line: typed, an unknown key is an error with a hint, defaults come from `experiments/configs`."""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import docstring_parser
from docstring_parser import DocstringStyle

from experiments.runs.experiment import CONFIGS
from experiments.runs.parsing import HintingParser, expanded

__all__ = ["COMMANDS", "Command", "main", "parser"]


class Command(NamedTuple):
    """A command.

    Attributes:
        path: `module:function`; the module is imported when the command is used.
        summary: one line of help.
        defaults: files of `experiments/configs` with its default values.
        flags: parameters that are flags without a value: jsonargparse would ask for `--quick true`.
        positional: what needs no name: "required" parameters, or the one of this name, which takes several values.
    """

    path: str
    summary: str
    defaults: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    positional: str | None = None

    def function(self) -> Callable[..., object]:
        """Import the function."""
        module, name = self.path.split(":")
        return getattr(importlib.import_module(module), name)


_REQUIRED = "required"

COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "demo": Command(
            "experiments.demo:demo",
            "Train one small vision transformer with every method on real digits, and write a report.",
            defaults=("demo.yaml",),
            flags=("quick",),
        ),
        "select": Command(
            "experiments.select:select",
            "Search learning rate, objective and α of every method on validation NLL.",
            defaults=("demo.yaml", "select.yaml"),
        ),
        "fit": Command(
            "experiments.runs.commands:fit",
            "Train one row of a table with one seed, and predict every input set.",
            flags=("smoke",),
        ),
        "sweep": Command(
            "experiments.runs.commands:sweep",
            "Train rows x seeds; skip what is done.",
            flags=("print", "smoke"),
            positional="rows",
        ),
        "test": Command(
            "experiments.runs.commands:score",
            "Score the saved predictions of runs, and write their reports.",
            positional="runs",
        ),
        "predict": Command(
            "experiments.runs.commands:predict",
            "Predict input sets, or a folder of images, with a trained run.",
            flags=("full",),
            positional=_REQUIRED,
        ),
        "list": Command("experiments.runs.commands:list_rows", "List rows, and which of their runs are done."),
        "plot": Command(
            "experiments.runs.commands:plot",
            "Draw training curves, reliability and risk-coverage of runs.",
            positional="runs",
        ),
        "table": Command(
            "experiments.reports.papers:table",
            "Print a table of a paper with our numbers beside the printed ones.",
            positional=_REQUIRED,
        ),
    }
)


def parser(chosen: str | None = None) -> HintingParser:
    """Build the parser with its subcommands.

    Args:
        chosen: the command that will be used; the others are then known by name alone, and not imported.
    """
    top = HintingParser(allow_abbrev=False, prog="python -m experiments", description="Train, compare, report.")
    subcommands = top.add_subcommands(required=True, dest="command")
    for name, command in COMMANDS.items():
        sub = _parser_of(command) if name == chosen else HintingParser(allow_abbrev=False)
        subcommands.add_subcommand(name, sub, help=command.summary)
    return top


def _parser_of(command: Command) -> HintingParser:
    function = command.function()
    described = docstring_parser.parse(function.__doc__ or "", style=DocstringStyle.GOOGLE)
    meaning = {parameter.arg_name: parameter.description for parameter in described.params}
    sub = HintingParser(
        allow_abbrev=False,
        description=described.description,
        default_config_files=[str(CONFIGS / file) for file in command.defaults],
    )
    sub.add_argument(
        "--config", action="config", help="A YAML file, or a row such as cola/softmax; several are merged."
    )
    several = [command.positional] if command.positional not in (None, _REQUIRED) else []
    for name in several:
        sub.add_argument(name, nargs="+", help=meaning[name])
    skipped = {*command.flags, *several}
    sub.add_function_arguments(function, skip=skipped, as_positional=command.positional == _REQUIRED)
    for flag in command.flags:
        sub.add_argument(f"--{flag}", action="store_true", help=meaning[flag])
    return sub


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command.

    Args:
        arguments: the command line; by default that of the process.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    top = parser(chosen)
    try:
        parsed = top.instantiate(top.parse_args(expanded(arguments)))
    except ValueError as error:
        top.error(str(error))
    values = {key: value for key, value in parsed[parsed.command].as_dict().items() if key != "config"}
    try:
        COMMANDS[parsed.command].function()(**values)
    except (ValueError, FileNotFoundError, ImportError) as error:
        raise SystemExit(f"error: {error}") from error
