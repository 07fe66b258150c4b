"""From YAML files and command-line values to a typed experiment."""

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from experiments.runs.experiment import Experiment
from experiments.runs.rows import config_arguments

__all__ = ["HintingParser", "expanded", "experiment_from", "experiment_of"]

_OFFENDERS = (
    re.compile(r"[Uu]nrecognized arguments: --([\w.-]+)"),
    re.compile(r"does not accept option '([\w.-]+)'"),
    re.compile(r"invalid choice: '([\w.-]+)'"),
    re.compile(r"[Kk]ey '([\w.-]+)' is not expected"),
)
_PARTS = {part.name for part in dataclasses.fields(Experiment)}


class HintingParser(ArgumentParser):
    """A parser that names the nearest known key when it meets an unknown one."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Fail with a hint.

        Args:
            message: what is wrong.
            ex: why.
        """
        hint = _hint(message, self._known_keys())
        super().error(message + hint, ex)

    def _known_keys(self) -> list[str]:
        """Every key of this parser and of its subcommands."""
        keys: list[str] = []
        for action in self._actions:
            choices = getattr(action, "choices", None)
            if isinstance(choices, Mapping):
                keys += [*choices, *(key for parser in choices.values() for key in parser._known_keys())]
            elif action.dest != "help":
                keys.append(action.dest)
        return keys


def _hint(message: str, known: Sequence[str]) -> str:
    if "arguments are required: fit.name" in message:
        return " (a row has them all: --config digits/softmax; `python -m experiments list` shows the rows)"
    for pattern in _OFFENDERS:
        found = pattern.search(message)
        if not found:
            continue
        of_rows = "settings" in known and found.group(1).partition(".")[0] in _PARTS
        close = difflib.get_close_matches(found.group(1), known, n=1, cutoff=0.8 if of_rows else 0.5)
        if of_rows and not close:
            return f""" (a value of the rows goes into --settings '["{found.group(1)}=..."]')"""
        return f" (did you mean '{close[0]}'?)" if close else ""
    return ""


def expanded(arguments: Sequence[str]) -> list[str]:
    """Replace the names of rows after `--config` by their files.

    Args:
        arguments: a command line.

    Raises:
        ValueError: if there is no such row or file.

    Example:
        >>> [part.rsplit("/", 1)[-1] for part in expanded(["fit", "--config", "cola/softmax", "--seed", "1"])]
        ['fit', '--config', 'common.yaml', '--config', 'softmax.yaml', '--name', 'softmax', '--seed', '1']
    """
    result: list[str] = []
    parts = iter(argument for whole in arguments for argument in _split(whole))
    for part in parts:
        result += config_arguments(next(parts, "")) if part == "--config" else [part]
    return result


def experiment_from(configs: Sequence[str], values: Sequence[str] = ()) -> Experiment:
    """Read rows and overrides.

    Args:
        configs: names or files, merged in this order.
        values: `key=value`, after that.

    Raises:
        ValueError: if a file is missing, or a key unknown.
    """
    arguments = expanded([part for config in configs for part in ("--config", config)])
    settings = [f"--{value}" for value in values]
    return _instantiate([*arguments, *settings])


def experiment_of(plain: Mapping[str, Any]) -> Experiment:
    """Return the experiment of plain values, such as those of a run's `config.yaml`.

    Args:
        plain: the values.
    """
    parser = _experiment_parser()
    return _typed(parser.instantiate(parser.parse_object(dict(plain))))


def _instantiate(arguments: Sequence[str]) -> Experiment:
    parser = _experiment_parser()
    return _typed(parser.instantiate(parser.parse_args(list(arguments))))


def _experiment_parser() -> HintingParser:
    parser = HintingParser(allow_abbrev=False)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(Experiment)
    return parser


def _typed(values: Any) -> Experiment:
    return Experiment(**{part.name: getattr(values, part.name) for part in dataclasses.fields(Experiment)})


def _split(argument: str) -> list[str]:
    return argument.split("=", 1) if argument.startswith("--config=") else [argument]
