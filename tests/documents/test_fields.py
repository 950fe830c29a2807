"""Fields that steps, decisions and budgets ask for: what documents carry besides text and id, of every kind of file."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.documents import reading
from corpusmill.documents.batch import LONGEST_FIELDS_BYTES, DocumentBatch
from corpusmill.documents.field_names import MISSING, get_field
from corpusmill.documents.text_shard import TextShardWriter, open_text_shard
from corpusmill.documents.text_shard_subset import SubsetWriter
from tests.documents.every_kind import arrow_bytes, parquet_bytes
from tests.raising import raises

NAMES = ("url", "meta.lang", "meta", "meta.deep.score", "a.b", "none")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.fixed_dictionaries(
    {"text": st.text()},
    optional={
        "url": VALUES,
        "a.b": VALUES,
        "a": st.dictionaries(st.sampled_from(["b", "c"]), VALUES),
        "meta": VALUES
        | st.fixed_dictionaries({}, optional={"lang": VALUES, "deep": st.fixed_dictionaries({"score": VALUES})}),
    },
)


def batches(data: bytes, name: str, fields: tuple[str, ...] = NAMES) -> list[DocumentBatch]:
    named: dict[str, Any] = {"text_field": "text", "id_field": "id", "fields": fields}
    return list(reading.read_documents(io.BytesIO(data), name, **named))


def fields_of(data: bytes, name: str, fields: tuple[str, ...] = NAMES) -> list[dict[str, Any]]:
    return [orjson.loads(found) for batch in batches(data, name, fields) for found in batch.fields]


@given(st.lists(RECORDS, max_size=6), st.booleans())
def test_fields_of_lines_are_those_of_the_parsed_line_whatever_its_length(
    records: list[dict[str, Any]], long: bool
) -> None:
    padded = [{"pad": "x" * 200_000, **record} if long else record for record in records]
    data = b"".join(json.dumps(record).encode() + b"\n" for record in padded)
    expected = [
        {name: value for name in NAMES if (value := get_field(record, name, MISSING)) is not MISSING}
        for record in records
    ]
    assert fields_of(data, "a.jsonl") == expected


def test_fields_of_tables_are_those_of_the_same_lines() -> None:
    rows: list[dict[str, Any]] = [
        {"text": "one", "url": "https://a.example/x", "meta": {"lang": "de", "deep": {"score": 0.5}}, "count": 3},
        {"text": None, "url": "rejected", "meta": {"lang": "xx", "deep": None}, "count": 4},
        {"text": "two", "url": None, "meta": {"lang": None, "deep": {"score": 1.0}}, "count": 2**40},
        {"text": "three", "url": "", "meta": None, "count": None},
    ]
    names = ("url", "meta.lang", "meta.deep.score", "count", "none")
    table = pa.Table.from_pylist(rows * 50)
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows * 50)
    expected = [
        {name: value for name, value in row.items() if value is not None} for row in fields_of(lines, "a.jsonl", names)
    ]
    assert len(expected) == 150
    for seed in range(4):
        draw = random.Random(seed)
        assert fields_of(parquet_bytes(draw, table), "a.parquet", names) == expected
        assert fields_of(arrow_bytes(draw, table), "a.arrow", names) == expected
    assert fields_of(parquet_bytes(draw, table), "a.parquet", ("none",)) == [{}] * 150


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_document_whose_fields_are_too_long_is_rejected_and_counted(kind: str) -> None:
    rows = [{"text": "one", "meta": "m" * LONGEST_FIELDS_BYTES}, {"text": "two", "meta": "m"}]
    table = pa.Table.from_pylist(rows)
    data = {
        "jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows),
        "parquet": parquet_bytes(random.Random(0), table),
        "arrow": arrow_bytes(random.Random(0), table),
    }[kind]
    read = batches(data, f"a.{kind}", ("meta",))
    assert [text for batch in read for text in batch.texts()] == [b"two"]
    assert [str(rejected.reason) for batch in read for rejected in batch.rejections] == ["field_too_long"]
    assert [found for batch in read for found in batch.fields] == [b'{"meta":"m"}']
    assert [text for batch in batches(data, f"a.{kind}", ()) for text in batch.texts()] == [b"one", b"two"]


@given(st.lists(RECORDS, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_subset_of_a_text_shard_keeps_the_fields_of_the_documents_that_stay_and_adds_one(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], draw: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("shard")
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    with TextShardWriter(folder / "all", fields=True) as writer:
        for name in ("a.jsonl", "b.jsonl"):
            writer.start_source(name)
            for batch in batches(data, name):
                writer.append(batch)
    shard = open_text_shard(folder / "all")
    everything = fields_of(data, "a.jsonl") * 2
    found = shard.document_fields()
    assert found is not None
    assert [orjson.loads(found[ordinal]) for ordinal in range(shard.documents)] == everything
    gone = sorted(draw.sample(range(shard.documents), draw.randrange(shard.documents)))
    with TextShardWriter(folder / "plain") as writer:
        for name in ("a.jsonl", "b.jsonl"):
            writer.start_source(name)
            for batch in batches(data, name):
                writer.append(batch)
    own = [fields for ordinal, fields in enumerate(everything) if ordinal not in gone]
    counts = [count for count in range(shard.documents) if count not in gone]
    counted = [{"copies.of it": count} for count in counts]
    expected = {
        ("all", None): own,
        ("all", "copies.of it"): [{**fields, **count} for fields, count in zip(own, counted, strict=True)],
        ("plain", "copies.of it"): counted,
    }
    for (of, added), fields in expected.items():
        (some := folder / f"{of} {added}").mkdir()
        column = (added, np.arange(shard.documents, dtype=np.uint32)) if added else None
        with SubsetWriter(some, open_text_shard(folder / of), column) as subset:
            subset.append(0, shard.documents, dict.fromkeys(gone, "reason"), {})
        strings = open_text_shard(some).document_fields()
        assert strings is not None
        assert [orjson.loads(strings[ordinal]) for ordinal in range(len(strings.ends))] == fields


def test_text_shard_without_fields_has_none_and_one_whose_fields_are_cut_is_refused(tmp_path: Path) -> None:
    for asked in (False, True):
        with TextShardWriter(tmp_path / str(asked), fields=asked) as writer:
            writer.start_source("a.jsonl")
            for batch in batches(b'{"text": "one", "url": "u"}\n', "a.jsonl", ("url",) if asked else ()):
                writer.append(batch)
    assert open_text_shard(tmp_path / "False").document_fields() is None
    path = tmp_path / "True" / "fields"
    path.write_bytes(path.read_bytes()[:-1])
    with raises("text_shard.incomplete", "True"):
        open_text_shard(tmp_path / "True").document_fields()
    np.array([1, 2], "<u8").tofile(tmp_path / "True" / "fields_ends")
    with raises("text_shard.incomplete", "True"):
        open_text_shard(tmp_path / "True").document_fields()
