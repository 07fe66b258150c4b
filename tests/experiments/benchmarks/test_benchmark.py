"""The benchmark runs whole at tiny sizes, is resumed, and its numbers are of what they say."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from torch import nn

from experiments.benchmarks import SUITES, benchmark
from experiments.benchmarks.cases import BLOCKS, CENTRE, Case, build_blocks
from experiments.benchmarks.counting import count_flops, count_kernels, saved_bytes
from experiments.benchmarks.goals import outcomes
from experiments.benchmarks.reference import MultiheadReference
from experiments.benchmarks.slopes import slope_table
from experiments.benchmarks.timing import Budget, interleaved
from experiments.benchmarks.transcriptions import TRANSCRIPTIONS, Transcription, one_thread


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    benchmark("all", out=folder, threads=1, quick=True, docs=folder / "docs")
    return folder


def test_every_suite_leaves_rows_a_page_a_table_and_pictures(out):
    with (out / "benchmarks.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    suites = {row["suite"] for row in rows}
    assert suites >= {"blocks", "transcriptions", "memory", "prediction", "posterior", "vit digits"}
    assert {row["block"] for row in rows if row["suite"] == "blocks"} == set(BLOCKS)
    for folder in (out, out / "docs"):
        page = (folder / "benchmarks.md").read_text(encoding="utf-8")
        assert "| softmax, ms |" in page
        assert (folder / "images" / "benchmark-length.png").stat().st_size > 10_000
    assert len(list((out / "rows").iterdir())) > len(SUITES)


def test_what_was_measured_is_not_measured_again(out, capsys):
    marked = out / "rows" / "prediction-draws.json"
    rows = json.loads(marked.read_text(encoding="utf-8"))
    rows[1]["ratio"] = 123.0
    marked.write_text(json.dumps(rows), encoding="utf-8")
    benchmark("prediction", out=out, threads=1, quick=True)
    assert "123.00" in (out / "benchmarks.md").read_text(encoding="utf-8")
    assert not capsys.readouterr().out


def test_threads_are_checked_and_given_back(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="threads: expected at least 1, got 0"):
        benchmark("memory", out=tmp_path, threads=0)
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    benchmark("memory", out=tmp_path, threads=2, quick=True)
    assert asked == [2, torch.get_num_threads()]


def test_ratios_are_to_the_first_call_of_the_same_round():
    calls: list[str] = []
    timings = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, Budget(0.0, fewest=2))
    assert calls == ["a", "b", "a", "b", "b", "a"]  # once each to warm up, then forwards and backwards
    assert timings["a"].ratio == timings["a"].ratio_minimum == 1.0
    assert timings["b"].rounds == 2


def test_the_reference_is_softmax_attention():
    block, x = MultiheadReference(8, 2).double(), torch.randn(3, 5, 8, dtype=torch.float64)
    twin = nn.MultiheadAttention(8, 2, batch_first=True).double()
    twin.load_state_dict(
        {
            "in_proj_weight": block.in_proj.weight,
            "in_proj_bias": block.in_proj.bias,
            "out_proj.weight": block.out_proj.weight,
            "out_proj.bias": block.out_proj.bias,
        }
    )
    torch.testing.assert_close(block(x), twin(x, x, x)[0])


def test_counts_of_what_is_known():
    x = torch.randn(2, 4, requires_grad=True)
    assert count_flops(lambda: torch.linalg.cholesky(torch.eye(6).expand(2, 6, 6))) == 2 * 6**3 // 3
    assert count_kernels(lambda: x.view(8).view(2, 4).exp()) == 1
    squares = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    assert saved_bytes(squares, x) == (2 * 4 + 2 * 4) * 4  # the tokens, and what tanh gave


def test_the_exact_transcription_is_the_block_with_the_papers_covariance():
    """The same mean and, over many draws, the same variance: it is the formula that is benchmarked, not another."""
    torch.manual_seed(0)
    case = Case(6, batch=1, width=8, heads=2, inducing=4)
    block = build_blocks(case)["exact-latent"]
    block.covariance, block.noise, block.sampling = "paper", 0.01, "mean"
    formula, processes = TRANSCRIPTIONS["exact-latent"]
    printed = Transcription(formula, processes, 8, 2, 4)
    printed.in_proj.load_state_dict(block.in_proj.state_dict())
    printed.out_proj.load_state_dict(block.out_proj.state_dict())
    x = torch.randn(1, 6, 8)
    with torch.no_grad(), one_thread():
        draws = torch.stack([printed(x) for _ in range(400)])
        expected = block(x)
    assert ((draws.mean(0) - expected).abs() <= 5 * draws.std(0) / 20 + 2e-2).all()


@pytest.mark.parametrize("name", TRANSCRIPTIONS)
def test_transcriptions_draw_tokens(name):
    formula, processes = TRANSCRIPTIONS[name]
    with one_thread():
        drawn = Transcription(formula, processes, 8, 2, 3)(torch.randn(2, 5, 8))
    assert drawn.shape == (2, 5, 8)
    assert torch.isfinite(drawn).all()


def test_slopes_are_along_one_axis_through_the_centre():
    def row(**changes):
        case = CENTRE._replace(**changes)
        seconds = case.batch * case.tokens**2 * case.inducing
        common = {"suite": "blocks", "block": "sparse-direct", "measure": "forward", "seconds": seconds}
        return common | case._asdict()

    grid = [row(tokens=17), row(), row(tokens=512), row(tokens=4096, batch=4), row(inducing=8), row(batch=1)]
    _, line = slope_table([*grid, row(width=384) | {"seconds": 1e9}])
    assert line == ["sparse correlated GP, direct", "2.00 / –", "2.00 / –", "1.00 / –", "1.00", "–"]


def test_goals_read_the_row_they_name():
    row = Case(64)._asdict() | {"suite": "blocks", "block": "kernel", "measure": "forward"}
    row |= {"ratio": 0.9, "ratio_low": 0.8, "ratio_high": 1.1}
    other = row | {"inducing": 8, "ratio": 5.0}
    found = [outcome for outcome in outcomes([other, row]) if outcome.value is not None]
    assert [(outcome.value, outcome.reached) for outcome in found] == [(0.9, True)]
