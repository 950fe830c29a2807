"""Every file of every format, damaged in every way: `verify` names it, and no reading of it goes on with other records.

A format joins by a line in EXPORTS, with each of its layouts.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import CorpusmillError
from corpusmill.export.formats import FORMATS
from corpusmill.inspect.datasets.dataset import open_dataset
from corpusmill.inspect.verify import verify_version
from tests.system.corpus import configuration, write_corpus
from tests.tokens.vocabularies import shared

EXPORTS: dict[str, dict[str, Any]] = {
    "webdataset": {"webdataset": {"context_tokens": 65, "contexts_per_shard": 60, "exp_data": True}},
    "npy": {"numpy": {"tokens_per_shard": 3000, "checkpoints": True}},
    "raw": {"numpy": {"layout": "bin"}},
    "llmc": {"numpy": {"layout": "llmc", "tokens_per_shard": 3000}},
    "automodel": {"numpy": {"layout": "automodel", "tokens_per_shard": 3000, "bos_index": True}},
    "megatron": {"megatron": {"part_bytes": "16KiB"}},
    "olmo": {"olmo": {"file_tokens": 4000, "offsets": True}},
    "parquet_documents": {
        "parquet_documents": {
            "file_bytes": "20KB",
            "rows_per_group": 3,
            "columns": ["input_ids", "labels", "loss_mask", "seq_lengths"],
        }
    },
    "parquet_contexts": {
        "parquet_contexts": {
            "context_tokens": 64,
            "file_bytes": "20KB",
            "rows_per_group": 10,
            "columns": ["input_ids", "labels", "loss_mask", "seq_lengths"],
        }
    },
    "parquet_text": {"parquet_text": {"groups_per_file": 2, "rows_per_group": 4}},
    "nanoset": {"nanoset": {"file_bytes": "16KiB", "loss": True}},
}
"""A format's layout -> the section `exports` that writes several small files of it."""
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Versions:
    """Two versions of one dataset at one destination, of the same documents in another order."""

    config: DatasetConfig
    format: str
    version: Path
    other: Path

    def files(self) -> list[Path]:
        """The files of the format in the first version."""
        return sorted(path for path in (self.version / self.format).rglob("*") if path.is_file())

    def named_by_verify(self) -> set[str]:
        """The files of the first version that `verify` finds fault with."""
        found = verify_version(self.config, self.version.name).findings
        return {finding.where.split(", byte ")[0].split(", line ")[0] for finding in found}

    def opened(self) -> list[list[int]]:
        """Every record of the first version, by number."""
        return [ids.tolist() for ids in open_dataset(self.version)[self.format]]


@pytest.fixture(scope="module", params=EXPORTS)
def versions(request, tmp_path_factory) -> Versions:
    root = tmp_path_factory.mktemp(request.param)
    write_corpus(root / "corpus", documents=24)
    folders = []
    for seed in (7, 8):
        values = configuration(
            root,
            dedup={"mode": "none"},
            tokenizer={"name": "gpt2", "file": str(shared("gpt2.tokenizer.json"))},
            shuffle={"seed": seed},
            exports=EXPORTS[request.param],
        )
        config = check_config(values, where="test")
        build_dataset(config, workers=1)
        folders.append((root / "outputs" / "tiny" / "latest").resolve())
    (name,) = EXPORTS[request.param]
    return Versions(config, name, *folders)


@contextmanager
def damaged(path: Path, content: bytes | None) -> Iterator[None]:
    """A file with other content, or none, for a while."""
    before = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    yield
    path.write_bytes(before)


def flipped(content: bytes) -> Iterator[bytes]:
    """The content with one bit of another value, at its beginning, in its middle, and at its end."""
    for place in sorted({0, len(content) // 2, len(content) - 1}):
        yield content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def damages(path: Path, other: Path) -> Iterator[tuple[str, bytes | None]]:
    """(kind of damage, what the file then holds) of one file; `other` is the same file of the other version."""
    content = path.read_bytes()
    yield "missing", None
    if content:
        yield "cut", content[:-1]
        yield "cut to nothing", b""
        yield from (("flipped", changed) for changed in flipped(content))
    yield "longer", content + b"\0\0\0\0"
    if other.is_file() and other.read_bytes() != content:
        yield "of the other version", other.read_bytes()


def test_every_format_is_damaged_here() -> None:
    assert {name for section in EXPORTS.values() for name in section} == set(FORMATS)


def test_damaged_file_is_named_by_verify_and_refused_by_opening(versions) -> None:
    """Opening compares sizes and digests indexes, so of damage that keeps a file's size it may miss what is no index:
    then exactly that file's records differ, and their number does not."""
    right = versions.opened()
    assert len(versions.files()) > 1
    assert versions.named_by_verify() == set()
    for path in versions.files():
        size = path.stat().st_size
        for kind, content in damages(path, versions.other / path.relative_to(versions.version)):
            with damaged(path, content):
                assert versions.named_by_verify() == {str(path)}, (path, kind)
                try:
                    records = versions.opened()
                except CorpusmillError:
                    continue
            same_size = content is not None and len(content) == size
            if not same_size:
                assert records == right, (path, kind)  # a file that no reading of records needs
            assert [len(ids) for ids in records] == [len(ids) for ids in right], (path, kind)
    assert versions.opened() == right


def test_pieces_of_two_contexts_that_were_swapped_are_found(versions) -> None:
    """Both rows are as long, so that each still adds up to its row."""
    if versions.format != "parquet_contexts":
        pytest.skip("has no pieces")
    path = versions.files()[0]
    table = pq.read_table(path)
    rows = table.column("seq_lengths").to_pylist()
    first, second = next(
        pair for pair in itertools.combinations(range(len(rows)), 2)
        if rows[pair[0]] != rows[pair[1]] and sum(rows[pair[0]]) == sum(rows[pair[1]])
    )  # fmt: skip
    rows[first], rows[second] = rows[second], rows[first]
    place = table.column_names.index("seq_lengths")
    swapped = table.set_column(place, table.schema.field(place), pa.array(rows, table.schema.field(place).type))
    sink = pa.BufferOutputStream()
    pq.write_table(swapped, sink, row_group_size=10, use_dictionary=False, compression="none")
    with damaged(path, sink.getvalue().to_pybytes()):
        assert versions.named_by_verify() == {str(path)}


def test_flipped_token_is_found_though_the_description_vouches_for_the_file(versions) -> None:
    """dataset.json states the sha256 of the damaged file, as one written after the damage would: the independent
    reader of the format is left."""
    text = (versions.version / "dataset.json").read_text()
    stated = {file["name"]: file for file in json.loads(text)["files"]}
    for path in versions.files():
        name = path.relative_to(versions.version).as_posix()
        if "slots" not in stated.get(name, {}):
            continue
        before = path.read_bytes()
        place = before.index(GZIP) + 15 if path.suffix == ".tar" else len(before) // 2
        content = before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :]
        forged_text = text.replace(stated[name]["sha256"], hashlib.sha256(content).hexdigest())
        forged = versions.version.with_name(hashlib.sha256(forged_text.encode()).hexdigest()[:12])
        shutil.copytree(versions.version, forged)
        (forged / name).write_bytes(content)
        (forged / "dataset.json").write_text(forged_text)
        found = verify_version(versions.config, forged.name).findings
        assert any(str((forged / name).with_suffix("")) in finding.where for finding in found), name
