"""Whole builds from and to stores, by command and by stage: what goes over the wire, and what goes wrong on the way."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset, run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.cli import app
from corpusmill.config import check_config
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.errors import SourceError
from corpusmill.report.summary import from_json
from corpusmill.storage import open_store
from corpusmill.upload.stages import upload
from corpusmill.upload.stages.report import HTML, SUMMARY, UNIT
from tests.faults.proxy import Answer, FaultyProxy
from tests.hub import Hub
from tests.raising import raises
from tests.servers import ACCESS_KEY, SECRET_KEY
from tests.system.corpus import configuration, lines_of, make_documents, write_corpus

EXPORTS = {"numpy": {"tokens_per_shard": 5000}}


@pytest.fixture
def corpus(tmp_path, rclone_client, rclone) -> Path:
    """A folder of five files, and the same below s3://corpus/dump."""
    write_corpus(tmp_path / "corpus", documents=40)
    for path in sorted((tmp_path / "corpus").rglob("*")):
        if path.is_file():
            key = f"dump/{path.relative_to(tmp_path / 'corpus').as_posix()}"
            rclone_client.put_object(Bucket="corpus", Key=key, Body=path.read_bytes())
    return tmp_path / "corpus"


def remote(root: Path, endpoint: str | None, **changes: object) -> dict[str, object]:
    source = {"paths": ["s3://corpus/dump"], "shard_bytes": "8KiB", **({"endpoint_url": endpoint} if endpoint else {})}
    return configuration(root, **{"source": source, "exports": EXPORTS, **changes})


def file_of(config: dict[str, object], root: Path) -> str:
    (root / "dataset.yaml").write_text(yaml.safe_dump(config))
    return str(root / "dataset.yaml")


