"""A dataset of every kind of file: built, delivered in the same kinds with all columns, and verified."""

from __future__ import annotations

import gzip
import io
import json
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore import UNSIGNED
from botocore.exceptions import BotoCoreError

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.builds.plan import check_dataset
from corpusmill.config import check_config
from corpusmill.direct.in_order.source import RejectedLines, Source
from corpusmill.documents import reading
from corpusmill.documents.batch import RejectionReason
from corpusmill.documents.quarantine import read_quarantine
from corpusmill.inspect.lineage import verify_records
from corpusmill.sources.copies import each_file
from corpusmill.sources.survey import ROWS, choose_id_field, survey_sources
from corpusmill.storage import s3
from corpusmill.storage.listing import list_sources
from corpusmill.storage.locations import Endpoint
from corpusmill.storage.s3 import S3Store
from tests.documents.every_kind import COMPRESSORS
from tests.raising import raises
from tests.system.corpus import configuration

REPEATED = "A sentence that stands in two documents, and that is long enough to be found by what searches. " * 2


def rows_of(first: int) -> list[dict[str, Any]]:
    return [
        {"meta": {"text": f"{number} own words {number * 7} {REPEATED}", "id": f"d{number}"}, "far": 2**62 + number}
        for number in range(first, first + 4)
    ]


def write_corpus(folder: Path) -> list[str]:
    names = [
        *(f"a{suffix[1:]}.jsonl{suffix}" for suffix in COMPRESSORS if suffix),
        "b.NDJSON",
        "RC_2011-01.zst",
        "wiki_00",
    ]
    folder.mkdir()
    for place, name in enumerate(names):
        pack = COMPRESSORS[".zst"] if name.startswith("RC") else COMPRESSORS.get(Path(name).suffix, bytes)
        pack = gzip.compress if name == "wiki_00" else pack
        lines = "\n".join(json.dumps(row) + "\n" for row in rows_of(place * 10))
        (folder / name).write_bytes(pack(lines.encode()))
    for place, name in enumerate(("c.parquet", "d.arrow", "e.arrow"), 100):
        rows = rows_of(place * 10)
        far = pa.array([row["far"] for row in rows], pa.timestamp("ns"))
        table = pa.table({"meta": [row["meta"] for row in rows], "far": far, "raw": pa.array([b"\xff"] * 4)})
        if name.endswith(".parquet"):
            pq.write_table(table, folder / name)
        else:
            new = pa.ipc.new_file if name.startswith("d") else pa.ipc.new_stream
            with new(str(folder / name), table.schema) as writer:
                writer.write_table(table)
        names.append(name)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["remove", "annotate"])
def test_build_of_every_kind_delivers_the_same_kinds_and_every_column(mode: str, tmp_path: Path) -> None:
    names = write_corpus(tmp_path / "corpus")
    corpus = tmp_path / "corpus"
    source = {
        "paths": [str(corpus), str(corpus / "RC_*.zst"), str(corpus / "wiki_*")],
        "text_field": "meta.text",
        "id_field": "meta.id",
    }
    values = configuration(tmp_path, dedup={"mode": mode, "minimum_bytes": 100}, source=source, exports={"nanoset": {}})
    config = check_config(values, where="test")
    assert f"{4 * len(names)} of 75 lines read have meta.id" in check_dataset(config)
    built = open_build(build_dataset(config, workers=1))
    delivered = tmp_path / "outputs/tiny/latest/documents"
    found = {str(path.relative_to(delivered)) for path in delivered.rglob("*") if path.is_file()}
    assert found == set(names)
    cut = 0
    for name in names:
        with (corpus / name).open("rb") as before, (delivered / name).open("rb") as after:
            old, new = (
                [*reading.read_documents(file, name, text_field="meta.text", id_field="meta.id")]
                for file in (before, after)
            )
        assert [item for batch in new for item in batch.each_id()] == [
            item for batch in old for item in batch.each_id()
        ]
        texts = [text for batch in new for text in batch.texts()]
        whole = [text for batch in old for text in batch.texts()]
        cut += sum(map(len, whole)) - sum(map(len, texts))
        if reading.reader_of(name) != "lines":
            with (corpus / name).open("rb") as before, (delivered / name).open("rb") as after:
                rows, written = (list(reading.read_rows(file, name)) for file in (before, after))
            assert [row["far"] for row in rows] == [row["far"] for row in written]
            assert [row["raw"] for row in rows] == [row["raw"] for row in written]
    assert (cut > 0) is (mode == "remove")
    assert (delivered / "wiki_00").read_bytes().startswith(b"\x1f\x8b")
    assert verify_records(built, sample=10**6, seed=0).records["nanoset"]


