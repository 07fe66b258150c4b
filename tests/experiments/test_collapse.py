"""Attention that tells no tokens apart is said in words."""

import numpy as np
import pytest

from experiments.collapse import collapse_in_words, collapse_of_run


@pytest.mark.parametrize(
    ("similarity", "where"),
    [([0.9, 0.99], None), ([1.0], "layer 1"), ([0.999, 0.1, 1.0], "layers 1, 3"), ([float("nan"), 0.2], None)],
)
def test_layers_are_named(similarity, where):
    words = collapse_in_words(similarity)
    assert words is None if where is None else words.endswith(f"in {where}")


def test_a_run_is_read_and_need_not_have_been_looked_into(tmp_path):
    path = tmp_path / "diagnostics.npz"
    assert collapse_of_run(path) is None
    np.savez(path, token_similarity=[1.0])
    assert collapse_of_run(path) is None
    np.savez(path, attention_similarity=[1.0, 0.3])
    assert collapse_of_run(path).endswith("layer 1")