def said_by(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_cli_download_fetches_every_shard_once_for_a_later_build(tmp_path, rclone, rclone_client, corpus) -> None:
    config = remote(tmp_path, rclone.endpoint)
    file = file_of(config, tmp_path)
    item = said_by("download", file, "--shard", "0")
    assert item.startswith("shard 00000  ")
    assert "bytes over the wire in" in item
    assert "0 retries" in item
    printed = said_by("download", file)
    planned = open_build(plan_dataset(check_config(config, where="test")))
    assert len(printed.splitlines()) == len(planned.plan.shards) > 1
    copies = {path.name: path.read_bytes() for path in planned.work.rglob("download/*/files/**/*") if path.is_file()}
    assert copies == {path.name: path.read_bytes() for path in corpus.rglob("*") if path.is_file()}
    before = rclone_client.list_objects_v2(Bucket="corpus", Prefix="dump/")["KeyCount"]
    assert before == len(copies)
    assert said_by("download", file) == printed  # the receipts of the first time: nothing was fetched again
    ages = {path: path.stat().st_mtime_ns for path in planned.work.rglob("download/*/receipt.json")}
    build_dataset(check_config(config, where="test"), workers=1)
    assert ages == {path: path.stat().st_mtime_ns for path in ages}


def test_cli_download_of_an_object_deleted_since_the_plan_names_it_and_keeps_the_rest(
    tmp_path, rclone, rclone_client, corpus
) -> None:
    config = remote(tmp_path, rclone.endpoint)
    planned = open_build(plan_dataset(check_config(config, where="test")))
    gone = next(file for file in planned.plan.shards[-1])
    rclone_client.delete_object(Bucket="corpus", Key=gone.location.removeprefix("s3://corpus/"))
    *whole, last = planned.units("download")
    for unit in whole:
        planned.run("download", unit)
    with raises("source.changed_since_planned", gone.location, "it is gone"):
        planned.run("download", last)
    assert planned.find("download", last) is None
    assert all(planned.find("download", unit) for unit in whole)


class Streamed:
    """Objects of a kind in a bucket, of 100 documents with one word, and plans that stream them."""

    def __init__(self, root: Path, rclone, rclone_client, kind: str) -> None:
        self.root, self.endpoint, self.client, self.kind = root, rclone.endpoint, rclone_client, kind

    def put(self, prefix: str, word: str) -> None:
        body = lines_of([word] * 100)
        if self.kind == "parquet":
            pq.write_table(pa.table({"text": [word] * 100}), self.root / "t.parquet")
            body = (self.root / "t.parquet").read_bytes()
        self.client.put_object(Bucket="corpus", Key=f"{prefix}/x.{self.kind}", Body=body)

    def planned(self, prefix: str):
        """A plan whose objects were looked at."""
        config = remote(self.root, self.endpoint)
        config["source"] |= {"stream": True, "paths": [f"s3://corpus/{prefix}"]}
        planned = open_build(plan_dataset(check_config(config, where="test")))
        planned.run("download", "00000")
        return planned

    def indexed(self, prefix: str) -> tuple[Path, set[str]]:
        """(the receipt of the index, the texts in it)."""
        planned = self.planned(prefix)
        receipt = planned.run("index", "00000")
        shard = open_text_shard(planned.folder("index", "00000"))
        return receipt, {shard.document_bytes(number).decode() for number in range(shard.documents)}


@pytest.fixture(params=["jsonl", "parquet"])
def streamed(request, tmp_path, rclone, rclone_client) -> Streamed:
    return Streamed(tmp_path, rclone, rclone_client, request.param)


@pytest.mark.parametrize("harm", ["overwritten", "deleted"])
def test_streamed_object_that_is_another_one_after_the_download_step_is_refused_by_name(
    streamed: Streamed, harm: str
) -> None:
    """Nothing lies here to be compared with: every range that is read is of the planned ETag."""
    streamed.put("dump", "three")
    planned = streamed.planned("dump")
    if harm == "deleted":
        streamed.client.delete_object(Bucket="corpus", Key=f"dump/x.{streamed.kind}")
    else:
        streamed.put("dump", "seven")
    with raises("source.changed_since_planned", f"s3://corpus/dump/x.{streamed.kind}"):
        planned.run("index", "00000")
    assert planned.find("index", "00000") is None


def test_streamed_object_of_the_same_name_and_size_is_read_anew_and_a_moved_one_is_not(streamed: Streamed) -> None:
    streamed.put("a", "three")
    first, texts = streamed.indexed("a")
    assert texts == {"three"}
    for prefix in ("b", "a"):
        streamed.put(prefix, "seven")
        receipt, texts = streamed.indexed(prefix)
        assert texts == {"seven"}
        assert receipt != first
    assert streamed.indexed("b")[0] == streamed.indexed("a")[0]


@pytest.mark.parametrize("stream", [False, True], ids=["copied", "streamed"])
def test_build_of_a_cut_object_with_one_edited_answer_of_each_step_is_the_right_one(
    tmp_path, rclone, rclone_client, hasty, stream: bool
) -> None:
    """What is larger than a shard is read by ranges, of which the store has no checksum."""
    texts = [f"{number:05d} " + "the quick brown fox " * 40 for number in range(3000)]
    rclone_client.put_object(Bucket="corpus", Key="dump/a.jsonl", Body=lines_of(texts))
    fresh = True

    def harm(method: str, path: str, answer: Answer) -> Answer:
        nonlocal fresh
        if not fresh or method != "GET" or not path.endswith("a.jsonl"):
            return answer
        fresh = False
        return answer._replace(content=answer.content.replace(b"\n", b" ", 1).replace(b"the", b"teh", 1))

    with FaultyProxy(rclone.endpoint, harm=harm) as proxy:
        config = remote(tmp_path, proxy.endpoint)
        config["source"] |= {"stream": stream, "shard_bytes": "1MiB"}
        planned = open_build(plan_dataset(check_config(config, where="test")))
        assert not fresh
        assert len(planned.units("download")) == 3
        got = []
        for unit in planned.units("download"):
            for stage in ("download", "index"):
                fresh = stage == ("index" if stream else "download")
                planned.run(stage, unit)
            shard = open_text_shard(planned.folder("index", unit))
            got += [shard.document_bytes(number).decode() for number in range(shard.documents)]
    assert not fresh
    assert got == texts


def test_cli_upload_sends_again_only_what_a_destination_lost_and_the_manifest_last(
    tmp_path, rclone, rclone_client, corpus
) -> None:
    destinations = [{"path": "s3://corpus/ready", "endpoint_url": rclone.endpoint}]
    config = remote(tmp_path, rclone.endpoint, destinations=destinations)
    file = file_of(config, tmp_path)
    build_dataset(check_config(config, where="test"), workers=1)
    ready = [item["Key"] for item in rclone_client.list_objects_v2(Bucket="corpus", Prefix="ready/")["Contents"]]
    lost = next(key for key in ready if key.endswith(".npy"))
    rclone_client.delete_object(Bucket="corpus", Key=lost)
    printed = said_by("upload", file)
    assert "  1 sent of " in printed
    assert printed.startswith("s3://corpus/ready/tiny/")
    assert "bytes over the wire" in printed
    assert "  0 sent of " in said_by("upload", file)
    listed = rclone_client.list_objects_v2(Bucket="corpus", Prefix="ready/")["Contents"]
    assert [item["Key"] for item in listed] == ready
    written = {item["Key"]: item["LastModified"] for item in listed}
    assert written["ready/tiny/latest.json"] == max(written.values())


def test_upload_that_fails_half_way_leaves_no_manifest(tmp_path, rclone, rclone_client, corpus, monkeypatch) -> None:
    from corpusmill.storage.s3 import S3Store

    receive = S3Store.receive

    def breaks(store, source, name, sha256) -> None:
        if name.endswith(".npy"):
            raise SourceError("disk.gone: the disk is gone", where=source)
        receive(store, source, name, sha256)

    monkeypatch.setattr(S3Store, "receive", breaks)
    destinations = [{"path": "s3://corpus/ready", "endpoint_url": rclone.endpoint}]
    with raises("disk.gone"):
        build_dataset(check_config(remote(tmp_path, rclone.endpoint, destinations=destinations), where="t"), workers=1)
    keys = [item["Key"] for item in rclone_client.list_objects_v2(Bucket="corpus", Prefix="ready/").get("Contents", [])]
    assert not [key for key in keys if key.endswith(("dataset.json", "latest.json"))]


@pytest.mark.parametrize("stream", [False, True], ids=["copied", "streamed"])
def test_build_through_faults_is_the_same_and_the_report_says_what_it_took(
    tmp_path, rclone, corpus, hasty, stream: bool
) -> None:
    (tmp_path / "far").mkdir()
    with FaultyProxy(rclone.endpoint, seed=2, share=0.9, faults=0, kinds=("refused", "reset", "truncated")) as proxy:
        config = remote(tmp_path / "far", proxy.endpoint)
        config["source"]["stream"] = stream
        planned = plan_dataset(check_config(config, where="test"))
        proxy.left = 5
        run_build(planned, workers=1)
        assert sum(proxy.dealt.values()) == 5
    build = open_build(planned)
    folder = build.folder("report", UNIT)
    stages = {stage.stage: stage for stage in from_json((folder / SUMMARY).read_bytes()).stages}
    counted = [stages[stage] for stage in ("download", "index", "writeback")]
    assert sum(item.retries for item in counted) == 5
    size = sum(path.stat().st_size for path in corpus.rglob("*") if path.is_file())
    assert sum(item.wire_bytes for item in counted) >= size * (2 if stream else 1)
    assert (stages["index"].requests > 0) is stream
    assert "of them retries" in (folder / HTML).read_text()
    near = open_build(build_dataset(check_config(configuration(tmp_path, exports=EXPORTS), where="test"), workers=1))
    version = [(root / "outputs/tiny/latest.json").read_text() for root in (tmp_path, tmp_path / "far")]
    assert version[0] == version[1]
    assert near.plan.source_bytes() == build.plan.source_bytes()


def test_build_from_gcs_to_gcs_is_the_build_from_a_folder(tmp_path, gcs) -> None:
    write_corpus(tmp_path / "here/corpus", documents=40)
    store = open_store("gs://corpus/dump")
    for path in sorted((tmp_path / "here/corpus").rglob("*")):
        if path.is_file():
            store.receive_bytes(path.read_bytes(), path.relative_to(tmp_path / "here/corpus").as_posix())
    build_dataset(check_config(configuration(tmp_path / "here", exports=EXPORTS), where="test"), workers=1)
    source = {"paths": ["gs://corpus/dump"], "shard_bytes": "8KiB"}
    config = configuration(tmp_path, source=source, exports=EXPORTS, destinations=[{"path": "gs://corpus/ready"}])
    planned = build_dataset(check_config(config, where="test"), workers=1)
    local = tmp_path / "here/outputs/tiny"
    version = json.loads((local / "latest.json").read_text())["version"]
    ready = open_store(f"gs://corpus/ready/tiny/{version}")
    actual = {file.name: ready.open(file.name).read() for file in ready.list_files()}
    assert actual == {
        path.relative_to(local / version).as_posix(): path.read_bytes()
        for path in (local / version).rglob("*")
        if path.is_file()
    }
    assert open_build(planned).receipt("upload", "00000").traffic["files_sent"] == len(actual) - 1  # and the manifest
    again = open_build(build_dataset(check_config(config, where="test"), workers=1))
    assert again.receipt("upload", "00000").traffic["files_sent"] == 0
    store.receive_bytes(lines_of(["other"]), "a1.jsonl")
    shutil.rmtree(tmp_path / "work/tiny/download")
    with raises("source.changed_since_planned", "gs://corpus/dump/a1.jsonl"):
        open_build(planned).run("download", "00000")


def fineweb_edu(texts: list[str]) -> pa.Table:
    """The columns of a FineWeb-Edu sample, of which Jaxformer reads id and text."""
    rows = range(len(texts))
    return pa.table(
        {
            "text": texts,
            "id": [f"<urn:uuid:00000000-0000-4000-8000-{row:012d}>" for row in rows],
            "dump": ["CC-MAIN-2013-20"] * len(texts),
            "url": [f"http://example.org/{row}" for row in rows],
            "file_path": ["s3://commoncrawl/segment.warc.gz"] * len(texts),
            "language": ["en"] * len(texts),
            "language_score": [0.9 + row / 1000 for row in rows],
            "token_count": pa.array([len(text) // 4 for text in texts], pa.int64()),
            "score": [3.0 + row / 100 for row in rows],
            "int_score": pa.array([3] * len(texts), pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("names", "stream"),
    [(("text", "id"), False), (("content", "blob_id"), True)],
    ids=["fineweb-edu", "others, streamed"],
)
def test_hub_parquet_is_read_by_the_configured_fields_and_keeps_the_others(
    tmp_path, monkeypatch, names, stream: bool
) -> None:
    texts = make_documents(40)
    table = fineweb_edu(texts).rename_columns([*names, *fineweb_edu(texts).column_names[2:]])
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=10)
    with Hub({"sample/10BT/000_00000.parquet": (tmp_path / "t.parquet").read_bytes()}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        fields = {} if names == ("text", "id") else {"text_field": names[0], "id_field": names[1]}
        source = {"paths": ["hf://datasets/owner/name@main/sample/10BT"], "shard_bytes": "20KiB", **fields}
        dedup = {"mode": "annotate", "minimum_bytes": 100}
        source["stream"] = stream
        config = check_config(configuration(tmp_path, source=source, dedup=dedup, exports=EXPORTS), where="test")
        build = open_build(build_dataset(config, workers=1))
    assert bool(list((build.work / "download").rglob("*.parquet"))) is not stream
    shards = [open_text_shard(build.folder("index", shard)) for shard in build.units("index")]
    assert [shard.document_bytes(number).decode() for shard in shards for number in range(shard.documents)] == texts
    delivered = sorted((tmp_path / "outputs/tiny/latest/documents").rglob("*.parquet"))
    written = pa.concat_tables([pq.read_table(path) for path in delivered])
    assert written.drop_columns(["sa_remove_ranges"]).equals(table)
    assert any(written["sa_remove_ranges"].to_pylist())


def test_build_between_buckets_writes_credentials_nowhere(tmp_path, rclone, corpus, caplog) -> None:
    """Neither configuration, plan, receipts, reports, logs nor what is delivered."""
    destinations = [{"path": "s3://corpus/ready", "endpoint_url": rclone.endpoint}, {"path": str(tmp_path / "outputs")}]
    with caplog.at_level(logging.DEBUG):
        build_dataset(
            check_config(remote(tmp_path, rclone.endpoint, destinations=destinations), where="test"), workers=1
        )
    assert rclone.folder is not None
    written = [path for folder in (tmp_path, rclone.folder) for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 50
    for secret in (SECRET_KEY, ACCESS_KEY):
        assert not [path for path in written if secret.encode() in path.read_bytes()]
        ours = [record for record in caplog.records if record.name.startswith("corpusmill")]
        assert not [record for record in ours if secret in record.getMessage()]
    assert not [record for record in caplog.records if SECRET_KEY in record.getMessage()]


def test_upload_lists_the_destination_and_names_what_is_missing_extra_or_different(tmp_path) -> None:
    store = open_store(str(tmp_path))
    for name in ("same", "extra", "longer"):
        store.receive_bytes(b"12345", name)
    expected = {"same": 5, "missing": 5, "longer": 4}
    with raises("destination.delivery_differs") as caught:
        upload._require_same(store, expected)
    printed = " ".join(str(caught.value).split())
    assert "missing missing extra extra different longer" in printed
    assert "3 of them" in printed
    upload._require_same(store, {"same": 5, "extra": 5, "longer": 5})
