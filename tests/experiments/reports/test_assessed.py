"""The demo's network, as `cgp.assess` has it: on its test inputs, in the report before the comparison."""

from html import unescape

import cgp
from experiments import cli
from experiments.configuration import TrainerConfig
from experiments.data import load
from experiments.reports.page import report
from experiments.runs import find_runs
from experiments.runs.performing import perform
from tests.experiments.tiny import METHODS, configured


def test_a_trained_network_is_assessed_and_shown_in_the_report(tmp_path, monkeypatch, capsys):
    config = configured(METHODS["softmax"])
    run = perform(config, out=tmp_path, trainer=TrainerConfig(accelerator="cpu", progress=False))
    monkeypatch.setattr(cli, "_ASSESSED", ".")
    assessed = cli._assessed_network(tmp_path)
    test = load(config.data, run.seed).test
    expected = cgp.assess(run.model(), [(test.inputs, test.labels)], compare=["temperature"])
    tables = [table.splitlines()[1].split() for table in (expected.table(), assessed.tables)]
    assert tables[0] == tables[1]  # as trained
    printed = " ".join(capsys.readouterr().out.split())
    assert " ".join(assessed.sentence.split()) in printed  # as the page has it, all of it
    assert "GP variance" in assessed.tables
    assert "inverted" in assessed.tables
    assert f"the {len(test)} labels of its test inputs" in assessed.what
    report(find_runs([tmp_path]), tmp_path / "out", assessed=assessed)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    shown = unescape(page).replace("\xa0", " ")
    assert all(line in shown for line in assessed.sentence.splitlines())
    assert all(f"<dt>{name}</dt><dd>{text}</dd>" in shown for name, text in assessed.meanings.items())
    assert "Temperatures here (T) were fitted on the few validation inputs" in shown
    assert page.index(assessed.what) < page.index("In numbers")
