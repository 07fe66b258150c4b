"""Columns: numbers to fill, what stands for nothing, and why others are left as they are."""

import re

import numpy as np
import pandas as pd
import pytest

from cgp.tables.frames.files.columns import columns_of
from cgp.tables.frames.files.options import ReadOptions, UnclearError

MANY = [f"{10 + np.sin(k):.2f}" for k in range(30)]


def columns(options=None, delimiter=",", **cells):
    frame = pd.DataFrame({name: pd.Series(texts, dtype="str") for name, texts in cells.items()})
    return columns_of(frame, ReadOptions(**(options or {})), delimiter)


def test_marks_and_words_for_nothing_are_counted():
    found = columns(a=["1", "NA", "--", "", "--", "<NA>", "3"]).numbers["a"]
    np.testing.assert_array_equal(found.values, [1, *[np.nan] * 5, 3])
    assert found.missing == {"NA": 1, "--": 2, "<NA>": 1}


def test_codes_are_texts_or_numbers():
    texts = ["1,5", "-999", "-999,0", "ND", "<0,5", "< 1"]
    found = columns({"missing": ["-999", "ND", "<"]}, ";", a=texts).numbers["a"]
    np.testing.assert_array_equal(found.values, [1.5, *[np.nan] * 5])
    assert found.missing == {"ND": 1, "<0,5": 1, "< 1": 1, "-999": 1, "-999,0": 1}
    assert columns({"missing": ["-99,9"]}, ";", a=["1,5", "-99,9"]).numbers["a"].values.isna().sum() == 1
    assert columns({"missing": ["-99.9"]}, ";", a=["1,5", "-99,9"]).numbers["a"].values.isna().sum() == 1


def test_what_does_not_depend_on_each_other_is_asked_at_once():
    with pytest.raises(UnclearError) as refused:
        columns(a=["ND", *MANY], b=["-999", *MANY], c=["1 %", *["2 %"] * 30])
    said = [r"'ND' in 'a'. Say --missing ND", r"Besides, numbers with units: '1 %' in 'c'", r"Besides, .*: -999 in 'b'"]
    assert re.search(".*".join(said), refused.value.flags)
    with pytest.raises(UnclearError, match=r"'ND' in 'a'.*Besides, 'b': '1,036' is 1.036"):
        columns(a=["ND", "1", "2"], b=["1,036", "1", "2"], delimiter=";")


def test_codes_that_were_given_are_in_what_is_to_be_said():
    """Literally said, each answer is the next question's, and in the end there is none."""
    cells = {"a": ["ND", "<0.5", *MANY], "b": ["-999", "1.5", *MANY]}
    for given, said in (
        (["ND"], "--missing ND '<' if they stand"),
        (["ND", "<"], "--missing ND '<' -999 if this stands for what is missing, --missing ND '<' none if"),
    ):
        with pytest.raises(UnclearError) as refused:
            columns({"missing": given}, **cells)
        assert said in refused.value.flags
    assert columns({"missing": ["ND", "<", "none"]}, **cells).numbers["b"].values[0] == -999
    assert np.isnan(columns({"missing": ["ND", "<", "-999"]}, **cells).numbers["b"].values[0])


def test_others_are_left_with_a_reason():
    found = columns(
        {"leave": ["e"]},
        a=MANY,
        b=["x"] * 30,
        c=["007"] * 30,
        d=[""] * 30,
        e=MANY,
        f=["NA"] * 30,
        g=["9007199254740993"] * 30,
    )
    assert [*found.numbers] == ["a"]
    assert found.left == {
        "b": "words, such as 'x'",
        "c": "numbers with leading zeros are names",
        "d": "nothing but missing values",
        "e": "as asked",
        "f": "nothing but missing values",
        "g": "whole numbers beyond 2^53 are names",
    }
    notes = [*(f"note {k}" for k in range(28)), "5", "6"]
    assert columns(a=MANY, b=notes).left == {"b": "words, such as 'note 0'"}


def test_numbers_with_leading_zeros_are_numbers_where_asked():
    found = columns({"numbers": ["b"]}, a=["007"] * 30, b=["007", "360", ""] * 10)
    assert [*found.left] == ["a"]
    np.testing.assert_array_equal(found.numbers["b"].values[:3], [7.0, 360.0, np.nan])


