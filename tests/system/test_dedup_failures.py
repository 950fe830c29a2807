"""Every failure that users of other suffix-array deduplicators report, as a test that it does not happen here."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from corpusmill.dedup.ranges import read_ranges, write_ranges
from corpusmill.dedup.stages.shared import BYTES_PER_ANCHOR, partitions_for
from corpusmill.dedup.writeback import WriteBackOptions, write_back_file
from corpusmill.documents.text_shard import IndexedSource
from tests.disks import small_disk
from tests.oracles.content import text_hash
from tests.oracles.dataset import deduplicated_texts
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import lines_of
from tests.system.dedup_runs import run

EXCHANGES = ("shared.share", "exchange.answer_contexts", "settle.settle", "exchange.answer_borders")


def passage(seed: int, characters: int = 150, alphabet: str = "abcdefghijklmnopqrstuvwxyz ") -> str:
    return "".join(random.Random(seed).choices(alphabet, k=characters))


def write(root: Path, files: dict[str, list[str] | bytes]) -> None:
    (root / "corpus").mkdir()
    for name, texts in files.items():
        (root / "corpus" / name).write_bytes(texts if isinstance(texts, bytes) else lines_of(texts))


def texts_in(root: Path, *names: str) -> list[str]:
    return [json.loads(line)["text"] for name in names for line in (root / "clean" / name).read_bytes().splitlines()]


def test_one_bad_json_line_goes_to_quarantine_and_the_rest_is_deduplicated(tmp_path: Path) -> None:
    good = lines_of([passage(1), passage(1)]).splitlines(keepends=True)
    write(tmp_path, {"a.jsonl": good[0] + b'{"text": "cut off\n' + good[1]})
    done = run(tmp_path, {"mode": "remove"}, source={"max_rejected_share": 0.5})
    assert texts_in(tmp_path, "a.jsonl") == [passage(1), ""]
    assert done.build.total("index", "rejected_broken_json") == 1


def test_lone_surrogate_is_one_rejected_line_and_no_crash(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": b'{"text": "\\ud800"}\n' + lines_of(["kept"])})
    run(tmp_path, {"mode": "remove"}, source={"max_rejected_share": 0.5})
    assert texts_in(tmp_path, "a.jsonl") == ["kept"]


def test_rerun_does_not_trust_partial_files(tmp_path: Path) -> None:
    """Killed while it wrote: files are there, cut short, but no receipt. And a result that was cut short."""
    write(tmp_path, {"a.jsonl": [passage(1), passage(1) + passage(2)]})
    first = run(tmp_path, {"mode": "remove"})
    expected = (tmp_path / "clean" / "a.jsonl").read_bytes()
    for name in ("anchor", "match", "union", "writeback"):
        folder = first.build.folder(name, first.build.units(name)[0])
        (folder / "receipt.json").unlink()
        for path in (path for path in folder.rglob("*") if path.is_file() and path.stat().st_nlink == 1):
            os.truncate(path, path.stat().st_size // 2)
    os.truncate(tmp_path / "clean" / "a.jsonl", 10)
    again = run(tmp_path, {"mode": "remove"})
    assert again.files_written == 1
    assert (tmp_path / "clean" / "a.jsonl").read_bytes() == expected


def test_empty_files_empty_shards_and_empty_documents_are_no_problem(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": b"", "b.jsonl": ["", passage(1)], "c.jsonl": b"", "d.jsonl": [passage(1)]})
    run(tmp_path, {"mode": "remove"}, source={"shard_bytes": 1})
    assert texts_in(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl") == ["", passage(1), ""]


@pytest.mark.slow
def test_many_shards_under_a_low_limit_of_open_files_that_cannot_be_raised(tmp_path: Path) -> None:
    """No setrlimit, no privilege, and not as many files open as shards times partitions."""
    write(tmp_path, {f"{number}.jsonl": [passage(1), passage(2 + number)] for number in range(40)})
    command = [sys.executable, "-m", "corpusmill.cli", "dedup", str(tmp_path / "corpus"), "--minimum-bytes", "100"]
    command += ["--output", str(tmp_path / "clean"), "--work-folder", str(tmp_path / "work"), "--workers", "1"]
    command += ["--shard-bytes", "1"]
    limited = ["sh", "-c", 'ulimit -n 200 && exec "$@"', "sh", *command]
    printed = subprocess.run(limited, check=True, capture_output=True, text=True).stdout
    assert "40 files, 40 written now" in printed
    assert texts_in(tmp_path, "39.jsonl") == ["", passage(41)]


def test_single_file_larger_than_a_shard_is_used(tmp_path: Path) -> None:
    texts = [passage(number % 30, 300) for number in range(60)]
    write(tmp_path, {"a.jsonl": texts})
    run(tmp_path, {"mode": "remove"}, source={"shard_bytes": 1})
    assert texts_in(tmp_path, "a.jsonl") == [*texts[:30], *[""] * 30]


@pytest.mark.slow
def test_writeback_of_a_large_file_holds_blocks_and_not_the_file() -> None:
    class Lines:
        """64 MB of lines that are never all there."""

        def __init__(self) -> None:
            self.left = 640

        def read(self, size: int = -1) -> bytes:  # noqa: ARG002 - as a stream's
            self.left -= 1
            return line * 100 if self.left >= 0 else b""

        read1 = read

    class Sink:
        written = 0

        def write(self, data: bytes) -> None:
            self.written += len(data)

    line = b'{"text": "' + b"x" * 987 + b'"}\n'
    count, sink = 64_000, Sink()
    bounds = np.arange(count + 1, dtype=np.uint64) * np.uint64(988)
    ranges = np.array([[988 * i + 1, 988 * i + 101] for i in range(0, count, 7)], np.uint64)
    indexed = IndexedSource(
        "a.jsonl",
        first_document=0,
        text=np.frombuffer((b"\xff" + b"x" * 987) * count, np.uint8),
        bounds=bounds,
        line_numbers=np.arange(count, dtype=np.uint64),
        line_hashes=np.full(count, text_hash(line[:-1])[0], np.uint64),
    )
    tracemalloc.start()
    counts = write_back_file(
        Lines(),  # type: ignore[arg-type]
        sink,  # type: ignore[arg-type]
        indexed=indexed,
        ranges=ranges,
        options=WriteBackOptions("remove", "text"),
        block_bytes=1 << 20,
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counts.text_bytes_removed == 100 * len(ranges)
    assert sink.written == 1000 * count - 100 * len(ranges)
    assert peak < 32 << 20  # half of the file


def test_memory_of_a_match_task_is_bounded_by_partitions_and_refused_beyond() -> None:
    """Out of memory in collect: here more anchors make more partitions, until there can be no more."""
    for anchors in (0, 10**6, 10**9, 4 * 10**10):
        partitions = partitions_for(anchors, anchors // 4096, 1 << 30)
        assert anchors * BYTES_PER_ANCHOR <= partitions << 30
        assert partitions == 4 or anchors * BYTES_PER_ANCHOR > partitions << 29
    with raises("dedup.too_little_memory", f"{-(-(10**11) // 4096) * BYTES_PER_ANCHOR:,} bytes"):
        partitions_for(10**11, 10**11 // 4096, 1 << 30)


def test_memory_of_the_partition_with_a_string_that_is_everywhere_is_counted_or_refused() -> None:
    """All its anchors have one hash: no number of partitions divides them."""
    anchors, same = 10**9, 10**7
    partitions = partitions_for(anchors, same, 1 << 30)
    assert partitions > partitions_for(anchors, anchors // 4096, 1 << 30)
    assert (anchors // partitions + same - anchors // 4096) * BYTES_PER_ANCHOR <= 1 << 30
    with raises("dedup.too_little_memory"):
        partitions_for(anchors, 2 * 10**7, 1 << 30)


def test_anchors_of_a_string_in_every_document_are_stated_as_the_largest_bucket(tmp_path: Path) -> None:
    notice = passage(1000)
    write(tmp_path, {f"{n}.jsonl": [passage(10 * n + k) + notice for k in range(9)] for n in range(3)})
    built = run(tmp_path, {"mode": "remove"}, source={"shard_bytes": "1"}).build
    assert built.total("anchor", "largest_bucket") >= 27
    assert built.total("union", "removed_bytes") >= 26 * len(notice)


@pytest.mark.parametrize("step", EXCHANGES)
def test_disk_that_fills_between_the_exchanges_is_said_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch, step: str
) -> None:
    write(tmp_path, {f"{n}.jsonl": [passage(k, 900) for k in range(n, n + 9)] for n in range(6)})
    module, _, name = step.rpartition(".")
    module = import_module(f"corpusmill.dedup.{module}")
    begin = getattr(module, name)
    with small_disk(tmp_path / "disk", mebibytes=4) as disk:

        def on_a_full_disk(*arguments: object, **options: object) -> object:
            with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
                while ballast.write(bytes(1 << 16)):
                    pass
            return begin(*arguments, **options)

        monkeypatch.setattr(module, name, on_a_full_disk)
        with raises("step.disk_full"):
            run(tmp_path, {"mode": "remove"}, work_folder=str(disk / "work"))
        monkeypatch.undo()
        (disk / "ballast").unlink()
        run(tmp_path, {"mode": "remove"}, work_folder=str(disk / "work"))
        once_more = [(tmp_path / "clean" / f"{n}.jsonl").read_bytes() for n in range(6)]
    run(tmp_path, {"mode": "remove"})
    assert once_more == [(tmp_path / "clean" / f"{n}.jsonl").read_bytes() for n in range(6)]


KILLED = """
import os, signal, sys
from importlib import import_module
from pathlib import Path

