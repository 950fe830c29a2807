"""`corpusmill tokenize`: files to token shards, and the same audit as in a build; no plan, no receipts, no dedup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pipeline.errors import SourceError

if TYPE_CHECKING:
    from pipeline.tokens.files import TokenizedFile
    from pipeline.tokens.tokenizer import Tokenizer


def tokenize_files(
    inputs: list[str], tokenizer: Tokenizer, output: Path, text_field: str = "text", endpoint_url: str | None = None
) -> Iterator[TokenizedFile]:
    """Each source file's token shard in `output`/<name of the file>, after the tricky strings have been audited.

    Files lie here, in a bucket (`endpoint_url` is that of an S3-compatible store) or on a hub.

    Raises VerificationError if the engine differs from the reference, SourceError for an input that is not there, or
    that stands where its shard would.
    """
    from pipeline.stages.sources import each_file
    from pipeline.tokens.audit import audit_tricky
    from pipeline.tokens.files import write_file_shard

    audit_tricky(tokenizer)
    for name, lines in each_file(inputs, endpoint_url):
        if (output / name).is_file():
            raise SourceError(
                "a file stands where a token shard's folder would",
                where=output / name,
                next_step="name another folder as --output",
            )
        yield write_file_shard(_batches(lines, name, text_field), name, tokenizer, output / name)


def _batches(
    lines: AbstractContextManager[BinaryIO], name: str, text_field: str
) -> Iterator[tuple[list[bytes], dict[str, int]]]:
    from pipeline.documents.jsonl import read_documents

    with lines as stream:
        for batch in read_documents(stream, source=name, text_field=text_field, id_field="id"):
            yield batch.texts(), dict(Counter(one.reason.value for one in batch.rejections))
