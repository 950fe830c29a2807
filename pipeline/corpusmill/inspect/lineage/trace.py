"""Finds the source documents in a record of an export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from corpusmill.inspect.lineage.facts import Piece, RecordTrace, Span, Special
from corpusmill.inspect.lineage.records import find_output, record_stretches
from corpusmill.inspect.lineage.shards import Shard, Shards
from corpusmill.inspect.lineage.stream import Stretch, cut_stretches, original_spans
from corpusmill.tokens.ranks import token_lengths
from corpusmill.tokens.stages.tokenize import configured_tokenizer, vocabulary_file

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.export.stages.layout import OutputPlan
    from corpusmill.tokens.tokenizer import Tokenizer

PREVIEW_CHARACTERS = 60
PREVIEW_BYTES = 4 * PREVIEW_CHARACTERS  # a character has at most 4


def trace(build: Build, export: str, file: int | str, record: int) -> RecordTrace:
    """What a record is made of: source documents with their spans of tokens and bytes, EOT and padding.

    `file` is a shard's or part's number or name. `record` counts from 0 within it: the context of a WebDataset shard,
    the document of a Megatron or Nanoset part. A numpy shard is a stream without records: there `record` is a position,
    and the answer is the part in this file of the document at that position.

    Raises PermanentError for an unknown export, file or record.
    """
    return Tracer(build).record(export, find_output(build, export, file), record)


class Tracer:
    """Traces records of one build; files stay open from one record to the next."""

    def __init__(self, build: Build) -> None:
        self._shards = Shards(build)

    def record(
        self, export: str, output: OutputPlan, record: int, first: int = 0, last: int | None = None
    ) -> RecordTrace:
        """The parts of a record of an output, or of its positions [first, last). Raises as `trace` does."""
        shard, _, stretches = record_stretches(self._shards, export, output, record)
        if last is not None:
            stretches = cut_stretches(stretches, first, last)
        parts = [
            Special(stretch.special, (stretch.first, stretch.last)) if stretch.special else _piece(shard, stretch)
            for stretch in stretches
        ]
        span = stretches[0].first, stretches[-1].last
        return RecordTrace(export, f"{export}/{output.name}", record, span, tuple(parts))


def reference_tokenizer(build: Build) -> Tokenizer:
    """The dataset's tokenizer in the reference library, whichever engine made the tokens."""
    return build.remembered(("reference tokenizer",), lambda: configured_tokenizer(build.config, engine="reference"))


def _piece(shard: Shard, stretch: Stretch) -> Piece:
    end = stretch.document_first + stretch.last - stretch.first
    spans = _text_spans(shard, stretch.ordinal, stretch.document_first, end)
    first = shard.text_span(stretch.ordinal)[0]
    text = b"".join(
        shard.text.text[first + low : first + min(high, low + PREVIEW_BYTES)].tobytes()
        for low, high in spans[:PREVIEW_BYTES]
    )
    document = shard.document(stretch.ordinal)
    return Piece(document, (stretch.first, stretch.last), (stretch.document_first, end), spans, preview(text))


def _text_spans(shard: Shard, ordinal: int, first: int, last: int) -> tuple[Span, ...]:
    """The bytes of the original text of tokens [first, last) of a document."""
    kept = shard.kept(ordinal)
    tokens = shard.tokens.document(ordinal)
    if (first, last) == (0, len(tokens)):
        return tuple(kept)
    # Tokens do not overlap, so the bytes before a token are the bytes of the tokens before it. But normalized (NFC) or
    # space-prefixed text does not decode to itself, and then the library tells which bytes a token covers.
    config = shard.build.config
    vocabulary = shard.build.remembered(("vocabulary file",), lambda: vocabulary_file(config))
    if vocabulary.kind == "tiktoken" and not config.tokenizer.parse_special:
        lengths = token_lengths(vocabulary.content, tokens[:last], where=vocabulary.path)
    else:
        start = shard.text_span(ordinal)[0]
        text = b"".join(shard.text.text[start + low : start + high].tobytes() for low, high in kept)
        lengths = np.diff(reference_tokenizer(shard.build).reference.token_ends(text), prepend=0)[:last]
    before = int(lengths[:first].sum())
    return original_spans(kept, before, before + int(lengths[first:].sum()))


def preview(text: bytes) -> str:
    """The beginning of some UTF-8 bytes in printable characters; a truncated character is dropped."""
    # Unprintable characters (controls, bidirectional marks) could forge a terminal's text.
    shown = text[:PREVIEW_BYTES].decode(errors="ignore")[:PREVIEW_CHARACTERS]
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in shown)
