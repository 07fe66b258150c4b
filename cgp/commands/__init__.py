"""The command line: ``cgp fill`` and ``cgp assess``. Nothing heavy is imported before the input is read."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from cgp import __version__
from cgp.commands import assess, fill
from cgp.spelling import meant

from .terminal import in_flags, say, shown_by

__all__ = ["main"]

_RUN = {"fill": fill.run, "assess": assess.run}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: those of the command line; None takes them from there.

    Returns:
        The exit status: 0, 2 where the input cannot be used, 1 where it could not be done, or 130 where the command was
        interrupted.
    """
    given = sys.argv[1:] if arguments is None else [*arguments]
    parsed = _parser().parse_args(given or ["--help"])
    if parsed.command == "version":
        sys.stdout.write(f"cgp {__version__}\n")
        return 0
    try:
        with warnings.catch_warnings():
            warnings.showwarning = shown_by(parsed.command)
            for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
                warnings.filterwarnings("ignore", category=category)
            _RUN[parsed.command](parsed)
    except (ValueError, ImportError, FileNotFoundError) as error:
        say(f"cgp {parsed.command}: {in_flags(' '.join(getattr(error, 'flags', str(error)).split()))}")
        return 2
    except (OSError, MemoryError) as error:
        say(f"cgp {parsed.command}: {' '.join(str(error).split())}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130  # as shells have it
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser that says which flag or choice somebody may have meant; the parsers of its commands are such, too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What is known and what is not: a flag that is not ends here, as a command's parser knows those near it."""
        parsed, unknown = super().parse_known_args(args, namespace)
        flags = [text.partition("=")[0] for text in unknown if text.startswith("--")]
        if flags:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant(flags, self._option_string_actions)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Argparse's, in one line, with where the flags are listed where it has no advice."""
        advised = any(words in message for words in ("did you mean", ": expected "))
        self.exit(2, f"{self.prog}: {message}{'' if advised else f' ({self.prog} --help lists what there is)'}\n")

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        """Argparse's, with what is to be given instead of a number of arguments."""
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError as error:
            wanted = self._get_formatter()._format_args(action, action.dest.upper())
            error.message = f"expected {wanted}"
            raise

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Argparse's, with the nearest choice."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += meant([value], action.choices or ())
            raise


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cgp",
        description="Correlated Gaussian processes: fill the gaps of a table, assess a classifier's probabilities.",
        epilog=f"examples:\n{fill.EXAMPLES}{assess.EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cgp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("version", help="print the version")
    fill.add_to(commands)
    assess.add_to(commands)
    return parser
