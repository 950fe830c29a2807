"""Identity: canonical JSON, sha256, and digests of files.

A step's fingerprint is the sha256 of the canonical JSON of everything that can change its bytes. Two runs that would
write the same bytes have the same fingerprint on every machine, so canonical JSON admits only values whose text is the
same everywhere: objects with string keys, arrays, strings, integers, finite floats, booleans and null. Anything else
(a set has no order, a callable no content, a NaN no equality, a path another meaning on another machine) raises
NoStableIdentityError.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import xxhash

from corpusmill.errors import PermanentError
from corpusmill.lazy import lazily

with lazily:
    import numpy as np


if TYPE_CHECKING:
    import numpy as np

FOLDER_DIGITS = 16  # 64 bits: among a billion folders, two share a name with probability 0.03
READ_BYTES = 1 << 20
TEXT = frozenset({str})
PLAIN = frozenset({str, int, bool, float, type(None)})  # types whose JSON, if there is one, is the same everywhere

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

Algorithm = Literal["sha256", "xxh3_128"]


class NoStableIdentityError(PermanentError):
    """A value whose identity differs from run to run was about to enter a fingerprint."""


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; the same bytes for equal values on every machine."""
    if not _is_plain(value):
        _require_stable(value, "value")
    try:
        return _CANONICAL.encode(value).encode()
    except ValueError:  # NaN or infinity
        _require_stable(value, "value")
        raise


def fingerprint(value: object) -> str:
    """64 hex digits: the sha256 of `canonical_json(value)`; NoStableIdentityError for a value that has none."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def random_words(identity: object) -> np.random.Philox:
    """Random uint64 words that `identity` determines, the same on every machine.

    Philox-4x64 (Salmon et al., SC 2011), whose key is the first 128 bits of `fingerprint(identity)`. Use random_raw
    alone: numpy guarantees the raw words, not its distributions.
    """
    key = np.frombuffer(bytes.fromhex(fingerprint(identity))[:16], "<u8").astype(np.uint64)
    return np.random.Philox(key=key)


def file_digest(path: Path, algorithm: Algorithm = "sha256") -> str:
    """Hex digits of a file's digest: 64 of sha256, 32 of xxh3_128."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, lambda: _new_digest(algorithm)).hexdigest()


def file_digests(path: Path, algorithm: Algorithm = "sha256") -> tuple[str, bytes]:
    """A file's digest as `file_digest` gives it, and the XXH3-128 of each of its blocks of 1 MiB, 16 bytes each."""
    digest = _new_digest(algorithm)
    blocks = []
    buffer = memoryview(bytearray(READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
            blocks.append(xxhash.xxh3_128_digest(buffer[:size]))
    return digest.hexdigest(), b"".join(blocks)


def _new_digest(algorithm: Algorithm) -> Any:
    return hashlib.sha256() if algorithm == "sha256" else xxhash.xxh3_128()


def _is_plain(value: object) -> bool:
    """Whether a value is made of plain types only: the fast path, since a build checks a hundred thousand values."""
    kind, items = type(value), cast("Any", value)
    if kind is dict:
        if not TEXT.issuperset(map(type, items)):
            return False
        items = items.values()
    elif kind is not list and kind is not tuple:
        return kind in PLAIN
    return PLAIN.issuperset(map(type, items)) or all(map(_is_plain, items))


def _require_stable(value: object, where: str) -> None:
    reason = _why_unstable(value)
    if reason:
        raise NoStableIdentityError(
            f"fingerprint.unstable_value: a {type(value).__name__} cannot be part of a fingerprint: {reason}",
            where=where,
            expected="objects, arrays, strings, integers, finite floats, booleans, null",
            got=repr(value)[:80],
            next_step="give the setting as plain text or a number",
        )
    if isinstance(value, Mapping):
        for key, item in value.items():
            _require_stable(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            _require_stable(item, f"{where}[{position}]")


def _why_unstable(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "it does not equal itself or has no JSON text"
    if isinstance(value, set | frozenset):
        return "it has no order"
    if isinstance(value, Path):
        return "the same file has another path on another machine; name files relative to their source"
    if isinstance(value, Mapping):
        return None if all(isinstance(key, str) for key in value) else "its keys are not all strings"
    if value is None or isinstance(value, str | int | float | list | tuple):
        return None
    return "a function's text does not show what it does" if callable(value) else "it has no canonical JSON"
