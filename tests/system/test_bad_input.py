"""Every bad input gets a message that says what, where, expected and got, and the next step; nothing is lost."""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from corpusmill import cli
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.documents.quarantine import read_quarantine
from corpusmill.errors import StorageFullError
from corpusmill.sources.survey import MOST_MEASURED
from corpusmill.storage.local import LocalStore
from tests.disks import enlarge, small_disk
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, make_documents, write_corpus

GOOD = lines_of(["one two three"] * 5000)


def config_file(root: Path, **changes: object) -> Path:
    path = root / "dataset.yaml"
    path.write_text(yaml.safe_dump(configuration(root, **changes)))
    return path


def run_cli(*arguments: str, monkeypatch, capsys) -> tuple[int, str]:
    """Exit code and everything said, of the console command in this process."""
    monkeypatch.setattr(sys, "argv", ["corpusmill", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    output = capsys.readouterr()
    return int(caught.value.code or 0), output.out + output.err


def source(root: Path, content: bytes, name: str = "a.jsonl") -> None:
    (root / "corpus").mkdir(exist_ok=True)
    (root / "corpus" / name).write_bytes(content)


def build(root: Path, **changes: object) -> Path:
    return build_dataset(check_config(configuration(root, **changes), where="test"), workers=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source": {"paths": ["/no/such/folder"]}},
            ["error[source.missing]: a source does not exist", "/no/such/folder", "next"],
        ),
        ({"source": {"paths": ["/no/such/*.jsonl"]}}, ["no file of a known kind", "no files at all"]),
        (
            {"tokenizer": {"name": "gpt5"}},
            ["error[tokenizer.unknown]: unknown tokenizer", "cl100k_base, o200k_base, p50k_base, r50k_base"],
        ),
        (
            {"tokenizer": {"name": "cl100k_base", "sha256": "0" * 64}},
            ["differs from the one that tokenizer.sha256 or the lock names", "got"],
        ),
        ({"destinations": [{"path": "ftp://host/x"}]}, ["there is no store for this kind of location", "ftp://host/x"]),
        (
            {"work_folder": "CORPUS/work"},
            ["work_folder is inside a source", "next build would read what this one wrote"],
        ),
        ({"destinations": [{"path": "CORPUS"}]}, ["destinations is inside a source"]),
        ({"shufle": {"seed": 1}}, ["error[config.unknown_key]", "shufle", "did you mean shuffle?"]),
    ],
)
def test_cli_build_that_cannot_start_says_why(tmp_path, monkeypatch, capsys, changes, message) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    config = config_file(tmp_path, **changes)
    config.write_text(config.read_text().replace("CORPUS", str(tmp_path / "corpus")))
    code, output = run_cli("build", str(config), "--workers", "1", monkeypatch=monkeypatch, capsys=capsys)
    leads_to_nothing = any(f"error[source.{code}]" in output for code in ("missing", "no_known_files"))
    assert code == (2 if leads_to_nothing else 1)
    for words in message:
        assert words in output
    assert "Traceback" not in output


