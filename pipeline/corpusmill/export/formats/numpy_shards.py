"""The stream as `.npy` shards, or as nanoGPT's `.bin`: `numpy/train/train_0000.npy` (bytes: export/numpy_shards.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config.exports import HEADED
from corpusmill.export.formats.base import BATCH_TOKENS, Cells, Format, Output, Readable, Settings, Wanted
from corpusmill.kernels import advance
from corpusmill.lazy import lazily

with lazily:
    import numpy as np

    from corpusmill.export import numpy_shards
    from corpusmill.kernels import content_kernels, slices
    from corpusmill.tokens import token_shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.config.exports import NumpyConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary

RAW_FILE_BYTES = 16 << 20  # of nanoGPT's files there are two, of any size


class NumpyShards(Format):
    """See export/numpy_shards.py."""

    name = "numpy"
    stream = True
    libraries = ("numpy",)

    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        wanted = build.config.exports.numpy
        assert wanted is not None
        if wanted.layout == "bin":
            return numpy_shards.raw_bounds(total, wanted.test_share, wanted.split_names())
        bounds = numpy_shards.shard_bounds(total, wanted.tokens_per_shard, merge_rest=wanted.merge_rest)
        names = numpy_shards.shard_names(
            len(bounds) - 1,
            wanted.held_out(),
            splits=wanted.split_names(),
            pattern=wanted.pattern(),
            digits=wanted.number_digits,
        )
        return names, bounds

    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        assert exports.numpy is not None
        return RAW_FILE_BYTES if exports.numpy.layout == "bin" else exports.numpy.tokens_per_shard * token_bytes

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        tokens = sum(last - first for _, first, last in output.slices)
        pieces = _stream_pieces(cells, output, settings.vocabulary, tally)
        dtype, layout = np.dtype(settings.vocabulary.dtype), settings.layout or ""
        numpy_shards.write_shard(folder / output.name, pieces, tokens, dtype, layout=layout)
        if settings.bos_index:
            numpy_shards.write_bos_index(folder / output.name, _beginnings(cells, output))
        return {"slots": tokens}

    def file_names(self, name: str, exports: ExportsConfig) -> tuple[str, ...]:
        assert exports.numpy is not None
        index = (str(numpy_shards.bos_index_path(Path(name))),) if exports.numpy.bos_index else ()
        return (name, *index)

    def refuse(self, exports: ExportsConfig, vocabulary_size: int) -> None:
        assert exports.numpy is not None
        numpy_shards.refuse_width(exports.numpy.layout, vocabulary_size)

    def held_out(self, exports: ExportsConfig, _documents: int, tokens: int) -> float:
        assert exports.numpy is not None
        bounds, held = _split(exports.numpy, tokens)
        return bounds[held] / max(1, tokens)

    def doubt(self, exports: ExportsConfig, _documents: int, tokens: int) -> str:
        wanted = exports.numpy
        assert wanted is not None
        return numpy_shards.split_doubt(*_split(wanted, tokens), wanted.held_out(), wanted.split_names()[0])

    def stated(self, exports: ExportsConfig, _framing: dict[str, Any]) -> dict[str, Any]:
        assert exports.numpy is not None
        layout = exports.numpy.layout
        return {"layout": layout} if layout in HEADED else {}

    def verify(self, config: DatasetConfig, path: Path, positions: int, ids: Vocabulary) -> dict[str, int]:
        assert config.exports.numpy is not None
        seen = numpy_shards.verify_shard(
            path,
            tokens=positions,
            dtype=np.dtype(ids.dtype),
            vocabulary_size=ids.size,
            layout=config.exports.numpy.layout,
        )
        if config.exports.numpy.bos_index:
            tokens = numpy_shards.open_shard(path, np.dtype(ids.dtype))
            numpy_shards.verify_bos_index(path, tokens, ids.eot_id, all_eots=not config.tokenizer.parse_special)
        return {"slots": seen["tokens"]}

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        """The whole file as one record, special tokens and all."""
        if path.suffix == ".npy":
            tokens = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        else:
            # llm.c's two and AutoModel's headers: 256 int32, the third of which counts the tokens.
            begin = np.fromfile(path, "<i4", 256)
            size, width = path.stat().st_size, about.dtype.itemsize
            headed = (
                len(begin) == 256
                and begin[0] in {20240520, 20240801, 278895051}
                and size == 1024 + width * int(begin[2])
            )
            tokens = np.fromfile(path, about.dtype.newbyteorder("<"), offset=1024 if headed else 0)
        yield tokens, np.array([len(tokens)], np.uint64)

    def records(self, path: Path, wanted: Sequence[Wanted], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        tokens = numpy_shards.open_shard(path, dtype)
        for record in wanted:
            yield tokens[record.first : record.last]


def _split(wanted: NumpyConfig, tokens: int) -> tuple[list[int], int]:
    """(where the files of so many tokens begin, and their end; how many of them, the first, are held out)."""
    if wanted.layout == "bin":
        _, bounds = numpy_shards.raw_bounds(tokens, wanted.test_share, wanted.split_names())
        return bounds, len(bounds) - 2
    bounds = numpy_shards.shard_bounds(tokens, wanted.tokens_per_shard, merge_rest=wanted.merge_rest)
    return bounds, numpy_shards.held_out_shards(len(bounds) - 1, wanted.held_out())


def _beginnings(cells: Cells, output: Output) -> Any:
    """The positions in an output of the EOTs that begin documents there, from the cells' counts."""
    places, written = [np.zeros(0, np.int64)], 0
    for number, first, last in output.slices:
        ends = token_shard.open_record_shard(cells[number].folder()).ends
        eots = np.concatenate([np.zeros(1, np.uint64), ends])[:-1] + np.arange(len(ends), dtype=np.uint64)
        low, high = np.searchsorted(eots, np.array([first, last], np.uint64)).tolist()
        places.append(eots[low:high].astype(np.int64) - first + written)
        written += last - first
    return np.concatenate(places)


