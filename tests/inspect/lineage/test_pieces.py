"""Contexts in parquet whose columns are those of other pieces, and agree with each other: only the source knows."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.lineage import verify_records
from corpusmill.inspect.lineage.records import export_folder, find_output
from corpusmill.inspect.verify import verify_build, verify_copy
from corpusmill.storage import open_store
from tests.export.test_parquet import context_row
from tests.raising import raises
from tests.system.corpus import configuration, write_corpus

STATING = ("seq_lengths", "seq_start_id", "position_ids", "loss_mask")
NAME = "train-00000.parquet"


@pytest.fixture(scope="module", params=[STATING, *((column,) for column in STATING)], ids="-".join)
def build(request, tmp_path_factory) -> Build:
    root = tmp_path_factory.mktemp("pieces")
    write_corpus(root / "corpus", documents=24)
    contexts = {"context_tokens": 64, "rows_per_group": 10, "columns": ["input_ids", *request.param]}
    values = configuration(root, dedup={"mode": "none"}, exports={"parquet_contexts": contexts})
    return open_build(build_dataset(check_config(values, where="test"), workers=1))


def wrong_pieces(path: Path) -> bytes:
    """The file with the pieces of two rows of one length swapped in every column, CRCs and row groups right."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    for first, second in combinations(range(len(rows)), 2):
        if len(rows[first]["input_ids"]) == len(rows[second]["input_ids"]) and rows[first] != rows[second] | {
            "input_ids": rows[first]["input_ids"]
        }:
            break
    ids = [rows[number]["input_ids"] for number in (first, second)]
    rows[first], rows[second] = rows[second] | {"input_ids": ids[0]}, rows[first] | {"input_ids": ids[1]}
    sink = pa.BufferOutputStream()
    swapped = pa.Table.from_pylist(rows, schema=table.schema)
    pq.write_table(swapped, sink, row_group_size=10, use_dictionary=False, write_page_checksum=True)
    return sink.getvalue().to_pybytes()


@contextmanager
def holding(path: Path, content: bytes) -> Iterator[None]:
    before = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    yield
    path.write_bytes(before)


def exported(build: Build) -> Path:
    output = find_output(build, "parquet_contexts", 0)
    return export_folder(build, "parquet_contexts", output) / NAME


def forged(build: Build, content: bytes) -> Path:
    """A version whose dataset.json states the digest of another content of the file."""
    version = (Path(build.config.destinations[0].path) / "tiny" / "latest").resolve()
    copy = version.with_name("forged")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(version, copy)
    file = copy / "parquet_contexts" / NAME
    described: dict[str, Any] = json.loads((copy / "dataset.json").read_text())
    stated = next(row for row in described["files"] if row["name"] == f"parquet_contexts/{NAME}")
    stated |= {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
    file.unlink()
    file.write_bytes(content)
    (copy / "dataset.json").write_text(json.dumps(described))
    return copy


def test_pieces_that_are_those_of_another_context_are_found_by_the_source(build) -> None:
    path = exported(build)
    columns = pq.read_schema(path).names[1:]
    assert verify_records(build, 10**6, 0).records["parquet_contexts"] == pq.read_metadata(path).num_rows
    content = wrong_pieces(path)
    found = verify_copy(open_store(str(forged(build, content)))).findings
    assert not any(NAME in finding.where for finding in found), found  # all digests agree
    with holding(path, content):
        with raises("trace.column_differs", "parquet_contexts/train-00000, record ", f", column {columns[0]}"):
            verify_records(build, 10**6, 0)
        assert verify_build(build).findings
    verify_records(build, 10**6, 0)


def test_pieces_in_a_file_without_one_of_its_columns_are_refused(build) -> None:
    path = exported(build)
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(path, columns=["input_ids"]), sink, use_dictionary=False)
    with holding(path, sink.getvalue().to_pybytes()), raises("rows.columns_differ"):
        verify_records(build, 10**6, 0)


def test_packed_rows_state_their_pieces_by_definition(build) -> None:
    """What the source check expects of a row is what a plain reading of the definition makes of its pieces."""
    columns = pq.read_schema(exported(build)).names[1:]
    if "seq_lengths" not in columns:
        pytest.skip("states no lengths")
    for row in pq.read_table(exported(build)).to_pylist():
        ends = [sum(row["seq_lengths"][: place + 1]) for place in range(len(row["seq_lengths"]))]
        begins = [0, *ends[:-1]]
        pieces = [row["input_ids"][first:last] for first, last in zip(begins, ends, strict=True)]
        assert {name: row[name] for name in columns} == {name: context_row(pieces, "token")[name] for name in columns}
