from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from corpusmill.builds.find_batch import HEADER, choose, find_batch, read_rates
from corpusmill.cli import app
from corpusmill.errors import CorruptDataError, SourceError, StorageFullError
from corpusmill.storage.s3 import S3Store
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.disks import fill, small_disk
from tests.system.corpus import make_documents


def test_batch_size_j14_sweep_writes_whole_rates_and_goes_on_where_it_broke_off(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in make_documents(60)))
    tokenizer = load_tokenizer("cl100k_base", engine="gigatoken")
    table = tmp_path / "rates/batches.csv"
    first = find_batch([str(tmp_path)], tokenizer, table, sizes=(1 << 10, 1 << 16), seconds=0.02)
    assert list(first) == [1 << 10, 1 << 16]
    assert min(first.values()) > 1000  # the original keeps the last digit of a rate
    assert table.read_text().splitlines()[0] == ",".join(HEADER)
    second = find_batch([str(tmp_path)], tokenizer, table, sizes=(1 << 10, 1 << 12, 1 << 16), seconds=0.02)
    assert {size: second[size] for size in first} == first
    assert read_rates(table) == second
    assert choose(second) in second


def test_batch_size_j14_choice_is_the_smallest_that_is_nearly_the_fastest() -> None:
    assert choose({1: 50, 2: 97, 4: 99, 8: 100, 16: 60}) == 4
    assert choose({1: 50}) == 1


def test_batch_size_on_a_full_disk_says_so_and_keeps_the_table(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "some words " * 9_000}) + "\n")
    tokenizer = load_tokenizer("cl100k_base", engine="gigatoken")
    with small_disk(tmp_path / "disk", 1) as disk:
        new, begun = disk / "new.csv", disk / "begun.csv"
        find_batch([str(tmp_path / "a.jsonl")], tokenizer, begun, sizes=(1 << 10,), seconds=0.01)
        before = begun.read_bytes()
        fill(disk)
        for table in (new, begun):
            with pytest.raises(StorageFullError, match="no space left"):
                find_batch([str(tmp_path / "a.jsonl")], tokenizer, table, sizes=(1 << 12,), seconds=0.01)
        assert begun.read_bytes() == before
        assert sorted(path.name for path in disk.iterdir()) == ["begun.csv", "full"]


def test_batch_size_j14_command_says_what_to_configure(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "some text"}\n')
    command = ["find-batch", str(tmp_path / "a.jsonl"), "--tokenizer", "cl100k_base", "--text-field", "body"]
    done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "t.csv"), "--seconds", "0.01"])
    assert done.exit_code == 0, done.output
    assert f"tokenizer.batch_bytes: {choose(read_rates(tmp_path / 't.csv'))}" in done.output


def test_batch_size_sample_of_a_bucket_is_no_more_than_is_measured(
    tmp_path, rclone, rclone_client, monkeypatch
) -> None:
    """Of a large object only the windows that hold the sample come over the wire."""
    content = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in make_documents(40)) * 300
    rclone_client.put_object(Bucket="corpus", Key="dump/a.jsonl", Body=content)
    monkeypatch.setattr("corpusmill.builds.find_batch.SAMPLE_BYTES", 1 << 20)
    read = []
    read_range = S3Store.read_range

    def counted(self, name: str, first: int, last: int, *, identity: str) -> bytes:
        read.append(last - first)
        return read_range(self, name, first, last, identity=identity)

    monkeypatch.setattr(S3Store, "read_range", counted)
    command = ["find-batch", "s3://corpus/dump", "--endpoint-url", rclone.endpoint]
    command += ["--tokenizer", "cl100k_base", "--output", str(tmp_path / "t.csv"), "--seconds", "0.01"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "tokenizer.batch_bytes: " in done.output
    assert 0 < sum(read) <= 16 << 20 < len(content)


def test_batch_size_without_text_or_with_a_strange_table_is_refused(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n')
    tokenizer = load_tokenizer("cl100k_base", engine="gigatoken")
    with pytest.raises(SourceError, match="no text"):
        find_batch([str(tmp_path / "a.jsonl")], tokenizer, tmp_path / "t.csv", sizes=(10,))
    (tmp_path / "t.csv").write_text("batch_bytes,tokens_per_s\n10,fast\n")
    with pytest.raises(CorruptDataError, match="not a table"):
        read_rates(tmp_path / "t.csv")