def _stream_pieces(cells: Cells, output: Output, ids: Vocabulary, tally: WrittenContent) -> Iterator[Any]:
    """The part of the stream EOT, document, EOT, document ... of the global order that an output holds.

    Yielded tokens are added to `tally`: pieces of documents by their places in the cell, and the file as one record.
    """
    written = 0
    for number, first, last in output.slices:
        cell = token_shard.open_record_shard(cells[number].folder())
        stream_ends = cell.ends + np.arange(1, cell.records + 1, dtype=np.uint64)
        begin = int(np.searchsorted(stream_ends, np.uint64(first), side="right"))
        end = int(np.searchsorted(stream_ends, np.uint64(last), side="left")) + 1
        for low, high in slices.runs(cell.ends, BATCH_TOKENS, begin, end):
            # Documents without tokens are in the cell only if the configuration keeps them.
            batch = cell.slice(low, high)
            piece = numpy_shards.with_eot_before(batch, ids.eot_id, vocabulary_size=ids.size, keep_empty=True)
            start = int(stream_ends[low - 1]) if low else 0
            skipped, stop = max(0, first - start), min(len(piece), last - start)
            taken = piece[skipped:stop]
            ends = stream_ends[low:high].astype(np.int64) - start  # of documents in the piece, whose first is an EOT
            begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) + 1
            held = np.clip(begins, skipped, stop)
            sizes = np.clip(ends, skipped, stop) - held
            parts = (part.astype(np.uint64) for part in (held - skipped, sizes, held - begins))
            sums = content_kernels.token_sums(taken, *parts)
            tally.add_to_cell(number, sums, np.arange(low, high, dtype=np.uint64))
            position, nothing = np.array([written], np.uint64), np.zeros(1, np.uint64)
            whole = content_kernels.token_sums(taken, nothing, np.array([len(taken)], np.uint64), position)
            tally.file += content_kernels.placed_sum(whole, 0, nothing)
            written += len(taken)
            yield taken
            advance.note_done(len(taken))
