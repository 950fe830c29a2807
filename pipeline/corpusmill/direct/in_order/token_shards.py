"""`corpusmill tokenize`: files to token shards, a folder each; no plan, no receipts, no dedup."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.builds.overlap import require_no_overlap
from corpusmill.config import absolute_here
from corpusmill.direct.in_order.cores import in_order
from corpusmill.direct.in_order.source import RejectedLines, rejected_beside
from corpusmill.errors import full_device_explained
from corpusmill.sources.copies import STANDARD, InputFile, each_file
from corpusmill.storage.output_folder import OutputFolder
from corpusmill.tokens.token_shard import write_token_shard
from corpusmill.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from corpusmill.documents.batch import DocumentBatch


SUMMARY = "tokenized.json"
SHARD_FILES = ("tokens", "ends", "source_ends", "token_shard.json", SUMMARY)


@dataclass(frozen=True)
class TokenizedFile:
    """The totals of one source file; `rejected`: lines that are not in the token shard, by reason."""

    source: str
    documents: int
    text_bytes: int
    tokens: int
    rejected: dict[str, int]


def tokenize_files(
    inputs: list[str],
    tokenizer: Tokenizer,
    output: Path,
    text_field: str = "text",
    endpoint_url: str | None = None,
    rejected: RejectedLines | None = None,
    processes: int = 1,
) -> Iterator[TokenizedFile]:
    """Each source file's token shard in `output`/<name of the file>.

    Files may be local, in a bucket (`endpoint_url`: of an S3-compatible store) or on the Hub. Shards of an earlier run
    whose files are no longer among the inputs are removed (output_folder.py). Malformed lines go to `rejected`, by
    default beside `output`. `processes` encode concurrently; the bytes are those of one.

    Raises SourceError for a missing input, ConfigError if `output` holds other files or is below an input,
    RejectedDocumentsError at the end for too many malformed lines.
    """
    place = str(output.absolute())
    require_no_overlap([absolute_here(path) for path in inputs if path != STANDARD], [("--output", place)])
    folder = OutputFolder(place, "tokenize")
    files = list(each_file(inputs, endpoint_url))
    names = [file.name for file in files]
    folder.replace(names, (f"{name}/{part}" for name in names for part in SHARD_FILES))
    rejected = rejected or RejectedLines(rejected_beside(Path(place)))
    rejected.require_own(inputs, "--output")
    with rejected.collect() as set_aside:
        for file in files:
            yield _write_shard(file, text_field, set_aside, tokenizer, output / file.name, processes)


def _write_shard(
    file: InputFile,
    text_field: str,
    set_aside: Callable[[DocumentBatch, int], None],
    tokenizer: Tokenizer,
    folder: Path,
    processes: int,
) -> TokenizedFile:
    """Write the token shard of one file, its summary last: a folder without tokenized.json is incomplete.

    StorageFullError for a full disk; a failed run leaves no file of the shard.
    """
    rejected: Counter[str] = Counter()
    documents = text_bytes = 0

    def texts() -> Iterator[list[bytes]]:
        nonlocal documents, text_bytes
        for batch in file.documents(text_field):
            set_aside(batch, batch.documents)
            rejected.update(rejection.reason.value for rejection in batch.rejections)
            documents += batch.documents
            contents = batch.texts()
            text_bytes += sum(map(len, contents))
            yield contents

    next_step = "free space on that device, then run the command again"
    with full_device_explained("tokens.disk_full: no space left for a token shard", where=folder, next_step=next_step):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / SUMMARY).unlink(missing_ok=True)
            tokens = write_token_shard(in_order(tokenizer.encode, texts(), processes), tokenizer, folder)
            tokenized = TokenizedFile(file.name, documents, text_bytes, tokens, dict(sorted(rejected.items())))
            (folder / SUMMARY).write_text(json.dumps(asdict(tokenized), indent=1, ensure_ascii=False) + "\n")
        except BaseException:
            for name in SHARD_FILES:
                (folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # not empty: other files of the user are in it
                folder.rmdir()
            raise
    return tokenized
