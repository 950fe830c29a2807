"""`corpusmill tokenize`, from the command line to the files that it writes."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import zstandard
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.errors import (
    StorageFullError,
)
from corpusmill.sources.copies import each_file
from corpusmill.storage import open_store
from tests.disks import enlarge, small_disk
from tests.oracles.cl100k import cl100k
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import lines_of, write_corpus
from tests.tokens.vocabularies import GPT2, shared

R50K = ["--pattern", "r50k_base", "--special-token", "<|endoftext|>=50256"]


def tokenize(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["tokenize", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def documents_in(folder: Path) -> list[list[int]]:
    """Read a token shard as the docstring of corpusmill/tokens/token_shard.py shows."""
    about = json.loads((folder / "token_shard.json").read_text())
    ends = np.fromfile(folder / "ends", "<u8")
    tokens = np.memmap(folder / "tokens", np.dtype(about["dtype"]).newbyteorder("<"), "r")
    return [tokens[ends[i - 1] if i else 0 : ends[i]].tolist() for i in range(len(ends))]


def test_tokenize_command_writes_a_shard_per_file_with_tiktokens_ids(tmp_path) -> None:
    texts = write_corpus(tmp_path / "corpus", documents=24)
    printed = tokenize(tmp_path / "corpus", "--tokenizer", "cl100k_base", "--output", tmp_path / "out")
    encoding = cl100k()
    names = ["a1.jsonl", "a2.jsonl.gz", "a3.jsonl", "a10.jsonl.zst", "deep/b.jsonl.zstd"]
    shards = [tmp_path / "out" / name for name in names]
    assert [row for shard in shards if shard.name != "a3.jsonl" for row in documents_in(shard)] == [
        encoding.encode_ordinary(text) for text in texts
    ]
    for name, shard in zip(names, shards, strict=True):
        summary = json.loads((shard / "tokenized.json").read_text())
        assert f"{name}: {summary['documents']:,} documents, {summary['tokens']:,} tokens" in printed
    assert summary["text_bytes"] == sum(len(text.encode()) for text in texts[18:])


def test_tokenize_command_counts_rejected_lines_by_reason(tmp_path) -> None:
    lines = [b'{"body": "one"}', b"", b'{"body": "\\ud800 alone"}', b'{"body": 5}', b'{"body": "two \\ud83d\\ude80"}']
    (tmp_path / "x.jsonl.zst").write_bytes(zstandard.compress(b"\n".join(lines)))
    arguments = ["--tokenizer", "cl100k_base", "--output", tmp_path / "out", "--text-field", "body"]
    with raises("documents.too_many_malformed", "2 of 5"):
        tokenize(tmp_path / "x.jsonl.zst", *arguments)
    printed = tokenize(tmp_path / "x.jsonl.zst", *arguments, "--max-rejected-share", 0.6)
    for reason in ("blank_line", "lone_surrogate", "text_not_a_string"):
        assert f"1 line rejected: {reason}" in printed
    rejected = tmp_path / "out.rejected.jsonl"
    assert f"rejected lines: 1 blank_line, 1 lone_surrogate, 1 text_not_a_string; see {rejected}" in printed
    assert [json.loads(row)["line"] for row in rejected.read_text().splitlines()] == [2, 3, 4]
    encoding = cl100k()
    assert documents_in(tmp_path / "out" / "x.jsonl.zst") == [encoding.encode(text) for text in ("one", "two 🚀")]


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_tokenize_command_of_a_bucket_writes_what_it_writes_of_a_folder(
    tmp_path, rclone, rclone_client, gcs, scheme: str
) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    files = {path.relative_to(tmp_path / "corpus").as_posix(): path for path in (tmp_path / "corpus").rglob("*.*")}
    for name, path in files.items():
        if scheme == "s3":
            rclone_client.put_object(Bucket="corpus", Key=f"dump/{name}", Body=path.read_bytes())
        else:
            open_store("gs://corpus/dump").receive_bytes(path.read_bytes(), name)
    there = ["--endpoint-url", rclone.endpoint] if scheme == "s3" else []
    printed = [
        tokenize(source, "--tokenizer", "cl100k_base", "--output", tmp_path / out, *more)
        for source, out, more in ((f"{scheme}://corpus/dump", "far", there), (tmp_path / "corpus", "near", []))
    ]
    assert printed[0] == printed[1]
    far, near = (
        {
            path.relative_to(tmp_path / out): path.read_bytes()
            for path in (tmp_path / out).rglob("*.*")
            if path.is_file()
        }
        for out in ("far", "near")
    )
    assert far == near
    assert len(far) >= len(files)


@pytest.mark.parametrize(
    ("name", "options", "width"),
    [("r50k_base.tiktoken", R50K, "uint16"), (GPT2, [], "uint16"), ("cl100k_base", [], "uint32")],
)
def test_tokenize_command_takes_names_rank_files_and_tokenizer_json(tmp_path, name, options, width) -> None:
    tokenizer = shared(name) if "." in name else name
    (tmp_path / "x.jsonl").write_bytes(lines_of(["hello world", "", "naïve"]))
    tokenize(tmp_path / "x.jsonl", "--tokenizer", tokenizer, "--output", tmp_path / "out", *options)
    about = json.loads((tmp_path / "out/x.jsonl/token_shard.json").read_text())
    assert (about["dtype"], about["eot_id"]) == (width, 100257 if width == "uint32" else 50256)
    assert documents_in(tmp_path / "out/x.jsonl")[1] == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--tokenizer", "gpt5"], "tokenizer.unknown"),
        (["--tokenizer", "cl100k_base", "--engine", "tokenizers"], "tokenizer.needs_engine"),
        (["--tokenizer", "cl100k_base", "--eot-token", "<eos>"], "tokenizer.no_such_token"),
    ],
)
def test_tokenize_command_that_cannot_be_right_writes_nothing(tmp_path, arguments, code: str) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines_of(["text"]))
    with raises(code):
        tokenize(tmp_path / "x.jsonl", "--output", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_tokenize_command_input_that_is_not_there_is_refused(tmp_path) -> None:
    with raises("source.missing"):
        tokenize(tmp_path / "no.jsonl", "--tokenizer", "cl100k_base", "--output", tmp_path / "out")


def test_tokenize_command_output_beside_the_sources_is_refused(tmp_path) -> None:
    (tmp_path / "x.jsonl").write_bytes(lines_of(["text"]))
    with raises("source.inside_output", "--output"):
        tokenize(tmp_path / "x.jsonl", "--tokenizer", "cl100k_base", "--output", tmp_path)
    assert (tmp_path / "x.jsonl").read_bytes() == lines_of(["text"])


def test_tokenize_command_special_token_without_an_id_is_refused(tmp_path) -> None:
    done = CliRunner().invoke(
        app, ["tokenize", "x.jsonl", "--tokenizer", "x.tiktoken", "--output", str(tmp_path), "--special-token", "<eot>"]
    )
    assert done.exit_code == 2
    assert "TOKEN=ID" in done.output


@pytest.mark.parametrize("where", quick(["in a bucket", "here"], 1))
def test_each_file_that_changes_while_it_is_read_is_refused_by_name(tmp_path, rclone, rclone_client, where) -> None:
    """What is read in several windows is of one file, or there is an error."""
    path = tmp_path / "a.jsonl"
    source = str(path) if where == "here" else "s3://corpus/a.jsonl"

    def put(content: bytes) -> None:
        path.write_bytes(content)
        rclone_client.put_object(Bucket="corpus", Key="a.jsonl", Body=content)

    put(lines_of(["one two three"]) * 400_000)
    (file,) = each_file([source], rclone.endpoint)
    assert file.name == "a.jsonl"
    with ExitStack() as opened:
        stream = opened.enter_context(file.lines(["text"]))
        assert stream.read(5) == b'{"id"'
        put(lines_of(["one two seven"]) * 400_000 + b"\n")
        with raises("source.changed_since_planned") as caught:
            stream.read()
    assert source in str(caught.value)


def test_tokenize_command_of_a_bucket_that_is_not_there_says_so(tmp_path, rclone) -> None:
    with raises("s3.refused", "s3://nowhere"):
        tokenize(
            *("s3://nowhere/a.jsonl", "--endpoint-url", rclone.endpoint),
            *("--tokenizer", "cl100k_base", "--output", tmp_path / "out"),
        )


def test_tokenize_command_on_a_full_disk_says_so_and_leaves_no_half_shard(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "b.jsonl").write_text('{"text": "some words of a longer text"}\n' * 60_000)
    with small_disk(tmp_path / "disk", 1) as disk:
        inputs = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
        done = CliRunner().invoke(app, ["tokenize", *inputs, "--tokenizer", "cl100k_base", "--output", f"{disk}/out"])
        assert isinstance(done.exception, StorageFullError), done.exception
        assert sorted(path.name for path in (disk / "out").iterdir()) == [".delivered.json", "a.jsonl"]
        enlarge(disk, 8)
        tokenize(*inputs, "--tokenizer", "cl100k_base", "--output", disk / "out")
        assert len(documents_in(disk / "out/b.jsonl")) == 60_000
