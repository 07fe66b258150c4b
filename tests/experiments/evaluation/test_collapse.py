"""Attention that tells no tokens apart is said in words."""

import numpy as np
import pytest

from experiments.evaluation.collapse import collapse_in_words, collapse_of_runs


@pytest.mark.parametrize(
    ("similarity", "where"),
    [([0.9, 0.99], None), ([1.0], "layer 1"), ([0.999, 0.1, 1.0], "layers 1, 3"), ([float("nan"), 0.2], None)],
)
def test_layers_are_named(similarity, where):
    words = collapse_in_words(similarity)
    assert words is None if where is None else words.endswith(f"in {where}")


def test_runs_are_averaged_and_need_not_have_been_looked_into(tmp_path):
    first, second, third = paths = [tmp_path / f"{number}.npz" for number in range(3)]
    assert collapse_of_runs(paths) is None
    np.savez(first, token_similarity=[1.0, 1.0])
    assert collapse_of_runs(paths) is None
    np.savez(second, attention_similarity=[1.0, 0.999])
    assert collapse_of_runs(paths).endswith("layers 1, 2")
    np.savez(third, attention_similarity=[0.999, 0.5])
    assert collapse_of_runs(paths).endswith("layer 1")
