"""One fault, in words that can be acted on."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from corpusmill.engine.stage import StepMissingError
from corpusmill.errors import CorpusmillError
from corpusmill.ledger import DamagedStepError

# What reading damaged files and receipts can raise; anything else is a fault of the code and must be seen as one.
DAMAGE = (CorpusmillError, ArithmeticError, LookupError, OSError, TypeError, ValueError, struct.error)

ELSEWHERE = (StepMissingError, DamagedStepError)  # another step is not whole: that is a finding of its own


@dataclass(frozen=True)
class Finding:
    """What is wrong; where (a file, and the byte where that can be said); what was expected there; what was found."""

    what: str
    where: str
    expected: str
    got: str


def finding_of(error: BaseException | None, what: str, where: object) -> Finding:
    """An error of one of the rooms as a finding; `what` and `where` stand in for what the error does not say."""
    if not isinstance(error, CorpusmillError):
        return Finding(what, str(where), "what its writer wrote", f"{type(error).__name__}: {error}")
    details = {label: str(value) for label, value in error.details}
    return Finding(error.what, details.get("where", str(where)), details.get("expected", "-"), details.get("got", "-"))


def difference(expected: object, got: object) -> tuple[str, str]:
    """Two unequal values in words; of mappings only the parts that differ."""
    if isinstance(expected, dict) and isinstance(got, dict):
        keys = sorted(key for key in expected.keys() | got.keys() if expected.get(key) != got.get(key))
        return _entries(expected, keys), _entries(got, keys)
    return str(expected), str(got)


def _entries(values: dict[str, object], keys: list[str]) -> str:
    return ", ".join(f"{key}: {values[key]}" if key in values else f"no {key}" for key in keys)
