"""Objects of one bucket: conditional writes of small ones, ranges of large ones, listings. An interface with two
implementations, s3_objects.py and gcs_objects.py; buckets.py opens them.
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
    """An object exists already, or has changed: another process was first."""


class GoneError(PermanentError):
    """An object does not exist, or is too short."""


@dataclass(frozen=True)
class Small:
    """An object that is read whole. `tag` identifies its content: an ETag in S3, a generation in Google's store.

    Times are the store's, in seconds since 1970: of its last change, of the response.
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
    """Requests to one bucket, with endpoint and credentials from the environment.

    `address`: s3://bucket or gs://bucket. State of this process: `tags`, of small objects by key as last seen, "" for a
    missing one; `keeps_conditions`, once checked; `unseen`, bytes added to the cache since its size was measured, and
    `most_kept`, the largest size measured. `if_absent`, `if_same`: the store's names of its conditions; `other_tag`: a
    tag that no object has.
    """

    if_absent: str
    if_same: str
    other_tag: str

    def __init__(self, address: str) -> None:
        self.address = address
        self.tags: dict[str, str] = {}
        self.keeps_conditions = False
        self.unseen = 0
        self.most_kept = 0

    def location(self, key: str) -> str:
        """The complete address of an object."""
        return f"{self.address}/{key}"

    @abstractmethod
    def get(self, key: str) -> Small | None:
        """A small object, or None."""

    @abstractmethod
    def put(self, key: str, content: bytes, *, over: str | None = None) -> Small:
        """Write a small object: only if none exists (`over` is ""), only over the one with that tag, or always (None).

        TakenError if the condition fails; also for a retry after one's own success whose answer was lost, so look.
        """

    @abstractmethod
    def send(self, path: Path, key: str) -> None:
        """Upload a file under a key that no other process writes.

        The store checks one digest sent along. Readers of the object check the digests of its blocks.
        """

    def read(self, key: str, first: int, last: int) -> bytes:
        """The bytes [first, last) of an object; GoneError if it does not exist, or is shorter."""
        ranges = [(begin, min(begin + RANGE_BYTES, last)) for begin in range(first, last, RANGE_BYTES)]
        if len(ranges) == 1:
            return self._range(key, *ranges[0])
        with ThreadPoolExecutor(THREADS) as pool:
            return b"".join(pool.map(lambda block: self._range(key, *block), ranges))

    @abstractmethod
    def _range(self, key: str, first: int, last: int) -> bytes:
        """As read, in one request."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with `prefix`, in the store's order."""

    @abstractmethod
    def folders(self, prefix: str) -> Iterator[str]:
        """The names between `prefix` and the next slash, for all keys with both; each once."""

    @abstractmethod
    def unfinished(self, prefix: str) -> Sequence[Unfinished]:
        """Unfinished uploads in parts of keys that begin with `prefix`: of killed workers, or still running."""

    @abstractmethod
    def abort(self, upload: Unfinished) -> None:
        """End such an upload."""

    @abstractmethod
    def clock(self) -> float:
        """The store's time, in seconds since 1970."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""

    def gone(self, key: str) -> GoneError:
        """The error for a missing object or range."""
        return GoneError("an object is gone, or shorter than before", where=self.location(key))

    def cut(self, key: str, last: int, content_range: str) -> Exception:
        """The error for a range that came back shorter: GoneError if the object ends before `last`, as the answer's
        Content-Range says, or else a ValueError, for which the store is asked again.
        """
        size = content_range.rpartition("/")[2]
        if size.isdecimal() and int(size) < last:
            return self.gone(key)
        return ValueError("a response of another length")

    def taken(self, key: str) -> TakenError:
        """The error for an object that another process wrote."""
        return TakenError("another process wrote an object", where=self.location(key))
