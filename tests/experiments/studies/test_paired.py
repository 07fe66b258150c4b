"""Rows of a sweep against softmax with a temperature."""

import pytest

from cgp.networks.methods.temperature_scaling import fit_temperature
from experiments.evaluation import negative_log_likelihood
from experiments.studies import paired
from tests.experiments.reports.saved import find_runs, random_logits, write_run


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(paired, "find_runs", find_runs)
    for method, draws, scale in (("softmax", 1, 5.0), ("cgp", 4, 1.0), ("temperature", 1, 1.0)):
        for seed in range(2):
            names = ("test", "validation", "corrupted-blur-1", "corrupted-blur-2", "ood-letters")
            made = {name: random_logits(num_samples=draws, seed=len(name) + seed) for name in names}
            sets = {name: (scale * x, None if name.startswith("ood") else y) for name, (x, y) in made.items()}
            write_run(tmp_path, "digits", method, seed, sets=sets)
    return tmp_path


def test_tables(root, capsys):
    paired.table(root / "digits", sets=["test", "corrupted"], measures=["NLL", "AURC ‰"])
    printed = capsys.readouterr().out
    test, corrupted, letters = printed.strip().split("\n\n")[1::2]
    lines = [line.strip("| ").split(" | ") for line in test.splitlines()[2:]]
    assert [line[0] for line in lines] == ["softmax", "softmax + temperature", "cgp", "cgp + temperature"]
    losses = []
    for run in find_runs([root / "digits" / "softmax"]):
        test_set, validation = run.predictions("test"), run.predictions("validation")
        temperature = fit_temperature(validation.logits, validation.labels)
        losses.append(negative_log_likelihood(test_set.logits / temperature, test_set.labels))
    assert float(lines[1][2].split(" ")[0]) == pytest.approx(sum(losses) / 2, abs=1e-3)
    assert float(lines[0][4].split(" ")[0]) > 0.1  # over-confident without one
    assert len(corrupted.splitlines()) == 6
    assert [line.split(" | ")[1] for line in letters.splitlines()[2:]] == ["total", "total", "epistemic"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measures": ["F1"]}, "measures: expected some of accuracy %"),
        ({"sets": ["out-of-domain"]}, "sets: expected input sets that are predicted, got 'out-of-domain'"),
    ],
)
def test_refuses(root, options, message):
    with pytest.raises(ValueError, match=message):
        paired.table(root / "digits", **options)
