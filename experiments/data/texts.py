"""Texts as they are stored: CoLA and IMDB."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["COLA_FILES", "Texts", "read_cola", "read_imdb"]


class Texts(NamedTuple):
    """Texts with their labels.

    Attributes:
        texts: the texts.
        labels: the class of each.
        deviations: in words, what differs from the published files.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    deviations: tuple[str, ...] = ()


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

_COLA_LAYOUT = (
    "<root>/cola/raw/<part>.tsv for in_domain_train, in_domain_dev and out_of_domain_dev, four columns a row: "
    "source, label 0 or 1, author's mark, sentence. Get the archive cola_public_1.1 (raw) of the Corpus of Linguistic "
    "Acceptability"
)
_IMDB_LAYOUT = (
    '<root>/imdb/imdb.jsonl.xz, one {"text": ..., "label": 0 or 1} a line, or the folder <root>/aclImdb with '
    "train/pos/*.txt, train/neg, test/pos, test/neg. Get the Large Movie Review Dataset (aclImdb_v1)"
)
_IMDB_REVIEWS = 50000


def read_cola(root: Path, part: str, *, unchecked: bool = False) -> Texts:
    """Read one file of the Corpus of Linguistic Acceptability.

    Args:
        root: folder of the sets.
        part: one of `COLA_FILES`.
        unchecked: accept a file that is not the published one, and say so.

    Raises:
        FileNotFoundError: if the file is missing.
        ValueError: if it is truncated or altered.
    """
    path = root / "cola" / "raw" / f"{part}.tsv"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there. Expected {_COLA_LAYOUT}")
    content = path.read_bytes().replace(b"\r\n", b"\n")
    try:
        rows = [line.split("\t") for line in content.decode("utf-8").rstrip("\n").split("\n")]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read ({error}). Expected {_COLA_LAYOUT}") from error
    for number, row in enumerate(rows, 1):
        if len(row) != 4 or row[1] not in ("0", "1") or not row[3].strip():
            raise ValueError(f"{path}, row {number}: expected four columns, got {row!r}. Expected {_COLA_LAYOUT}")
    deviations = _cola_deviations(path, content, len(rows))
    if deviations and not unchecked:
        raise ValueError(
            f"{root}: {deviations[0]}. Expected {_COLA_LAYOUT}; or set data.unchecked=true to use the file as it is"
        )
    return Texts(tuple(row[3] for row in rows), tuple(int(row[1]) for row in rows), deviations)


def _cola_deviations(path: Path, content: bytes, rows: int) -> tuple[str, ...]:
    public = COLA_FILES[path.stem]
    if rows != public.rows:
        return (f"cola/raw/{path.name} holds {rows:,} rows instead of the published {public.rows:,}",)
    # Whether the last line ends does not change a sentence.
    digests = {hashlib.sha256(content.rstrip(b"\n") + end).hexdigest() for end in (b"", b"\n")}
    return () if public.sha256 in digests else (f"cola/raw/{path.name} is not the published file (another checksum)",)


def read_imdb(root: Path, *, unchecked: bool = False) -> Texts:
    """Read the reviews of IMDB, train and test part together.

    Args:
        root: folder of the sets.
        unchecked: accept another number of reviews, and say so.

    Raises:
        FileNotFoundError: if they are not there.
        ValueError: if a file is truncated or altered.
    """
    path, folder = root / "imdb" / "imdb.jsonl.xz", root / "aclImdb"
    if path.exists():
        rows = _json_rows(path)
    elif folder.is_dir():
        path, rows = folder, _folder_rows(folder)
    else:
        raise FileNotFoundError(f"{path} is not there. Expected {_IMDB_LAYOUT}")
    texts, labels = _columns(path, rows)
    deviations: tuple[str, ...] = ()
    if len(texts) != _IMDB_REVIEWS:
        deviations = (f"{path.name} holds {len(texts):,} reviews instead of the published {_IMDB_REVIEWS:,}",)
    if deviations and not unchecked:
        raise ValueError(
            f"{root}: {deviations[0]}. Expected {_IMDB_LAYOUT}; or set data.unchecked=true to use what is there"
        )
    return Texts(texts, labels, deviations)


def _columns(path: Path, rows: Iterable[tuple[str, int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    try:
        texts, labels = zip(*rows, strict=True)
    except (EOFError, KeyError, OSError, TypeError, ValueError, lzma.LZMAError) as error:
        raise ValueError(f"{path} cannot be read ({error}). Expected {_IMDB_LAYOUT}") from error
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
