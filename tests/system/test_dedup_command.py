"""Deduplication by itself: the command line, its options end to end, resumption, and the infini-gram index."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard

from corpusmill import cli
from corpusmill.builds.dedup_alone import Finished, cut_for_cores, dedup_config, deduplicate
from corpusmill.builds.graph import open_build
from corpusmill.builds.infini_gram import write_index
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.inspect.lineage import locate, render_located, verify_records
from corpusmill.inspect.verify import verify_build
from corpusmill.report.summary import from_json
from tests.oracles.dataset import deduplicated_texts
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, write_corpus

FILES = ("a1.jsonl", "a2.jsonl.gz", "a3.jsonl", "a10.jsonl.zst", "deep/b.jsonl.zstd")


def content(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix.startswith(".zst"):
        return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    return data


def rows(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for name in FILES for line in content(folder / name).splitlines()]


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    return write_corpus(tmp_path / "corpus", documents=60)


@pytest.mark.parametrize(
    ("file_mebibytes", "files", "shard_mebibytes"),
    [
        (0, 1, 4),
        (1, 127, 4),
        (1, 128, 8),
        (8, 4, 8),
        (9, 4, 16),
        (9, 99, 32),
        (200, 1, 256),
        (900, 2, 256),
        (9, 999, 256),
    ],
)
def test_dedup_without_a_shard_size_cuts_sixteen_shards_but_no_file_that_fits_the_largest(
    tmp_path: Path, file_mebibytes: int, files: int, shard_mebibytes: int
) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(files):
        with (tmp_path / "corpus" / f"{number}.jsonl").open("wb") as file:
            file.truncate(file_mebibytes << 20)
    dedup, work = {"mode": "remove", "minimum_bytes": 100}, str(tmp_path / "work")
    config = dedup_config([str(tmp_path / "corpus")], str(tmp_path / "clean"), dedup, work_folder=work)
    assert cut_for_cores(config).source.shard_bytes == shard_mebibytes << 20


def test_dedup_command_removes_what_the_oracle_says_and_keeps_names(tmp_path: Path, texts: list[str]) -> None:
    command = [sys.executable, "-m", "corpusmill.cli", "dedup", str(tmp_path / "corpus"), "--minimum-bytes", "100"]
    command += ["--output", str(tmp_path / "clean"), "--work-folder", str(tmp_path / "work"), "--shard-bytes", "8KiB"]
    printed = subprocess.run([*command, "--workers", "2"], check=True, capture_output=True, text=True).stdout
    assert [row["text"] for row in rows(tmp_path / "clean")] == deduplicated_texts(texts, 100)
    assert "balance  text bytes: indexed" in printed
    assert "5 files, 5 written now" in printed
    again = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "5 files, 0 written now" in again


def test_dedup_of_many_files_checks_the_outputs_of_a_shard_once(tmp_path: Path, texts: list[str], monkeypatch) -> None:
    opened: list[str] = []
    folder = Build.folder

    def counted(build: Build, stage: str, unit: str, *names: str) -> Path:
        opened.append(stage)
        return folder(build, stage, unit, *names)

    monkeypatch.setattr(Build, "folder", counted)
    config = dedup_config([str(tmp_path / "corpus")], str(tmp_path / "clean"), {"mode": "remove", "minimum_bytes": 60},
                          work_folder=str(tmp_path / "work"))  # fmt: skip
    finished = deduplicate(config, str(tmp_path / "clean"), workers=1)
    assert (finished.files, opened.count("writeback")) == (len(FILES), 1)


@pytest.mark.parametrize(
    ("dedup", "code"),
    [
        ({"mode": "remove", "minimum_bytes": 6}, "config.minimum_bytes_too_small"),
        ({"mode": "remove", "keep": "every_string", "fuzzy_share": 0.9}, "config.fuzzy_share_with_every_string"),
        ({"mode": "annotate", "drop_empty": True}, "config.drop_empty_without_remove"),
        ({"mode": "delete"}, "config.wrong_value"),
    ],
)
def test_dedup_settings_that_contradict_are_refused_with_the_reason(tmp_path: Path, dedup, code: str) -> None:
    with raises(code):
        dedup_config([str(tmp_path)], str(tmp_path / "clean"), {"minimum_bytes": 100, **dedup})


def test_dedup_command_short_minimum_exits_1_and_says_why(tmp_path: Path, monkeypatch, capsys) -> None:
    arguments = ["dedup", str(tmp_path), "--output", str(tmp_path / "clean"), "--minimum-bytes", "6"]
    monkeypatch.setattr(sys, "argv", ["corpusmill", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    assert "no whole character" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["dedup", "infini-gram"])
def test_command_with_malformed_lines_fails_unless_the_share_is_allowed(
    tmp_path: Path, monkeypatch, capsys, command: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(lines_of(["one two three"] * 3) + b"{broken\n")
    arguments = [command, "in", "--output", "out", "--work-folder", "work", "--workers", "1"]
    monkeypatch.setattr(sys, "argv", ["corpusmill", *arguments])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    assert "--max-rejected-share of a command" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["corpusmill", *arguments, "--max-rejected-share", "0.25"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code


def index(root: Path, workers: int = 1) -> Finished:
    config = dedup_config(
        [str(root / "corpus")],
        str(root / "ngrams"),
        {"mode": "none"},
        source={"shard_bytes": "8KiB"},
        work_folder=str(root / "work"),
    )
    return write_index(config, str(root / "ngrams"), unigram=True, workers=workers)


def test_index_of_the_worked_example_is_the_specified_one_byte_for_byte(tmp_path: Path) -> None:
    texts = ["abcab", "", "héllo abcab\n", "zz中文zz", "abcab"]
    lines = [json.dumps({"text": text, "id": f"d{number}"}) for number, text in enumerate(texts)]
    lines[2] = '{"id": "d2", "url": "http://x/ü", "text": "héllo abcab\\n", "text2": null}'
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    index(tmp_path)
    actual = {path.name: path.read_bytes() for path in (tmp_path / "ngrams" / "0").iterdir()}
    text = "ff6162636162ffff68c3a96c6c6f2061626361620aff7a7ae4b8ade696877a7aff6162636162"
    assert actual["tokenized"].hex() == text
    assert actual["offset"] == np.array([0, 6, 7, 21, 32], "<u8").tobytes()
    table = "140e2412210f0104251322100205231103080b0c0d161e171f1d1c0a1a1909181b2000071506"
    assert actual["table"].hex() == table
    rows = [f'{{"path": "a.jsonl", "linenum": {number}, "metadata": {{"id": "d{number}"}}}}' for number in range(5)]
    rows[2] = (
        '{"path": "a.jsonl", "linenum": 2, "metadata": {"id": "d2", "url": "http://x/\\u00fc", "text2": null}}'  # ASCII
    )
    assert actual["metadata"].decode("ascii") == "".join(f"{row}\n" for row in rows)
    starts = [sum(len(row) + 1 for row in rows[:number]) for number in range(5)]
    assert actual["metaoff"] == np.array(starts, "<u8").tobytes()
    counts = actual["unigram"].splitlines()
    assert [*counts[:3], counts[-1]] == [b"10 1", b"32 1", b"97 6", b"255 5"]


def test_index_of_two_workers_is_that_of_one_and_is_reused(tmp_path: Path, texts: list[str]) -> None:
    assert texts
    index(tmp_path)
    (tmp_path / "work").rename(tmp_path / "before")
    assert index(tmp_path, workers=2).files_written == 0
    receipts = list((tmp_path / "work").glob("*/infini_gram/*/receipt.json"))
    times = [path.stat().st_mtime_ns for path in receipts]
    index(tmp_path, workers=2)
    assert len(times) > 3
    assert [path.stat().st_mtime_ns for path in receipts] == times


def test_index_folder_that_the_engine_cannot_open_is_refused(tmp_path: Path, texts: list[str]) -> None:
    output = str(tmp_path / "stable_index")
    config = dedup_config([str(tmp_path / "corpus")], output, {"mode": "none"})
    with raises("infini_gram.index_not_opened"):
        write_index(config, output, workers=1)


def test_index_is_read_by_the_infini_gram_engine(tmp_path: Path, texts: list[str]) -> None:
    """An optional consumer: `pip install infini-gram` into the test's Python to run this."""
    engine = pytest.importorskip("infini_gram.engine", reason="the package infini-gram is not installed")
    built = index(tmp_path).build
    folders = [str(tmp_path / "ngrams" / str(number)) for number in range(len(built.units("index")))]
    opened = engine.InfiniGramEngine(index_dir=folders, eos_token_id=0, vocab_size=255, version=4, token_dtype="u8")  # noqa: S106
    assert opened.engine.get_total_doc_cnt() == len(texts)
    shards = [(tmp_path / "ngrams" / str(n) / "tokenized").read_bytes() for n in range(len(folders))]
    rng = np.random.default_rng(5)
    for _ in range(200):
        shard = shards[int(rng.integers(len(shards)))]
        start = int(rng.integers(len(shard)))
        needle = shard[start : start + int(rng.integers(1, 40))]
        naive = sum(text[i : i + len(needle)] == needle for text in shards for i in range(len(text)))
        assert opened.count(list(needle))["count"] == naive
        actual = opened.find(list(needle))
        assert actual["cnt"] == naive
        for number, (low, high) in enumerate(actual["segment_by_shard"]):
            if low < high:
                document = opened.get_doc_by_rank(s=number, rank=low, max_disp_len=10**6)
                assert needle.strip(b"\xff") in bytes(document["token_ids"]) or b"\xff" in needle
                assert "path" in json.loads(document["metadata"])