def test_blank_lines_are_skipped_and_nan_is_said(tmp_path: Path) -> None:
    lines = b'\n{"text": "a"}\n  \n\n{"text": "b"}\n'
    (tmp_path / "a.jsonl").write_bytes(lines)
    with RejectedLines(tmp_path / "rejected", max_share=0).collect() as set_aside:
        for file in each_file([str(tmp_path / "a.jsonl")]):
            for batch in file.documents("text"):
                set_aside(batch, batch.documents)
    with (tmp_path / "rejected").open("rb") as quarantine:
        listed = [rejection for _, rejection in read_quarantine(quarantine, name="rejected")]
    assert [(row.line_number, row.reason) for row in listed] == [
        (line, RejectionReason.BLANK_LINE) for line in (0, 2, 3)
    ]
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a", "score": NaN}\n')
    with (
        raises("documents.too_many_malformed", "JSON has no NaN"),
        RejectedLines(tmp_path / "rejected", max_share=0).collect() as set_aside,
    ):
        for file in each_file([str(tmp_path / "a.jsonl")]):
            for batch in file.documents("text"):
                set_aside(batch, batch.documents)


def test_lines_of_which_exactly_the_allowed_share_is_malformed_are_read(tmp_path: Path) -> None:
    """0.29 * 100 is less than 29 in binary."""
    (tmp_path / "a.jsonl").write_bytes(b"no json\n" * 29 + b'{"text": "a"}\n' * 71)
    with RejectedLines(tmp_path / "rejected", max_share=0.29).collect() as set_aside:
        for file in each_file([str(tmp_path / "a.jsonl")]):
            for batch in file.documents("text"):
                set_aside(batch, batch.documents)


def test_megatrons_reader_has_the_rows_of_tables_also_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"text": [["a", "b"], ["c"]], "no_loss_ranges": [[], [[0, 1]]], "other": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    for path in (str(tmp_path / "a.parquet"), "-"):
        source = Source([path], ("text",), tmp_path / "rejected", ranges_key="no_loss_ranges")
        (block,) = source._blocks()
        rows = [json.loads(line) for line in block.lines.data.splitlines()]
        assert rows == [{"text": ["a", "b"], "no_loss_ranges": []}, {"text": ["c"], "no_loss_ranges": [[0, 1]]}]


def test_usual_ids_are_found_and_nested_texts_only_where_no_other_is(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "doc_id": 7, "meta": {"url": "x"}}\n')
    survey = survey_sources(list_sources([str(tmp_path)], (".jsonl",)))
    assert choose_id_field(survey) == "doc_id"
    assert survey.lines_with_id("meta.url") == 1


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_survey_of_a_table_reads_texts_and_ids_and_no_bytes_but_those_named(name: str, tmp_path: Path) -> None:
    bad = pa.array([b"good", b"\xff", b"\xc3\xa4"])
    meta = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3], pa.timestamp("ns")), pa.array(["a", None, "b"]), pa.array([b"image"] * 3)],
        names=["at", "url", "bytes"],
    )
    arrays = {
        "text": pa.Array.from_buffers(pa.string(), 3, bad.buffers()),
        "meta": meta,
        "image": pa.array([b"PNG"] * 3),
        "raw": pa.array([b"x", b"\xff", None]),
        "n": pa.array([1, None, 3]),
        "a.b": pa.array(["own", "own", ""]),
        "a": pa.StructArray.from_arrays([pa.array(["inner"] * 3)], names=["b"]),
    }
    table = pa.Table.from_arrays(
        [*arrays.values(), pa.array(["twice"] * 3), pa.array(["twice"] * 3)], names=[*arrays, "twice", "twice"]
    )
    with (tmp_path / name).open("wb") as sink:
        if name.endswith(".parquet"):
            pq.write_table(table, sink)
        else:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
    survey = survey_sources(list_sources([str(tmp_path)], (".parquet", ".arrow")), fields=("raw", "id"))
    assert survey.lines() == 3
    assert +survey.lines_with_text() == {"text": 2, "meta.url": 2, "raw": 1, "a.b": 3}
    assert survey.text_bytes() == {"text": 6, "meta.url": 2, "raw": 1, "a.b": 6}
    (file,) = survey.files
    assert +file.lines_with_id == {"text": 2, "meta.url": 2, "raw": 1, "n": 2, "a.b": 2}


