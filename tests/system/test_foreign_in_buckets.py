"""Objects of a bucket whose bytes are not what their names say, in a real S3 server: refused before any work."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import zstandard

from corpusmill.builds.local import build_dataset
from corpusmill.config import SourceConfig, check_config
from corpusmill.documents.compression import NAMED_ENDINGS, open_decompressed
from corpusmill.engine.plan import plan_files
from corpusmill.storage.listing import list_all
from tests.documents.test_kinds import LINES, WRITTEN
from tests.raising import raises
from tests.servers import Server
from tests.system.corpus import configuration, lines_of, make_documents

KINDS = ("gzip", "Zstandard", "xz", "bzip2", "lz4", "parquet", "tar")
FALSE_NAMES = [
    *((f"{kind} as .jsonl", "false.jsonl", WRITTEN[kind][0](LINES), kind) for kind in KINDS),
    ("tar in gzip as .jsonl.gz", "false.jsonl.gz", gzip.compress(WRITTEN["tar"][0](LINES)), "tar within gzip"),
    ("zstd as .jsonl.gz", "false.jsonl.gz", zstandard.compress(LINES), "Zstandard"),
    ("lines as .jsonl.zst", "false.jsonl.zst", LINES, "JSON lines"),
    ("lines as .parquet", "false.parquet", LINES, "JSON lines"),
]
CASES = pytest.mark.parametrize(("name", "data", "kind"), [pytest.param(*row[1:], id=row[0]) for row in FALSE_NAMES])


def config_of(root: Path, server: Server, *, stream: bool = False, **source: Any) -> Any:
    wanted = {"paths": ["s3://corpus/dump"], "endpoint_url": server.endpoint, "stream": stream, **source}
    return check_config(configuration(root, source=wanted), where="test")


@CASES
@pytest.mark.parametrize("stream", [False, True], ids=["copied", "streamed"])
def test_object_under_a_false_name_is_refused_before_a_step_runs(
    tmp_path: Path, rclone: Server, rclone_client: Any, name: str, data: bytes, kind: str, stream: bool
) -> None:
    for key, body in (("good.jsonl", lines_of(make_documents(40))), (name, data)):
        rclone_client.put_object(Bucket="corpus", Key=f"dump/{key}", Body=body)
    with raises("source.other_kind") as refused:
        build_dataset(config_of(tmp_path, rclone, stream=stream), workers=1)
    details = dict(refused.value.details)
    assert (details["where"], details["got"]) == (name, kind)
    assert not any((tmp_path / "work/tiny" / stage).exists() for stage in ("download", "index"))
    assert not (tmp_path / "outputs").exists()


@CASES
def test_large_object_under_a_false_name_is_refused_before_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, rclone: Server, rclone_client: Any, name: str, data: bytes, kind: str
) -> None:
    """Cut at line ends, each part but the first would have had no mark of what it is."""
    monkeypatch.setattr("corpusmill.engine.plan.SMALLEST_PART_BYTES", 1)
    if "within" in kind:
        pytest.skip("a gzip file of one member is not cut")
    rclone_client.put_object(Bucket="corpus", Key=f"dump/{name}", Body=data)
    source = SourceConfig(paths=["s3://corpus/dump"], endpoint_url=rclone.endpoint)
    files = list_all(source.paths, (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"), rclone.endpoint).files
    assert [file.name for file in files] == [name]
    with raises("source.other_kind") as refused:
        plan_files(files, len(data) // 4, rclone.endpoint)
    details = dict(refused.value.details)
    assert (details["where"], details["got"]) == (name, kind)


@pytest.mark.parametrize("stream", [False, True], ids=["copied", "streamed"])
@pytest.mark.parametrize("ending", [".json", ".json.gz", ".json.zst"])
def test_object_of_another_usual_name_is_read_rightly_where_a_pattern_names_it(
    tmp_path: Path, rclone: Server, rclone_client: Any, ending: str, stream: bool
) -> None:
    assert ending in NAMED_ENDINGS
    packed = {".json": bytes, ".json.gz": gzip.compress, ".json.zst": zstandard.compress}[ending]
    texts = make_documents(40)
    rclone_client.put_object(Bucket="corpus", Key=f"dump/web{ending}", Body=packed(lines_of(texts)))
    paths = [f"s3://corpus/dump/*{ending}"]
    build_dataset(config_of(tmp_path, rclone, stream=stream, paths=paths, shard_bytes="8KiB"), workers=1)
    (written,) = (tmp_path / "outputs/tiny/latest/documents").rglob(f"web*{ending}")
    with written.open("rb") as raw, open_decompressed(raw, written.name) as lines:
        assert lines.read().count(b"\n") == len(texts)