def test_words_among_numbers_are_refused_all_at_once():
    with pytest.raises(UnclearError) as refused:
        columns(a=["1", "ND", "off"], b=["<0.5", "<0.7", "2"], c=["1", "2", "3"])
    flags = refused.value.flags
    assert "'ND' in 'a', 'off' in 'a', '<0.5' in 'b', '<0.7' in 'b'" in flags
    assert "--missing ND off '<'" in flags
    assert "--leave a b" in flags
    assert "in place of '<', --half-limits takes half of each limit" in flags
    with pytest.raises(UnclearError) as refused:
        columns(a=["1", "<5"])
    assert "--missing '<'" in refused.value.flags
    with pytest.raises(UnclearError) as refused:
        columns(a=["1", *(f"w{k}" for k in range(8))])
    assert "and 2 more" in str(refused.value)
    assert "half_limits" not in str(refused.value)
    with pytest.raises(UnclearError) as refused:
        columns(a=["1", ">5"])
    assert "half_limits" not in str(refused.value)


def test_values_below_a_limit_are_half_of_it_where_asked():
    """Whatever the limit is, in the form of the other numbers; those above one, and words, are refused still."""
    half = {"half_limits": True}
    found = columns(half, ";", a=["1,5", "<0,5", "< 1", "≤0,03", "", "2"], b=["<2"] * 5 + ["<3"])
    np.testing.assert_array_equal(found.numbers["a"].values, [1.5, 0.25, 0.5, 0.015, np.nan, 2.0])
    np.testing.assert_array_equal(found.numbers["b"].values, [1.0] * 5 + [1.5])
    assert (found.numbers["a"].halved, found.numbers["b"].halved) == (3, 6)
    with pytest.raises(UnclearError, match="'>5' in 'a', '<x' in 'a'"):
        columns(half, a=["1", ">5", "<x", "<2"])
    with pytest.raises(ValueError, match="missing and half_limits: expected one of them"):
        columns(half | {"missing": ["<"]}, a=["1", "<2"])
    with pytest.raises(ValueError, match="dayfirst: expected True, False or None, got 'yes'"):
        columns({"dayfirst": "yes"}, a=["1"])


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ([*MANY, "-77", "-77", "-77"], "-77"),
        ([*MANY, "-999"], "-999"),
        ([*MANY, "9999.9"], "9999.9"),
        ([*MANY, "-999.9", "-999.9"], "-999.9"),
        ([*(f"{990 + k}" for k in range(30)), "-999"], "-999"),
    ],
)
def test_numbers_far_away_may_be_codes(texts, code):
    with pytest.raises(UnclearError) as refused:
        columns(a=texts)
    assert (
        f"{code} in 'a'. Say --missing {code} if this stands for what is missing, --missing none" in refused.value.flags
    )
    assert columns({"missing": ["none"]}, a=texts).numbers["a"].values.notna().all()
    assert columns({"missing": [code]}, a=texts).numbers["a"].values.notna().sum() == 30


def test_codes_in_the_range_of_readings_are_readings():
    near = [str(900 + 10 * k) for k in range(12)] + ["999"]
    assert columns(a=near).numbers["a"].values.notna().all()
    assert columns(a=["-999", "1", "2"]).numbers["a"].values.notna().all()


def test_columns_that_say_nothing_of_others_are_left():
    """They have no gap: constants, and numbers of the rows."""
    found = columns(
        a=["1", "", "3"], b=["7", "7", "7"], no=["4", "5", "6"], c=["4", "5", "6"], **{"unnamed 1": ["0", "1", "2"]}
    )
    assert [*found.numbers] == ["a", "c"]
    assert found.left == {"b": "the same in every row", "no": "counts the rows", "unnamed 1": "counts the rows"}
    assert [*columns(b=["7", "7", ""], a=["1", "2", "3"]).numbers] == ["b", "a"]
    assert [*columns(b=["7", "7"], no=["1", "2"]).numbers] == ["b", "no"]
    assert [*columns(b=["7"], a=[""]).numbers] == ["b"]


@pytest.mark.parametrize(
    "texts", [["12%", "13 %"], ["$1.50", "-$2"], ["1.5 mm", "2 mm"], ["5 µg/m³", "6 µg/m³"], ["20°", "21°"]]
)
def test_numbers_with_units_are_refused(texts):
    with pytest.raises(
        UnclearError, match=f"numbers with units: '{re.escape(texts[0])}' in 'a'. Take the units out"
    ) as refused:
        columns(a=[*texts, "", "NA"], b=["1", "2", "3", ""])
    assert "--leave a" in refused.value.flags
    assert columns({"leave": ["a"]}, a=texts, b=["1", "2"]).left == {"a": "as asked"}


def test_identifiers_are_no_numbers_with_units():
    assert [*columns(a=["A12", "12a", "x"], b=["1", "2", ""]).left] == ["a"]
