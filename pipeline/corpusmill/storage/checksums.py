"""Computes the checksums that stores keep of whole objects, and our own checksum of local copies.

sha256 md5 crc64nvme crc32c crc32    of the whole content
md5-parts                            S3's ETag of a multipart upload: md5 of the parts' md5s, then -<parts>
git-sha1                             git's name of a blob: sha1 of "blob <size>\\0" and the content
xxh3_128                             no store's: ours of a local copy, so that a later step notices if it has changed
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import xxhash

from corpusmill.lazy import lazily

with lazily:
    from corpusmill.storage import crc64


# In order of preference. All but the first two only guard against accidents, for which 32 bits in hardware
# (10 GB/s) or 64 bits (2 GB/s) serve as well as md5 does at 0.65 GB/s.
KINDS = ("sha256", "git-sha1", "crc64nvme", "crc32c", "md5", "md5-parts", "crc32")

# For files that only this build reads again (engine/decisions/0004-two-digests.md); at 20 GB/s it is almost free.
OWN_KIND = "xxh3_128"

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Checksum:
    """A checksum of some content: `value` in lower-case hex (md5-parts: hex, -, number of parts of `part_bytes`)."""

    kind: str
    value: str
    part_bytes: int = 0

    def __str__(self) -> str:
        """``kind:value``, as receipts write digests; `parse_checksum` reads it."""
        return f"{self.kind}:{self.value}"


def parse_checksum(text: str) -> Checksum:
    """The inverse of str(), except for md5-parts, since the text lacks the size of parts."""
    kind, _, value = text.partition(":")
    return Checksum(kind, value)


def strongest(stated: Iterable[Checksum]) -> tuple[Checksum, ...]:
    """The one checksum worth computing: the first by KINDS makes the others needless."""
    return tuple(sorted(stated, key=lambda checksum: KINDS.index(checksum.kind))[:1])


class Running(Protocol):
    """The interface of hashlib's objects and those below."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc32:
    def __init__(self) -> None:
        self._crc = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._crc = zlib.crc32(data, self._crc)

    def digest(self) -> bytes:
        return self._crc.to_bytes(4, "big")


class PartsMd5:
    """md5 of the md5s of parts of `part_bytes`, however the updates are cut."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._digests: list[bytes] = []
        self._part = hashlib.md5(usedforsecurity=False)
        self._filled = 0

    def update(self, data: bytes | memoryview, /) -> None:
        unread = memoryview(data)
        while unread:
            piece = unread[: self._part_bytes - self._filled]
            self._part.update(piece)
            self._filled += len(piece)
            unread = unread[len(piece) :]
            if self._filled == self._part_bytes:
                self._close_part()

    def _close_part(self) -> None:
        self._digests.append(self._part.digest())
        self._part, self._filled = hashlib.md5(usedforsecurity=False), 0

    def value(self) -> str:
        """As S3 writes it: hex, -, number of parts."""
        digests = [*self._digests, *([self._part.digest()] if self._filled else [])]
        return multipart_etag(digests)


def multipart_etag(md5s: Iterable[bytes]) -> str:
    """The ETag that S3 gives to an object of these parts."""
    parts = list(md5s)
    return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"


def etag_value(etag: str) -> str:
    """An ETag without quotes and weakness mark: not every server quotes it, and compressing proxies mark it weak."""
    return etag.removeprefix("W/").strip('"')


class Verifier:
    """Digests content in order, compares it with its stated checksums, and computes our own."""

    def __init__(self, stated: Iterable[Checksum], size_bytes: int) -> None:
        self._own = xxhash.xxh3_128()
        self._running = [
            (checksum, self._own if checksum.kind == OWN_KIND else _running(checksum, size_bytes))
            for checksum in stated
        ]

    def updates(self) -> tuple[Callable[[bytes | memoryview], None], ...]:
        """What adds bytes to each of the digests; they may run at the same time, each in order."""
        return (self._own.update, *(running.update for _, running in self._running if running is not self._own))

    def update(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        for update in self.updates():
            update(data)

    def read(self, path: Path) -> None:
        """Add all of a file."""
        with path.open("rb", buffering=0) as file:
            while data := file.read(READ_BYTES):
                self.update(data)

    def own(self) -> Checksum:
        """Our own checksum of what was added."""
        return Checksum(OWN_KIND, self._own.hexdigest())

    def values(self) -> dict[str, str]:
        """What was computed, by kind."""
        return {stated.kind: _value(running) for stated, running in self._running}

    def contradicted(self) -> list[tuple[Checksum, str]]:
        """(what the store says, what was computed) where they differ."""
        got = [(stated, _value(running)) for stated, running in self._running]
        return [(stated, value) for stated, value in got if stated.value != value]


def _value(running: Running | PartsMd5) -> str:
    return running.value() if isinstance(running, PartsMd5) else running.digest().hex()


def _running(stated: Checksum, size_bytes: int) -> Running | PartsMd5:
    if stated.kind in {"sha256", "md5"}:
        return hashlib.new(stated.kind, usedforsecurity=False)
    if stated.kind == "md5-parts":
        return PartsMd5(stated.part_bytes)
    if stated.kind == "crc32":
        return _Crc32()
    if stated.kind == "crc32c":
        from google_crc32c import Checksum as Crc32c

        running: Running = Crc32c()  # type: ignore[no-untyped-call]
        return running
    if stated.kind == "crc64nvme":
        return crc64.Crc64Nvme()
    if stated.kind == "git-sha1":
        named = hashlib.sha1(usedforsecurity=False)
        named.update(b"blob %d\0" % size_bytes)
        return named
    raise ValueError(f"no checksum of kind {stated.kind}, only {', '.join(KINDS)}")