def test_cli_config_check_valid_file_says_what_it_found(tmp_path, monkeypatch, capsys) -> None:
    write_corpus(tmp_path / "corpus", documents=8)
    code, output = run_cli("config", "check", str(config_file(tmp_path)), monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert "tiny: 5 source files" in output
    assert "cl100k_base (100,277 ids" in output


def test_cli_config_check_text_field_that_no_line_has_names_the_keys(tmp_path, monkeypatch, capsys) -> None:
    """A build of it would reject every line, and advise to raise the limit."""
    write_corpus(tmp_path / "corpus", documents=8)
    config = config_file(tmp_path, source={"paths": [str(tmp_path / "corpus")], "text_field": "body"})
    code, output = run_cli("config", "check", str(config), monkeypatch=monkeypatch, capsys=capsys)
    assert code == 1
    assert "no line has text under source.text_field" in output
    assert "text in 100%" in output


def test_cli_files_of_other_kinds_are_named_by_check_plan_and_report(tmp_path, monkeypatch, capsys) -> None:
    """A folder's .json, .csv or .txt was skipped without a word."""
    write_corpus(tmp_path / "corpus", documents=8)
    config = config_file(tmp_path)

    def run(*arguments: str) -> str:
        code, output = run_cli(*arguments, monkeypatch=monkeypatch, capsys=capsys)
        assert code == 0
        return output

    assert "skipped" not in run("config", "check", str(config)) + run("plan", str(config))
    without = run("build", str(config), "--workers", "1")
    assert "skipped" not in without
    version = json.loads((tmp_path / "outputs/tiny/latest.json").read_text())
    for name in ("b.json", "c.csv", "d.txt", "e.jsonl.7z", "_SUCCESS", ".x.swp"):
        (tmp_path / "corpus" / name).write_text("{}\n")
    printed = "4 files of other kinds skipped: b.json, c.csv, d.txt, ..."
    assert printed in run("config", "check", str(config))
    plan = run("plan", str(config))
    assert printed in plan
    stages = [line for line in plan.splitlines() if line.startswith(("index", "match", "tokenize", "manifest"))]
    assert stages
    assert all(line.endswith(" reuse") for line in stages)
    assert printed in run("build", str(config), "--workers", "1")
    reports = [path.read_text() for path in (tmp_path / "work/tiny/report").glob("*/report.html")]
    assert [printed in report for report in reports].count(True) == 1
    assert json.loads((tmp_path / "outputs/tiny/latest.json").read_text()) == version


def test_cli_config_example_can_be_checked_as_it_is_printed(monkeypatch, capsys, tmp_path) -> None:
    code, output = run_cli("config", "example", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    path = tmp_path / "x.yaml"
    path.write_text(output)
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path))
    code, output = run_cli("config", "check", str(path), monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert "a source does not exist" in output  # the folder `data` is all that the example lacks here


def test_cli_build_prints_the_report(tmp_path, monkeypatch, capsys) -> None:
    write_corpus(tmp_path / "corpus", documents=24)
    config = config_file(tmp_path)
    code, output = run_cli("build", str(config), "--workers", "1", monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    for words in ("Duplicates", "nothing lost or added", "report.html"):
        assert words in output


BAD_LINES = {
    b"": "blank_line",
    b'{"text": "cut off': "broken_json",
    b'["text"]': "not_an_object",
    b'{"body": "x"}': "missing_text",
    b'{"text": 5}': "text_not_a_string",
    b'{"text": null}': "text_not_a_string",
    b'{"text": "\xff\xfe"}': "invalid_utf8",
    b'{"text": "\\ud800"}': "lone_surrogate",
}


def test_build_with_exactly_the_allowed_share_of_bad_lines_goes_on(tmp_path) -> None:
    """0.29 * 100 is less than 29 in binary."""
    source(tmp_path, b"no json\n" * 29 + b'{"text": "a"}\n' * 71)
    built = open_build(build(tmp_path, source={"paths": [str(tmp_path / "corpus")], "max_rejected_share": 0.29}))
    assert built.receipt("index", "00000").counts["documents_out"] == 71


def test_build_bad_lines_are_quarantined_counted_and_the_rest_goes_on(tmp_path) -> None:
    source(tmp_path, GOOD + b"".join(line + b"\n" for line in BAD_LINES) + GOOD)
    built = open_build(build(tmp_path, source={"paths": [str(tmp_path / "corpus")], "max_rejected_share": 0.01}))
    receipt = built.receipt("index", "00000")
    assert receipt.counts["documents_out"] == 10_000
    assert receipt.counts["lines"] == 10_000 + len(BAD_LINES)
    quarantine = built.folder("index", "00000") / "quarantine.jsonl"
    with quarantine.open("rb") as stream:
        actual = {item.raw: (item.reason.value, item.line_number) for _, item in read_quarantine(stream, name="q")}
    assert {raw: reason for raw, (reason, _) in actual.items()} == BAD_LINES
    assert [line for _, line in actual.values()] == list(range(5000, 5000 + len(BAD_LINES)))
    first = json.loads(quarantine.read_text().splitlines()[1])
    assert (first["source"], first["line"]) == ("a.jsonl", 5002)
    assert base64.b64decode(first["raw_base64"]) == b'{"text": "cut off'


def test_build_too_many_bad_lines_fail_with_examples(tmp_path) -> None:
    source(tmp_path, lines_of(["good"] * 100) + b"{broken\n")
    with raises("documents.too_many_malformed", "1 of 101") as caught:
        build(tmp_path)
    for words in (
        "a.jsonl line 101: broken_json",
        "0.1000% (source.max_rejected_share)",
        "0.9901%",
        "quarantine.jsonl",
    ):
        assert words in str(caught.value)


def test_build_allowed_bad_lines_do_not_fail(tmp_path) -> None:
    source(tmp_path, lines_of(["good"] * 1000) + b"{broken\n")
    build(tmp_path)


@pytest.mark.parametrize("ending", [".jsonl.zst", ".jsonl.gz"])
def test_build_truncated_file_fails_by_name_and_leaves_nothing_readable(tmp_path, ending: str) -> None:
    content = lines_of(make_documents(200))
    compressed = zstandard.compress(content) if ending == ".jsonl.zst" else gzip.compress(content)
    source(tmp_path, compressed[:-20], f"a{ending}")
    with raises("source.truncated", f"a{ending}", "next"):
        build(tmp_path)
    assert not list((tmp_path / "work/tiny/index").glob("*/receipt.json"))


def test_build_empty_file_among_others_gives_an_empty_file_back(tmp_path) -> None:
    source(tmp_path, GOOD)
    source(tmp_path, b"", "empty.jsonl.zst")
    build(tmp_path)
    written = tmp_path / "outputs/tiny/latest/documents/empty.jsonl.zst"
    assert zstandard.ZstdDecompressor().stream_reader(written.open("rb")).read() == b""


def test_build_source_changed_between_plan_and_download_is_refused(tmp_path) -> None:
    from corpusmill.builds.plan import plan_dataset

    source(tmp_path, GOOD)
    planned = open_build(plan_dataset(check_config(configuration(tmp_path), where="test")))
    source(tmp_path, GOOD + GOOD)
    with raises("source.changed_since_planned"):
        planned.run("download", "00000")


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.zst", ".parquet"])
def test_build_source_with_one_other_byte_after_download_is_refused(tmp_path, ending: str) -> None:
    """The plan's identity, size and time, does not see it; the checksum of what was downloaded does."""
    from corpusmill.builds.plan import plan_dataset

    path = tmp_path / "corpus" / f"a{ending}"
    source(tmp_path, zstandard.compress(GOOD) if ending.endswith(".zst") else GOOD, path.name)
    if ending == ".parquet":
        pq.write_table(pa.table({"text": ["one two three"] * 5000}), path)
    planned = open_build(plan_dataset(check_config(configuration(tmp_path), where="test")))
    planned.run("download", "00000")
    times, content = path.stat(), bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with raises("source.changed_during_build source.not_decompressable", path.name) as caught:
        planned.run("index", "00000")
    if ending != ".jsonl.zst":  # zstd may find its own checksum wrong first
        assert "changed during the build" in str(caught.value)
        assert "xxh3_128" in str(caught.value)
    assert planned.find("index", "00000") is None


def test_build_stale_file_at_the_destination_is_refused_before_the_manifest(tmp_path) -> None:
    source(tmp_path, GOOD)
    build(tmp_path)
    version = (tmp_path / "outputs/tiny/latest").resolve()
    (version / "dataset.json").unlink()
    (version / "webdataset" / "shard_00009999.tar").write_bytes(b"stale")
    with raises("destination.delivery_differs", "webdataset/shard_00009999.tar"):
        build(tmp_path)
    assert not (version / "dataset.json").exists()


def test_build_manifest_that_did_not_stay_at_the_destination_is_refused_and_not_pointed_to(
    tmp_path, monkeypatch
) -> None:
    """A store that takes dataset.json and does not have it: the last listing, with the manifest in it, says so."""
    source(tmp_path, GOOD)
    receive = LocalStore.receive

    def loses(store: LocalStore, path: Path, name: str, sha256: str) -> None:
        receive(store, path, name, sha256)
        if name == "dataset.json":
            store.delete(name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "receive", loses)
        with raises("destination.delivery_differs") as caught:
            build(tmp_path)
    assert "missing dataset.json" in " ".join(str(caught.value).split())
    assert not (tmp_path / "outputs/tiny/latest.json").exists()
    build(tmp_path)
    assert (tmp_path / "outputs/tiny/latest/dataset.json").is_file()


def test_build_damaged_file_at_the_destination_is_sent_again(tmp_path) -> None:
    source(tmp_path, GOOD)
    build(tmp_path)
    path = next((tmp_path / "outputs/tiny/latest").resolve().glob("megatron/*.bin"))
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"\x00")
    build(tmp_path)
    assert path.read_bytes() == good


def test_cli_build_on_a_full_disk_says_so_and_a_second_run_finishes(tmp_path, monkeypatch, capsys) -> None:
    for number in range(MOST_MEASURED + 1):  # of each two files, the first is measured: the second has much more text
        texts = make_documents(60) * 20 if number == 1 else ["a few words"]
        source(tmp_path, zstandard.compress(lines_of(texts)), name=f"{number:02d}.jsonl.zst")
    with small_disk(tmp_path / "disk", mebibytes=2) as disk:
        (disk / "ballast").write_bytes(os.urandom(1_600_000))
        config = config_file(tmp_path, work_folder=str(disk / "work"))
        code, output = run_cli("build", str(config), "--workers", "1", monkeypatch=monkeypatch, capsys=capsys)
        assert code == StorageFullError.exit_code
        assert "error[step.disk_full]: no space left" in output
        assert "free space or move work_folder" in output
        (disk / "ballast").unlink()
        enlarge(disk, mebibytes=200)
        code, output = run_cli("build", str(config), "--workers", "1", monkeypatch=monkeypatch, capsys=capsys)
        assert code == 0
    assert "nothing lost or added" in output


def test_document_that_no_export_can_hold_is_refused_by_tokenize(tmp_path: Path, monkeypatch) -> None:
    from corpusmill.tokens import token_shard

    monkeypatch.setattr(token_shard, "LONGEST_TOKENS", 5)
    write_corpus(tmp_path / "corpus", documents=4)
    with raises("export.document_too_long", "step", "tokenize"):
        build_dataset(check_config(configuration(tmp_path), where="test"), workers=1)
    assert not (tmp_path / "work" / "tiny" / "scatter").exists()
