"""The benchmark at tiny sizes, and the meaning of its numbers."""

import pytest
import torch
from torch import nn

from experiments import benchmarks
from experiments.benchmarks import BLOCKS, MODELS, benchmark, interleaved, saved_bytes


def test_the_page_has_a_row_for_every_block_and_model(tmp_path, monkeypatch):
    chosen = {name: BLOCKS[name] for name in ("softmax attention", "sparse correlated GP")}
    monkeypatch.setattr(benchmarks, "BLOCKS", chosen)
    monkeypatch.setattr(benchmarks, "_ROUNDS", (2, 2))
    page, csv = tmp_path / "page.md", tmp_path / "all.csv"
    benchmark(page, csv=csv, lengths=(4,), models=("digits",), seconds=0)
    lines = page.read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| s")]
    assert [row[0] for row in rows] == 2 * list(chosen)
    assert [cell.split(" ")[-1] for cell in rows[0][1:]] == ["ms", "ms", "1.00"]
    assert float(rows[1][3]) > 1  # a Gaussian process keeps more than softmax attention
    assert all(cell.endswith(" s") for cell in rows[2][1:])
    assert all(float(cell.split(" ± ")[0]) > 0 for cell in rows[3][1:])
    assert len(csv.read_text().splitlines()) == 1 + 2 * (3 + 1)


@pytest.mark.parametrize("name", MODELS)
def test_models_take_their_batch(name):
    model, inputs, _ = MODELS[name](BLOCKS["softmax attention"])
    logits = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    assert logits.shape == (32 if name == "CoLA" else 64, 2)


def test_ratios_are_to_the_first_call_of_the_same_round():
    calls: list[str] = []
    timings = interleaved(
        {"a": lambda: calls.append("a"), "b": lambda: [calls.append("b"), torch.randn(10**5).sort()]},
        threads=1,
        rounds=(2, 3),
    )
    assert "".join(calls) == "aabbbbaa"  # each once before it is timed, and no third round without seconds
    assert timings["a"][1:] == (1.0, 0.0)
    assert timings["b"][1] > 1


def test_bytes_of_a_known_graph():
    squares = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    assert saved_bytes(squares, torch.randn(2, 4, requires_grad=True)) == (2 * 4 + 2 * 4) * 4  # tokens, tanh's output


def test_refuses_an_unknown_model(tmp_path):
    with pytest.raises(ValueError, match="models: expected some of digits, CoLA, CIFAR-10, got ImageNet"):
        benchmark(tmp_path / "page.md", models=["ImageNet"])
