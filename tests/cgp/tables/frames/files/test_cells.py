"""Kinds of cells."""

import pytest

from cgp.tables.frames.files.cells import kind_of, main_kind


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("number", ["1", "-1.5", "1,036", "1.036,5", "1 000", "1'000", ".5", "2e-3", "−3"]),
        ("time", ["2020-01-31", "31.01.2020 18:30", "Jan-18"]),
        ("word", ["ND", "<0.5", "1 mm", "inf", "18:30", "12%"]),
        ("", ["", "NA", "nan", "--", "?", "#N/A"]),
    ],
)
def test_kinds(kind, texts):
    assert [kind_of(text) for text in texts] == [kind] * len(texts)


def test_most_cells_decide():
    assert main_kind(["1", "2", "x", "", ""]) == "number"
    assert main_kind(["", "NA"]) == ""
