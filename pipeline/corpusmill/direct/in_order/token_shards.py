"""`corpusmill tokenize`: files to token shards; no plan, no receipts, no dedup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from corpusmill.builds.overlap import require_no_overlap
from corpusmill.config import absolute_here
from corpusmill.direct.in_order.rejected import RejectedLines, rejected_beside
from corpusmill.lazy import lazily
from corpusmill.sources.copies import each_file
from corpusmill.storage.output_folder import OutputFolder

with lazily:
    from corpusmill.documents import jsonl
    from corpusmill.tokens import files as tokens_files


if TYPE_CHECKING:
    from corpusmill.documents.batch import DocumentBatch
    from corpusmill.tokens.files import TokenizedFile
    from corpusmill.tokens.tokenizer import Tokenizer


def tokenize_files(
    inputs: list[str],
    tokenizer: Tokenizer,
    output: Path,
    text_field: str = "text",
    endpoint_url: str | None = None,
    rejected: RejectedLines | None = None,
) -> Iterator[TokenizedFile]:
    """Each source file's token shard in `output`/<name of the file>.

    Files may be local, in a bucket (`endpoint_url`: of an S3-compatible store) or on the Hub. Shards of an earlier run
    whose files are no longer among the inputs are removed (output_folder.py). Malformed lines go to `rejected`, by
    default beside `output`.

    Raises SourceError for a missing input, ConfigError if `output` holds other files or is below an input,
    RejectedDocumentsError at the end for too many malformed lines.
    """
    place = str(output.absolute())
    require_no_overlap([absolute_here(path) for path in inputs], [("--output", place)])
    folder = OutputFolder(place, "tokenize")
    files = list(each_file(inputs, endpoint_url))
    names = [name for name, _ in files]
    folder.replace(names, (f"{name}/{part}" for name in names for part in tokens_files.SHARD_FILES))
    rejected = rejected or RejectedLines(rejected_beside(Path(place)))
    rejected.require_own(inputs, "--output")
    with rejected.collect() as set_aside:
        for name, lines in files:
            yield tokens_files.write_file_shard(
                _batches(lines, name, text_field, set_aside), name, tokenizer, output / name
            )


def _batches(
    lines: AbstractContextManager[BinaryIO],
    name: str,
    text_field: str,
    set_aside: Callable[[DocumentBatch, int], None],
) -> Iterator[tuple[list[bytes], dict[str, int]]]:
    with lines as stream:
        for batch in jsonl.read_documents(stream, source=name, text_field=text_field, id_field="id"):
            set_aside(batch, batch.documents)
            yield batch.texts(), dict(Counter(rejection.reason.value for rejection in batch.rejections))
