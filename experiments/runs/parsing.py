"""From names of rows and command-line values to a typed configuration."""

import dataclasses
import difflib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, auto_cli

from experiments import mistakes_in_a_line
from experiments.configuration import RunConfig
from experiments.runs.rows import composed, row_names

__all__ = ["HintingParser", "config_of", "expanded", "resolve", "resolve_rows", "run_functions"]

_OFFENDERS = (
    re.compile(r"[Uu]nrecognized arguments: --([\w.-]+)"),
    re.compile(r"does not accept option '([\w.-]+)'"),
    re.compile(r"invalid choice: '([\w.-]+)'"),
    re.compile(r"[Kk]ey '([\w.-]+)' is not expected"),
)
_WRONG_TYPE = re.compile(r'Parser key "([^"]+)": (?:Does not validate against|Expected) (.*) (?:Given|Got) value: (.*)')
_TYPES = {
    "bool": "true or false",
    "int": "a whole number, such as 3",
    "float": "a number, such as 0.1",
    "tuple[int": "several, such as [0,1,2]",
    "tuple": "a list, such as [a,b]",
    "None": "null",
}
_OWN = {"seed": "seeds are given by --seeds", "name": "runs of several rows are called after them"}


class HintingParser(ArgumentParser):
    """A parser that names the nearest known key when it meets an unknown one."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error with a hint in one line, and exit."""
        hinted = _plain(message) + _hint(message, self._known_keys())
        if not self.exit_on_error:
            super().error(hinted, ex)
        sys.stderr.write(f"error: {' '.join(hinted.split())}; --help shows the options\n")
        raise SystemExit(2) from ex

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


def run_functions(functions: Any, name: str, *, as_positional: bool = False) -> None:
    """Run a function, or one of several, by the command `python -m experiments.NAME`; a mistake is one line.

    Args:
        functions: one, several, or several by name.
        name: of the module.
        as_positional: whether required arguments have no names.
    """
    with mistakes_in_a_line():
        options: dict[str, Any] = {
            "prog": f"python -m experiments.{name}",
            "parser_class": HintingParser,
            "allow_abbrev": False,
        }
        auto_cli(functions, as_positional=as_positional, **options)


def _plain(message: str) -> str:
    r"""The parser's message about a value of the wrong type, with examples of right ones.

    Example:
        >>> _plain("Parser key \"seed\": Expected a <class 'int'>. Got value: a")
        'seed: expected a whole number, such as 3, got a'
    """
    match = _WRONG_TYPE.search(" ".join(message.split()))
    if match is None:
        return message
    key, expected, value = match.groups()
    expected = expected.partition(" Errors: ")[0]
    words = [_TYPES[name] for name in re.findall(r"tuple\[int|tuple|bool|int|float|None", expected)]
    words += [f"one of {names}" for names in re.findall(r"Literal\[([^]]*)\]", expected)]
    return f"{key}: expected {', or '.join(words)}, got {value}" if words else message


def _hint(message: str, known: Sequence[str]) -> str:
    if "required: fit.name" in message or 'Key "name" is required' in message:
        return " (a row has them all: --config digits/softmax; `python -m experiments list` shows the rows)"
    for pattern in _OFFENDERS:
        if match := pattern.search(message):
            close = difflib.get_close_matches(match.group(1), known, n=1, cutoff=0.5)
            return f" (did you mean '{close[0]}'?)" if close else ""
    return ""


def expanded(arguments: Sequence[str]) -> list[str]:
    """Replace all `--config` options by one composed configuration before all other values."""
    configs, rest = split_off(arguments, lambda name: name == "config")
    values = composed([value for _, value in configs])
    return [*rest[:1], *([f"--config={json.dumps(values)}"] if configs else []), *rest[1:]]


def split_off(arguments: Sequence[str], wanted: Callable[[str], bool]) -> tuple[list[tuple[str, str]], list[str]]:
    """Take options with their values out of a command line.

    Returns:
        Names and values of these options, and the remaining arguments.

    Example:
        >>> split_off(["sweep", "cola", "--seed=1", "--out", "here"], lambda name: name == "out")
        ([('out', 'here')], ['sweep', 'cola', '--seed=1'])
    """
    taken, rest = [], []
    parts = iter(arguments)
    for part in parts:
        name, equals, value = part.removeprefix("--").partition("=")
        if part.startswith("--") and wanted(name):
            taken.append((name, value if equals else next(parts, "")))
        else:
            rest.append(part)
    return taken, rest


def resolve(configs: Sequence[str], values: Sequence[str] = ()) -> RunConfig:
    """Return the configuration of a run."""
    parser = _parser()
    return _typed(
        parser.instantiate(
            parser.parse_args([f"--config={json.dumps(composed(configs))}", *(f"--{value}" for value in values)])
        )
    )


def resolve_rows(
    rows: Sequence[str], seeds: Sequence[int], configs: Sequence[str] = (), values: Sequence[str] = ()
) -> list[RunConfig]:
    """Return every row with every seed, each after the runs that it needs."""
    for value in values:
        if (key := value.partition("=")[0]) in _OWN:
            raise ValueError(f"{key}: expected a value of the rows, as training.epochs=3, got {value} ({_OWN[key]})")
    configurations: dict[tuple[str, int], RunConfig] = {}

    def add(name: str, seed: int) -> None:
        if (name, seed) not in configurations:
            config = resolve([name, *configs], [*values, f"seed={seed}"])
            for needed in config.needs():
                add(*needed)
            configurations[name, seed] = config

    for seed in seeds:
        for name in dict.fromkeys(name for pattern in rows for name in row_names(pattern)):
            add(name, seed)
    return list(configurations.values())


def config_of(plain: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of plain values, such as those of a run's `config.yaml`."""
    parser = _parser(exit_on_error=False)
    try:
        return _typed(parser.instantiate(parser.parse_object(dict(plain))))
    except Exception as error:
        raise ValueError(" ".join(str(error).split())) from error


@cache
def _parser(**options: Any) -> HintingParser:
    parser = HintingParser(allow_abbrev=False, **options)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(RunConfig)
    return parser


def _typed(values: Any) -> RunConfig:
    return RunConfig(**{part.name: getattr(values, part.name) for part in dataclasses.fields(RunConfig)})
