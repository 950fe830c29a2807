"""Builds from parquet, from parts of large files, from buckets: the same documents, and found again."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.documents.parquet import read_rows
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.inspect.lineage import locate, trace, verify_records
from corpusmill.storage import SeekableFile
from tests.documents.test_splitting import bgzip_block
from tests.hub import COMMIT, Hub
from tests.quick import quick
from tests.system.corpus import configuration, lines_of, make_documents


@pytest.fixture(autouse=True)
def _small_files_are_cut(monkeypatch) -> None:
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)


def built(root: Path, **source: object):
    source = {"shard_bytes": "20KiB", **source}
    return open_build(build_dataset(check_config(configuration(root, source=source), where="test"), workers=1))


def texts_of(build) -> list[bytes]:
    shards = [open_text_shard(build.folder("index", shard)) for shard in build.units("index")]
    return [shard.document_bytes(number) for shard in shards for number in range(shard.documents)]


def table_of(texts: list[str], kind: pa.DataType) -> pa.Table:
    column = pa.array(texts, pa.string()).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(texts).cast(kind)
    rows = range(len(texts))
    return pa.table(
        {
            "id": pa.array([f"doc-{row}" for row in rows]),
            "score": pa.array([row / 3 for row in rows], pa.float32()),
            "text": column,
            "meta": pa.array([{"row": row, "tags": ["a"] * (row % 3)} for row in rows]),
        }
    ).replace_schema_metadata({"made by": "a test"})


KINDS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", KINDS, ids=["string", "large_string", "dictionary"])
def test_parquet_feeds_many_shards_and_comes_back_with_its_other_columns(tmp_path, kind) -> None:
    texts = make_documents(120)
    (tmp_path / "corpus").mkdir()
    original = table_of(texts, kind)
    pq.write_table(original, tmp_path / "corpus/a.parquet", row_group_size=15, compression="zstd")
    build = built(tmp_path, paths=[str(tmp_path / "corpus")])
    assert len(build.plan.shards) > 2
    assert texts_of(build) == [text.encode() for text in texts]
    folders = [build.folder("writeback", shard) / "documents" for shard in build.units("writeback")]
    parts = [pq.ParquetFile(path) for folder in folders for path in sorted(folder.iterdir())]
    written = pa.concat_tables([part.read() for part in parts])
    assert written.schema == original.schema
    assert written.schema.metadata == original.schema.metadata
    assert written.drop_columns(["text"]).equals(original.drop_columns(["text"]))
    assert parts[0].metadata.row_group(0).column(0).compression == "ZSTD"
    assert sum(part.metadata.num_row_groups for part in parts) == 8
    removed = build.total("union", "removed_bytes")
    assert removed > 0
    assert sum(len(text.encode()) for text in written["text"].to_pylist()) == sum(map(len, texts_of(build))) - removed


def test_parquet_columns_that_are_not_asked_for_are_not_read(tmp_path) -> None:
    """Every stretch that the reader asks the store for, added up."""
    texts = [f"text {row}" for row in range(2000)]
    noise = [hashlib.sha256(b"%d" % row).hexdigest() * 20 for row in range(2000)]
    pq.write_table(
        pa.table({"noise": noise, "text": texts}), tmp_path / "wide.parquet", row_group_size=500, compression="none"
    )
    whole = (tmp_path / "wide.parquet").read_bytes()
    read = []

    def stretch(first: int, last: int) -> bytes:
        read.append(last - first)
        return whole[first:last]

    with Unbuffered(len(whole), stretch) as stream:
        batches = list(read_rows(stream, source="wide.parquet", text_field="text", id_field="id"))
    assert [text.decode() for batch in batches for text in batch.texts()] == texts
    assert len(whole) > 1_000_000
    assert sum(read) < 200_000


class Unbuffered(SeekableFile):
    """Reads exactly what it is asked for."""

    def __init__(self, size_bytes: int, stretch: Callable[[int, int], bytes]) -> None:
        super().__init__(size_bytes)
        self._stretch = stretch

    def _next(self, wanted: int) -> bytes:
        return self._stretch(self._at, self._at + wanted)


def test_parquet_lineage_names_the_row_of_the_whole_file(tmp_path) -> None:
    texts = make_documents(60)
    (tmp_path / "corpus").mkdir()
    pq.write_table(table_of(texts, pa.string()), tmp_path / "corpus/a.parquet", row_group_size=15)
    build = built(tmp_path, paths=[str(tmp_path / "corpus")])
    require_lineage(build, "a.parquet", texts)


def require_lineage(build, source: str, texts: list[str]) -> None:
    """Line n of the whole file is document n, both ways, and records can be made again from it."""
    for line in (1, len(texts) // 3, len(texts) // 2 + 1, len(texts)):
        actual = locate(build, source, line)
        assert (actual.document.source, actual.document.line, actual.document.id) == (source, line, f"doc-{line - 1}")
        assert actual.text_bytes == len(texts[line - 1].encode())
        for record in actual.records[:1]:
            traced = trace(build, record.export, record.file.rpartition("/")[2], record.record)
            places = [part.document for part in traced.parts if hasattr(part, "document")]
            assert (source, line) in [(place.source, place.line) for place in places]
    assert verify_records(build, 8, 0).documents > 0


def big_file(name: str, texts: list[str]) -> bytes:
    lines = lines_of(texts)
    if name.endswith(".zst"):  # frames that end inside lines
        return b"".join(zstandard.compress(lines[at : at + 9_000]) for at in range(0, len(lines), 9_000))
    if name.endswith("blocks.jsonl.gz"):  # bgzip's blocks, which end inside lines, too, and its empty last one
        return b"".join(bgzip_block(lines[at : at + 9_000]) for at in [*range(0, len(lines), 9_000), len(lines)])
    return gzip.compress(lines, mtime=0) if name.endswith(".gz") else lines


@pytest.mark.parametrize("name", ["big.jsonl", "big.jsonl.zst", "blocks.jsonl.gz"])
def test_large_file_is_cut_into_shards_with_the_same_documents_and_lines(tmp_path, name: str) -> None:
    texts = make_documents(200)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / name).write_bytes(big_file(name, texts))
    build = built(tmp_path, paths=[str(tmp_path / "corpus")])
    assert len(build.plan.shards) > 2
    assert texts_of(build) == [text.encode() for text in texts]
    require_lineage(build, name, texts)


def test_large_single_frame_file_stays_one_shard_and_the_plan_says_why(tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/big.jsonl.gz").write_bytes(big_file("big.jsonl.gz", make_documents(200)))
    config = check_config(
        configuration(tmp_path, source={"paths": [str(tmp_path / "corpus")], "shard_bytes": 5000}), where="t"
    )
    plan = open_build(plan_dataset(config)).plan
    assert len(plan.shards) == 1
    assert plan.uncut is not None
    assert plan.uncut[0].why == "one shard because a single-frame file cannot be split"
    assert "bgzip" in plan.uncut[0].remedy


@pytest.mark.parametrize("stream", quick([True, False], 1), ids=["streamed", "copied"])
def test_sources_bucket_and_folder_give_the_same_dataset(tmp_path, rclone, stream: bool) -> None:
    texts = make_documents(60)
    client = boto3.Session().client("s3", endpoint_url=rclone.endpoint)
    (tmp_path / "here/corpus").mkdir(parents=True)
    pq.write_table(table_of(texts, pa.string()), tmp_path / "here/corpus/t.parquet", row_group_size=15)
    (tmp_path / "here/corpus/big one ü.jsonl").write_bytes(lines_of(texts))
    for name in ("big.jsonl.zst", "blocks.jsonl.gz"):  # several frames: cut here and there alike
        (tmp_path / "here/corpus" / name).write_bytes(big_file(name, texts))
    (tmp_path / "here/corpus/small.jsonl.zst").write_bytes(zstandard.compress(lines_of(texts[:20])))
    frames = (zstandard.compress(lines_of(texts[:5])), zstandard.compress(lines_of(texts[5:9])))
    members = (gzip.compress(lines_of(texts[:5]), mtime=0), gzip.compress(lines_of(texts[5:9]), mtime=0))
    (tmp_path / "here/corpus/frames.jsonl.zstd").write_bytes(b"".join(frames))
    (tmp_path / "here/corpus/members.jsonl.gz").write_bytes(b"".join(members))
    (tmp_path / "here/corpus/empty.jsonl").write_bytes(b"")
    for path in (tmp_path / "here/corpus").iterdir():
        client.put_object(Bucket="corpus", Key=f"dump/{path.name}", Body=path.read_bytes())
    local = built(tmp_path / "here", paths=[str(tmp_path / "here/corpus")])
    remote = built(tmp_path / "there", paths=["s3://corpus/dump"], endpoint_url=rclone.endpoint, stream=stream)
    version = [json.loads((tmp_path / item / "outputs/tiny/latest.json").read_text()) for item in ("here", "there")]
    assert version[0] == version[1]
    files = [path for path in (remote.work / "download").rglob("files/*") if path.is_file()]
    assert bool(files) is not stream
    assert len(texts_of(remote)) == 60 * 4 + 20 + 9 * 2  # every frame and every member, not only the first
    assert not list((remote.work / "arriving").glob("*"))
    assert remote.receipt("download", "00000").traffic["requests"] > 0
    assert "traffic" not in local.receipt("download", "00000").counts
    require_lineage(remote, "t.parquet", texts)


def test_sources_endings_said_by_a_pattern_give_the_same_dataset_here_and_in_a_bucket(tmp_path, rclone) -> None:
    texts = make_documents(60)
    client = boto3.Session().client("s3", endpoint_url=rclone.endpoint)
    corpus = tmp_path / "here/corpus"
    (corpus / "deep").mkdir(parents=True)
    (corpus / "big.json").write_bytes(lines_of(texts))  # larger than a shard: cut at line ends
    (corpus / "deep/c.json.gz").write_bytes(gzip.compress(lines_of(texts[:7]), mtime=0))
    (corpus / "deep/d.json.zst").write_bytes(zstandard.compress(lines_of(texts[:5])))
    (corpus / "deep/statistics.json").write_text('{"documents": 3}')
    (corpus / "plain.jsonl").write_bytes(lines_of(texts[:3]))
    for path in corpus.rglob("*.*"):
        client.put_object(Bucket="corpus", Key=f"dump/{path.relative_to(corpus)}", Body=path.read_bytes())
    patterns = ("*.json", "**/*.json.gz", "deep/d.json.zst")
    local = built(tmp_path / "here", paths=[f"{corpus}/{pattern}" for pattern in patterns])
    remote = built(
        tmp_path / "there",
        paths=[f"s3://corpus/dump/{pattern}" for pattern in patterns],
        endpoint_url=rclone.endpoint,
    )
    assert local.units("index") == remote.units("index") != ["00000"]
    expected = [text.encode() for text in (*texts, *texts[:5], *texts[:7])]  # big, d, deep/c
    assert texts_of(local) == texts_of(remote) == expected
    version = [json.loads((tmp_path / item / "outputs/tiny/latest.json").read_text()) for item in ("here", "there")]
    assert version[0] == version[1]


def test_hub_dataset_is_built_from_the_commit_it_was_planned_at(tmp_path, monkeypatch) -> None:
    texts = make_documents(60)
    pq.write_table(table_of(texts, pa.string()), tmp_path / "t.parquet", row_group_size=10)
    with Hub({"sample/t.parquet": (tmp_path / "t.parquet").read_bytes(), "README.md": b"#"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        build = built(tmp_path, paths=["hf://datasets/owner/name"])
        assert texts_of(build) == [text.encode() for text in texts]
        assert all(COMMIT in file.location for shard in build.plan.shards for file in shard)
        require_lineage(build, "sample/t.parquet", texts)
