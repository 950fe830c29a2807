"""Read documents again from their source files and tokenize them again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from pipeline.errors import VerificationError
from pipeline.lineage.shards import Shard
from pipeline.stages import download

if TYPE_CHECKING:
    from pipeline.stages.build import Build
    from pipeline.tokens.tokenizer import Tokenizer


def reread_documents(
    build: Build, shard: Shard, ordinals: set[int], tokenizer: Tokenizer
) -> Iterator[tuple[int, NDArray[Any]]]:
    """(ordinal, its ids) of some documents of a shard, from the lines of their source files.

    Raises VerificationError for a line that does not hold the document's text or id; SourceError for a changed file.
    """
    for copy, source in zip(download.local_copies(build, shard.name), shard.text.sources, strict=True):
        here = range(source.first_document, source.first_document + source.documents)
        at_line = {int(shard.text.line_numbers[one]): one for one in ordinals if one in here}
        if at_line:
            for number, line in _lines(copy, at_line.keys()):
                ordinal = at_line.pop(number)
                yield ordinal, _ids(build, shard, ordinal, line, tokenizer)
        if at_line:
            raise VerificationError(
                "a source file ends before a line that was indexed",
                where=copy.name,
                got=f"no line {min(at_line) + 1:,}",
            )


def _lines(copy: download.LocalCopy, wanted: Any) -> Iterator[tuple[int, bytes]]:
    """(0-based number, bytes) of some lines of a source file, which is read to its end."""
    from pipeline.documents.compression import open_decompressed
    from pipeline.documents.lines import BYTE_ORDER_MARK, read_line_blocks
    from pipeline.storage import open_verified

    left = sorted(wanted, reverse=True)
    first = 0
    with open_verified(copy.path, copy.sha256, name=copy.name) as raw, open_decompressed(raw, copy.name) as stream:
        for block in read_line_blocks(stream):
            lines = 1 if block.cut else block.data.count(b"\n") + (not block.data.endswith(b"\n"))
            if left and left[-1] < first + lines:
                split = block.data.split(b"\n")
                while left and left[-1] < first + lines:
                    number = left.pop()
                    line = split[number - first]
                    yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line
            first += lines


def _ids(build: Build, shard: Shard, ordinal: int, line: bytes, tokenizer: Tokenizer) -> NDArray[Any]:
    document = shard.document(ordinal)
    source = build.config.source
    try:
        record = json.loads(line)
        text: bytes = record[source.text_field].encode()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VerificationError(
            "a line that was indexed is not a document",
            where=f"{document.source}, line {document.line:,}",
            expected=f"an object with a text at {source.text_field!r}",
            got=f"{type(error).__name__}: {error}",
        ) from error
    first, last = shard.text_span(ordinal)
    identity = record.get(source.id_field)
    if len(text) != last - first or (isinstance(identity, str) and identity != document.id):
        raise VerificationError(
            "a line is not the document that was indexed from it",
            where=f"{document.source}, line {document.line:,}",
            expected=f"{last - first:,} bytes of text, id {document.id!r}",
            got=f"{len(text):,} bytes of text, id {identity!r}",
            next_step="reprocess this shard from its download",
        )
    kept = b"".join(text[low:high] for low, high in shard.kept(ordinal))
    tokens, _ = tokenizer.encode([kept])
    return tokens
