"""The table of families that conversion reaches: its rows, and that it goes on where it stopped."""

from __future__ import annotations

import csv

from experiments.studies import coverage


def test_families_are_converted_refused_and_kept(tmp_path, capsys, monkeypatch):
    coverage.coverage(families=["nn.TransformerEncoder", "swin_t"], out=tmp_path)
    with (tmp_path / "coverage.csv").open() as file:
        rows = {row["family"]: row for row in csv.DictReader(file)}
    assert rows["nn.TransformerEncoder"]["outcome"] == "converted"
    assert float(rows["nn.TransformerEncoder"]["error"]) < 1e-5
    assert (rows["swin_t"]["outcome"], rows["swin_t"]["layers"]) == ("refused", "12")
    assert "ShiftedWindowAttention): computes attention by hand" in rows["swin_t"]["note"]
    assert "| torch | 1 | 2 | 1 | 0 |" in (tmp_path / "coverage.md").read_text()
    capsys.readouterr()
    known = coverage._LIBRARIES["torch"]
    monkeypatch.setitem(
        coverage._LIBRARIES, "torch", lambda: {k: v for k, v in known().items() if k in (*rows, "nn.Transformer")}
    )
    coverage.coverage(out=tmp_path)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["nn.Transformer"]
