"""Megatron's parts: `megatron/<dataset>_<number>_<key>_document.bin` and `.idx` (export/megatron.py has the bytes)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.export.formats.base import (
    Cells,
    DocumentFormat,
    Output,
    Readable,
    Settings,
    Wanted,
    bare_documents,
    beside,
    counted,
    document_batches,
    framing_of,
)
from corpusmill.lazy import lazily

with lazily:
    import numpy as np

    from corpusmill.export import megatron

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary


class Megatron(DocumentFormat):
    """See export/megatron.py."""

    name = "megatron"

    def file_name(self, build: Build, number: int) -> str:
        """{prefix}_{json key}_document, as Megatron's own tool has it."""
        key = re.sub(r"[^A-Za-z0-9.-]+", "_", build.config.source.text_field)
        return f"{build.config.name}_{number:05d}_{key}_document"

    def output_bytes(self, exports: ExportsConfig, _token_bytes: int) -> int:
        assert exports.megatron is not None
        return int(exports.megatron.part_bytes)

    def suffixes(self, _exports: ExportsConfig) -> tuple[str, ...]:
        return (".bin", ".idx")

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        size = settings.vocabulary.size
        written = megatron.write_part(
            folder,
            output.name,
            document_batches(cells, output),
            dtype=megatron.token_dtype(size),
            vocabulary_size=size,
            written=tally.add,
            **asdict(settings.framing_of_documents()),
        )
        return counted(written)

    def verify(self, config: DatasetConfig, path: Path, _positions: int, ids: Vocabulary) -> dict[str, int]:
        framing = asdict(framing_of(config.framing, ids))
        return counted(megatron.verify_part(path, vocabulary_size=ids.size, **framing))

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        index = beside(path, ".idx").read_bytes()
        sequences, bounds = (int(number) for number in np.frombuffer(index, "<u8", 2, 18))
        lengths = np.frombuffer(index, "<i4", sequences, 34).astype(np.uint64)
        boundaries = np.frombuffer(index, "<i8", bounds, 34 + 12 * sequences)
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths, dtype=np.uint64)])[boundaries]
        tokens = np.memmap(beside(path, ".bin"), {8: "<u2", 4: "<i4"}[index[17]], "r")
        yield from bare_documents(tokens, ends[:-1], ends[1:], about)

    def records(self, path: Path, wanted: Sequence[Wanted], _dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        part = megatron.open_part(path)
        for record in wanted:
            yield part.document(record.record)
