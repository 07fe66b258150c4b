"""Every file of the corpus is read right, or refused with the option that decides (``python -m tests.messy``)."""

import os
from pathlib import Path

import pytest

from tests.messy import checked, data_files, main, own_files

NEEDS = {".xlsx": "openpyxl", ".parquet": "pyarrow"}


@pytest.mark.parametrize("messy", own_files(), ids=lambda messy: messy.name)
def test_files_that_are_made_here(messy, tmp_path):
    path = tmp_path / messy.name
    path.write_bytes(messy.content)
    checked(messy, path, tmp_path / f"out-{messy.name}")


@pytest.mark.data
@pytest.mark.parametrize("messy", data_files(), ids=lambda messy: messy.name)
def test_files_of_the_data_folder(messy, tmp_path):
    path = Path(os.environ["CGP_DATA"]) / "messy" / messy.name
    pytest.importorskip(NEEDS.get(path.suffix, "pandas"))
    checked(messy, path, tmp_path / f"out-{messy.name}")


def test_the_command_counts_what_is_wrong(capsys, monkeypatch):
    """A file that is read as something else is said, and is the exit status."""
    monkeypatch.delenv("CGP_DATA", raising=False)
    monkeypatch.setattr("tests.messy.own_files", lambda: own_files()[:1])
    assert main([]) == 0
    assert "| plain.csv | nothing | read |" in capsys.readouterr().out
    other = own_files()[:1]
    other[0].values["a"] = other[0].values["a"] + 1.0
    monkeypatch.setattr("tests.messy.own_files", lambda: other)
    assert main([]) == 1
    assert "**wrong**" in capsys.readouterr().out
