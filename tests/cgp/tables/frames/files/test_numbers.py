"""Numbers in many forms: one form for a file, or a refusal; and written with the digits of their column."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cgp.tables.frames.files.numbers import NumberForm, Precision, form_of_numbers, kind_of, main_kind
from cgp.tables.frames.files.options import ReadOptions, UnclearError


def form(columns, decimal=None, thousands=None, delimiter=";"):
    return form_of_numbers(columns, ReadOptions(decimal=decimal, thousands=thousands), delimiter)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"a": ["1", "-2"]}, (".", "")),
        ({"a": ["12,5", "8"]}, (",", "")),
        ({"a": ["1,036", "884"], "b": ["10.00"]}, (".", ",")),
        ({"a": ["1.036", "0.884"]}, (".", "")),
        ({"a": ["1.036", "12.50"]}, (".", "")),
        ({"a": ["1.036,5"]}, (",", ".")),
        ({"a": ["1.036", "884"], "b": ["10,00"]}, (",", ".")),
        ({"a": ["1 036,5", "2"]}, (",", " ")),
        ({"a": ["1\u202f036", "2"]}, (".", " ")),
        ({"a": ["1'036.5", "2"]}, (".", "'")),
        ({"a": ["1.036.123"]}, (",", ".")),
        ({"a": ["1,036", "1036", "2036"]}, (",", "")),
        ({"a": [".5", "-,5"[:1] + ".25", "1e-3", "2E5"]}, (".", "")),
        ({"a": ["−1,5"]}, (",", "")),
        ({}, (".", "")),
    ],
)
def test_the_only_form_is_found(columns, expected):
    assert form(columns) == expected


@pytest.mark.parametrize(
    ("columns", "flags"),
    [
        ({"a": ["1,036", "884"], "b": ["1000", "1433"]}, "'1,036' is 1.036 (--decimal ,) or 1036 (--thousands ,)"),
        ({"a": ["1,036", "-9999"]}, "(--decimal ,) or 1036 (--thousands ,)"),
        ({"a": ["10.000", "2.500"]}, "'10.000' is 10 (--decimal .) or 10000 (--thousands .)"),
        ({"a": ["1.5"], "b": ["1,5"]}, "'1,5' is no number with a decimal point, as the others are"),
        ({"a": ["1.2.3"]}, "--leave a"),
    ],
)
def test_two_forms_or_none_are_refused(columns, flags):
    with pytest.raises(UnclearError) as refused:
        form(columns)
    assert flags in refused.value.flags


def test_between_commas_points_are_decimal_unless_some_numbers_have_none():
    assert form({"a": ["1.234", "12.500"]}, delimiter=",") == (".", "")
    assert form({"a": ["0", "0", "1.000"], "b": ["0.5", "2", "3"]}, delimiter=",") == (".", "")
    with pytest.raises(UnclearError, match=re.escape("'1.000' is 1 (")):
        form({"a": ["0", "0", "1.000"]}, delimiter=",")


def test_a_sign_that_is_named_decides():
    columns = {"a": ["1,036", "884"]}
    assert form(columns, decimal=",") == (",", "")
    assert form(columns, thousands=",") == (".", ",")
    assert form(columns, decimal=".") == (".", ",")
    assert form(columns, thousands="") == (",", "")
    assert form({"a": ["10.000"]}, delimiter=",") == (".", "")
    assert form({"a": ["10"]}, decimal=",") == (",", "")
    assert form({"a": ["10"]}, decimal=",", thousands=".", delimiter=",") == (",", ".")
    with pytest.raises(UnclearError):
        form({"a": ["1,5"]}, decimal=".")


@pytest.mark.parametrize(
    ("texts", "asked", "proposed"),
    [
        (["1.5", "2.5", "1,5"], {}, ""),
        (["1,5", "2,5", "1.5"], {"decimal": ","}, ""),
        (["1,5", "2,5"], {"decimal": "."}, "--decimal ,"),
        (["1 036", "2"], {"thousands": "."}, "--thousands ' '"),
    ],
)
def test_only_signs_that_help_are_proposed(texts, asked, proposed):
    with pytest.raises(UnclearError) as refused:
        form({"a": texts}, **asked)
    said = f"as the others are: {f'say {proposed}, ' if proposed else ''}mend it, or leave the column alone, --leave a"
    assert refused.value.flags.endswith(said)


@given(st.floats(-1e6, 1e6), st.integers(0, 4), st.sampled_from([".", ","]), st.sampled_from(["", " ", "'", ".", ","]))
def test_numbers_are_read_as_they_were_written(value, digits, decimal, thousands):
    if decimal == thousands:
        return
    text = (f"{value:,.{digits}f}" if thousands else f"{value:.{digits}f}").translate({44: thousands, 46: decimal})
    own = NumberForm(decimal, thousands)
    assert own.numbers([text])[0] == round(value, digits)
    assert Precision.of([text], own).write(value) == text.replace("-0" if not round(value, digits) else "\0", "0")


def test_digits_of_a_column():
    plain = Precision.of(["1.5", "2.25", "3"], NumberForm())
    assert [plain.write(value) for value in (np.pi, -0.001, 1234.5678)] == ["3.14", "0.00", "1234.57"]
    assert [plain.write(value, value) for value in (0.0, 0.5, 0.0123, 0.12, 1e-5)] == [
        "0.00",
        "0.50",
        "0.012",
        "0.12",
        "0.000010",
    ]
    assert Precision.of(["1,036", "2,500"], NumberForm(".", ",")).write(1234567.8) == "1,234,568"
    assert Precision.of(["136", "250"], NumberForm(".", ",")).write(1234.8) == "1235"
    assert Precision.of(["1.5e-3", "2.25E-4"], NumberForm()).write(-0.00123456) == "-1.23e-03"
    assert Precision.of(["1.5e-3", "2", "3"], NumberForm()).write(2.0) == "2.0000"
    assert Precision.of(["1", "2"], NumberForm()).write(0.6) == "1"
    assert Precision.of([], NumberForm()).write(0.6) == "0.600000"  # of a column that has totals only


def test_a_number_has_as_many_digits_as_two_of_its_error_need():
    plain, floats = (Precision.of(texts, NumberForm()) for texts in (["1.5", "22"], ["1.5e6", "2.25e5"]))
    assert [plain.write(np.pi, error) for error in (0.0, 1e-14, 30.0, 0.3, 0.032, 0.0011)] == [
        "3.1",  # an error of rounding is none
        "3.1",
        "3.1",
        "3.14",
        "3.142",
        "3.1416",
    ]
    assert [floats.write(1234567.0, error) for error in (0.0, 3e5, 2e3, 1e-30)] == [
        "1.23e+06",
        "1.23e+06",
        "1.2346e+06",
        "1.23e+06",
    ]
    assert floats.write(0.0, 2e3) == "0.00e+00"
    assert [plain.least(np.array(errors)) for errors in ([0.0, 0.3, 0.04], [0.0, 1e-14], [0.0, 0.001, 0.3], [])] == [
        0.04,
        0.0,
        0.3,  # one that is next to nothing beside it decides nothing
        0.0,
    ]
    assert [each.longer(1).write(2.0) for each in (plain, floats)] == ["2.00", "2.000e+00"]


def test_a_form_is_said():
    assert NumberForm(",", ".").said == "decimal comma, thousands grouped by '.'"
    assert NumberForm().said == "decimal point"


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
