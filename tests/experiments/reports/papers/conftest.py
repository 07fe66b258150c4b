import pytest

from experiments.reports.papers import tables
from tests.experiments.reports.saved import find_runs


@pytest.fixture(autouse=True)
def _light_runs(monkeypatch):
    """Folders need not hold the configuration of a row."""
    monkeypatch.setattr(tables, "find_runs", find_runs)
