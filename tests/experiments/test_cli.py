"""The command line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import docstring_parser
import pytest
import torch
from safetensors.torch import load_file

from experiments import cli
from experiments.cli import main, parser
from experiments.methods.build import ATTENTION, build
from tests.experiments.tiny import DIGITS

ROOT = Path(cli.__file__).parents[1]


def test_defaults_come_from_the_configuration_file():
    values = parser("demo").parse_args(["demo"]).demo
    assert {method.attention for method in values.methods.values()} < set(ATTENTION)
    assert values.seeds == 3
    assert not values.quick


def test_every_configured_method_can_be_built():
    top = parser("select")
    values = top.instantiate(top.parse_args(["select"])).select
    variants = [(values.methods[name], variant) for name in values.methods for variant in values.search.variants[name]]
    counts = {len(values.search.variants[name]) for name in values.methods}
    assert len(counts) == 1  # the same effort for every method
    for method, variant in variants:
        options = method.options | variant.options
        build(
            cli_replace(method, options=options),
            model=values.model,
            training=values.training,
            description=DIGITS,
            num_data=1077,
        )


def cli_replace(method, **changes):
    """A method with other values."""
    return type(method)(**(vars(method) | changes))


def test_values_of_the_command_line_replace_them():
    arguments = ["demo", "--quick", "--training.epochs", "7", "--methods.cgp.alpha", "0.7", "--out", "elsewhere"]
    values = parser("demo").parse_args(arguments).demo
    assert values.quick
    assert values.training.epochs == 7
    assert values.methods["cgp"].alpha == 0.7
    assert str(values.out) == "elsewhere"


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--epochs", "3"],
        ["demo", "--training.epoch", "3"],
        ["demo", "--training.epochs", "many"],
        ["demo", "--methods.cgp.alhpa", "1"],
        ["demo", "--methods.cgp.attention", "linear"],
        ["dem"],
    ],
)
def test_unknown_keys_and_wrong_types_are_errors(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_says_what_it_does_and_explains_every_argument(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    written = "".join(capsys.readouterr().out.split())
    assert "Args:" not in written
    assert "Raises:" not in written
    documented = docstring_parser.parse(cli.COMMANDS[command].function().__doc__)
    meanings = [documented.description, *(parameter.description for parameter in documented.params)]
    # argparse breaks lines where it likes, after hyphens too
    assert [meaning for meaning in meanings if "".join(meaning.split()).rstrip(".") not in written] == []


def _command(out, epochs):
    sizes = ["--model.embed_dim", "8", "--model.mlp_dim", "8", "--model.depth", "1", "--training.batch_size", "200"]
    scope = ["--seeds", "1", "--training.epochs", str(epochs), "--evaluation.strengths", "[3]"]
    return [sys.executable, "-m", "experiments", "demo", "--out", str(out), *sizes, *scope]


@pytest.mark.slow
def test_killed_by_the_system_it_goes_on_and_ends_with_the_same_weights(tmp_path):
    epochs = 25
    subprocess.run(_command(tmp_path / "whole", epochs), cwd=ROOT, check=True, capture_output=True)
    process = subprocess.Popen(_command(tmp_path / "broken", epochs), cwd=ROOT, stdout=subprocess.DEVNULL)
    while not list((tmp_path / "broken").rglob("last.ckpt")):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert list((tmp_path / "broken").rglob("last.ckpt"))  # killed within a run
    done = subprocess.run(_command(tmp_path / "broken", epochs), cwd=ROOT, check=True, capture_output=True, text=True)
    assert "going on with the interrupted run" in done.stdout
    for path in (tmp_path / "whole").rglob("weights.safetensors"):
        one, other = load_file(path), load_file(tmp_path / "broken" / path.relative_to(tmp_path / "whole"))
        assert all(torch.equal(one[key], other[key]) for key in one)
