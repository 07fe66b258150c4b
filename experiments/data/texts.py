"""Texts as files hold them: CoLA, IMDB, SST-2, CLINC150."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["COLA_FILES", "LAYOUTS", "Texts", "read_clinc150", "read_cola", "read_imdb", "read_sst2"]


class Texts(NamedTuple):
    """Texts with their labels.

    Attributes:
        texts: the texts.
        labels: the class of each.
        deviations: what differs from the published files.
        classes: names of the classes.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    deviations: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class _Published(NamedTuple):
    rows: int
    sha256: str


COLA_FILES: Mapping[str, _Published] = MappingProxyType(
    {
        "in_domain_train": _Published(8551, "f320a10f92d3bce6b29152fde322a362eac39238e50d8de0c8815457fdf4fc12"),
        "in_domain_dev": _Published(527, "77176f6a03faa5a1c4f23c69971fc1bff565931112fb65af47b2d6e24b7f42f7"),
        "out_of_domain_dev": _Published(516, "201b9c57b2a20f1282242eec0ed8995729e3be19c29a46c047b3727338836c05"),
    }
)
"""The three files of CoLA 1.1, as published."""

LAYOUTS: Mapping[str, str] = MappingProxyType(
    {
        "cola": "<root>/cola/raw/<part>.tsv for in_domain_train, in_domain_dev and out_of_domain_dev, four columns a "
        "row: source, label 0 or 1, author's mark, sentence. Get the archive cola_public_1.1 (raw) of the Corpus of "
        "Linguistic Acceptability",
        "imdb": '<root>/imdb/imdb.jsonl.xz, one {"text": ..., "label": 0 or 1} a line, or the folder <root>/aclImdb '
        "with train/pos/*.txt, train/neg, test/pos, test/neg. Get the Large Movie Review Dataset (aclImdb_v1)",
        "sst2": "<root>/sst2/train.tsv, dev.tsv and test.tsv, each plain or as .tsv.xz, two columns a row: sentence, "
        "label 0 or 1. Get the binary sentences of the Stanford Sentiment Treebank",
        "clinc150": "<root>/clinc150/data_full.json, plain or as .json.xz: train, val, test, oos_train, oos_val and "
        "oos_test, lists of [sentence, intent]. Get data_full.json of CLINC150 (oos-eval)",
    }
)
_IMDB_REVIEWS = 50000
_SST2_ROWS = {"train": 6920, "dev": 872, "test": 1821}
_CLINC_ROWS = {"train": 15000, "val": 3000, "test": 4500, "oos_test": 1000}


def _accepted(name: str, root: Path, deviations: tuple[str, ...], unchecked: bool) -> tuple[str, ...]:
    """Refuse files that are not the published ones, unless that was agreed to."""
    if deviations and not unchecked:
        raise ValueError(
            f"{root}: {deviations[0]}. Expected {LAYOUTS[name]}; or set data.unchecked=true to use what is there"
        )
    return deviations


