"""Atomic files: writing and reading."""

import pytest

from experiments.atomic_files import read_json, read_yaml, write_atomically


def test_a_failed_write_keeps_the_old_file(tmp_path):
    def half(aside):
        aside.write_text("ha")
        raise RuntimeError("killed")

    write_atomically(tmp_path / "file.txt", lambda aside: aside.write_text("whole"))
    with pytest.raises(RuntimeError, match="killed"):
        write_atomically(tmp_path / "file.txt", half)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]


def test_numbers_with_an_exponent_are_numbers(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1e-3\nb: 5E4\nc: -2.5e+1\nd: e3\ne: 1e\n")
    assert read_yaml(path) == {"a": 1e-3, "b": 5e4, "c": -25.0, "d": "e3", "e": "1e"}


def test_a_setting_that_is_there_twice_is_named(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\nb: {c: 1, d: 2, c: 3}\n")
    with pytest.raises(ValueError, match=r"a.yaml cannot be read \(c twice"):
        read_yaml(path)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_damaged_json_is_named(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ValueError, match="a.json: expected"):
        read_json(tmp_path / "a.json")
