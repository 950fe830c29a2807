"""One fault, described so that a user can act on it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from corpusmill.engine.ledger import DamagedStepError
from corpusmill.engine.stage import StepMissingError
from corpusmill.errors import CorpusmillError

# Errors that damaged files and receipts can cause; anything else is a bug, and must be raised.
DAMAGE = (
    CorpusmillError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)

ELSEWHERE = (StepMissingError, DamagedStepError)  # another step is damaged: that is a separate finding


@dataclass(frozen=True)
class Finding:
    """A fault; where (a file, and the byte if known); what was expected there; what was found.

    `next_step`: what to do about it, if rerunning the step is not the answer.
    """

    what: str
    where: str
    expected: str
    got: str
    next_step: str = ""


def finding_of(error: BaseException | None, what: str, where: object) -> Finding:
    """An error of any room as a finding; `what` and `where` are used if the error lacks its own."""
    if not isinstance(error, CorpusmillError):
        return Finding(what, str(where), "what its writer wrote", f"{type(error).__name__}: {error}")
    details = {label: str(value) for label, value in error.details}
    return Finding(error.what, details.get("where", str(where)), details.get("expected", "-"), details.get("got", "-"))


def difference(expected: object, got: object) -> tuple[str, str]:
    """Two unequal values as text; of mappings only the entries that differ."""
    if isinstance(expected, dict) and isinstance(got, dict):
        keys = sorted(key for key in expected.keys() | got.keys() if expected.get(key) != got.get(key))
        return _entries(expected, keys), _entries(got, keys)
    return str(expected), str(got)


def _entries(values: dict[str, object], keys: list[str]) -> str:
    return ", ".join(f"{key}: {values[key]}" if key in values else f"no {key}" for key in keys)
