"""`corpusmill tokenize`: files to token shards, and the same audit as in a build; no plan, no receipts, no dedup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import absolute
from pipeline.errors import SourceError

if TYPE_CHECKING:
    from pipeline.tokens.files import TokenizedFile
    from pipeline.tokens.tokenizer import Tokenizer


def tokenize_files(
    inputs: list[str], tokenizer: Tokenizer, output: Path, text_field: str = "text"
) -> Iterator[TokenizedFile]:
    """Each source file's token shard in `output`/<name of the file>, after the tricky strings have been audited.

    Raises VerificationError if the engine differs from the reference, SourceError for an input that is not there, or
    that stands where its shard would.
    """
    from pipeline.documents.compression import ENDINGS, NAMED_ENDINGS
    from pipeline.storage import list_sources
    from pipeline.tokens.audit import audit_tricky
    from pipeline.tokens.files import write_file_shard

    audit_tricky(tokenizer)
    for file in list_sources([absolute(path) for path in inputs], tuple(ENDINGS), named=tuple(NAMED_ENDINGS)):
        if (output / file.name).is_file():
            raise SourceError(
                "a file stands where a token shard's folder would",
                where=output / file.name,
                next_step="name another folder as --output",
            )
        batches = _batches(Path(file.location), file.name, text_field)
        yield write_file_shard(batches, file.name, tokenizer, output / file.name)


def _batches(path: Path, name: str, text_field: str) -> Iterator[tuple[list[bytes], dict[str, int]]]:
    from pipeline.documents.compression import open_decompressed
    from pipeline.documents.jsonl import read_documents

    with path.open("rb") as raw, open_decompressed(raw, name) as lines:
        for batch in read_documents(lines, source=name, text_field=text_field, id_field="id"):
            yield batch.texts(), dict(Counter(one.reason.value for one in batch.rejections))
