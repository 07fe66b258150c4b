"""ReadOptions of the reader, checked once."""

import pytest

from cgp.tables.frames.files.options import ReadOptions, UnclearError, as_arguments, as_flags, option


def test_words_stand_for_signs_and_names_for_lists():
    options = ReadOptions(delimiter="tab", decimal="comma", thousands="", index="when", missing=-999, leave=["a", "b"])
    assert (options.delimiter, options.decimal, options.thousands) == ("\t", ",", "")
    assert (options.index, options.missing, options.leave) == (("when",), ("-999",), ("a", "b"))
    assert ReadOptions(delimiter="space").delimiter == " "
    assert ReadOptions(index=False).index is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ",,"}, "delimiter: expected one of"),
        ({"decimal": ";"}, "decimal: expected one of"),
        ({"decimal": ""}, "decimal: expected one of"),
        ({"thousands": "x"}, "thousands: expected one of"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands: expected different signs, got ',' for both"),
        ({"index": True}, "index: expected names of columns, or False, got True"),
        ({"long": ["a", "b"]}, r"long: expected columns of series, time and value, or .* value, got \['a', 'b'\]"),
        ({"long": "a, b,c"}, r"got \['a, b,c'\]: say long=\['a', 'b', 'c'\]"),
        ({"skip_rows": -1}, "skip_rows: expected a number of lines, got -1"),
        ({"index": ["n"], "inputs": ["m"]}, "index and inputs: expected one of them, got both"),
        ({"index": ["n"], "long": ["a", "b", "c"]}, "index and long: expected one of them, got both"),
        ({"skip_footer": -1}, "skip_footer: expected a number of lines, got -1"),
    ],
)
def test_others_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ReadOptions(**options)


@pytest.mark.parametrize(
    ("given", "argument", "flag"),
    [
        (("dayfirst",), "dayfirst=True", "--dayfirst"),
        (("dayfirst", False), "dayfirst=False", "--monthfirst"),
        (("header", False), "header=False", "--no-header"),
        (("units_row", False), "units_row=False", "--no-units-row"),
        (("skip_footer", 0), "skip_footer=0", "--skip-footer 0"),
        (("skip_rows", 1), "skip_rows=1", "--skip-rows 1"),
        (("decimal", ","), "decimal=','", "--decimal ,"),
        (("delimiter", "\t"), "delimiter='\\t'", "--delimiter TAB"),
        (("missing", ["ND", "<"]), "missing=['ND', '<']", "--missing ND '<'"),
        (("long", ["a b", "t", "v"]), "long=['a b', 't', 'v']", "--long 'a b',t,v"),
    ],
)
def test_an_option_is_spelled_twice(given, argument, flag):
    text = f"say {option(*given)} or not"
    assert as_arguments(text) == f"say {argument} or not"
    assert as_flags(text) == f"say {flag} or not"


def test_an_error_reads_as_python_and_has_flags():
    error = UnclearError(f"it is {option('decimal', '.')}")
    assert (str(error), error.flags) == ("it is decimal='.'", "it is --decimal .")
    assert isinstance(error, ValueError)
