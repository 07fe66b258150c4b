"""ReadOptions of the reader, checked once."""

import pytest

from cgp.tables.frames.files.options import ReadOptions


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
        ({"long": ["a", "b"]}, r"long: expected three columns, of series, time and value, got \['a', 'b'\]"),
        ({"skip_rows": -1}, "skip_rows: expected a number of lines, got -1"),
        ({"skip_footer": -1}, "skip_footer: expected a number of lines, got -1"),
    ],
)
def test_others_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ReadOptions(**options)
