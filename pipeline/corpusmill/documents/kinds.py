"""What a file is, by its first bytes. Every reader compares it with the name, so foreign bytes never pass as lines.

A gzip file named `.jsonl` would be a few malformed lines, below the limit, and its documents would be missing; its
bytes, cut at every 0A, would be shuffled as lines. No text begins with the marks below. A file without a mark is what
its name says.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import BinaryIO

from corpusmill.errors import SourceError
from corpusmill.storage.conversions import conversion_of

HEAD_BYTES = 512
"""A tar's first header; every other mark is shorter."""

JSON_LINES, GZIP, ZSTD, XZ, BZIP2, LZ4 = "JSON lines", "gzip", "Zstandard", "xz", "bzip2", "lz4"
PARQUET, ARROW_FILE, ARROW_STREAM = "parquet", "Arrow IPC", "an Arrow IPC stream"
LINES = frozenset({None, JSON_LINES})
"""The kinds of a file of lines: any text."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What files of a kind begin with, and how to have their text read."""

    name: str
    mark: re.Pattern[bytes]
    remedy: str


def _kind(name: str, mark: bytes, remedy: str) -> Kind:
    return Kind(name, re.compile(mark, re.DOTALL), remedy)


KINDS = (
    _kind(GZIP, rb"\x1f\x8b\x08", "decompress it with gzip -dc, or end its name in .jsonl.gz"),
    _kind(
        ZSTD, rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", "decompress it with zstd -dc, or end its name in .jsonl.zst"
    ),
    _kind(XZ, rb"\xfd7zXZ\x00", "decompress it with xz -dc, or end its name in .jsonl.xz"),
    _kind(BZIP2, rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "decompress it with bzip2 -dc, or end its name in .jsonl.bz2"),
    _kind(LZ4, rb"\x04\x22\x4d\x18", "decompress it with lz4 -dc, or end its name in .jsonl.lz4"),
    _kind("lz4 of before 2013", rb"\x02\x21\x4c\x18", "decompress it with lz4 -dc, and name the result .jsonl"),
    _kind(PARQUET, rb"PAR1\x15|PARE", "end its name in .parquet"),
    _kind("zip", rb"PK\x03\x04", "unpack it with unzip, and name the files in it"),
    _kind(ARROW_FILE, rb"ARROW1\x00\x00", "end its name in .arrow"),
    _kind(ARROW_STREAM, rb"\xff\xff\xff\xff..[\x00-\x0f]\x00\x10\x00\x00\x00", "end its name in .arrow"),
    _kind("numpy", rb"\x93NUMPY", "name files of text; corpusmill shuffle reads .npy shards"),
    _kind("UTF-16", rb"\xff\xfe[^\x00]\x00|\xfe\xff\x00[^\x00]", "convert it with iconv -f UTF-16 -t UTF-8"),
    _kind(JSON_LINES, rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{", "end its name in .jsonl, without the ending of another kind"),
)
TAR = Kind("tar", re.compile(rb"(?!)"), "unpack it with tar -xf, and name the files in it")


def kind_of(head: bytes) -> Kind | None:
    """The kind of a file that begins with `head` (HEAD_BYTES, or all bytes of a shorter file); None for other text."""
    return next((kind for kind in KINDS if kind.mark.match(head)), TAR if _is_tar_header(head) else None)


def _is_tar_header(head: bytes) -> bool:
    """Whether the bytes of a header, those of the checksum as spaces, sum up to its checksum, as in any tar."""
    stated = head[148:156].strip(b" \0")
    if len(head) < HEAD_BYTES or b"\0" not in head or not re.fullmatch(rb"[0-7]{1,7}", stated):
        return False
    return int(stated, 8) == sum(head[:148]) + 8 * ord(" ") + sum(head[156:HEAD_BYTES])


def require_kind(head: bytes, name: str, wanted: str, accepted: Collection[str | None], *, within: str = "") -> None:
    """SourceError for a file, or what is compressed `within` it, whose first bytes are of another kind."""
    kind = kind_of(head)
    if kind is None or kind.name in accepted:
        return
    raise SourceError(
        "source.other_kind: a file is not what its name says",
        where=name,
        expected=wanted,
        got=f"{kind.name} within {within}" if within else kind.name,
        next_step=kind.remedy,
    )


def require_json(head: bytes, name: str, *, text: bool) -> None:
    """SourceError, with the line that converts it, for a file that begins as a JSON array does, or as a JSON object
    over several lines; with `text`, too, for one that begins as no JSON object does.

    Without it such a beginning is one malformed line.
    """
    mark = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    as_whole = mark.startswith(b"[") or re.match(rb"\{[ \t\r]*\n", mark)
    if not as_whole and not (text and mark and not mark.startswith(b"{")):
        return
    if found := conversion_of(name, head):
        what, line = found
        raise SourceError(
            "source.not_json_lines: a file does not hold JSON lines",
            where=name,
            expected="a JSON object in each line",
            got=what,
            next_step=line,
        )


def read_head(raw: BinaryIO) -> bytes:
    """The next HEAD_BYTES of a stream, fewer only at its end."""
    head = b""
    while len(head) < HEAD_BYTES and (data := raw.read(HEAD_BYTES - len(head))):
        head += data
    return head


class Rejoined:
    """A stream from which `head` was read, as a stream that begins with it."""

    def __init__(self, head: bytes, raw: BinaryIO) -> None:
        self._head = head
        self._raw = raw

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty only at the end."""
        head, self._head = self._head[:size], self._head[size:]
        return head or self._raw.read(size)
