"""JSON lines straight to Megatron and Nanoset files, in the order of the source."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.direct.in_order.exports import Pieces, write_megatron, write_nanoset
from corpusmill.direct.in_order.source import Source
from corpusmill.documents import sequences as reader
from corpusmill.errors import RejectedDocumentsError
from corpusmill.export import megatron, nanoset
from corpusmill.export.framing import Framing
from corpusmill.export.megatron import verify_part
from corpusmill.export.nanoset import verify_file
from tests.direct.in_order.sources import source_of, write_lines
from tests.oracles import export as oracle
from tests.raising import raises

EOT, SIZE = 100257, 100277


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text.encode()])[0].tolist()


def sequences(part: megatron.MegatronPart) -> list[list[int]]:
    return [part.sequence(i).tolist() for i in range(len(part))]


def test_megatron_every_key_has_a_complete_pair_named_as_preprocess_data_names_it(tmp_path, tokenizer):
    rows = [{"text": "one two", "title": "a", "id": 1}, {"text": "", "title": "b"}, {"text": "three", "title": "c d"}]
    path = write_lines(tmp_path / "in" / "a.jsonl", rows)
    written = write_megatron(source_of(path, "text", "title"), tmp_path / "out" / "web", tokenizer)
    names = ["web_text_document.bin", "web_text_document.idx", "web_title_document.bin", "web_title_document.idx"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    for key, item in zip(("text", "title"), written, strict=True):
        part = megatron.open_part(item.path)
        expected = [[ids(tokenizer, row[key])] for row in rows]
        want, boundaries = oracle.framed(expected, EOT, None, "boundary")
        assert sequences(part) == want
        assert part.boundaries.tolist() == boundaries
        verify_part(item.path, vocabulary_size=SIZE, eod_id=EOT, empty_documents="boundary")


def test_megatron_lists_are_sequences_of_one_document_and_sentences_name_their_level(tmp_path, tokenizer):
    rows = [{"text": ["First one.", "", "Second."]}, {"text": "alone"}, {"text": []}]
    path = write_lines(tmp_path / "in" / "a.jsonl.zst", rows)
    (item,) = write_megatron(source_of(path), tmp_path / "x", tokenizer, sentences=True)
    assert item.path.name == "x_text_sentence"
    part = megatron.open_part(item.path)
    first, second, alone = (ids(tokenizer, text) for text in ("First one.", "Second.", "alone"))
    assert sequences(part) == [first, [*second, EOT], [*alone, EOT]]
    assert part.boundaries.tolist() == [0, 2, 3, 3]
    verify_part(item.path, vocabulary_size=SIZE, eod_id=EOT, empty_documents="boundary", several_sequences=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "broken', "broken_json"),
        ('{"other": 1}', "missing_text"),
        ('{"text": ["a", 5]}', "text_not_a_string"),
        ('{"text": null}', "text_not_a_string"),
        ('["text"]', "not_an_object"),
    ],
)
def test_megatron_bad_line_fails_or_is_quarantined_and_counted(tmp_path, tokenizer, line, reason):
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "good"}, line, {"text": "also"}])
    with raises("documents.too_many_malformed", reason):
        write_megatron(source_of(path), tmp_path / "x", tokenizer)
    assert not list(tmp_path.glob("x_*"))
    source = source_of(path, max_rejected_share=0.5)
    (item,) = write_megatron(source, tmp_path / "x", tokenizer)
    assert item.counts["documents"] == 2
    assert source.rejected == {reason: 1}
    (row,) = (tmp_path / "in" / "rejected.jsonl").read_text().splitlines()
    assert (json.loads(row)["reason"], json.loads(row)["line"]) == (reason, 2)


def test_megatron_command_ends_with_an_error_and_not_with_half_a_pair(tmp_path):
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "good"}, "{"])
    arguments = ["megatron", str(path), "--output", str(tmp_path / "x"), "--tokenizer", "cl100k_base"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, RejectedDocumentsError)
    assert not list(tmp_path.glob("x_*"))
    done = CliRunner().invoke(app, [*arguments, "--max-rejected-share", "0.5"])
    assert done.exit_code == 0, done.output
    assert "1 broken_json" in done.output


def test_megatron_output_under_an_old_name_is_refused(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "good"}])
    write_megatron(source_of(path), tmp_path / "x", tokenizer)
    with raises("output.exists"):
        write_megatron(source_of(path), tmp_path / "x", tokenizer)


def test_megatron_no_text_at_all_is_refused_because_no_reader_opens_it(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": ""}, {"text": []}])
    for write in (write_megatron, write_nanoset):
        with raises("in_order.no_text"):
            write(source_of(path), tmp_path / "x", tokenizer, empty_documents="skip")
    assert not list(tmp_path.rglob("*.idx"))
    assert not list(tmp_path.rglob("*.ds"))


def test_nanoset_in_order_file_is_named_as_datatrove_names_it_and_holds_every_document(tmp_path, tokenizer):
    rows = [{"text": "one two"}, {"text": ""}, {"text": ["three ", "four"]}]
    path = write_lines(tmp_path / "in" / "a.jsonl", rows)
    (item,) = write_nanoset(source_of(path), tmp_path / "out", tokenizer, bos=True, name="web")
    assert item.path.name == "web_00000_unshuffled"
    opened = nanoset.open_file(item.path.with_name("web_00000_unshuffled.ds"))
    three_four = ids(tokenizer, "three ") + ids(tokenizer, "four")
    bos = tokenizer.bos_id
    expected = [[bos, *ids(tokenizer, "one two"), EOT], [bos, EOT], [bos, *three_four, EOT]]
    assert [opened.document(i).tolist() for i in range(3)] == expected


batches = st.lists(
    st.lists(st.lists(st.lists(st.integers(0, 97), max_size=4), max_size=3), max_size=5), min_size=1, max_size=4
)


@given(batches, st.integers(1, 12), st.sampled_from(["skip", "eod"]))
def test_nanoset_files_close_before_they_would_exceed_the_limit(groups, limit, empty):
    from itertools import accumulate

    def encoded():
        for documents in groups:
            actual = [sequence for document in documents for sequence in document]
            yield (
                (
                    np.array([token for item in actual for token in item], np.uint16),
                    np.array(list(accumulate(map(len, actual))), np.uint64),
                    np.array(list(accumulate(map(len, documents))), np.uint64),
                ),
                None,
            )

    pieces = Pieces(encoded(), Framing(99, None, empty), limit)
    files = []
    while pieces.more():
        file = []
        for tokens, ends, document_ends in pieces.file(None):
            rows = np.split(tokens, ends.astype(int)[:-1]) if ends.size else []
            for first, last in zip([0, *document_ends.astype(int)[:-1]], document_ends.astype(int), strict=True):
                file.append([row.tolist() for row in rows[first:last]])
        files.append(file)
    assert [doc for file in files for doc in file] == [doc for documents in groups for doc in documents]

    def size(document):
        tokens = sum(map(len, document))
        return tokens + 1 if tokens or empty == "eod" else 0

    for number, file in enumerate(files):
        sizes = [size(document) for document in file]
        assert sum(sizes) <= limit or sum(size > 0 for size in sizes) == 1
        if number + 1 < len(files) and sum(sizes) <= limit:
            assert sum(sizes) + size(files[number + 1][0]) > limit


def test_nanoset_loss_follows_the_character_ranges_and_specials_are_trained_on(tmp_path, tokenizer):
    text = "naïve question? Answer: 中文"
    rows = [{"text": text, "mask": [[0, 15]]}, {"text": "no ranges"}, {"text": "all", "mask": [[0, 3]]}]
    path = write_lines(tmp_path / "in" / "a.jsonl", rows)
    (item,) = write_nanoset(source_of(path, ranges_key="mask"), tmp_path / "out", tokenizer)
    file = item.path.with_name(f"{item.path.name}.ds")
    verify_file(file, vocabulary_size=SIZE, eos_id=EOT, tokenizer_name="cl100k_base", loss=True)
    opened = nanoset.open_file(file)
    loss = np.fromfile(nanoset.loss_path(file), np.uint8)
    masked = opened.document(0)[loss[: int(opened.ends[0])] == 0]
    assert tokenizer.decode(masked).decode() == "naïve question?"
    assert loss[int(opened.ends[0]) : int(opened.ends[1])].all()
    assert loss[int(opened.ends[1]) :].tolist() == [0, 1]


def test_shared_bytes_in_order_files_hold_the_same_tokens(tmp_path, tokenizer):
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "one two"}, {"text": ""}, {"text": "three"}])
    (pair,) = write_megatron(source_of(path), tmp_path / "x", tokenizer)
    (file,) = write_nanoset(source_of(path), tmp_path / "out", tokenizer, empty_documents="skip")
    assert Path(f"{pair.path}.bin").read_bytes() == Path(f"{file.path}.ds").read_bytes()


def test_megatron_same_bytes_whatever_the_block_size(tmp_path, tokenizer, monkeypatch):
    rows = [{"text": "word " * (i % 7)} for i in range(50)]
    path = write_lines(tmp_path / "in" / "a.jsonl", rows)
    (whole,) = write_megatron(source_of(path), tmp_path / "x", tokenizer)
    monkeypatch.setattr(
        reader.numbered_blocks, "__kwdefaults__", {**reader.numbered_blocks.__kwdefaults__, "block_bytes": 64}
    )
    (small,) = write_megatron(source_of(path), tmp_path / "y", tokenizer)
    for suffix in (".bin", ".idx"):
        assert Path(f"{whole.path}{suffix}").read_bytes() == Path(f"{small.path}{suffix}").read_bytes()
    assert Path(f"{whole.path}.bin").stat().st_size > 0


@pytest.mark.parametrize("compressed", [False, True])
def test_in_order_files_are_the_same_with_one_process_and_with_eight(tmp_path, tokenizer, compressed):
    # Blocks are of 2 MiB: three of them, of two files, and lines that are none in each.
    rows = [{"text": f"line {i} " * (i % 700)} if i % 100 else "{" for i in range(1_500)]
    for name in ("a", "b"):
        write_lines(tmp_path / "in" / f"{name}.jsonl{'.zst' * compressed}", rows)
    outputs = []
    for processes in (1, 8):
        folder = tmp_path / str(processes)
        folder.mkdir()
        options = {"max_rejected_share": 0.02, "processes": processes}
        source = Source([str(tmp_path / "in")], ("text",), folder / "rejected.jsonl", **options)
        write_megatron(source, folder / "x", tokenizer)
        write_nanoset(source, folder / "n", tokenizer, maximum_tokens=300_000)
        assert source.rejected == {"broken_json": 30}
        outputs.append({path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()})
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 8


def test_in_order_processes_that_are_killed_are_an_error_and_leave_no_pair(tmp_path, tokenizer, monkeypatch):
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "word " * 1_000}] * 1_500)
    parent = os.getpid()

    def killed(*_arguments, **_wanted):
        assert os.getpid() != parent
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(reader, "sequences_of", killed)
    with raises("in_order.worker_died"):
        write_megatron(source_of(path, processes=2), tmp_path / "x", tokenizer)
    assert not list(tmp_path.glob("x*"))


def test_nanoset_bad_lines_are_counted_and_the_rest_of_the_file_is_read(tmp_path, tokenizer):
    rows = [{"text": "one"}, '{"text": "\\ud800"}', "{", {"text": "two"}, {"text": 5}, {"text": "three"}]
    path = write_lines(tmp_path / "in" / "a.jsonl", rows)
    path.write_bytes(path.read_bytes() + b'{"text": "\xff"}\n' + b'{"text": "four"}\n')
    source = source_of(path, max_rejected_share=0.6)
    (item,) = write_nanoset(source, tmp_path / "out", tokenizer)
    opened = nanoset.open_file(item.path.with_name(f"{item.path.name}.ds"))
    expected = [[*ids(tokenizer, text), EOT] for text in ("one", "two", "three", "four")]
    assert [opened.document(i).tolist() for i in range(4)] == expected
    assert source.rejected == {"lone_surrogate": 1, "broken_json": 1, "text_not_a_string": 1, "invalid_utf8": 1}
    with raises("documents.too_many_malformed", "4 of 8"):
        write_nanoset(source_of(path), tmp_path / "other", tokenizer)


@pytest.mark.parametrize("command", ["megatron", "nanoset"])
def test_in_order_command_of_a_bucket_writes_what_it_writes_of_a_folder(
    tmp_path, rclone, rclone_client, command: str
) -> None:
    for name in ("a.jsonl", "b.jsonl.zst"):
        path = write_lines(tmp_path / "in" / name, [{"text": f"{name} {number}"} for number in range(50)] + ["no"])
        rclone_client.put_object(Bucket="corpus", Key=f"dump/{name}", Body=path.read_bytes())
    options = ["--tokenizer", "cl100k_base", "--max-rejected-share", "0.1"]
    for source, out in (("s3://corpus/dump", "far"), (str(tmp_path / "in"), "near")):
        output = ["--output", str(tmp_path / out / "x")]
        endpoint = ["--endpoint-url", rclone.endpoint] if out == "far" else []
        done = CliRunner().invoke(app, [command, source, *output, *options, *endpoint], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "rejected lines: 2 broken_json" in done.output
    far, near = (
        {path.relative_to(tmp_path / out): path.read_bytes() for path in (tmp_path / out).rglob("*") if path.is_file()}
        for out in ("far", "near")
    )
    assert far == near
    assert any(path.suffix in {".ds", ".bin"} for path in far)


def test_tokenize_by_two_processes_writes_the_bytes_and_the_words_of_one(tmp_path: Path) -> None:
    rows = [{"text": f"{number} words and more " * 400} for number in range(500)]
    path = write_lines(tmp_path / "in" / "a.jsonl", rows)
    path.write_bytes(path.read_bytes() + b"malformed\n")
    said = []
    for workers in ("1", "2"):
        output = tmp_path / workers / "tokens"
        options = ["--tokenizer", "cl100k_base", "--max-rejected-share", "0.1", "-j", workers]
        done = CliRunner().invoke(app, ["tokenize", str(path), "--output", str(output), *options])
        assert done.exit_code == 0, done.output
        said.append(done.output.replace(str(tmp_path / workers), ""))
    one, two = (
        {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}
        for root in (tmp_path / "1", tmp_path / "2")
    )
    assert said[0] == said[1]
    assert "malformed" in said[0] or "rejected" in said[0]
    assert one == two
    assert {"tokens/a.jsonl/tokens", "tokens/a.jsonl/ends", "tokens.rejected.jsonl"} <= one.keys()
