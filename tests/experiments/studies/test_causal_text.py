"""The experiment on text, in a second."""

import json

import pytest
import torch

from experiments.studies.causal_text import UNKNOWN, causal_text, corpus

TINY = {"steps": 2, "batch_size": 2, "length": 24, "num_inducing": 3, "num_samples": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return causal_text(out=tmp_path_factory.mktemp("text") / "out", **TINY)


def test_the_corpus_is_split_without_overlap():
    text = corpus()
    assert len(text.train) > 8 * len(text.test) > 16_000
    windows = {text.train[start : start + 100] for start in range(len(text.train) - 99)}
    assert not any(text.test[start : start + 100] in windows for start in range(0, len(text.test) - 99, 100))


def test_characters_go_there_and_back():
    text = corpus()
    assert text.decode(text.encode(text.train)) == text.train
    assert text.encode("a\x00").tolist()[1] == 0
    assert text.decode(torch.tensor([0])) == UNKNOWN
    assert text.alphabet[1:] == "".join(sorted(set(text.train)))


def test_writes_what_it_promises(folder):
    assert {path.name for path in folder.iterdir()} >= {"results.json", "uncertainty.png", "config.yaml"}
    results = json.loads((folder / "results.json").read_text())
    assert set(results["methods"]) == {"softmax", "sparse_cgp", "sparse_cgp_softmax_mean"}
    for result in results["methods"].values():
        assert 1 < result["bits_per_character"] < 12
        assert 0 <= result["accuracy"] <= 1
    assert results["methods"]["softmax"]["epistemic"] == pytest.approx(0, abs=1e-6)
    assert results["methods"]["sparse_cgp"]["epistemic"] > 0
    assert len(results["epistemic"]) == 4
    assert all(value > 0 for value in results["epistemic"].values())


def test_a_second_run_leaves_the_first_alone_and_gives_the_same(folder):
    before = (folder / "results.json").read_bytes()
    second = causal_text(out=folder, **TINY)
    assert second == folder.with_name("out-2")
    assert (folder / "results.json").read_bytes() == before
    one, other = (json.loads((path / "results.json").read_text()) for path in (folder, second))
    assert one["epistemic"] == other["epistemic"]
    assert one["written"] == other["written"]
