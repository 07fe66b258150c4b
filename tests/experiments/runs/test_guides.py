"""Every command line that the guides show is one that the parser takes."""

import re
import shlex
from pathlib import Path

import pytest

from experiments import cli
from experiments.cli import parsed_of

GUIDES = Path(cli.__file__).parents[1] / "docs" / "guides"


def commands(guide):
    """The command lines of a guide, without what the shell does with them."""
    text = (GUIDES / guide).read_text(encoding="utf-8").replace("\\\n", "")
    blocks = "\n".join(re.findall(r"^```(?:bash)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    found = re.findall(r"-m experiments ([^>\n]+)", blocks)
    return [" ".join(line.partition("#")[0].split()) for line in found]


SHOWN = list(dict.fromkeys([*commands("experiments.md"), *commands("tables.md")]))


@pytest.mark.parametrize("line", SHOWN)
def test_a_shown_command_is_one(line):
    arguments = [part for part in shlex.split(line) if part != "--print_config"]
    parsed, _ = parsed_of(arguments)
    assert parsed.command == arguments[0]


def test_the_guides_show_commands():
    assert {"fit", "sweep", "report", "predict", "table", "list"} <= {line.split()[0] for line in SHOWN}
