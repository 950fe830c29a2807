"""Tars of contexts: `webdataset/shard_00000000.tar` (export/webdataset.py has the bytes)."""

from __future__ import annotations

import gzip
import json
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.errors import VerificationError
from corpusmill.export.formats.base import Cells, Format, Output, Readable, Settings, Wanted, record_batches
from corpusmill.lazy import lazily

with lazily:
    import numpy as np
    import orjson

    from corpusmill.export import tar, webdataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corpusmill.config import DatasetConfig, ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.export.formats.base import WrittenContent
    from corpusmill.tokens.stages.tokenize import Vocabulary


class WebDataset(Format):
    """See export/webdataset.py."""

    name = "webdataset"
    libraries = ("deflate", "orjson")

    def plan(self, build: Build, total: int) -> tuple[list[str], list[int]]:
        assert build.config.exports.webdataset is not None
        bounds = [*range(0, total, build.config.exports.webdataset.contexts_per_shard), total]
        return [f"{webdataset.shard_name(number)}.tar" for number in range(len(bounds) - 1)], bounds

    def output_bytes(self, exports: ExportsConfig, token_bytes: int) -> int:
        assert exports.webdataset is not None
        return exports.webdataset.contexts_per_shard * exports.webdataset.context_tokens * token_bytes

    def write(
        self, cells: Cells, output: Output, folder: Path, settings: Settings, tally: WrittenContent
    ) -> dict[str, int]:
        names: list[str] = []

        def contexts() -> Iterator[Any]:
            for tokens, _, shards, ordinals in record_batches(cells, output):
                # Provenance in the member's name: shard of the corpus and number of the context in it.
                names.extend(f"{shard:05d}-{ordinal:09d}" for shard, ordinal in zip(shards, ordinals, strict=True))
                yield tokens.reshape(len(shards), -1)

        def identities() -> Iterator[str]:
            position = 0
            while position < len(names):
                yield names[position]
                position += 1

        size = settings.vocabulary.size
        written = webdataset.write_shard(
            folder / output.name, contexts(), identities(), output.number, vocabulary_size=size, written=tally.add
        )
        return {"records": written["records"], "slots": written["tokens"]}

    def verify(self, config: DatasetConfig, path: Path, positions: int, ids: Vocabulary) -> dict[str, int]:
        wanted = config.exports.webdataset
        width = wanted.context_tokens if wanted else 0
        seen = webdataset.verify_shard(path, context_tokens=width, vocabulary_size=ids.size, records=positions)
        return {"records": seen["records"], "slots": seen["tokens"]}

    def blocks(self, path: Path, _about: Readable) -> Iterator[tuple[NDArray[Any], NDArray[np.uint64]]]:
        with tarfile.open(path, "r:") as members:
            for member in members:
                file = members.extractfile(member)
                context = np.array(orjson.loads(gzip.decompress(file.read() if file else b"")), np.uint64)
                yield context, np.array([len(context)], np.uint64)

    def records(self, path: Path, wanted: Sequence[Wanted], _dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        """VerificationError for a record with the name of another source, too."""
        rest = {record.record: record for record in wanted}
        shard = path.name.removeprefix("shard_").removesuffix(".tar")
        for place, (name, at, body) in enumerate(tar.read_members(path)):
            if record := rest.pop(place, None):
                expected = f"{shard}_{place:08d}_{record.origin}.json.gz"
                if name != expected:
                    raise VerificationError(
                        "trace.record_of_other_source: a record has the name of another source",
                        where=f"{path}, byte {at}",
                        expected=expected,
                        got=name,
                    )
                yield _context(path, at, body)
            if not rest:
                return
        raise VerificationError(
            "trace.tar_truncated: a tar ends too early", where=path, expected=f"record {min(rest)}", got="its end"
        )


def _context(path: Path, at: int, body: bytes) -> NDArray[Any]:
    """By plain gzip and JSON, which the writer does not use."""
    try:
        return np.array(json.loads(gzip.decompress(body)), np.int64)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise VerificationError(
            "trace.record_not_readable: a record cannot be read",
            where=f"{path}, byte {at}",
            expected="gzip of a JSON list",
            got=error,
        ) from error
