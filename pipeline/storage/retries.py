"""The one policy for calls to a store that may succeed if they are made again.

    transient  a store that does not answer, resets, answers 429 or 5xx, or breaks off a body (StoreUnavailableError):
               again after a pause that doubles from 0.1 s to 20 s, at most 10 times and 120 s of pauses; the variables
               CORPUSMILL_STORE_ATTEMPTS and CORPUSMILL_STORE_BUDGET_SECONDS say other numbers, for reads and writes;
               after a longer pause, of up to LONGEST_ASKED_SECONDS, where the answer asks for it (Retry-After)
    mismatch   bytes that are not what their checksum says (ChecksumMismatchError): once again; twice is permanent
    permanent  everything else (403, 404, a changed object): at once

The SDKs' own retries are switched off, so that this is all there is, and `Traffic` counts all of it. Pauses are spread
by the digest of place, process and attempt: equal for equal runs, different for the calls that failed together.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import sleep
from typing import Any, TypeVar

from corpusmill.errors import ConfigError, StoreUnavailableError, VerificationError

T = TypeVar("T")

LONGEST_ASKED_SECONDS = 60.0  # a store that needs longer is one for the scheduler's own retries
TWICE = ("tried", "twice, with the same outcome")


class ChecksumMismatchError(VerificationError):
    """What arrived is not what was sent; worth one more try, because a transfer may be to blame."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long a transient failure is tried again."""

    attempts: int = 10
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 20.0
    budget_seconds: float = 120.0

    def pause_seconds(self, where: str, attempt: int) -> float:
        """Pause after failed attempt 0, 1, ...: half of the doubled pause, and up to as much again as jitter."""
        whole = min(self.longest_pause_seconds, self.first_pause_seconds * 2.0**attempt)
        seed = f"{where}\0{os.getpid()}\0{threading.get_ident()}\0{attempt}".encode()
        share = int.from_bytes(hashlib.sha256(seed).digest()[:4], "little") / 2**32
        return whole * (0.5 + 0.5 * share)


ATTEMPTS_KEY, BUDGET_KEY = "CORPUSMILL_STORE_ATTEMPTS", "CORPUSMILL_STORE_BUDGET_SECONDS"


def policy_of(environment: Mapping[str, str]) -> RetryPolicy:
    """The policy, its attempts and its budget of pauses as the environment says; ConfigError for what is no number."""
    policy = RetryPolicy()
    for key, name, least in ((ATTEMPTS_KEY, "attempts", 1), (BUDGET_KEY, "budget_seconds", 0)):
        if setting := environment.get(key):
            if not setting.isdecimal() or int(setting) < least:
                raise ConfigError(
                    "an environment variable is not a number of attempts",
                    where=key,
                    expected=f"{least} or more",
                    got=setting,
                )
            policy = replace(policy, **{name: int(setting)})
    return policy


POLICY = policy_of(os.environ)


@dataclass
class Traffic:
    """What went over the wire, for the report. It says how a step came about and is outside of receipts' digests.

    `without_checksum`: files and parts of which the store has no checksum, so that two reads were compared.
    """

    requests: int = 0
    retries: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    without_checksum: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, **counts: int) -> None:
        """Count, by name; threads may do so at the same time."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def as_counts(self) -> dict[str, int]:
        """The figures by name."""
        names = ("requests", "retries", "bytes_received", "bytes_sent", "without_checksum")
        return {name: getattr(self, name) for name in names}


def busy(what: str, *, headers: Any, **details: Any) -> StoreUnavailableError:
    """The error for an answer that may be another one later; `headers` of the answer by lower-case name, or None.

    Its Retry-After (RFC 9110, 10.2.3) is a number of seconds or a date; anything else asks for nothing.
    """
    error = StoreUnavailableError(what, **details)
    asked = str((headers or {}).get("retry-after") or "")
    if asked.isdecimal():
        error.wait_seconds = float(asked)
    elif asked:
        with suppress(ValueError, TypeError):
            error.wait_seconds = (parsedate_to_datetime(asked).astimezone(UTC) - datetime.now(UTC)).total_seconds()
    return error


def twice_if_changed(call: Callable[[], T], traffic: Traffic) -> T:
    """The result of `call`, which makes many requests that are retried by themselves; again if a checksum is wrong."""
    try:
        return call()
    except ChecksumMismatchError:
        traffic.add(retries=1)
    try:
        return call()
    except ChecksumMismatchError as error:
        error.details = (*error.details, TWICE)
        raise


def retried(call: Callable[[], T], *, where: str, traffic: Traffic) -> T:
    """The result of `call`, made again as the policy says; the last error says how often it was tried."""
    policy = POLICY
    paused = 0.0
    mismatches = 0
    for attempt in range(policy.attempts):
        traffic.add(requests=1)
        try:
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
