"""Ids in parquet: `parquet_documents/train-00000.parquet` (export/parquet.py has the columns)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.export.formats.base import Cells, Output, Readable, Settings, Wanted, framing_of
from corpusmill.export.formats.documents import DocumentFormat, bare_documents, beside, counted, document_batches
from corpusmill.lazy import lazily

with lazily:
    import numpy as np
    import pyarrow.parquet as pq

    from corpusmill.export import parquet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary

ID_BYTES = 4


class ParquetDocuments(DocumentFormat):
    """See export/parquet.py."""

    name = "parquet_documents"
    libraries = ("pyarrow",)
    data_suffix = ".parquet"

    def file_name(self, _build: Build, number: int) -> str:
        """As `datasets` finds the split train."""
        return f"train-{number:05d}"

    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        assert exports.parquet_documents is not None
        return max(1, int(exports.parquet_documents.file_bytes) * token_bytes // ID_BYTES)

    def suffixes(self, _exports: ExportsConfig) -> tuple[str, ...]:
        return (self.data_suffix,)

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        written = parquet.write_documents(
            beside(folder / output.name, self.data_suffix),
            document_batches(cells, output),
            settings.framing_of_documents(),
            vocabulary_size=settings.vocabulary.size,
            written=tally.add,
            **(settings.rows or {}),
        )
        return counted(written)

    def verify(self, config: DatasetConfig, path: Path, _positions: int, ids: Vocabulary) -> dict[str, int]:
        wanted = config.exports.parquet_documents
        assert wanted is not None
        seen = parquet.verify_documents(
            beside(path, self.data_suffix),
            vocabulary_size=ids.size,
            framing=framing_of(config.framing, ids),
            columns=wanted.columns,
            loss_mask=wanted.loss_mask,
            rows_per_group=wanted.rows_per_group,
        )
        return counted(seen)

    def slots(self, path: Path, _about: Readable) -> int:
        held = pq.read_metadata(path)
        return sum(held.row_group(group).column(0).num_values for group in range(held.num_row_groups))

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        file = pq.ParquetFile(beside(path, self.data_suffix), page_checksum_verification=True)
        for batch in file.iter_batches():  # of every column, whose pages are checked then
            tokens, lengths = parquet.ids_of(batch.column("input_ids"))
            ends = np.cumsum(lengths, dtype=np.uint64)
            yield from bare_documents(tokens, np.concatenate((np.zeros(1, np.uint64), ends[:-1])), ends, about)

    def records(self, path: Path, wanted: Sequence[Wanted], _dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        rows = parquet.open_file(beside(path, self.data_suffix))
        for record in wanted:
            yield rows.row(record.record)
