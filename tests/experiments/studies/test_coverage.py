"""The table of families that can be converted: its rows, and continuing an interrupted run."""

from __future__ import annotations

import csv

import torch
from torch import nn

from experiments.studies import coverage


class LinearAttention(nn.Module):
    """Without a softmax: there is nothing that a posterior could surround."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).relu().chunk(3, -1)
        return q @ (k.mT @ v)


def test_families_are_converted_refused_and_kept(tmp_path, capsys, monkeypatch):
    known = coverage._torch()
    known["linear"] = lambda: coverage.Host(
        "linear", lambda: nn.Sequential(LinearAttention()), lambda m: (torch.randn(2, 5, 16),)
    )
    monkeypatch.setitem(coverage._LIBRARIES, "torch", lambda: known)
    coverage.coverage(families=["nn.TransformerEncoder", "linear"], out=tmp_path)
    with (tmp_path / "coverage.csv").open() as file:
        rows = {row["family"]: row for row in csv.DictReader(file)}
    assert rows["nn.TransformerEncoder"]["outcome"] == "converted"
    assert float(rows["nn.TransformerEncoder"]["error"]) < 1e-5
    assert (rows["linear"]["outcome"], rows["linear"]["layers"]) == ("refused", "1")
    assert "0 (LinearAttention): not softmax attention" in rows["linear"]["note"]
    assert (rows["nn.TransformerEncoder"]["assessed"], rows["linear"]["assessed"]) == ("yes", "")
    page = (tmp_path / "coverage.md").read_text()
    assert "| torch | 1 | 2 | 1 | 0 | 1 of 1 |" in page
    assert "1 of the converted were assessed, too, and the report applied: 1 without an error." in page
    capsys.readouterr()
    for family in set(known) - {*rows, "nn.Transformer"}:
        del known[family]
    coverage.coverage(out=tmp_path)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["nn.Transformer"]


class OnlyOnce(nn.Module):
    """Draws once, and fails when it draws again."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.maps, self.calls = 2, nn.Linear(16, 48), 0

    def forward(self, x):
        q, k, v = self.maps(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        self.calls += 1
        if self.calls > 4:
            raise RuntimeError("called again")
        return x + nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


class Deaf(OnlyOnce):
    """Takes nothing from its attention."""

    def forward(self, x):
        self.calls = 0
        return x + 0 * super().forward(x)


def test_a_family_counts_by_its_four_draws():
    def outcome(kind, build=lambda host: host):
        host = coverage.Host("host", lambda: nn.Sequential(build(kind())), lambda m: (torch.randn(2, 5, 16),))
        row = coverage._outcome(lambda: host)
        return row["outcome"], row["note"]

    assert outcome(OnlyOnce) == ("failed", "RuntimeError: called again")
    assert outcome(Deaf) == ("failed", "the draws are all the same")


def test_a_family_is_assessed_by_what_the_report_applies(monkeypatch):
    host = coverage._torch()["nn.MultiheadAttention"]
    assert coverage._outcome(host)["assessed"] == "yes"
    predict = coverage.cgp.predict

    def other(model, *args, task="classification", **options):  # one conversion is drawn from with another seed
        return predict(model, *args, task=task, **options | ({"seed": 1} if task == "regression" else {}))

    monkeypatch.setattr(coverage.cgp, "predict", other)
    assert coverage._outcome(host)["assessed"] == "other draws than by hand"
    monkeypatch.setattr(coverage.cgp, "predict", predict)
    monkeypatch.setattr(coverage.cgp, "assess", lambda *args, **options: {}["report"])
    assert coverage._outcome(host)["assessed"] == "KeyError: 'report'"