def test_survey_of_an_arrow_file_converts_the_first_rows_of_a_record_batch_alone(tmp_path: Path) -> None:
    table = pa.table({"text": ["four"] * 5000})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    (listed,) = list_sources([str(tmp_path)], (".arrow",))
    survey = survey_sources([listed])
    assert survey.lines() == ROWS
    assert survey.text_factors("text")[".arrow"][0] * listed.size_bytes == pytest.approx(20_000, rel=0.05)


def test_plan_refuses_a_text_field_that_no_line_has(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.jsonl").write_text('{"text": "a", "uuid": 7}\n')
    source = {"paths": [str(tmp_path / "corpus")], "text_field": "meta.text"}
    config = check_config(configuration(tmp_path, dedup={"mode": "none"}, source=source), where="test")
    with raises("survey.no_text"):
        build_dataset(config, workers=1)


def test_requests_are_unsigned_or_paid_as_the_source_says() -> None:
    assert (
        S3Store("s3://bucket", endpoint_url=Endpoint("", anonymous=True)).client.meta.config.signature_version
        is UNSIGNED
    )
    client = S3Store("s3://bucket", endpoint_url=Endpoint("http://127.0.0.1:9", requester_pays=True)).client
    asked: list[dict[str, Any]] = []
    client.meta.events.register("before-call.s3", lambda params, **_: asked.append(params["headers"]))
    for operation in (client.head_object, client.get_object):
        with suppress(BotoCoreError):
            operation(Bucket="bucket", Key="key")
    assert [dict(headers).get("x-amz-request-payer") for headers in asked] == ["requester", "requester"]


def test_lists_and_benchmarks_are_asked_for_as_their_sections_say(
    tmp_path: Path, moto: str, moto_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus").mkdir()
    rows = [{"id": str(number), "text": f"text number {number}", "lang": "de"} for number in range(9)]
    (tmp_path / "corpus/a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    moto_client.create_bucket(Bucket="paid")
    item = {"id": "1", "question": "a question that nobody asks", "answer": "nor answers it"}
    for name, row in (("scores", {"id": "3", "score": 0}), ("forget", {"id": "4"}), ("items", item)):
        moto_client.put_object(Bucket="paid", Key=f"{name}.jsonl", Body=json.dumps(row).encode())
    paid: list[str] = []
    opened = s3._client

    def watched(endpoint_url: str | None) -> Any:
        client = opened(endpoint_url)

        def note(params: dict[str, Any], **_: Any) -> None:
            assert dict(params["headers"])["x-amz-request-payer"] == "requester"
            paid.append(params["url_path"])

        client.meta.events.register("before-call.s3", note)
        return client

    monkeypatch.setattr(s3, "_client", watched)
    place = {"endpoint_url": moto, "requester_pays": True}
    config = check_config(
        configuration(
            tmp_path,
            source={"paths": [str(tmp_path / "corpus")]},
            dedup={"mode": "none"},
            decisions=[{"name": "quality", "path": "s3://paid/scores.jsonl", "keep": "score > 0", **place}],
            forget={"path": "s3://paid/forget.jsonl", "copies": "keep", **place},
            decontamination={
                "benchmarks": [{"name": "quiz", "path": "s3://paid/items.jsonl", **place}],
                "action": "report",
            },
        ),
        where="test",
    )
    build = open_build(build_dataset(config, workers=1))
    assert build.total("filter", "documents_out") == 7
    assert {path.rpartition("/")[2] for path in paid} >= {"scores.jsonl", "forget.jsonl", "items.jsonl"}


def test_anonymous_requests_that_pay_are_refused(tmp_path: Path) -> None:
    source = {"paths": ["s3://bucket/data"], "anonymous": True, "requester_pays": True}
    with raises("config.anonymous_pays"):
        check_config(configuration(tmp_path, dedup={"mode": "none"}, source=source), where="test")
