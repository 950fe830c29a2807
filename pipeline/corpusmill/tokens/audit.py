"""The audit: compares ids with those of the library that defines them, on a sample of the dataset and on tricky text.

For every document: the written ids are below the vocabulary's size and fit the shard's dtype; they equal the
reference's; and if the tokenizer promises it, decoding returns the text. The first difference raises VerificationError.

The reference is 10 to 20 times slower than the engine, and needs 10 bytes of memory per byte of text. So a document
longer than a window is compared in two steps, except one document in 64: the engine must produce the written ids again
for all of it, and the reference the engine's ids for a window at a random place in it. The 64th is compared
whole, unless it is longer than 1 MiB.

Price: the engine's speed over the long documents of the sample, the reference library's (tiktoken 5 to 17 MB/s,
tokenizers 2 to 5) over windows and short ones, a sixth of that for decoding, and 20 microseconds of Python a document;
memory is one document, its tokens, and 30 MB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from corpusmill.errors import VerificationError
from corpusmill.fingerprint import random_words
from corpusmill.tokens.tokenizer import Tokenizer

TRICKY = Path(__file__).with_name("tricky.yaml")
WINDOW_BYTES = 512
WHOLE_EVERY = 64
WHOLE_BYTES = 1 << 20
BATCH_BYTES = 2 << 20
SHOWN_IDS = 12
SHOWN_CHARACTERS = 80

Sampled = tuple[str, bytes, NDArray[Any]]  # origin of a document, its text as tokenized, its ids


@dataclass(frozen=True)
class Audited:
    """The sample's documents, bytes and tokens; the bytes that the reference encoded; round trips."""

    documents: int = 0
    text_bytes: int = 0
    tokens: int = 0
    compared_bytes: int = 0
    round_trips: int = 0

    def __add__(self, other: Audited) -> Audited:
        return Audited(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def tricky_texts() -> list[bytes]:
    """The fixed file of tricky strings, UTF-8."""
    return [text.encode() for text in yaml.load(TRICKY.read_bytes(), Loader=yaml.CSafeLoader)]


def sample_ordinals(shard: int, documents: int, wanted: int) -> NDArray[np.int64]:
    """`wanted` distinct ordinals of a shard's documents, ascending; uniform, and the same on every machine."""
    words = random_words({"audit": shard}).random_raw(documents)
    return np.sort(np.argpartition(words, wanted)[:wanted] if wanted < documents else np.arange(documents))


def audit_documents(documents: Iterable[Sampled], tokenizer: Tokenizer, *, short_bytes: int = WINDOW_BYTES) -> Audited:
    """Compare (origin, text, ids as written); VerificationError at the first difference.

    A text of at most `short_bytes` is always compared whole.
    """
    audited = Audited()
    for batch in _batches(documents):
        _require_fit(tokenizer, [document for _, document in batch])
        compared = _comparisons(batch, tokenizer, short_bytes)
        audited += Audited(
            documents=len(batch),
            text_bytes=sum(len(text) for _, (_, text, _) in batch),
            tokens=sum(len(ids) for _, (_, _, ids) in batch),
            compared_bytes=sum(len(text) for _, text, _ in compared),
            round_trips=_compare(tokenizer, compared),
        )
    return audited


def _batches(documents: Iterable[Sampled]) -> Iterator[list[tuple[int, Sampled]]]:
    """Numbered documents in batches of BATCH_BYTES of text; a longer one alone."""
    batch: list[tuple[int, Sampled]] = []
    text_bytes = 0
    for number, document in enumerate(documents):
        if batch and text_bytes + len(document[1]) > BATCH_BYTES:
            yield batch
            batch, text_bytes = [], 0
        batch.append((number, document))
        text_bytes += len(document[1])
    if batch:
        yield batch


def _comparisons(batch: list[tuple[int, Sampled]], tokenizer: Tokenizer, short_bytes: int) -> list[Sampled]:
    """The texts of a batch for the reference: whole documents, and windows of those that it does not encode whole."""
    long = [
        document
        for number, document in batch
        if len(document[1]) > short_bytes and (number % WHOLE_EVERY or len(document[1]) > WHOLE_BYTES)
    ]
    windows = [_window(*document[:2]) for document in long]
    rows = _rows([document[1] for document in long] + [text for _, text in windows], tokenizer)
    unequal = _first_unequal([ids for _, _, ids in long], rows[: len(long)])
    if unequal is not None:
        (where, _, ids), again = long[unequal], rows[unequal]
        first = _first_difference(ids, again)
        raise VerificationError(
            f"audit.ids_changed: the written ids differ from those that engine {tokenizer.engine} produces now",
            where=where,
            expected=_ids(again, first),
            got=_ids(ids, first),
            next_step="delete the shard's tokenize receipt and build again; if it recurs, report the text",
        )
    seen = set(map(id, long))
    whole = [document for _, document in batch if id(document) not in seen]
    return whole + [(where, text, ids) for (where, text), ids in zip(windows, rows[len(long) :], strict=True)]


def _window(where: str, text: bytes) -> tuple[str, bytes]:
    """(origin, WINDOW_BYTES of whole characters) of a long document, at a place derived from `where`."""
    word = int.from_bytes(hashlib.sha256(where.encode()).digest()[:8], "little")
    first = word % (len(text) - WINDOW_BYTES + 1)
    last = first + WINDOW_BYTES
    while text[first] & 0xC0 == 0x80:  # a continuation byte
        first += 1
    while last < len(text) and text[last] & 0xC0 == 0x80:
        last -= 1
    return f"{where}, from byte {first:,}", text[first:last]


def _rows(texts: list[bytes], tokenizer: Tokenizer) -> list[NDArray[Any]]:
    tokens, ends = tokenizer.encode(texts)
    return np.split(tokens, ends[:-1].astype(np.int64)) if texts else []


def _require_fit(tokenizer: Tokenizer, documents: list[Sampled]) -> None:
    limit = min(tokenizer.vocabulary_size, 1 << 8 * tokenizer.dtype.itemsize)
    for where, _, ids in documents:
        if len(ids) and ids.max() >= limit:
            raise VerificationError(
                "audit.id_does_not_fit: an id does not fit the vocabulary or the width of a token",
                where=where,
                expected=f"ids below {tokenizer.vocabulary_size:,} in {tokenizer.dtype.name}",
                got=f"{int(ids.max()):,}",
            )


def _compare(tokenizer: Tokenizer, documents: list[Sampled]) -> int:
    """Compare texts and their ids with the reference; returns how many texts had to decode to themselves, and did."""
    reference = tokenizer.reference
    expected = [reference.encode(text) for _, text, _ in documents]
    unequal = _first_unequal([ids for _, _, ids in documents], expected)
    if unequal is not None:
        raise _unequal(tokenizer, *documents[unequal], expected[unequal])
    promised = [document for document in documents if reference.promises_round_trip(document[1])]
    for where, text, ids in promised:
        back = reference.decode(ids)
        if back != text:
            raise VerificationError(
                "audit.not_decodable: a document's ids do not decode to its text",
                where=where,
                expected=_shown(text),
                got=_shown(back),
                details=(
                    ("ids", _ids(np.asarray(ids), 0)),
                    ("tokenizer", f"{tokenizer.name}, sha256 {tokenizer.sha256}"),
                ),
                next_step=reference.how_to_decode,
            )
    return len(promised)


def _first_unequal(rows: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]]) -> int | None:
    """The index of the first pair of unequal rows; None if all are equal. Both have the same number of rows."""
    if not rows or (
        list(map(len, rows)) == list(map(len, others)) and np.array_equal(np.concatenate(rows), np.concatenate(others))
    ):
        return None
    pairs = zip(rows, others, strict=True)
    return next(place for place, pair in enumerate(pairs) if not np.array_equal(*pair))


