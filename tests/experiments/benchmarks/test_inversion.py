"""An inverse by products alone: from below, and towards the inverse."""

import pytest
import torch
from scipy.stats import norm

from experiments.benchmarks.inversion import coverage, inversion, iterated_inverse


def test_approaches_the_inverse_from_below():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(3, 6, 9, generator=generator, dtype=torch.float64)
    matrix = torch.eye(6, dtype=torch.float64) + root @ root.mT
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(matrix))
    before = torch.zeros_like(inverse)
    for steps in range(12):
        found = iterated_inverse(matrix, steps)
        assert (torch.linalg.eigvalsh(found - before) > -1e-12).all()
        assert (torch.linalg.eigvalsh(inverse - found) > -1e-12).all()
        before = found
    torch.testing.assert_close(iterated_inverse(matrix, 16), inverse)


def test_coverage_is_the_normal_distributions():
    share = coverage(torch.tensor([1.0, 0.25]), torch.tensor([1.0, 1.0]))
    assert share.tolist() == pytest.approx([0.95, 2 * norm.cdf(0.5 * norm.ppf(0.975)) - 1], abs=1e-6)


def test_the_table_has_a_line_for_each_number_of_steps(capsys):
    before = torch.get_num_threads()
    inversion(sizes=(4,), noises=(0.25,), steps=(2, 8), threads=before, seconds=0.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[3] for line in lines[2:]] == ["2", "8"]
    assert lines[3].endswith("| 95.0 % |")
