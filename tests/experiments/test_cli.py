"""The command line: arguments, output, and start-up time."""

import re
import resource
import shlex
import subprocess
import sys

import docstring_parser
import pytest
import yaml

from experiments import cli
from experiments.cli import main, parsed_of
from experiments.runs import performing
from tests.experiments.runs.typed import QUIET, ROOT, completed, stopped, wait_for_epoch


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_describes_the_command_and_every_argument(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    written = "".join(capsys.readouterr().out.split())
    assert "Args:" not in written
    assert "Raises:" not in written
    documented = docstring_parser.parse(cli.COMMANDS[command].__doc__)
    parameters = [
        parameter.description for parameter in documented.params if parameter.arg_name not in ("over", "config")
    ]
    # argparse breaks lines where it likes, after hyphens too
    meanings = [documented.description, *parameters]
    assert [meaning for meaning in meanings if "".join(meaning.split()).rstrip(".") not in written] == []


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"]])
def test_help_is_quick(arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "experiments", *arguments], cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


@pytest.mark.parametrize("line", ["report nowhere", "fit --config cola/softmax", "sweep cola/sgpa"])
def test_what_is_not_there_is_said_before_anything_heavy_is_imported(line, tmp_path):
    code = "import sys; from experiments.cli import main\n"
    code += f"try: main({line.split()})\nfinally: print('torch' in sys.modules)"
    quiet = {"env": {"PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, **quiet)
    assert (ended.returncode, ended.stdout) == (2, "False\n")
    assert ended.stderr.count("\n") == 1


def test_an_interrupt_is_one_line(monkeypatch, capsys):
    def interrupted(*, rows="", out=""):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "list", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main(["list"])
    assert capsys.readouterr().err == "interrupted\n"


def test_a_file_of_ones_own_goes_over_a_row(tmp_path):
    (tmp_path / "mine.yaml").write_text("training: {epochs: 3}\nmethod: {learning_rate: 1e-3}\n")
    parsed, _ = parsed_of(["fit", "--config", "cola/sgpa", "--config", str(tmp_path / "mine.yaml"), "--seed", "2"])
    assert (parsed.fit.training.epochs, parsed.fit.seed, parsed.fit.name) == (3, 2, "cola/sgpa")
    assert (parsed.fit.method.learning_rate, parsed.fit.method.options["num_inducing"]) == (1e-3, 5)


GUIDES = ROOT / "docs" / "guides"


def commands(guide):
    """The command lines of a guide, without what the shell does with them."""
    text = (GUIDES / guide).read_text(encoding="utf-8").replace("\\\n", "")
    blocks = "\n".join(re.findall(r"^```(?:bash)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    written = re.findall(r"-m experiments ([^>\n]+)", blocks)
    return [" ".join(line.partition("#")[0].split()) for line in written]


SHOWN = list(dict.fromkeys([*commands("experiments.md"), *commands("papers-tables.md")]))


@pytest.mark.parametrize("line", SHOWN)
def test_a_shown_command_is_one(line):
    arguments = [part for part in shlex.split(line) if part != "--print_config"]
    parsed, _ = parsed_of(arguments)
    assert parsed.command == arguments[0]


def test_the_guides_show_commands():
    assert {"fit", "sweep", "report", "predict", "table", "list"} <= {line.split()[0] for line in SHOWN}


@pytest.fixture
def full_disk():
    """No file may be longer than 100 kB: what a full disk does to a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_fit_continues_after_a_full_disk_and_after_a_kill(tmp_path, capsys, full_disk, monkeypatch):
    arguments = ["fit", "--config", "digits/softmax", "--smoke", "--trainer.accelerator", "cpu", "--out", str(tmp_path)]
    assert "File too large" in stopped(arguments, capsys)
    full_disk()
    folder = tmp_path / "digits" / "softmax" / "seed-0"
    assert {path.name for path in folder.iterdir()} <= {".lock", "config.yaml", "data.json", "checkpoints"}
    assert list((folder / "checkpoints").iterdir()) == []
    assert yaml.safe_load((folder / "config.yaml").read_text())["name"] == "digits/softmax"
    with monkeypatch.context() as patch:
        patch.setattr(performing, "predict_sets", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            main(arguments)
    assert capsys.readouterr().out.count("epoch 2 of 2: training NLL ") == 1
    monkeypatch.setattr(cli, "report", lambda *_: None)  # its pictures take most of the seconds
    main(arguments)
    output = capsys.readouterr().out
    assert f"{folder}: going on with an interrupted training" in output
    assert "epoch 2 of 2" not in output


@pytest.mark.parametrize("out", ["{file}", "{file}/below", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_is_one_line(out, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    place = ["--out", out.format(file=tmp_path / "file"), *QUIET]
    messages = ("File exists", "Not a directory", "No such file or directory", "Permission denied")
    assert (
        stopped(["fit", "--config", "digits/softmax", "--smoke", *place], capsys)
        .partition("] ")[2]
        .startswith(messages)
    )
    with pytest.raises(SystemExit) as stop:
        main(["sweep", "digits/softmax", "--seeds", "0", *place])
    assert stop.value.code == 1
    assert "failed: " in capsys.readouterr().out
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.99, "About 4 minutes on two quiet cores"),
        (0.4, "About 4 minutes on two quiet cores; this one gave us 40% of its time, so rather 10"),
    ],
)
def test_the_demo_says_how_long_it_takes_on_a_busy_machine(share, words):
    assert cli._expected(4.0, share) == words


LONG = 300 * "x"


@pytest.mark.parametrize(
    "long", [["digits/softmax", "--name", f"own/{LONG}"], [f"digits/{16 * LONG}"], ["digits/softmax", "--out", LONG]]
)
def test_a_name_that_is_too_long_is_one_line(long, tmp_path, capsys):
    assert "File name too long" in stopped(["fit", "--smoke", "--out", str(tmp_path), "--config", *long], capsys)


@pytest.mark.slow
def test_a_killed_demo_continues(tmp_path):
    sizes = ["--model.embed_dim", "8", "--model.mlp_dim", "8", "--model.depth", "1", "--training.batch_size", "200"]
    command = [sys.executable, "-m", "experiments", "demo", "--quick", "--out", str(tmp_path), *sizes]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_for_epoch(tmp_path, lambda: process.poll() is None)
    process.kill()
    process.wait()
    assert "Report: " in completed(command)
    assert {"report.html", "pictures"} <= {path.name for path in tmp_path.iterdir()}
    assert len(list(tmp_path.rglob("run.json"))) == len(cli._DEMO_ROWS)
