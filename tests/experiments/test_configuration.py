"""The typed configuration of a data set."""

from pathlib import Path

import pytest

from experiments.configuration import CorruptionConfig, DataConfig
from experiments.data import load


def test_folders_come_from_the_configuration_then_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("CGP_DATA", str(tmp_path))
    assert DataConfig(name="cola").data_root == tmp_path
    assert DataConfig(name="cola", root=tmp_path.parent).data_root == tmp_path.parent
    monkeypatch.delenv("CGP_DATA")
    with pytest.raises(ValueError, match="data.root: expected the folder that holds the data set 'cola', got nothing"):
        load(DataConfig(name="cola"), seed=0)
    with pytest.raises(FileNotFoundError, match="data.root: expected a folder, got .*nowhere, which is not there"):
        load(DataConfig(name="cola", root=tmp_path / "nowhere"), seed=0)
    monkeypatch.setenv("CGP_CACHE", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert DataConfig(cache=tmp_path).cache_folder == tmp_path
    assert DataConfig().cache_folder == tmp_path / "environment"
    monkeypatch.delenv("CGP_CACHE")
    assert DataConfig().cache_folder == tmp_path / "user" / "cgp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert DataConfig().cache_folder == Path.home() / ".cache" / "cgp"


COUNTS = ("limit_train", "limit_ood", "image_size", "max_length", "min_count")
REFUSED = [
    *((DataConfig, {name: 0}, f"data.{name}: expected at least 1, got 0") for name in COUNTS),
    *((DataConfig, {"validation": share}, "expected a share between 0 and 1, got") for share in (0.0, 1.0, -0.1)),
    (CorruptionConfig, {"severities": (0, 3)}, r"corruptions.severities: expected some of 1 to 5, got \(0, 3\)"),
    (CorruptionConfig, {"limit": 0}, "data.corruptions.limit: expected at least 1, got 0"),
]


@pytest.mark.parametrize(("configuration", "options", "message"), REFUSED)
def test_values_out_of_range_are_refused(configuration, options, message):
    with pytest.raises(ValueError, match=message):
        configuration(**options)
