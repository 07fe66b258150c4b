"""Files that are written beside their place: whole or not at all, and what was there keeps what is not its content."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from cgp.atomic_files import write_aside


def write(path, text="new"):
    write_aside(path, lambda aside: aside.write_text(text))


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "a.csv"
    write(path)
    assert path.read_text() == "new"

    def half(aside):
        assert aside.suffix == ".csv"
        aside.write_text("half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_aside(path, half)
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_mode_stays(mode, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_text() == "new"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root may give files to others")
def test_an_owner_stays(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")
    os.chown(path, 12_345, 12_345)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (12_345, 12_345)


def test_links_stay_links(tmp_path):
    """To a file, through another link, and to one that is not there yet."""
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "a.csv"
    (tmp_path / "one.csv").symlink_to("folder/a.csv")
    (tmp_path / "two.csv").symlink_to("one.csv")
    write(tmp_path / "two.csv", "first")
    write(tmp_path / "one.csv", "second")
    assert (tmp_path / "one.csv").is_symlink()
    assert (tmp_path / "two.csv").is_symlink()
    assert target.read_text() == "second"
    assert [each.name for each in target.parent.iterdir()] == ["a.csv"]


def test_devices_and_pipes_are_written_to(tmp_path):
    write(Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write(pipe, "through")
    reader.join()
    assert read == ["through"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not hasattr(os, "mknod") or os.geteuid() != 0, reason="only root makes devices")
def test_a_device_of_its_own_stays_one(tmp_path):
    node = tmp_path / "null"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        node.open("wb").close()
    except PermissionError:
        pytest.skip("no devices here")
    write(node)
    assert node.is_char_device()


def test_what_is_no_place_for_a_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a file to write, got a folder"):
        write(tmp_path)
    with socket.socket(socket.AF_UNIX) as open_socket:
        open_socket.bind(str(tmp_path / "s"))
        with pytest.raises(ValueError, match="expected a file to write, got a socket"):
            write(tmp_path / "s")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """And not the file beside the place, of which nobody has heard."""
    with pytest.raises(FileNotFoundError, match=r"a\.csv: expected a place in a folder that exists, got .*none, "):
        write(tmp_path / "none" / "a.csv")
