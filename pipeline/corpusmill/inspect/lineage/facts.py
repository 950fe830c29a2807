"""Results of lineage: plain frozen values. A span [from, to) counts from 0 and excludes `to`; lines count from 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Span = tuple[int, int]

EOT, BOS, PADDING = "EOT", "BOS", "padding"


@dataclass(frozen=True)
class SourceDocument:
    """A document: its line in a source file, its id ("" if it has none), and its ordinal in its shard.

    `reference`: the entry of `dedup.against` that the file and the shard belong to; "" for the dataset's own documents.
    """

    source: str
    line: int
    id: str
    shard: int
    ordinal: int
    reference: str = ""


@dataclass(frozen=True)
class Piece:
    """Tokens of one document in a record; empty for a document that has only special tokens there.

    record_tokens    their positions in the record (numpy: in the file)
    document_tokens  which of the document's tokens they are
    text_bytes       their bytes, as spans of the document's original text; several where duplicates
                     were cut out between them
    preview          the beginning of their text, for people
    """

    document: SourceDocument
    record_tokens: Span
    document_tokens: Span
    text_bytes: tuple[Span, ...]
    preview: str


@dataclass(frozen=True)
class Special:
    """Positions of a record that hold no document's token; `what` is EOT, BOS or padding."""

    what: str
    record_tokens: Span


@dataclass(frozen=True)
class RecordTrace:
    """A record of an export and what it is made of, in order.

    `record_tokens` are the positions that the record covers: from 0 to its length. numpy files have no records; theirs
    are the positions of one document in the file.
    """

    export: str
    file: str
    record: int
    record_tokens: Span
    parts: tuple[Piece | Special, ...]


@dataclass(frozen=True)
class Holding:
    """A record that holds tokens of a document: the arguments of `trace` that lead back to it, and both spans.

    Both spans are empty for a document without tokens, of which the record holds only special tokens.
    """

    export: str
    file: str
    record: int
    record_tokens: Span
    document_tokens: Span


@dataclass(frozen=True)
class Occurrence:
    """A span of a document's text that occurs earlier, in a reference or in the dataset, and its first occurrence."""

    text_bytes: Span
    earlier: SourceDocument
    earlier_bytes: Span


@dataclass(frozen=True)
class Duplicate:
    """A duplicate range of a document's text, cut at whole characters, and the earlier text that covers it.

    One range may repeat several documents, since it unites all windows that occurred earlier. Only text that
    `fuzzy_share` removed between repeats is covered by no occurrence.
    """

    text_bytes: Span
    occurrences: tuple[Occurrence, ...]


@dataclass(frozen=True)
class Located:
    """What became of a document: its size, its duplicates, and every record that holds it.

    `removed_bytes` is 0 where duplicates are only annotated. `too_short_for` is the setting that dropped the document.
    `rewritten_bytes`: the size of the text that a step gave it after deduplication, None if none did.
    """

    document: SourceDocument
    text_bytes: int
    removed_bytes: int
    tokens: int
    duplicates: tuple[Duplicate, ...]
    records: tuple[Holding, ...]
    too_short_for: str = ""
    rewritten_bytes: int | None = None


@dataclass(frozen=True)
class RejectedLine:
    """A line that is not a document, why not, and the file that keeps its exact bytes."""

    source: str
    line: int
    reason: str
    preview: str
    quarantine: Path


@dataclass(frozen=True)
class ItemHit:
    """An item of a benchmark in a document's text: where, and how much of the item that covers."""

    benchmark: str
    item: str
    text_bytes: Span
    share: float


@dataclass(frozen=True)
class ContaminatedLine:
    """A document that was left out because its text holds items of benchmarks, and the file that lists them all."""

    source: str
    line: int
    id: str
    items: tuple[ItemHit, ...]
    hits: Path


@dataclass(frozen=True)
class DroppedLine:
    """A document that a step dropped, why, and the file that lists all of its shard."""

    source: str
    line: int
    id: str
    reason: str
    dropped: Path


@dataclass(frozen=True)
class VerifiedRecords:
    """Records that were rebuilt from their source and are equal: their number by export, and what was read for it."""

    records: dict[str, int]
    tokens: int
    documents: int
    source_files: int