def test_build_that_keeps_every_string_verifies_and_locates(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", documents=32)
    dedup = {"mode": "remove", "minimum_bytes": 100, "keep": "every_string"}
    values = configuration(tmp_path, dedup=dedup, exports={"nanoset": {}})
    built = open_build(build_dataset(check_config(values, where="test"), workers=1))
    assert verify_build(built, workers=1).findings == ()
    assert len(verify_records(built, 20, seed=1).records) == 1
    printed = [render_located(locate(built, "a2.jsonl.gz", line)) for line in range(1, 9)]
    removed = [item for item in printed if "bytes removed" in item]
    assert removed
    earlier = re.compile(r"\n  [\d,]+ to [\d,]+ +[\d,]+ to [\d,]+ +[\d,]+ to [\d,]+ +\S+:\d+")
    assert all(earlier.search(item) for item in removed)


def test_build_report_shows_gaps_and_the_strings_that_repeat_most(tmp_path: Path) -> None:
    texts = write_corpus(tmp_path / "corpus", documents=60)
    long = [text for text in texts if len(text) > 200]
    (tmp_path / "corpus" / "a4.jsonl").write_bytes(lines_of([f"{long[0]}12345{long[1]}"]))
    values = configuration(tmp_path, exports={"nanoset": {}})
    built = open_build(build_dataset(check_config(values, where="test"), workers=1))
    summary = from_json((built.folder("report", "report") / "summary.json").read_bytes())
    assert summary.duplicates is not None
    assert summary.duplicates.kept_gaps.total == 5
    by_file = {item.path: item for item in summary.duplicates.by_source_file}
    assert set(by_file) == {*FILES, "a4.jsonl"}
    assert sum(item.duplicate_bytes for item in by_file.values()) == built.total("union", "duplicate_bytes") > 0
    assert by_file["a4.jsonl"].duplicate_bytes == by_file["a4.jsonl"].text_bytes - 5 > 0
    assert by_file["a3.jsonl"].text_bytes == 0
    emptied = sum(built.receipt("writeback", unit).counts["documents_empty"] for unit in built.units("writeback"))
    assert summary.duplicates.documents_emptied == emptied
    strings = summary.duplicates.most_repeated
    assert strings[0].count > 1
    lines = [line for name in (*FILES, "a4.jsonl") for line in content(tmp_path / "corpus" / name).splitlines()]
    everything = "\xff".join(json.loads(line)["text"] for line in lines)
    for string in strings:
        assert everything.count(string.excerpt) >= string.count
    assert strings[0].excerpt[:40].split()[1] in (built.folder("report", "report") / "report.html").read_text()
