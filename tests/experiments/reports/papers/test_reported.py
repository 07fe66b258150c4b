"""The papers' numbers as data: complete, consistent, and each in a table."""

import csv
import math
from collections import Counter

import pytest

from experiments.reports.papers.specification import CATEGORIES, METRICS, STANDARD_KINDS, TABLES
from experiments.reports.papers.tables import find_tables
from experiments.reports.papers.tidy import REPORTED, reported, rows

SIZES = {("cgpt", "I"): 24, ("cgpt", "II"): 100, ("cgpt", "III"): 80, ("cgpt", "IV"): 60, ("cgpt", "V"): 40}
SIZES |= {("kep-svgp", table): size for table, size in zip("123456", (210, 84, 72, 36, 28, 56), strict=True)}


def test_file_is_whole():
    with REPORTED.open(newline="", encoding="utf-8") as file:
        content = list(csv.DictReader(file))
    assert Counter((line["paper"], line["table"]) for line in content) == SIZES
    assert sum("repeats Table" in line["note"] for line in content) == 59
    keys = [tuple(line[key] for key in list(line)[:7]) for line in content]
    assert len(set(keys)) == len(keys)


def test_numbers_are_in_natural_units():
    for number in (number for table in SIZES for number in reported(*table)):
        assert number.metric in METRICS
        if number.metric not in ("nll", "seconds_per_epoch"):
            assert 0 <= number.mean <= 1
        assert math.isnan(number.sd) or 0 <= number.sd < 0.7


def test_repeated_rows_repeat():
    first, fourth = reported("cgpt", "II"), reported("cgpt", "IV")
    printed = {(row.method, row.shift, row.metric): (row.mean, row.sd) for row in first}
    same = {"SGPA": "SGPA", r"CGPT ($\alpha = 0.5 \rightarrow 1.0$)": "CGPT (ours)"}
    repeated = [row for row in fourth if row.method in same]
    assert len(repeated) == 40
    assert all((row.mean, row.sd) == printed[same[row.method], row.shift, row.metric] for row in repeated)


def test_every_printed_number_stands_in_exactly_one_row_of_its_table():
    for (paper, number), size in SIZES.items():
        (spec,) = [spec for spec in TABLES.values() if (spec.paper.key, spec.number) == (paper, number)]
        printed = [row for row in rows(spec, [], "pooled") if not math.isnan(row.printed)]
        result = Counter((row.setting, row.method, row.metric) for row in printed)
        twice = 16 if spec.name == "cgpt-III" else 0  # both definitions of KLMatching beside the printed one
        assert sum(result.values()) == size + twice
        assert max(result.values()) == 1
    for spec in TABLES.values():
        assert len({block.title for block in spec.blocks}) == len(spec.blocks)
        assert all(metric in METRICS for block in spec.blocks for metric in block.metrics)


def test_fifteen_of_the_nineteen_corruptions_are_standard():
    assert [len(kinds) for kinds in CATEGORIES.values()] == [4, 5, 5, 5]
    kinds = {kind for kinds in CATEGORIES.values() for kind in kinds}
    assert kinds - set(STANDARD_KINDS) == {"speckle_noise", "gaussian_blur", "spatter", "saturate"}


def test_tables_are_found_by_name_paper_or_all():
    assert [spec.name for spec in find_tables("KEP-1")] == ["kep-1"]
    assert [spec.name for spec in find_tables("sgpa")] == [name for name in TABLES if name.startswith("sgpa")]
    assert len(find_tables("all")) == len(TABLES)
    with pytest.raises(ValueError, match="name: expected all, cgpt, kep, sgpa or one of cgpt-I, .*, got 'cgpt-X'"):
        find_tables("cgpt-X")