from tests.system.dedup_runs import run

module = import_module("corpusmill.dedup." + sys.argv[2])
complete = getattr(module, sys.argv[3])

def killed(*arguments, **options):
    complete(*arguments, **options)
    folder = next(argument for argument in arguments if isinstance(argument, Path))
    for path in folder.iterdir():
        os.truncate(path, path.stat().st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(module, sys.argv[3], killed)
run(Path(sys.argv[1]), {"mode": "remove"})
"""


@pytest.mark.parametrize("step", quick(EXCHANGES, 1))
def test_worker_killed_in_an_exchange_leaves_nothing_that_the_next_run_takes_for_finished(
    tmp_path: Path, step: str
) -> None:
    """SIGKILL after the step has written half of every file."""
    files = {f"{n}.jsonl": [passage(k, 900) for k in range(n, n + 9)] for n in range(6)}
    for name in ("killed", "undisturbed"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, files)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed"), *step.split(".")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "clean").exists()
    for name in ("killed", "undisturbed"):
        run(tmp_path / name, {"mode": "remove"})
    texts = [texts_in(tmp_path / name, *files) for name in ("killed", "undisturbed")]
    assert texts[0] == texts[1] != [text for own in files.values() for text in own]


def test_nothing_repeated_is_no_panic_and_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [passage(number) for number in range(9)]})
    done = run(tmp_path, {"mode": "remove"})
    assert (tmp_path / "clean" / "a.jsonl").read_bytes() == (tmp_path / "corpus" / "a.jsonl").read_bytes()
    assert done.build.total("union", "removed_bytes") == 0


@pytest.mark.parametrize("length", [99, 100, 101])
def test_ends_are_exact_at_the_beginning_the_end_and_at_the_minimum(tmp_path: Path, length: int) -> None:
    copy = passage(1, length, "abcdefgh")
    write(tmp_path, {"a.jsonl": [copy, f"{copy}1", f"2{copy}", f"3{copy}4"]})
    run(tmp_path, {"mode": "remove"})
    kept = ["1", "2", "34"] if length >= 100 else [f"{copy}1", f"2{copy}", f"3{copy}4"]
    assert texts_in(tmp_path, "a.jsonl") == [copy, *kept]


def test_nothing_is_written_twice_with_several_workers(tmp_path: Path) -> None:
    texts = [passage(number % 25, 400) + str(number) for number in range(100)]
    write(tmp_path, {f"{part}.jsonl": texts[10 * part : 10 * part + 10] for part in range(10)})
    command = [sys.executable, "-m", "corpusmill.cli", "dedup", str(tmp_path / "corpus"), "--minimum-bytes", "100"]
    command += ["--output", str(tmp_path / "clean"), "--work-folder", str(tmp_path / "work"), "--workers", "2"]
    subprocess.run([*command, "--shard-bytes", "1"], check=True, capture_output=True)
    names = [f"{part}.jsonl" for part in range(10)]
    assert texts_in(tmp_path, *names) == deduplicated_texts(texts, 100)


def test_one_of_two_copies_stays(tmp_path: Path) -> None:
    texts = [f"before {passage(1)} after", f"first {passage(1)} last"]
    write(tmp_path, {"a.jsonl": texts[:1], "b.jsonl": texts[1:]})
    run(tmp_path, {"mode": "remove"}, source={"shard_bytes": 1})
    kept = texts_in(tmp_path, "a.jsonl", "b.jsonl")
    assert kept == deduplicated_texts(texts, 100)
    assert kept[0] == texts[0]
    assert len(kept[1]) < 20


def test_repeats_between_files_are_found_not_only_within_one(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": [passage(1)], "b.jsonl": [passage(2)], "c.jsonl": [passage(2), passage(1)]})
    run(tmp_path, {"mode": "remove"}, source={"shard_bytes": 1})
    assert texts_in(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl") == [passage(1), passage(2), "", ""]


def test_ranges_that_begin_or_end_inside_a_character_leave_valid_utf8(tmp_path: Path) -> None:
    """é and è share a byte, and so do 中 and 丮: the bytes that repeat begin and end inside characters."""
    middle = passage(1, 120, "0123456789")
    write(tmp_path, {"a.jsonl": [f"é{middle}中", f"ĩ{middle}丮"]})
    done = run(tmp_path, {"mode": "remove"})
    assert texts_in(tmp_path, "a.jsonl") == [f"é{middle}中", "ĩ丮"]
    assert done.build.total("union", "duplicate_bytes") > done.build.total("union", "removed_bytes") == 120


def test_chinese_documents_lose_what_repeats_and_nothing_else(tmp_path: Path) -> None:
    letters = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生"
    texts = [passage(number, 400, letters) for number in range(12)]
    texts.append(texts[3][100:200] + passage(99, 50, letters))
    write(tmp_path, {"a.jsonl": texts})
    run(tmp_path, {"mode": "remove"})
    kept = texts_in(tmp_path, "a.jsonl")
    assert kept == deduplicated_texts(texts, 100)
    assert kept[:12] == texts[:12]
    assert kept[12].endswith(passage(99, 50, letters)[1:])


def test_other_occurrences_of_a_removed_string_are_not_touched(tmp_path: Path) -> None:
    """Removal by replacing text would hit the first copy, or the shorter one that does not count."""
    copy = passage(1, 100)
    texts = [f"{copy}1{copy}2{copy[:60]}3{copy[40:]}"]
    write(tmp_path, {"a.jsonl": texts})
    run(tmp_path, {"mode": "remove"})
    assert texts_in(tmp_path, "a.jsonl") == [f"{copy}12{copy[:60]}3{copy[40:]}"]


def test_positions_above_4_gib_keep_their_value(tmp_path: Path) -> None:
    rows = np.array([[5 << 30, (5 << 30) + 500], [1 << 43, (1 << 43) + 700]], np.uint64)
    write_ranges(tmp_path / "remove_ranges", rows)
    assert read_ranges(tmp_path / "remove_ranges").tolist() == rows.tolist()


def test_shards_without_duplicates_lose_no_document(tmp_path: Path) -> None:
    files: dict[str, list[str] | bytes] = {f"{n}.jsonl": [passage(10 * n + i) for i in range(5)] for n in range(6)}
    files["6.jsonl"] = [passage(0), passage(1)]
    write(tmp_path, files)
    run(tmp_path, {"mode": "remove"}, source={"shard_bytes": 1})
    kept = texts_in(tmp_path, *(f"{n}.jsonl" for n in range(7)))
    assert kept == [*(passage(10 * n + i) for n in range(6) for i in range(5)), "", ""]
