"""The one retry policy for calls to stores, and reading twice what no checksum covers.

    transient  a store that does not answer, resets, answers 429 or 5xx, or breaks off a body (StoreUnavailableError):
               again after a pause that doubles from 0.1 s to 20 s, at most 10 times and 120 s of pauses; the variables
               CORPUSMILL_STORE_ATTEMPTS and CORPUSMILL_STORE_BUDGET_SECONDS change these limits, for reads and writes;
               after a longer pause, of up to LONGEST_ASKED_SECONDS, if the answer requests it (Retry-After)
    mismatch   bytes that do not match their checksum (ChecksumMismatchError): once again; twice is permanent
    permanent  everything else (403, 404, a changed object): at once

The SDKs' own retries are switched off, so this policy is the only one, and `Traffic` counts all retries. Jitter is a
digest of place, process, thread and attempt, so that calls that failed together are retried at different times.

Listings have no checksum, and one wrong byte in a page can lose a file, or all later pages, without a trace. Ranges of
an object have none, either: its checksum is of the whole. So both are requested twice, and one wrong answer is noticed,
whatever its cause; the price is twice the bytes on the wire.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import zip_longest
from time import sleep
from typing import Any, TypeVar

from corpusmill.errors import ConfigError, StoreUnavailableError, VerificationError
from corpusmill.storage.locations import StoredFile

log = logging.getLogger(__name__)

T = TypeVar("T")

NAMED_AFTER_SECONDS = 3.0
LONGEST_ASKED_SECONDS = 60.0  # longer waits are left to the scheduler's own retries
TWICE = ("tried", "twice, with the same outcome")


class ChecksumMismatchError(VerificationError):
    """What arrived differs from what was sent; retried once, because the transfer may be the cause."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long a transient failure is retried."""

    attempts: int = 10
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 20.0
    budget_seconds: float = 120.0

    def pause_seconds(self, where: str, attempt: int) -> float:
        """Pause after failed attempt 0, 1, ...: half of the exponential pause, plus jitter up to the other half."""
        whole = min(self.longest_pause_seconds, self.first_pause_seconds * 2.0**attempt)
        seed = f"{where}\0{os.getpid()}\0{threading.get_ident()}\0{attempt}".encode()
        share = int.from_bytes(hashlib.sha256(seed).digest()[:4], "little") / 2**32
        return whole * (0.5 + 0.5 * share)


ATTEMPTS_KEY, BUDGET_KEY = "CORPUSMILL_STORE_ATTEMPTS", "CORPUSMILL_STORE_BUDGET_SECONDS"


def policy_of(environment: Mapping[str, str]) -> RetryPolicy:
    """The policy with the attempts and the budget of pauses from the environment; ConfigError for malformed ones."""
    policy = RetryPolicy()
    for key, name, least in ((ATTEMPTS_KEY, "attempts", 1), (BUDGET_KEY, "budget_seconds", 0)):
        if setting := environment.get(key):
            if not setting.isdecimal() or int(setting) < least:
                raise ConfigError(
                    "store.attempts: an environment variable is not a number of attempts",
                    where=key,
                    expected=f"{least} or more",
                    got=setting,
                )
            policy = replace(policy, **{name: int(setting)})
    return policy


POLICY = policy_of(os.environ)


