"""Texts read from files: CoLA, IMDB, SST-2, CLINC150."""

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["PUBLISHED_TEXTS", "Texts", "read_clinc150", "read_cola", "read_imdb", "read_sst2"]

_Row = tuple[str, int]
"""A text and its class."""


class Texts(NamedTuple):
    """Texts with their labels, and the differences from the published files."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    deviations: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class _Published(NamedTuple):
    """Layout and source of a set's files, and the number of texts of each part."""

    layout: str
    sizes: Mapping[str, int]


PUBLISHED_TEXTS: Mapping[str, _Published] = MappingProxyType(
    {
        "cola": _Published(
            "<root>/cola/raw/<part>.tsv for in_domain_train, in_domain_dev and out_of_domain_dev, four columns: "
            "source, label 0 or 1, author's mark, sentence. Get the archive cola_public_1.1 (raw) of the Corpus of "
            "Linguistic Acceptability",
            {"in_domain_train": 8551, "in_domain_dev": 527, "out_of_domain_dev": 516},
        ),
        "imdb": _Published(
            '<root>/imdb/imdb.jsonl.xz, one {"text": ..., "label": 0 or 1} per line, or the folder <root>/aclImdb '
            "with train/pos/*.txt, train/neg, test/pos, test/neg. Get the Large Movie Review Dataset (aclImdb_v1)",
            {"reviews": 50000},
        ),
        "sst2": _Published(
            "<root>/sst2/train.tsv, dev.tsv and test.tsv, each plain or as .tsv.xz, two columns: sentence, label 0 "
            "or 1. Get the binary sentences of the Stanford Sentiment Treebank",
            {"train": 6920, "dev": 872, "test": 1821},
        ),
        "clinc150": _Published(
            "<root>/clinc150/data_full.json, plain or as .json.xz: train, val, test, oos_train, oos_val and oos_test, "
            "lists of [sentence, intent]. Get data_full.json of CLINC150 (oos-eval)",
            {"train": 15000, "val": 3000, "test": 4500, "oos_test": 1000},
        ),
    }
)
"""The text sets by name."""

_COLA_SHA256 = {
    "in_domain_train": "f320a10f92d3bce6b29152fde322a362eac39238e50d8de0c8815457fdf4fc12",
    "in_domain_dev": "77176f6a03faa5a1c4f23c69971fc1bff565931112fb65af47b2d6e24b7f42f7",
    "out_of_domain_dev": "201b9c57b2a20f1282242eec0ed8995729e3be19c29a46c047b3727338836c05",
}


def read_cola(root: Path, *, unchecked: bool = False) -> dict[str, Texts]:
    """Read the three files of the Corpus of Linguistic Acceptability; `unchecked` accepts others of this layout."""
    parts, altered = {}, []
    for part, digest in _COLA_SHA256.items():
        path = root / "cola" / "raw" / f"{part}.tsv"
        content = _content("cola", path)
        parts[part] = _table("cola", path, content, ("source", "label", "mark", "text"))
        # A final line end does not change a sentence.
        digests = {hashlib.sha256(content.rstrip(b"\n") + end).hexdigest() for end in (b"", b"\n")}
        altered += [] if digest in digests else [part]
    return _accepted("cola", root, parts, ("unacceptable", "acceptable"), unchecked, altered)


def read_sst2(root: Path, *, unchecked: bool = False) -> dict[str, Texts]:
    """Read the binary sentences of the Stanford Sentiment Treebank: "train", "dev" and "test"."""
    parts = {}
    for part in PUBLISHED_TEXTS["sst2"].sizes:
        path = root / "sst2" / f"{part}.tsv"
        parts[part] = _table("sst2", path, _content("sst2", path), ("text", "label"))
    return _accepted("sst2", root, parts, ("negative", "positive"), unchecked)


