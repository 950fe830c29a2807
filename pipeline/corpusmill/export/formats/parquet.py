"""Rows in parquet, of ids or text: `parquet_documents/train-00000.parquet`, `parquet_contexts/train-00000.parquet`,
`parquet_text/train-00000.parquet` and, the last, `validation-00003.parquet` (export/parquet.py has the columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from corpusmill.errors import BalanceError
from corpusmill.export.formats.base import BATCH_TOKENS, Cells, Format, Output, Readable, Settings, Wanted, framing_of
from corpusmill.export.formats.documents import DocumentFormat, bare_documents, beside, counted, document_batches
from corpusmill.kernels import advance
from corpusmill.lazy import lazily

with lazily:
    import numpy as np
    import pyarrow.parquet as pq

    from corpusmill.export import parquet, parquet_reading
    from corpusmill.kernels import slices
    from corpusmill.tokens import token_shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.config.exports import ParquetTextConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary

ID_BYTES = 4
ROWS_READ = 1024
TEXT_BYTES = 2048  # about what a document has
MOST_HELD_OUT = 0.1  # of the documents, without a warning


class ParquetFormat(Format):
    """What the files share. `column`: what their records are read from."""

    libraries = ("pyarrow",)
    column: ClassVar[str] = "input_ids"
    data_suffix = ".parquet"

    def file_name(self, _build: Build, number: int) -> str:
        """As `datasets` finds the split train."""
        return f"train-{number:05d}"

    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        return max(1, int(getattr(exports, self.name).file_bytes) * token_bytes // ID_BYTES)

    def suffixes(self, _exports: ExportsConfig) -> tuple[str, ...]:
        return (self.data_suffix,)

    def slots(self, path: Path, _about: Readable) -> int:
        held = pq.read_metadata(path)
        return sum(held.row_group(group).column(0).num_values for group in range(held.num_row_groups))

    def records(self, path: Path, wanted: Sequence[Wanted], _dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        rows = parquet_reading.open_file(beside(path, self.data_suffix), self.column)
        for record in wanted:
            yield rows.row(record.record)

    def wrong_columns(
        self,
        path: Path,
        exports: ExportsConfig,
        wanted: Sequence[Wanted],
        ids: Sequence[NDArray[Any]],
        pieces: Sequence[NDArray[Any]],
    ) -> Iterator[str]:
        made = getattr(exports, self.name)
        numbers = [record.record for record in wanted]
        rows = map(parquet.Rows.one, ids, pieces)
        yield from parquet_reading.wrong_columns(
            beside(path, self.data_suffix), numbers, rows, made.columns, made.loss_mask
        )

    def rows(self, path: Path) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """(values, how many of them each row has) of a file, some rows at a time."""
        file = pq.ParquetFile(beside(path, self.data_suffix), page_checksum_verification=True)
        for batch in file.iter_batches(ROWS_READ):  # of every column, whose pages are checked then
            yield parquet_reading.values_of(batch.column(self.column))


class ParquetDocuments(ParquetFormat, DocumentFormat):
    """See export/parquet.py."""

    name = "parquet_documents"

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
        seen = parquet_reading.verify_documents(
            beside(path, self.data_suffix),
            vocabulary_size=ids.size,
            framing=framing_of(config.framing, ids),
            **wanted.rows(),
        )
        return counted(seen)

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        for tokens, lengths in self.rows(path):
            ends = np.cumsum(lengths, dtype=np.uint64)
            yield from bare_documents(tokens, np.concatenate((np.zeros(1, np.uint64), ends[:-1])), ends, about)


class ParquetContexts(ParquetFormat):
    """See export/parquet.py. Its files are full but for the last."""

    name = "parquet_contexts"

    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        wanted = build.config.exports.parquet_contexts
        assert wanted is not None
        bounds = [*range(0, total, wanted.file_rows), total]
        return [self.file_name(build, number) for number in range(len(bounds) - 1)], bounds

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        written = parquet.write_contexts(
            beside(folder / output.name, self.data_suffix),
            _contexts(cells, output),
            vocabulary_size=settings.vocabulary.size,
            written=tally.add,
            **(settings.rows or {}),
        )
        return {"records": written["records"], "slots": written["tokens"]}

    def verify(self, config: DatasetConfig, path: Path, _positions: int, ids: Vocabulary) -> dict[str, int]:
        wanted = config.exports.parquet_contexts
        assert wanted is not None
        seen = parquet_reading.verify_contexts(
            beside(path, self.data_suffix),
            context_tokens=wanted.context_tokens,
            vocabulary_size=ids.size,
            **wanted.rows(),
        )
        return {"records": seen["records"], "slots": seen["tokens"]}

    def blocks(self, path: Path, _about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        for tokens, lengths in self.rows(path):
            yield tokens, lengths.astype(np.uint64)


class ParquetText(ParquetFormat):
    """See export/parquet.py. nanochat validates with the last file, and deals row groups out to ranks.

    So the last file has `held_out_groups` whole row groups, at most half of all, and the training files share the
    others evenly; the rows that fill no group end the last training file. Of a dataset with fewer rows than two groups
    each of two files has a short one.
    """

    name = "parquet_text"
    column = "text"
    holds_text = True

    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        wanted = build.config.exports.parquet_text
        assert wanted is not None
        bounds = _text_bounds(wanted, total)
        splits = ["train"] * max(1, len(bounds) - 2) + ["validation"]
        return [f"{splits[number]}-{number:05d}" for number in range(len(bounds) - 1)], bounds

    def held_out(self, exports: ExportsConfig, documents: int, _tokens: int) -> float:
        assert exports.parquet_text is not None
        bounds = _text_bounds(exports.parquet_text, documents)
        return (documents - bounds[-2]) / documents if len(bounds) > 2 else 0.0

    def doubt(self, exports: ExportsConfig, documents: int, tokens: int) -> str:
        wanted, share = exports.parquet_text, self.held_out(exports, documents, tokens)
        assert wanted is not None
        if share <= MOST_HELD_OUT:
            return ""
        rows = max(1, int(documents * MOST_HELD_OUT / wanted.held_out_groups))
        return (
            f"exports.parquet_text: about {documents:,} documents are {documents // wanted.rows_per_group:,} row groups"
            f", so validation gets {100 * share:.3g} % of them: set rows_per_group to {rows:,} or less, or"
            " held_out_groups"
        )

    def output_bytes(self, exports: ExportsConfig, _token_bytes: int) -> int:
        assert exports.parquet_text is not None
        return exports.parquet_text.groups_per_file * exports.parquet_text.rows_per_group * TEXT_BYTES

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        path, texts = beside(folder / output.name, self.data_suffix), document_batches(cells, output)
        written = parquet.write_texts(path, texts, written=tally.add, **(settings.rows or {}))
        return {"records": written["records"], "slots": written["bytes"]}

    def verify(self, config: DatasetConfig, path: Path, _positions: int, _ids: Vocabulary) -> dict[str, int]:
        wanted = config.exports.parquet_text
        assert wanted is not None
        seen = parquet_reading.verify_texts(beside(path, self.data_suffix), rows_per_group=wanted.rows_per_group)
        return {"records": seen["records"], "slots": seen["bytes"]}

    def slots(self, path: Path, _about: Readable) -> int:
        return sum(len(text) for text, _ in self.rows(path.with_suffix("")))

    def blocks(self, path: Path, _about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        for text, lengths in self.rows(path):
            yield text, lengths.astype(np.uint64)


def _text_bounds(wanted: ParquetTextConfig, total: int) -> list[int]:
    """Where the files of so many texts begin, and their end; the last file is held out."""
    groups, rows = total // wanted.rows_per_group, wanted.rows_per_group
    if groups < 2:
        return [*range(0, total, max(1, -(-total // 2))), total]
    training = groups - min(wanted.held_out_groups, groups // 2)
    files = -(-training // wanted.groups_per_file)
    begins = [number * training // files * rows for number in range(files)]
    return [*begins, training * rows + total % rows, total]


def _contexts(cells: Cells, output: Output) -> Iterator[parquet.Rows]:
    """An output's contexts with their pieces, about BATCH_TOKENS at a time."""
    for number, first, last in output.slices:
        contexts, pieces = (token_shard.open_record_shard(of[number].folder()) for of in (cells, cells.beside))
        for begin, end in slices.runs(contexts.ends, BATCH_TOKENS, first, last):
            own = slice(begin, end)
            for what in ("shards", "ordinals"):
                if not np.array_equal(getattr(contexts, what)[own], getattr(pieces, what)[own]):
                    raise BalanceError(
                        "rows.pieces_of_others: the pieces are those of other contexts",
                        where=f"cell {number}, records {begin:,} to {end:,}",
                        expected=f"equal {what}",
                        got="others",
                        next_step="report this, it is a bug: contexts and pieces are shuffled by the same keys",
                    )
            ids, ends = contexts.slice(begin, end)
            sizes, bounds = pieces.slice(begin, end)
            lengths, counts = (np.diff(of, prepend=np.uint64(0)).astype(np.int64) for of in (ends, bounds))
            yield parquet.Rows(ids, lengths, sizes.astype(np.int64), counts)
            advance.note_done(end - begin)