def _unreadable(name: str, path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read ({error}). Expected {LAYOUTS[name]}")


def _content(name: str, path: Path) -> bytes:
    """Read a file as it is, or compressed beside its place."""
    packed = path.with_name(f"{path.name}.xz")
    if not path.exists() and not packed.exists():
        raise FileNotFoundError(f"{path} is not there. Expected {LAYOUTS[name]}")
    try:
        return path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise _unreadable(name, packed, error) from error


def _table(name: str, path: Path, columns: int) -> tuple[bytes, list[list[str]]]:
    """Read rows of columns between tabs."""
    content = _content(name, path).replace(b"\r\n", b"\n")
    try:
        rows = [line.split("\t") for line in content.decode("utf-8").rstrip("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise _unreadable(name, path, error) from error
    label, text = (1, 3) if columns == 4 else (1, 0)
    for number, row in enumerate(rows, 1):
        if len(row) != columns or row[label] not in ("0", "1") or not row[text].strip():
            words = {2: "two", 4: "four"}[columns]
            raise ValueError(f"{path}, row {number}: expected {words} columns, got {row!r}. Expected {LAYOUTS[name]}")
    return content, rows


def read_cola(root: Path, part: str, *, unchecked: bool = False) -> Texts:
    """Read one file of the Corpus of Linguistic Acceptability, one of `COLA_FILES`."""
    path = root / "cola" / "raw" / f"{part}.tsv"
    content, rows = _table("cola", path, 4)
    deviations = _accepted("cola", root, _cola_deviations(path, content, len(rows)), unchecked)
    classes = ("unacceptable", "acceptable")
    return Texts(tuple(row[3] for row in rows), tuple(int(row[1]) for row in rows), deviations, classes)


def _cola_deviations(path: Path, content: bytes, rows: int) -> tuple[str, ...]:
    public = COLA_FILES[path.stem]
    if rows != public.rows:
        return (f"cola/raw/{path.name} holds {rows:,} rows instead of the published {public.rows:,}",)
    # Whether the last line ends does not change a sentence.
    digests = {hashlib.sha256(content.rstrip(b"\n") + end).hexdigest() for end in (b"", b"\n")}
    return () if public.sha256 in digests else (f"cola/raw/{path.name} is not the published file (another checksum)",)


def read_sst2(root: Path, part: str, *, unchecked: bool = False) -> Texts:
    """Read a part ("train", "dev" or "test") of the binary sentences of the Stanford Sentiment Treebank."""
    _, rows = _table("sst2", root / "sst2" / f"{part}.tsv", 2)
    differs = (f"sst2/{part}.tsv holds {len(rows):,} rows instead of the published {_SST2_ROWS[part]:,}",)
    deviations = _accepted("sst2", root, differs if len(rows) != _SST2_ROWS[part] else (), unchecked)
    texts, labels = tuple(row[0] for row in rows), tuple(int(row[1]) for row in rows)
    return Texts(texts, labels, deviations, ("negative", "positive"))


def read_clinc150(root: Path, *, unchecked: bool = False) -> dict[str, Texts]:
    """Read CLINC150: the parts "train", "val", "test" and "oos_test", whose labels are -1 (no intent)."""
    path = root / "clinc150" / "data_full.json"
    try:
        content = json.loads(_content("clinc150", path))
        parts = {name: [(str(text), str(intent)) for text, intent in content[name]] for name in _CLINC_ROWS}
        intents = sorted({intent for _, intent in parts["train"]})
        numbers = {intent: number for number, intent in enumerate(intents)} | {"oos": -1}
        labels = {name: tuple(numbers[intent] for _, intent in rows) for name, rows in parts.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable("clinc150", path, error) from error
    deviations = tuple(
        f"clinc150/data_full.json holds {len(parts[name]):,} {name} sentences instead of the published {rows:,}"
        for name, rows in _CLINC_ROWS.items()
        if len(parts[name]) != rows
    )
    _accepted("clinc150", root, deviations, unchecked)
    return {
        name: Texts(tuple(text for text, _ in rows), labels[name], deviations, tuple(intents))
        for name, rows in parts.items()
    }


def read_imdb(root: Path, *, unchecked: bool = False) -> Texts:
    """Read the reviews of IMDB, train and test part together."""
    path, folder = root / "imdb" / "imdb.jsonl.xz", root / "aclImdb"
    if path.exists():
        rows = _json_rows(path)
    elif folder.is_dir():
        path, rows = folder, _folder_rows(folder)
    else:
        raise FileNotFoundError(f"{path} is not there. Expected {LAYOUTS['imdb']}")
    texts, labels = _columns(path, rows)
    differs = (f"{path.name} holds {len(texts):,} reviews instead of the published {_IMDB_REVIEWS:,}",)
    deviations = _accepted("imdb", root, differs if len(texts) != _IMDB_REVIEWS else (), unchecked)
    return Texts(texts, labels, deviations, ("negative", "positive"))


def _columns(path: Path, rows: Iterable[tuple[str, int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    try:
        texts, labels = zip(*rows, strict=True)
    except (EOFError, KeyError, OSError, TypeError, ValueError, lzma.LZMAError) as error:
        raise _unreadable("imdb", path, error) from error
    if not set(labels) <= {0, 1}:
        raise ValueError(f"{path}: expected labels 0 and 1, got {sorted(set(labels))}")
    return tuple(texts), tuple(labels)


def _json_rows(path: Path) -> Iterator[tuple[str, int]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                text, label = row["text"], row["label"]
            except (KeyError, TypeError, json.JSONDecodeError) as error:
                raise ValueError(f"line {number}: {error}") from error
            if not isinstance(text, str) or type(label) is not int:
                raise ValueError(f"line {number}: a text and a whole number as label, got {text!r} and {label!r}"[:200])
            yield text, label


def _folder_rows(folder: Path) -> Iterator[tuple[str, int]]:
    for part in ("train", "test"):
        for label, name in enumerate(("neg", "pos")):
            for path in sorted((folder / part / name).glob("*.txt")):
                try:
                    yield path.read_text(encoding="utf-8"), label
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path.relative_to(folder)}: {error}") from error