def read_clinc150(root: Path, *, unchecked: bool = False) -> dict[str, Texts]:
    """Read CLINC150: the parts "train", "val", "test" and "oos_test", whose labels are -1 (no intent)."""
    path = root / "clinc150" / "data_full.json"
    try:
        content = json.loads(_content("clinc150", path))
        intents = sorted({str(intent) for _, intent in content["train"]})
        numbers = {intent: number for number, intent in enumerate(intents)} | {"oos": -1}
        parts = {
            part: [(str(text), numbers[str(intent)]) for text, intent in content[part]]
            for part in PUBLISHED_TEXTS["clinc150"].sizes
        }
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable("clinc150", path, error) from error
    return _accepted("clinc150", root, parts, tuple(intents), unchecked)


def read_imdb(root: Path, *, unchecked: bool = False) -> dict[str, Texts]:
    """Read the "reviews" of IMDB, train and test part together."""
    path, folder = root / "imdb" / "imdb.jsonl.xz", root / "aclImdb"
    if not path.exists() and folder.is_dir():
        path, unread = folder, _folder_rows(folder)
    else:
        unread = _json_rows(_content("imdb", path.with_suffix("")))
    try:
        rows = list(unread)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable("imdb", path, error) from error
    return _accepted("imdb", root, {"reviews": rows}, ("negative", "positive"), unchecked)


def _accepted(
    name: str,
    root: Path,
    parts: Mapping[str, Sequence[_Row]],
    classes: tuple[str, ...],
    unchecked: bool,
    altered: Iterable[str] = (),
) -> dict[str, Texts]:
    """Raise for files that are not the published ones, unless `unchecked`."""
    published = PUBLISHED_TEXTS[name]
    deviations = {part: f"{name}, {part}: not the published texts (another checksum)" for part in altered}
    for part, size in published.sizes.items():
        if len(parts[part]) != size:
            deviations[part] = f"{name}, {part}: {len(parts[part]):,} texts instead of the published {size:,}"
    if deviations and not unchecked:
        raise ValueError(
            f"{root}: {'; '.join(deviations.values())}. Expected {published.layout}; or set data.unchecked=true to "
            "use what is there"
        )
    return {
        part: Texts(
            tuple(text for text, _ in rows),
            tuple(label for _, label in rows),
            (deviations[part],) if part in deviations else (),
            classes,
        )
        for part, rows in parts.items()
    }


def _unreadable(name: str, path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read ({error}). Expected {PUBLISHED_TEXTS[name].layout}")


def _content(name: str, path: Path) -> bytes:
    """Read a file, or its compressed version in the same folder."""
    packed = path.with_name(f"{path.name}.xz")
    if not path.exists() and not packed.exists():
        raise FileNotFoundError(f"{path} is not there. Expected {PUBLISHED_TEXTS[name].layout}")
    try:
        content = path.read_bytes() if path.exists() else lzma.decompress(packed.read_bytes())
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise _unreadable(name, packed, error) from error
    return content.replace(b"\r\n", b"\n")


def _table(name: str, path: Path, content: bytes, columns: Sequence[str]) -> list[_Row]:
    """Texts and labels of tab-separated rows."""
    try:
        lines = content.decode("utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise _unreadable(name, path, error) from error
    rows = []
    for number, line in enumerate(lines, 1):
        row = dict(zip(columns, line.split("\t"), strict=False))
        whole = line.count("\t") + 1 == len(columns)
        if not whole or row["label"] not in ("0", "1") or not row["text"].strip():
            layout = PUBLISHED_TEXTS[name].layout
            raise ValueError(f"{path}, row {number}: expected {len(columns)} columns, got {line!r}. Expected {layout}")
        rows.append((row["text"], int(row["label"])))
    return rows


def _json_rows(content: bytes) -> Iterator[_Row]:
    for number, line in enumerate(content.decode("utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            text, label = row["text"], row["label"]
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"line {number}: {error}") from error
        if not isinstance(text, str) or type(label) is not int or label not in (0, 1):
            raise ValueError(f"line {number}: expected a text and a label 0 or 1, got {text!r} and {label!r}"[:200])
        yield text, label


def _folder_rows(folder: Path) -> Iterator[_Row]:
    for part in ("train", "test"):
        for label, name in enumerate(("neg", "pos")):
            for path in sorted((folder / part / name).glob("*.txt")):
                try:
                    yield path.read_text(encoding="utf-8"), label
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path.relative_to(folder)}: {error}") from error
