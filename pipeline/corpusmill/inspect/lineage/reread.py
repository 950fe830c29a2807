"""Reads documents again from their source files and tokenizes them again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from corpusmill.errors import VerificationError
from corpusmill.inspect.lineage.shards import Shard
from corpusmill.sources.copies import read_numbered
from corpusmill.sources.stages import download

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.tokens.tokenizer import Tokenizer


def reread_documents(
    build: Build, shard: Shard, ordinals: set[int], tokenizer: Tokenizer
) -> Iterator[tuple[int, NDArray[Any]]]:
    """(ordinal, its ids) of some documents of a shard, from the lines of their source files.

    Raises VerificationError for a line that does not hold the document's text or id; SourceError for a changed file.
    """
    for copy, source in zip(download.shard_copies(build, shard.name), shard.text.sources, strict=True):
        here = range(source.first_document, source.first_document + source.documents)
        at_line = {int(shard.text.line_numbers[ordinal]): ordinal for ordinal in ordinals if ordinal in here}
        if at_line:
            for number, line in read_numbered(copy, set(at_line), build.config.source):
                ordinal = at_line.pop(number)
                yield ordinal, _ids(build, shard, ordinal, line, tokenizer)
        if at_line:
            lost = shard.document(at_line[min(at_line)])
            raise VerificationError(
                "trace.source_too_short: a source file ends before an indexed line",
                where=lost.source,
                got=f"no line {lost.line:,}",
            )


def _ids(build: Build, shard: Shard, ordinal: int, line: bytes, tokenizer: Tokenizer) -> NDArray[Any]:
    document = shard.document(ordinal)
    source = build.config.source
    try:
        record = json.loads(line)
        text: bytes = record[source.text_field].encode()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VerificationError(
            "trace.line_not_a_document: an indexed line is not a document",
            where=f"{document.source}, line {document.line:,}",
            expected=f"an object with a text at {source.text_field!r}",
            got=f"{type(error).__name__}: {error}",
        ) from error
    if ordinal in shard.text.rewritten:  # a step changed the line's text before it was indexed
        text = shard.text.document_bytes(ordinal)
    first, last = shard.text_span(ordinal)
    identity = record.get(source.id_field)
    if len(text) != last - first or (isinstance(identity, str) and identity != document.id):
        raise VerificationError(
            "trace.line_changed: a line differs from the document that was indexed from it",
            where=f"{document.source}, line {document.line:,}",
            expected=f"{last - first:,} bytes of text, id {document.id!r}",
            got=f"{len(text):,} bytes of text, id {identity!r}",
            next_step="reprocess this shard from download on",
        )
    kept = b"".join(text[low:high] for low, high in shard.kept(ordinal))
    tokens, _ = tokenizer.encode([kept])
    return tokens