@dataclass
class Traffic:
    """What went over the wire, for the report. It differs between runs, so it is outside receipts' digests.

    `without_checksum`: files and parts of which the store has no checksum, so that two reads were compared.
    """

    requests: int = 0
    retries: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    without_checksum: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        """Add to counts by name; thread-safe."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def as_counts(self) -> dict[str, int]:
        """The figures by name."""
        names = ("requests", "retries", "bytes_received", "bytes_sent", "without_checksum")
        return {name: getattr(self, name) for name in names}


def busy(what: str, *, headers: Any, **details: Any) -> StoreUnavailableError:
    """The error for an answer that may differ later; `headers` of the answer by lower-case name, or None.

    Its Retry-After (RFC 9110, 10.2.3) is a number of seconds or a date; anything else is ignored.
    """
    error = StoreUnavailableError(what, **details)
    delay = str((headers or {}).get("retry-after") or "")
    if delay.isdecimal():
        error.wait_seconds = float(delay)
    elif delay:
        with suppress(ValueError, TypeError):
            error.wait_seconds = (parsedate_to_datetime(delay).astimezone(UTC) - datetime.now(UTC)).total_seconds()
    return error


def twice_if_changed(call: Callable[[], T], traffic: Traffic) -> T:
    """The result of `call`, whose requests have retries of their own; called again if a checksum is wrong."""
    try:
        return call()
    except ChecksumMismatchError:
        traffic.add(retries=1)
    try:
        return call()
    except ChecksumMismatchError as error:
        error.details = (*error.details, TWICE)
        raise


def retried(
    call: Callable[[], T],
    *,
    where: str,
    traffic: Traffic,
    explained: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> T:
    """The result of `call`, retried by the policy; the last error states the number of attempts.

    Each attempt runs within `explained()`, which translates a library's errors.
    """
    policy = POLICY
    paused = 0.0
    mismatches = 0
    store = "/".join(where.split("/")[:3])
    for attempt in range(policy.attempts):
        traffic.add(requests=1)
        try:
            with explained(), _named_if_silent(store):
                return call()
        except ChecksumMismatchError as error:
            mismatches += 1
            if mismatches == 2:
                error.details = (*error.details, TWICE)
                raise
            pause = 0.0
        except StoreUnavailableError as error:
            if error.given_up:
                raise
            if not attempt:
                _tell_of_waiting(store, str(dict(error.details).get("got", "no answer")))
            pause = max(policy.pause_seconds(where, attempt), min(error.wait_seconds, LONGEST_ASKED_SECONDS))
            if attempt + 1 == policy.attempts or paused + pause > policy.budget_seconds:
                tried = f"{attempt + 1} times, with {paused:.1f} s of pauses"
                next_step = ("next", "check that the store is reachable, then run again: what has arrived is kept")
                error.given_up = True
                has_next = any(label == "next" for label, _ in error.details)
                error.details = (*error.details, ("tried", tried), *(() if has_next else (next_step,)))
                raise
        traffic.add(retries=1)
        paused += pause
        sleep(pause)
    raise AssertionError("unreachable: the last attempt returns or raises")


_answered: set[str] = set()
_told: set[str] = set()


@contextmanager
def _named_if_silent(store: str) -> Iterator[None]:
    """For the first requests to a store in a process: name it when no answer has come for NAMED_AFTER_SECONDS."""
    if store in _answered:
        yield
        return
    timer = threading.Timer(NAMED_AFTER_SECONDS, _tell_of_waiting, (store, f"silent for {NAMED_AFTER_SECONDS:g} s"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    _answered.add(store)


def _tell_of_waiting(store: str, got: str) -> None:
    """Log once per process that a store does not answer, since all attempts can take minutes."""
    if store not in _told:
        _told.add(store)
        log.warning("%s does not answer as it should (%s); still trying", store, got)


ReadRange = Callable[[int, int], bytes]
"""(first, last) -> the bytes [first, last), whole or an error."""


def read_twice(read_range: ReadRange, *, where: str, traffic: Traffic) -> ReadRange:
    """`read_range` with every range read once more, by two requests for its halves, so that no cache of the first can
    answer.

    If the bytes differ, both reads are repeated; ChecksumMismatchError if they differ again.
    """

    def once(first: int, last: int) -> bytes:
        middle = (first + last) // 2
        data = read_range(first, last)
        if read_range(first, middle) + read_range(middle, last) != data:
            raise ChecksumMismatchError(
                "store.reads_differ: two reads of the same bytes differ",
                where=f"{where}, bytes {first:,} to {last:,}",
                next_step="run again; if it persists, check the network between here and the store",
            )
        return data

    return lambda first, last: twice_if_changed(lambda: once(first, last), traffic)


def listed_twice(listing: Callable[[], Iterator[StoredFile]], where: str) -> Iterator[StoredFile]:
    """The files of two concurrent listings, each with its own pages; StoreUnavailableError at a difference."""
    for first, other in zip_longest(listing(), listing()):
        if first is None or first != other:
            raise StoreUnavailableError(
                "store.listings_differ: two listings of the same place differ",
                where=where,
                expected=first.location if first else "the end of the listing",
                got=other.location if other else "the end of the listing",
                next_step="wait until nobody writes there, then run again",
            )
        yield first
