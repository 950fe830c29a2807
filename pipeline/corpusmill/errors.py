"""Errors that help: what went wrong, where, expected, got, and what to do next.

Two families, because a scheduler must treat them differently:

* `PermanentError`: the same input will fail again (bad configuration, corrupt data, accounts that do not balance).
  A task fails at once and is not retried.
* `TransientError`: the same call may succeed later (network, a busy store, a full disk that someone clears).
  A task is retried with backoff.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# C0 and C1 except line breaks and tabs, bidirectional controls, and lone surrogates: a terminal obeys the first two and
# cannot print the third.
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """`text` with control characters as escapes, such as ``\\x1b``; line breaks and tabs stay."""
    return _UNSEEN.sub(lambda sign: repr(sign[0])[1:-1], text)


def inline(text: str) -> str:
    """Untrusted text as one line, with control characters as escapes."""
    return visible(text).replace("\n", r"\n").replace("\t", r"\t")


PYDANTICS = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "must be a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "must be a number"),
    ("Input should be", "must be"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
)


def plain(words: str) -> str:
    """What pydantic says of a value, in plain words; typer quotes it, too."""
    for theirs, ours in PYDANTICS:
        words = words.replace(theirs, ours)
    return words


class CorpusmillError(Exception):
    """Base of every error that Corpusmill raises on purpose.

    The text is a code and a sentence, ``config.too_large: the configuration file is too large``. `code` is for programs
    and stays when the words change (docs/errors.md lists all), `what` is the sentence. `details` are (label, value)
    pairs, printed below it, one per line, aligned. The usual labels are ``where``, ``expected``, ``got`` and ``next``;
    keyword arguments make those. A program that ends with the error exits with `exit_code`.
    """

    exit_code = 1

    def __init__(
        self,
        text: str,
        *,
        where: object = None,
        expected: object = None,
        got: object = None,
        next_step: str | None = None,
        details: tuple[tuple[str, object], ...] = (),
    ) -> None:
        self.code, _, self.what = text.partition(": ")
        named = (("where", where), ("expected", expected), ("got", got), ("next", next_step))
        self.details = (*details, *((label, value) for label, value in named if value is not None))
        super().__init__(text)

    def __str__(self) -> str:
        details = [(visible(label), value) for label, value in self.details]
        width = max((len(label) for label, _ in details), default=0)
        lines = [f"  {label:<{width}}  {_indented(value, width + 4)}" for label, value in details]
        return "\n".join([f"error[{self.code}]: {visible(self.what)}", *lines])

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (worker pools); the default would lose the details.
        return (_rebuild, (type(self), self.args[0], self.details))


def _indented(value: object, columns: int) -> str:
    return visible(str(value)).replace("\n", "\n" + " " * columns)


def _rebuild(cls: type[CorpusmillError], text: str, details: tuple[tuple[str, object], ...]) -> CorpusmillError:
    return cls(text, details=details)


class PermanentError(CorpusmillError):
    """Trying again cannot help: the input, the configuration or the code must change."""


class TransientError(CorpusmillError):
    """Trying again later may help."""

    exit_code = 75  # sysexits.h EX_TEMPFAIL: the same command may succeed later


class ConfigError(PermanentError):
    """The dataset configuration cannot be used as written."""


class MissingConfigError(ConfigError):
    """What was typed leads to no configuration."""

    exit_code = 2  # as for other wrong arguments


class MissingStepError(ConfigError):
    """What was typed leads to no step."""

    exit_code = 2


class InvalidValueError(ValueError):
    """A value that no setting may have, as a code and a sentence; whoever reads the setting adds where it is."""

    def __init__(self, text: str) -> None:
        self.code, _, self.what = text.partition(": ")
        super().__init__(text)

    def __str__(self) -> str:
        return self.what


class SourceError(PermanentError):
    """A source is missing, empty, or not what the plan saw."""


class MissingSourceError(SourceError):
    """What was typed leads to no file that can be read."""

    exit_code = 2


class CorruptDataError(PermanentError):
    """Bytes that should have been readable are not: truncated, wrong checksum, wrong format."""


class RejectedDocumentsError(PermanentError):
    """More documents were rejected than the configuration allows."""


class TokenizerError(PermanentError):
    """The tokenizer is unknown, is not the pinned one, or cannot do what was asked of it."""


class BalanceError(PermanentError):
    """Two counts that must be equal are not: something was lost or written twice."""


class VerificationError(PermanentError):
    """An output contradicts its receipt or its format."""


class StorageFullError(TransientError):
    """A write failed because the device or the quota is full; a retry works once space is free."""

    exit_code = 73  # sysexits.h EX_CANTCREAT


@contextmanager
def full_device_explained(what: str, *, where: Path, next_step: str) -> Iterator[None]:
    """Raise StorageFullError for an OSError that reports a full device or quota; others pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        # On a full device, creating the folder itself may have failed.
        free_bytes = shutil.disk_usage(next(folder for folder in (where, *where.parents) if folder.is_dir())).free
        got = f"{free_bytes:,} bytes free ({os.strerror(error.errno)})"
        raise StorageFullError(what, where=where, got=got, next_step=next_step) from error


class StoreUnavailableError(TransientError):
    """A store did not answer, or answered that it is busy.

    `wait_seconds`: how long it asked to wait. `given_up`: retries are used up, so callers must not retry.
    """

    wait_seconds = 0.0
    given_up = False
