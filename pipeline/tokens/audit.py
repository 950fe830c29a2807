"""The audit: ids compared with those of the library that defines them, on a sample of the dataset and on tricky text.

For every document: the ids equal the reference's, they are below the vocabulary's size and fit the shard's dtype, and
where the tokenizer promises it, decoding gives the text back. The first difference raises; nothing is averaged away.

Price: the reference library's speed (tiktoken 10 to 17 MB/s, tokenizers 2 to 5) over the sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from pipeline.errors import VerificationError
from pipeline.fingerprint import canonical_json
from pipeline.tokens.tokenizer import Tokenizer

TRICKY = Path(__file__).with_name("tricky.yaml")
SHOWN_IDS = 12
SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class Audited:
    """What was compared: documents, bytes, tokens, and how many documents had to decode to themselves (and did)."""

    documents: int
    text_bytes: int
    tokens: int
    round_trips: int


def tricky_texts() -> list[bytes]:
    """The fixed file of tricky strings, UTF-8."""
    return [text.encode() for text in yaml.safe_load(TRICKY.read_text(encoding="utf-8"))]


def sample_ordinals(shard: int, documents: int, wanted: int) -> NDArray[np.int64]:
    """`wanted` distinct ordinals of a shard's documents, ascending; uniform, and the same on every machine."""
    key = np.frombuffer(hashlib.sha256(canonical_json({"audit": shard})).digest()[:16], "<u8").astype(np.uint64)
    words = np.random.Philox(key=key).random_raw(documents)
    return np.sort(np.argsort(words, kind="stable")[:wanted])


def audit_documents(documents: Iterable[tuple[str, bytes, NDArray[Any]]], tokenizer: Tokenizer) -> Audited:
    """Compare (where from, text, ids) with the reference; VerificationError at the first difference."""
    reference = tokenizer.reference
    counted = text_bytes = tokens = round_trips = 0
    for where, text, ids in documents:
        expected = reference.encode(text)
        if not np.array_equal(ids, expected):
            raise _unequal(tokenizer, where, text, ids, expected)
        largest = int(expected.max()) if len(expected) else 0
        if largest >= tokenizer.vocabulary_size or largest > np.iinfo(tokenizer.dtype).max:
            raise VerificationError(
                "an id does not fit the vocabulary or the width of a token",
                where=where,
                expected=f"ids below {tokenizer.vocabulary_size:,} in {tokenizer.dtype.name}",
                got=f"{largest:,}",
            )
        if reference.promises_round_trip(text):
            back = reference.decode(ids)
            if back != text:
                raise VerificationError(
                    "a document's ids do not decode to its text",
                    where=where,
                    expected=_shown(text),
                    got=_shown(back),
                    details=(("ids", _ids(np.asarray(ids), 0)),),
                )
            round_trips += 1
        counted, text_bytes, tokens = counted + 1, text_bytes + len(text), tokens + len(ids)
    return Audited(counted, text_bytes, tokens, round_trips)


def audit_tricky(tokenizer: Tokenizer) -> Audited:
    """The engine on the fixed file of tricky strings, all in one batch."""
    texts = tricky_texts()
    tokens, ends = tokenizer.encode(texts)
    rows = np.split(tokens, ends[:-1].astype(np.int64))
    named = [
        (f"{TRICKY.name}, string {number}", text, ids)
        for number, (text, ids) in enumerate(zip(texts, rows, strict=True), start=1)
    ]
    return audit_documents(named, tokenizer)


def _unequal(
    tokenizer: Tokenizer, where: str, text: bytes, ids: NDArray[Any], expected: NDArray[Any]
) -> VerificationError:
    common = min(len(ids), len(expected))
    different = np.flatnonzero(ids[:common] != expected[:common])
    first = int(different[0]) if len(different) else common
    ends = tokenizer.reference.token_ends(text)
    start = int(ends[first - 1]) if first else 0
    return VerificationError(
        f"engine {tokenizer.engine} gave other ids than {tokenizer.reference.package}",
        where=where,
        details=(
            ("text", f"{_shown(text[start : start + 4 * SHOWN_CHARACTERS])} from byte {start:,} of {len(text):,}"),
            ("tokenizer", f"{tokenizer.name}, sha256 {tokenizer.sha256}"),
        ),
        expected=_ids(expected, first),
        got=_ids(ids, first),
        next_step=f"set tokenizer.engine: {tokenizer.reference.package}, build again, and report the text",
    )


def _ids(ids: NDArray[Any], first: int) -> str:
    return f"{ids[first : first + SHOWN_IDS].tolist()} from token {first:,} of {len(ids):,}"


def _shown(text: bytes) -> str:
    return ascii(text.decode(errors="replace")[:SHOWN_CHARACTERS])
