"""Raw ids for OLMo-core: `olmo/part-0-00000.npy` and `.csv.gz` (export/olmo.py has the bytes)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import BalanceError
from corpusmill.export.formats.base import Cells, Output, Readable, Settings, Wanted, framing_of
from corpusmill.export.formats.documents import (
    DocumentFormat,
    bare_documents,
    beside,
    counted,
    document_batches,
    linked_bytes,
)
from corpusmill.lazy import lazily

with lazily:
    import numpy as np

    from corpusmill.export import files, olmo
    from corpusmill.tokens import token_shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary

FILE_TOKENS = 1 << 29
STEMS = {"dolma": "part-0-{:05d}", "open_instruct": "token_ids_part_{:04d}"}


class Olmo(DocumentFormat):
    """See export/olmo.py."""

    name = "olmo"
    libraries = ("deflate",)
    data_suffix = ".npy"

    def file_name(self, build: Build, number: int) -> str:
        """As dolma, or open-instruct, names its files."""
        assert build.config.exports.olmo is not None
        return STEMS[build.config.exports.olmo.names].format(number)

    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        assert exports.olmo is not None
        if self.shared_bytes(exports) is not None:
            return super().output_bytes(exports, token_bytes)
        return (exports.olmo.file_tokens or FILE_TOKENS) * token_bytes

    def shared_bytes(self, exports: ExportsConfig) -> int | None:
        return linked_bytes(exports)

    def suffixes(self, exports: ExportsConfig) -> tuple[str, ...]:
        offsets = (".offsets",) if exports.olmo and exports.olmo.offsets else ()
        return (self.data_suffix, ".csv.gz", *offsets)

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        vocabulary = settings.vocabulary
        written = olmo.write_tokens(
            beside(folder / output.name, self.data_suffix),
            document_batches(cells, output),
            settings.framing_of_documents(),
            dtype=np.dtype(vocabulary.dtype).newbyteorder("<"),
            vocabulary_size=vocabulary.size,
            written=tally.add,
        )
        return self._with_index(cells, output, folder, settings, counted(written))

    def link(self, tokens: Path, cells: Cells, output: Output, folder: Path, settings: Settings) -> dict[str, int]:
        path = beside(folder / output.name, self.data_suffix)
        files.hard_link(path, tokens)
        slots = path.stat().st_size // np.dtype(settings.vocabulary.dtype).itemsize
        records = sum(last - first for _, first, last in output.slices)
        return self._with_index(cells, output, folder, settings, {"records": records, "slots": slots})

    def _with_index(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, counts: dict[str, int]
    ) -> dict[str, int]:
        path, special = folder / output.name, settings.framing_of_documents().special_tokens
        ends = olmo.write_index(beside(path, ".csv.gz"), _documents(cells, output, special))
        if settings.offsets:
            olmo.write_offsets(beside(path, ".offsets"), ends)
        indexed = {"records": len(ends), "slots": int(ends[-1]) if len(ends) else 0}
        if indexed != counts:
            raise BalanceError(
                "olmo.index_miscounted: the index does not add up to the tokens",
                where=path,
                expected=counts,
                got=indexed,
                next_step="report this, it is a bug: the records of a cell do not match its tokens",
            )
        return counts

    def verify(self, config: DatasetConfig, path: Path, _positions: int, ids: Vocabulary) -> dict[str, int]:
        return counted(
            olmo.verify_file(
                beside(path, self.data_suffix),
                dtype=np.dtype(ids.dtype),
                vocabulary_size=ids.size,
                framing=framing_of(config.framing, ids),
                offsets=bool(config.exports.olmo and config.exports.olmo.offsets),
            )
        )

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        with gzip.open(beside(path, ".csv.gz"), "rt", newline="") as lines:
            spans = np.array([[int(start), int(end)] for start, end, *_ in csv.reader(lines)], np.uint64)
        starts, ends = spans.reshape(-1, 2).T
        tokens = np.memmap(beside(path, self.data_suffix), about.dtype.newbyteorder("<"), "r")
        yield from bare_documents(tokens, starts, ends, about)

    def records(self, path: Path, wanted: Sequence[Wanted], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        file = olmo.open_file(beside(path, self.data_suffix), dtype)
        for record in wanted:
            yield file.document(record.record)


def _documents(cells: Cells, output: Output, special: int) -> Iterator[Any]:
    """(tokens with special ones, shards, ordinals) of an output's documents."""
    for number, first, last in output.slices:
        cell = token_shard.open_record_shard(cells[number].folder())
        for begin in range(first, last, olmo.MEMBER_LINES):
            end = min(last, begin + olmo.MEMBER_LINES)
            starts = cell.ends[begin - 1 : end - 1] if begin else np.concatenate(([0], cell.ends[: end - 1]))
            lengths = cell.ends[begin:end] - starts.astype(np.uint64) + np.uint64(special)
            yield lengths, cell.shards[begin:end], cell.ordinals[begin:end]
