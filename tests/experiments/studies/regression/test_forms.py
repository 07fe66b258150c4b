"""The table of the cost of evaluations."""

from experiments.studies.regression.costs import forms


def test_table_has_both_forms(capsys):
    forms(num_observations=(32,), repetitions=1)
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line in lines:
        *_, exact, expected, linear, linear_expected = (cell.strip() for cell in line.strip("|").split("|"))
        assert min(float(expected), float(linear_expected)) >= 0.001
    assert min(float(exact), float(linear)) >= 0.0
