"""ReadOptions in messages, spelled for Python and for the command line."""

import pytest

from cgp.tables.frames.files.hints import UnclearError, as_arguments, as_flags, option


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
