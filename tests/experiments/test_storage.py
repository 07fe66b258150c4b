"""Output folders and atomic files."""

import pytest

from experiments.storage import open_output, write_atomically

CONFIG = {"seeds": 3, "model": {"depth": 2}}


def test_a_new_folder_is_made(tmp_path):
    with open_output(tmp_path / "a" / "demo", CONFIG) as output:
        assert output.path == tmp_path / "a" / "demo"
        assert output.message == f"writing to {output.path}"
        assert (output.path / "config.yaml").read_text() == "seeds: 3\nmodel:\n  depth: 2\n"


def test_an_interrupted_run_of_the_same_configuration_goes_on(tmp_path):
    with open_output(tmp_path / "demo", CONFIG) as output:
        (output.path / "half").write_text("done")
    with open_output(tmp_path / "demo", CONFIG) as output:
        assert output.path == tmp_path / "demo"
        assert output.message.startswith("going on with the interrupted run")
        assert (output.path / "half").read_text() == "done"


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_complete_run_is_left_alone(tmp_path):
    with open_output(tmp_path / "demo", CONFIG) as output:
        output.complete({"seconds": 1})
    before = _files(tmp_path / "demo")
    with open_output(tmp_path / "demo", CONFIG) as output:
        assert output.path == tmp_path / "demo-2"
        assert "holds a complete run and is left as it is; writing to" in output.message
    assert _files(tmp_path / "demo") == before


def test_other_configuration_other_folder(tmp_path):
    with open_output(tmp_path / "demo", CONFIG):
        pass
    before = _files(tmp_path / "demo")
    with open_output(tmp_path / "demo", CONFIG | {"seeds": 1}) as output:
        assert output.path == tmp_path / "demo-2"
        assert "holds a run of another configuration" in output.message
    assert _files(tmp_path / "demo") == before


def test_someone_elses_folder_and_file_are_left_alone(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "letter.txt").write_text("dear")
    (tmp_path / "demo-2").write_text("a file")
    with open_output(tmp_path / "demo", CONFIG) as output:
        assert output.path == tmp_path / "demo-3"
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["letter.txt"]


def test_a_folder_in_use_is_left_alone(tmp_path):
    with open_output(tmp_path / "demo", CONFIG), open_output(tmp_path / "demo", CONFIG) as second:
        assert second.path == tmp_path / "demo-2"
        assert "is being written by another process" in second.message


def test_a_failed_write_keeps_the_old_file(tmp_path):
    def half(aside):
        aside.write_text("ha")
        raise RuntimeError("killed")

    write_atomically(tmp_path / "file.txt", lambda aside: aside.write_text("whole"))
    with pytest.raises(RuntimeError, match="killed"):
        write_atomically(tmp_path / "file.txt", half)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]
