"""Any table in any dialect: read as it was written, or refused; and written back byte for byte."""

import codecs
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cgp.tables import read_table
from cgp.tables.frames.files.options import UnclearError

MARKS = {"utf-8": b"", "utf-8-sig": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "cp1252": b""}
FORMS = (
    "%Y-%m-%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%y",
    "%d-%b-%Y",
    "%Y%m%d",
    "%Y-%m-%dT%H:%M:%S",
    "number",
)
NAMES = st.text(
    st.characters(codec="cp1252", exclude_categories=("Cc", "Zs", "Nd", "Po", "Sm")), min_size=1, max_size=6
)


@dataclass
class Written:
    """A file, what it means, and where its gaps are."""

    content: bytes
    options: dict
    index: pd.Index
    values: dict
    pieces: list = field(default_factory=list)
    encoding: str = "utf-8"
    mark: bytes = b""


def quoted(text, sign, *, always):
    needs = always or sign in text or '"' in text or text[:1] in "# " or text[-1:] == " "
    return '"{}"'.format(text.replace('"', '""')) if needs and text else text


def number(value, digits, decimal, thousands):
    text = f"{value:,.{digits}f}" if thousands else f"{value:.{digits}f}"
    return text.translate({ord(","): thousands, ord("."): decimal})


@st.composite
def files(draw):  # noqa: PLR0915
    rows, width = draw(st.integers(3, 14)), draw(st.integers(1, 3))
    sign = draw(st.sampled_from([",", ";", "\t", "|"]))
    decimal = draw(st.sampled_from([".", ","]))
    thousands = draw(st.sampled_from(["", "", " ", "'", "," if decimal == "." else "."]))
    form, end = draw(st.sampled_from(FORMS)), draw(st.sampled_from(["\n", "\r\n"]))
    encoding, always = draw(st.sampled_from([*MARKS])), draw(st.booleans())
    mark = draw(st.sampled_from(["", "NA", "-", "---", "nan"]))
    start, step = draw(st.integers(0, 4000)), draw(st.integers(1, 40))
    if form == "number":
        index, labels = pd.Index(np.arange(rows) * step + start), [str(start + k * step) for k in range(rows)]
    else:
        index = pd.date_range("2005-01-03", periods=rows, freq=f"{step}D") + pd.Timedelta(days=start)
        index, labels = index.as_unit("s"), [time.strftime(form) for time in index]
    names = draw(st.lists(NAMES, min_size=width, max_size=width, unique=True))
    names = [f"c{name}" for name in names]
    header = [draw(st.sampled_from(["time", "date", "t"] + ["when"] * (form != "number"))), *names]
    values, texts = {}, {}
    for name in names:
        digits, size = draw(st.integers(0, 4)), draw(st.integers(1, 5))
        raw = draw(st.lists(st.floats(-(10.0**size), 10.0**size, allow_nan=False), min_size=rows, max_size=rows))
        raw = [round(value, digits) + 0.0 for value in raw]
        gaps = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        gaps[draw(st.integers(0, rows - 1))] = False
        values[name] = np.where(gaps, np.nan, raw)
        texts[name] = [
            mark if gap else number(value, digits, decimal, thousands) for gap, value in zip(gaps, raw, strict=True)
        ]
    words = draw(st.booleans())
    note = draw(st.lists(st.sampled_from(["ok", "x y", 'a "b"', f"p{sign}q", "NA", ""]), min_size=rows, max_size=rows))
    lines = [[quoted(name, sign, always=always) for name in header] + ["note"] * words]
    for k in range(rows):
        fields = [labels[k], *(texts[name][k] for name in names)]
        lines.append(
            [quoted(each, sign, always=always) for each in fields] + [quoted(note[k], sign, always=False)] * words
        )
    remarks = "# of a station" + end if draw(st.booleans()) else ""
    text = remarks + end.join(sign.join(line) for line in lines) + end * draw(st.booleans())
    plain = encoding.removesuffix("-sig")
    options = {"delimiter": sign, "decimal": decimal, "thousands": thousands, "header": True, "index": [header[0]]}
    options |= {"missing": ["none"], "encoding": plain, "units_row": False, "skip_footer": 0, "leave": ["note"] * words}
    options |= {} if form == "number" else {"time_format": form}
    return Written(MARKS[encoding] + text.encode(plain), options, index, values, lines, plain, MARKS[encoding])


def is_same(table, written):
    frame = table.frame
    return (
        list(frame) == list(written.values)
        and len(frame) == len(written.index)
        and bool((np.asarray(frame.index) == np.asarray(written.index)).all())
        and all(np.array_equal(frame[name], values, equal_nan=True) for name, values in written.values.items())
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@given(written=files())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=60)
def test_what_is_written_in_any_dialect_comes_back(folder, written):
    """Index, values and, once its gaps are filled and taken out again, every byte."""
    path, out = folder / "in.csv", folder / "out.csv"
    path.write_bytes(written.content)
    table = read_table(path, **written.options)
    written.values = {name: values for name, values in written.values.items() if name in table.frame or has_gap(values)}
    assert is_same(table, written)
    filled = table.frame.fillna(0.0)
    table.write(filled, out)
    again = read_table(out, **written.options).frame  # which may leave alone what is constant now, or was
    both = [name for name in filled if name in again]
    np.testing.assert_array_equal(again[both], filled[both])
    before, after = (each.read_bytes()[len(written.mark) :].decode(written.encoding) for each in (path, out))
    assert changed_fields(before, after, written.options["delimiter"]) == table.gaps


@given(written=files())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=120)
def test_without_options_it_is_read_as_written_or_refused(folder, written):
    """Nothing is ever read as something else."""
    assume(written.encoding != "cp1252" or is_no_utf8(written.content))
    path = folder / "bare.csv"
    path.write_bytes(written.content)
    said, table = "", None
    try:
        table = read_table(path)
    except UnclearError as error:
        said = error.flags
    assert table is not None or "--" in said, said
    if table is not None:
        numbers = {name: values for name, values in written.values.items() if name in table.frame}
        left = {*written.values} - {*numbers}
        reasons = ("missing", "zero", "same in every row", "counts the rows")
        assert all(any(reason in table.understood.left[name] for reason in reasons) for name in left)
        written.values = numbers
        assert is_same(table, written), table.understood


def has_gap(values):
    return bool(np.isnan(values).any())


def is_no_utf8(content):
    """Whether bytes tell by themselves that they are no UTF-8, or are the same in both."""
    try:
        return content.decode() == content.decode("cp1252")
    except UnicodeDecodeError:
        return True


def changed_fields(before, after, sign):
    """How many fields differ, by the reader of the standard library."""
    import csv
    import io

    rows = [list(csv.reader(io.StringIO(text, newline=""), delimiter=sign)) for text in (before, after)]
    assert [len(row) for row in rows[0]] == [len(row) for row in rows[1]]
    ends = [[line[len(line.rstrip("\r\n")) :] for line in text.splitlines(keepends=True)] for text in (before, after)]
    assert ends[0] == ends[1]
    return sum(old != new for pair in zip(*rows, strict=True) for old, new in zip(*pair, strict=True))
