"""The command line: typed, an unknown key is an error, defaults come from `experiments/configs`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from jsonargparse import ArgumentParser

from experiments.demo import demo
from experiments.select import select

__all__ = ["COMMANDS", "CONFIGS", "main", "parser"]

CONFIGS = Path(__file__).parent / "configs"

COMMANDS: Mapping[str, Callable[..., object]] = MappingProxyType({"demo": demo, "select": select})

_DEFAULTS = {"demo": ["demo.yaml"], "select": ["demo.yaml", "select.yaml"]}
_FLAGS = {"demo": {"quick": "one seed, few epochs: under a minute, for a first look"}}


def parser() -> ArgumentParser:
    """Build the parser with its subcommands."""
    top = ArgumentParser(allow_abbrev=False, prog="python -m experiments", description="Train, compare, report.")
    subcommands = top.add_subcommands(required=True, dest="command")
    for name, function in COMMANDS.items():
        command = ArgumentParser(
            allow_abbrev=False,
            description=function.__doc__,
            default_config_files=[str(CONFIGS / file) for file in _DEFAULTS[name]],
        )
        command.add_argument("--config", action="config", help="A YAML file whose values replace the defaults.")
        # A flag is a flag: jsonargparse would ask for `--quick true`.
        flags = _FLAGS.get(name, {})
        command.add_function_arguments(function, skip=set(flags))
        for flag, meaning in flags.items():
            command.add_argument(f"--{flag}", action="store_true", help=meaning)
        subcommands.add_subcommand(name, command, help=(function.__doc__ or "").splitlines()[0])
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command.

    Args:
        arguments: the command line; by default that of the process.
    """
    top = parser()
    parsed = top.instantiate(top.parse_args(arguments))
    command = parsed.command
    values = {key: value for key, value in parsed[command].as_dict().items() if key != "config"}
    COMMANDS[command](**values)
