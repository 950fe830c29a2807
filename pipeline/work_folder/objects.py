"""Objects of one bucket: small ones, put on conditions; stretches of large ones; listings. The interface: two stores
implement it, s3_objects.py and gcs_objects.py; buckets.py opens them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.errors import PermanentError, TransientError

if TYPE_CHECKING:
    from corpusmill.storage.s3_multipart import Unfinished

RANGE_BYTES = 8 << 20
THREADS = 4


class TakenError(TransientError):
    """An object is there already, or is another one than it was: somebody else was first."""


class GoneError(PermanentError):
    """An object is not there."""


@dataclass(frozen=True)
class Small:
    """An object that is read whole. `tag` names this content of it: an ETag in S3, a generation in Google's store.
    Times are the store's, in seconds: its change, the answer.
    """

    content: bytes
    tag: str
    changed_at: float
    asked_at: float


@dataclass(frozen=True)
class Listed:
    """An object of a listing."""

    key: str
    size_bytes: int
    changed_at: float
    tag: str


class Objects(ABC):
    """Requests to one bucket, at the endpoint and with the credentials that the environment says.

    `address`: s3://bucket or gs://bucket. What a process knows of it: `tags`, of small objects by key as they were last
    seen, "" for one that was not there; `keeps_conditions`, once that is known; `looked_at`, the bytes it had moved
    when it looked what the cache holds. `if_absent`, `if_same`: what the store calls its conditions; `other_tag`: one
    that no object has.
    """

    if_absent: str
    if_same: str
    other_tag: str

    def __init__(self, address: str) -> None:
        self.address = address
        self.tags: dict[str, str] = {}
        self.keeps_conditions = False
        self.looked_at = 0

    def location(self, key: str) -> str:
        """The complete address of an object."""
        return f"{self.address}/{key}"

    @abstractmethod
    def get(self, key: str) -> Small | None:
        """A small object, or None."""

    @abstractmethod
    def put(self, key: str, content: bytes, *, over: str | None = None) -> Small:
        """Write a small object: where none is (`over` is ""), over the one of that tag, or whatever is there (None).

        TakenError if another is there. One's own success may be answered so, where an answer was lost: look.
        """

    @abstractmethod
    def send(self, path: Path, key: str) -> None:
        """Upload a file under a key that nobody else writes.

        The store compares what arrives with one digest that comes along. Whoever reads the object compares it with the
        digests of its blocks.
        """

    def read(self, key: str, first: int, last: int) -> bytes:
        """The bytes [first, last) of an object; GoneError if it is not there, or is shorter."""
        ranges = [(begin, min(begin + RANGE_BYTES, last)) for begin in range(first, last, RANGE_BYTES)]
        if len(ranges) == 1:
            return self._range(key, *ranges[0])
        with ThreadPoolExecutor(THREADS) as pool:
            return b"".join(pool.map(lambda block: self._range(key, *block), ranges))

    @abstractmethod
    def _range(self, key: str, first: int, last: int) -> bytes:
        """The same in one request."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with `prefix`, in the store's order."""

    @abstractmethod
    def folders(self, prefix: str) -> Iterator[str]:
        """What stands between `prefix` and the next slash, of all keys that have both; each once."""

    @abstractmethod
    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Uploads in parts that a killed worker left behind, or that one is about to finish."""

    @abstractmethod
    def abort(self, upload: Unfinished) -> None:
        """End such an upload."""

    @abstractmethod
    def clock(self) -> float:
        """What time it is for the store, in seconds."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; nothing happens if there is none."""

    def gone(self, key: str) -> GoneError:
        """The error for a stretch that is not there."""
        return GoneError("an object is gone, or shorter than before", where=self.location(key))

    def taken(self, key: str) -> TakenError:
        """The error for an object that another wrote."""
        return TakenError("somebody else wrote an object", where=self.location(key))
