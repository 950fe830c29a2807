"""Nanoset's files: `nanoset/00000_<number>_doc_shuffled.ds` and those beside it (export/nanoset.py has the bytes).

Where Megatron parts and Nanoset files are cut at the same size, they hold the same bytes: the tokens are written once,
and get a second name.
"""

from __future__ import annotations

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
from corpusmill.shuffle.stages.scatter import in_source_order

with lazily:
    import numpy as np

    from corpusmill.export import megatron, nanoset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary


class Nanoset(DocumentFormat):
    """See export/nanoset.py."""

    name = "nanoset"
    libraries = ("humanize",)

    def file_name(self, build: Build, number: int) -> str:
        """As datatrove names its files."""
        return nanoset.file_name(number, None) if in_source_order(build) else nanoset.file_name(0, number)

    def output_bytes(self, exports: ExportsConfig, _token_bytes: int) -> int:
        assert exports.nanoset is not None
        return int(exports.nanoset.file_bytes)

    def suffixes(self, exports: ExportsConfig) -> tuple[str, ...]:
        loss = (".ds.loss",) if exports.nanoset and exports.nanoset.loss else ()
        return (".ds", ".ds.index", ".ds.metadata", *loss)

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        framing = asdict(settings.framing_of_documents())
        written = nanoset.write_file(
            folder,
            output.name,
            document_batches(cells, output),
            eos_id=framing.pop("eod_id"),
            tokenizer_name=settings.vocabulary.name,
            vocabulary_size=settings.vocabulary.size,
            written=tally.add,
            **framing,
        )
        return self._with_loss(settings, folder, output, counted(written))

    def link(self, part: Path, output: Output, folder: Path, settings: Settings) -> dict[str, int]:
        """As `write`, of the tokens of a Megatron part of the same documents."""
        opened = megatron.open_part(part)
        name, special = settings.vocabulary.name, settings.framing_of_documents().special_tokens
        written = nanoset.link_file(folder, output.name, opened, tokenizer_name=name, special_tokens=special)
        return self._with_loss(settings, folder, output, counted(written))

    def _with_loss(self, settings: Settings, folder: Path, output: Output, counts: dict[str, int]) -> dict[str, int]:
        if settings.loss and counts["slots"]:
            nanoset.write_loss(folder / f"{output.name}.ds", nanoset.every_token(counts["slots"]))
        return counts

    def verify(self, config: DatasetConfig, path: Path, _positions: int, ids: Vocabulary) -> dict[str, int]:
        framing = asdict(framing_of(config.framing, ids))
        seen = nanoset.verify_file(
            beside(path, ".ds"),
            vocabulary_size=ids.size,
            eos_id=framing.pop("eod_id"),
            tokenizer_name=ids.name,
            loss=bool(config.exports.nanoset and config.exports.nanoset.loss),
            **framing,
        )
        return counted(seen)

    def blocks(self, path: Path, about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        ends = np.fromfile(beside(path, ".ds.index"), "<u8")
        width = beside(path, ".ds.metadata").read_text().partition("\n")[0].rpartition("|")[2]
        tokens = np.memmap(beside(path, ".ds"), f"<u{width}", "r")
        yield from bare_documents(tokens, np.concatenate([np.zeros(1, np.uint64), ends[:-1]]), ends, about)

    def records(self, path: Path, wanted: Sequence[Wanted], _dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        file = nanoset.open_file(beside(path, ".ds"))
        for record in wanted:
            yield file.document(record.record)
