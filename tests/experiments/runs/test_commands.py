"""The commands on the digits, as typed by a user."""

import csv
import shlex

import numpy as np
import pytest

from experiments.cli import main, parser
from experiments.evaluation import mean_probabilities, uncertainty
from experiments.runs.parsing import expanded
from tests.experiments.runs.typed import QUIET, stopped, write_images


def test_fit_ends_in_the_report_and_a_folder_of_images_is_predicted(tmp_path, capsys, request):
    main(["fit", "--config", "digits/cgp_direct", "--smoke", "--out", str(tmp_path / "runs"), *QUIET])
    run = tmp_path / "runs" / "digits" / "cgp_direct" / "seed-0"
    assert f"Report: {run / 'report.html'}" in capsys.readouterr().out.replace("\n", "")
    assert {"run.json", "report.html", "results.csv", "diagnostics.npz"} <= {path.name for path in run.iterdir()}
    request.getfixturevalue("unreported")
    write_images(tmp_path / "holiday" / "beach", range(3), size=(20, 24))
    write_images(tmp_path / "holiday" / "hills", range(3, 5), size=(9, 8))
    main(["predict", str(run), "--images", str(tmp_path / "holiday")])
    with (run / "predictions" / "images-holiday.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [f"{'beach' if n < 3 else 'hills'}/{n:04d}.png" for n in range(5)]
    with np.load(run / "predictions" / "images-holiday.npz") as saved:
        logits = saved["logits"].astype(np.float64)
        assert "labels" not in saved
    mean, parts = mean_probabilities(logits), uncertainty(logits)
    assert [row["class"] for row in rows] == [str(label) for label in mean.argmax(-1)]
    expected = {"probability": mean.max(-1), "total uncertainty": parts.total, "epistemic uncertainty": parts.epistemic}
    for column, values in expected.items():
        np.testing.assert_allclose([float(row[column]) for row in rows], values, rtol=1e-5, atol=1e-6)


def test_a_sweep_is_printed_as_commands_that_the_command_line_takes(tmp_path, capsys):
    more = ["--config", "reduced/imdb", "--training.epochs", "3", "--smoke", "--trainer.precision", "bf16-mixed"]
    rows = ["cola/sgpa", "cola/scgpt-inducing-3"]
    for seeds in ("4", "[4]"):  # one seed needs no brackets
        main(["sweep", *rows, "--seeds", seeds, *more, "--print", "--out", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == lines[3:]
    assert [line.split()[5] for line in lines[:3]] == ["cola/sgpa", "cola/kernel_asymmetric", "cola/scgpt-inducing-3"]
    for line in lines:
        program, module, name, *arguments = shlex.split(line)
        assert (program, module, name) == ("python", "-m", "experiments")
        values = parser("fit").parse_args(expanded(arguments)).fit
        assert (values.training.epochs, values.seed, values.smoke) == (3, 4, True)
        assert (values.data.max_length, str(values.out), values.trainer.precision) == (128, str(tmp_path), "bf16-mixed")
    assert values.method.options["num_inducing"] == 3


OWN = "expected another one for a run on own, as --name own/softmax, got cifar10/softmax, a row on"
MISTAKES = {
    "fit": "a row has them all: --config digits/softmax",
    "fit --config digits/sofmax": "did you mean digits/softmax",
    "fit --config digits/softmax --training.epoch 3": "did you mean 'training.epochs'?",
    "fit --config digits/softmax --evaluation.draws 0": "evaluation.draws: expected at least 1",
    "fit --config digits/softmax --trainer.threads 0": "trainer.threads: expected at least 1",
    "fit --config digits/softmax --model.dropout 1": "model.dropout: expected a probability",
    "fit --config digits/softmax --data.image_size 32": "data.image_size: expected none with the",
    "fit --config {bad}": "did you mean 'training.epochs'?",
    "fit --config digits/softmax --training.epochs many": "epochs: expected a whole number, such as 3, got many",
    "fit --config digits/softmax --data.corruptions.kinds 3": "kinds: expected a list, such as [a,b], or null, got 3",
    "table cgpt-I --format xml": "format: expected one of 'terminal', 'markdown', 'csv', got xml",
    "predict {out} --ood svhn": "ood: expected a list, such as [a,b], got svhn",
    "sweep digits/softmax --seeds a": "seeds: expected a whole number, such as 3, or several, such as [0,1,2], got a",
    "sweep digits/softmax --seeds [a]": "or several, such as [0,1,2], got ['a']",
    "fit --config digits/softmax --name flowers": "of letters, digits and ._-+=, got 'flowers'",
    "fit --config digits/sgpa --method.options.num_inducin 8": "did you mean 'num_inducing'?",
    "fit --config digits/cgpt": "by the same command with --config digits/kernel_asymmetric",
    "fit --config cola/softmax": "set it, or the environment variable CGP_DATA",
    "fit --config digits/softmax --trainer.devices 2": "trainer.strategy: expected ddp on 2 devices",
    "fit --config digits/softmax --seed -1": "seed: expected none or a positive whole number",
    "fit --config digits/temperature --method.base null": "method.base: expected the row that it is derived from",
    "fit --config digits/softmax --method.base sgpa": "method.base: expected none for kind 'attention', got 'sgpa'",
    "fit --config cifar10/softmax --data.name own --data.folder {out}": OWN,
    "sweep cifar10/softmax --data.name own": OWN,
    "sweep digits/softmaxx": "did you mean digits/softmax?",
    "sweep digits/foo": "`python -m experiments list --rows digits` shows those of digits",
    "sweep digits/softmax --seed 0": "did you mean 'seeds'?",
    "sweep digits/softmax --training.epochs 0": "training.epochs: expected at least 1, got 0",
    "sweep digits/softmax --training.epoch 3": "did you mean 'training.epochs'?",
    "sweep digits/softmax --config reduced/colla": "config: expected a file or a row",
    "predict {out}": "run: expected a complete run (<data>/<method>/seed-<n>)",
    "report {out}": "runs: expected a folder with complete runs",
    "list --rows colla": "did you mean cola?",
    "tabel cgpt-I": "did you mean 'table'?",
    "demo --epochs 3": "unrecognized arguments: --epochs",
    "demo --seeds []": "seeds: expected one or several, such as [0,1,2], got none",
    "sweep digits/softmax --seeds []": "seeds: expected one or several",
    "list --out {out}": "unrecognized arguments: --out",
    "demo --workers 0": "workers: expected at least 1, got 0",
    "fit --config digits/softmax --method.attention linear": "method.attention",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_an_error_message_gives_advice(line, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("CGP_DATA", raising=False)
    (tmp_path / "bad.yaml").write_text("training:\n  epoch: 3\n")
    filled = line.format(bad=tmp_path / "bad.yaml", out=tmp_path).split()
    filled += ["--out", str(tmp_path / "runs"), *QUIET] if filled[0] == "fit" else []
    assert MISTAKES[line] in stopped(filled, capsys)
    for row in ("digits/softmax", "cifar10/softmax"):
        assert not (tmp_path / "runs" / row / "seed-0" / "config.yaml").exists()
