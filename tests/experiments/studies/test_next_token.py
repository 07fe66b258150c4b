"""The study of next tokens: its page begins with a verdict, which is computed from what it measured."""

from pathlib import Path

import numpy as np
import pytest

from experiments.studies import next_token

PAGE = Path(__file__).parents[3] / "docs" / "results" / "next-token.md"
LEVELS = {
    "reviews": [4.242, 0.716, 3.595, 0.061],
    "shuffled words": [7.524, 0.928, 5.416, 0.053],
    "Python source": [3.388, 0.591, 2.942, 0.061],
}
GAINS = {"reviews": (0.0004, 0.0006), "shuffled words": (0.0004, 0.0006), "Python source": (-0.0010, 0.0004)}
AREAS = {
    "entropy": ([0.768, 0.721, 0.824, 1.000, 0.194], [0.014, 0.023, 0.010, 0.000, 0.051]),
    "1 - largest probability": ([0.786, 0.739, 0.826, 0.999, 0.168], [0.012, 0.023, 0.010, 0.001, 0.050]),
    "epistemic": ([0.676, 0.497, 0.726, 0.388, 0.541], [0.015, 0.026, 0.012, 0.041, 0.068]),
    "expected entropy of a draw": ([0.768, 0.722, 0.824, 1.000, 0.193], [0.014, 0.023, 0.010, 0.000, 0.051]),
}


def section(**changes):
    areas = {name: list(zip(*columns, strict=True)) for name, columns in AREAS.items()}
    return next_token._Section(1.0, LEVELS, GAINS, areas)._replace(**changes)


def test_the_page_is_what_the_study_writes():
    """Verdict included: writing it again loses nothing that stands there."""
    written = next_token._page([section()], "40 texts of 48 tokens per kind, 8 draws")
    assert PAGE.read_text(encoding="utf-8") == written


@pytest.mark.parametrize(
    ("gain", "words"), [(0.0013, "adds something to the entropy (0.0013"), (0.0011, "adds nothing beyond its")]
)
def test_the_verdict_is_that_of_the_largest_gain(gain, words):
    assert words in next_token._verdict([section(), section(gains={**GAINS, "reviews": (gain, 0.0006)})])


def test_a_section_has_all_tasks():
    """Scores that know which tokens are wrong, and of which kind a text is, have areas of 1."""
    generator = np.random.default_rng(0)
    by_kind = {}
    for number, kind in enumerate(LEVELS):
        wrong = generator.random((12, 20)) < 0.5
        known = wrong + 10.0 * number + 1e-3 * generator.random(wrong.shape)
        by_kind[kind] = dict.fromkeys(next_token._SCORES, known) | {"wrong": wrong, "nll": known}
    made = next_token._section(1.0, by_kind)
    np.testing.assert_allclose([*made.areas.values()], [[(1.0, 0.0)] * 5] * 4, atol=1e-12)
    assert made.levels["reviews"][1] == by_kind["reviews"]["wrong"].mean()