def audit_tricky(tokenizer: Tokenizer) -> Audited:
    """Audit the engine on the fixed file of tricky strings, in one batch, each compared whole: before any work, too."""
    texts = tricky_texts()
    numbered = enumerate(zip(texts, _rows(texts, tokenizer), strict=True), start=1)
    named = [
        (f"{tokenizer.name}, tried on {TRICKY.name}, string {number}", text, ids) for number, (text, ids) in numbered
    ]
    return audit_documents(named, tokenizer, short_bytes=WHOLE_BYTES)


def _unequal(
    tokenizer: Tokenizer, where: str, text: bytes, ids: NDArray[Any], expected: NDArray[Any]
) -> VerificationError:
    first = _first_difference(ids, expected)
    ends = tokenizer.reference.token_ends(text)
    start = int(ends[first - 1]) if first else 0
    return VerificationError(
        f"audit.engines_disagree: engine {tokenizer.engine} produced other ids than {tokenizer.reference.package}",
        where=where,
        details=(
            ("text", f"{_shown(text[start : start + 4 * SHOWN_CHARACTERS])} from byte {start:,} of {len(text):,}"),
            ("tokenizer", f"{tokenizer.name}, sha256 {tokenizer.sha256}"),
        ),
        expected=_ids(expected, first),
        got=_ids(ids, first),
        next_step=f"set tokenizer.engine: {tokenizer.reference.package}, build again, and report the text",
    )


def _first_difference(ids: NDArray[Any], expected: NDArray[Any]) -> int:
    common = min(len(ids), len(expected))
    different = np.flatnonzero(ids[:common] != expected[:common])
    return int(different[0]) if len(different) else common


def _ids(ids: NDArray[Any], first: int) -> str:
    return f"{ids[first : first + SHOWN_IDS].tolist()} from token {first:,} of {len(ids):,}"


def _shown(text: bytes) -> str:
    return ascii(text.decode(errors="replace")[:SHOWN_CHARACTERS])
