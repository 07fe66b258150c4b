"""The peak of a run is its own."""

import sys

import pytest
import torch

from experiments.runs.provenance import forget_peak, peak_bytes

CPU = torch.device("cpu")
MEGABYTE = 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux forgets a process's peak")
def test_an_earlier_peak_is_forgotten():
    held = torch.ones(400 * MEGABYTE // 4)
    high = peak_bytes(CPU)
    del held
    forget_peak(CPU)
    assert high - peak_bytes(CPU) > 300 * MEGABYTE
