"""Bytes of text files: compression, encoding and byte order mark, kept for what is written."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .hints import UnclearError, option

__all__ = ["COMPRESSED", "Encoded", "packed", "read_text"]

COMPRESSED: Mapping[str, Any] = {".gz": gzip, ".bz2": bz2, ".xz": lzma}
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Encoded(NamedTuple):
    """A text and how it was written.

    Attributes:
        text: decoded, with its line ends, without a byte order mark.
        encoding: that decodes and encodes it.
        mark: the byte order mark, or nothing.
    """

    text: str
    encoding: str
    mark: bytes

    def encoded(self, text: str) -> bytes:
        """Another text, written as this one was."""
        return self.mark + text.encode(self.encoding)


def read_text(path: Path, encoding: str | None = None) -> Encoded:
    """Read a text file: UTF-8 or UTF-16 by its mark, UTF-8, or else what Windows writes in Western Europe.

    Args:
        path: compressed or not, by its ending.
        encoding: to be used, None to look for it.

    Returns:
        The text.

    Raises:
        UnclearError: if it is no text in that encoding.
        ValueError: if it is empty or damaged.
    """
    content = _unpacked(path)
    if not content.strip():
        raise ValueError(f"{path}: expected a table, got an empty file")
    mark, marked = next(((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", None))
    candidates = [encoding] if encoding else [marked] if marked else ["utf-8", "cp1252"]
    if b"\0" in content and not (candidates[0] or "").lower().startswith(("utf-16", "utf-32", "utf_16")):
        raise ValueError(f"{path}: expected a table as text, got bytes that are no text")
    for name in filter(None, candidates):
        try:
            text = content[len(mark) :].decode(name)
            if mark + text.encode(name) == content:
                return Encoded(text, name, mark)
        except UnicodeError:
            continue
        except LookupError as error:
            raise ValueError(f"encoding: expected a name such as utf-8 or cp1252, got {name!r}") from error
    tried = " or ".join(map(str, candidates))
    raise UnclearError(
        f"{path}: expected text in {tried}, got other bytes: name the {option('encoding', 'latin-1')} it has"
    )


def packed(content: bytes, path: Path) -> bytes:
    """Bytes, compressed as the ending of a path says."""
    module = COMPRESSED.get(path.suffix.lower())
    compress: Callable[[bytes], bytes] | None = None if module is None else module.compress
    return content if compress is None else compress(content)


def _unpacked(path: Path) -> bytes:
    content, module = path.read_bytes(), COMPRESSED.get(path.suffix.lower())
    if module is None:
        return content
    try:
        return bytes(module.decompress(content))
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise ValueError(f"{path}: expected a compressed table, got a damaged file: {error}") from error
