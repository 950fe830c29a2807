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

from corpusmill.builds.dedup_alone import Finished, dedup_config, deduplicate
from corpusmill.dedup.stages.partitions import BYTES_PER_ANCHOR, partitions_for
from corpusmill.dedup.writeback import WriteBackOptions, write_back_file
from corpusmill.documents.text_shard import IndexedSource
from tests.disks import small_disk
from tests.oracles.content import text_hash
from tests.oracles.dataset import deduplicated_texts
from tests.quick import quick
from tests.raising import raises
from tests.system.corpus import lines_of

EXCHANGES = ("shared.share", "exchange.answer_contexts", "settle.settle", "exchange.answer_borders")


def run(root: Path, dedup: dict[str, object], **sections: object) -> Finished:
    output = str(root / "clean")
    sections = {"source": {"shard_bytes": "8KiB"}, "work_folder": str(root / "work"), **sections}
    config = dedup_config([str(root / "corpus")], output, {"minimum_bytes": 100, **dedup}, **sections)
    return deduplicate(config, output, workers=1)


def passage(seed: int, characters: int = 150, alphabet: str = "abcdefghijklmnopqrstuvwxyz ") -> str:
    return "".join(random.Random(seed).choices(alphabet, k=characters))


def write(root: Path, files: dict[str, list[str] | bytes]) -> None:
    (root / "corpus").mkdir()
    for name, texts in files.items():
        (root / "corpus" / name).write_bytes(texts if isinstance(texts, bytes) else lines_of(texts))


def texts_in(root: Path, *names: str) -> list[str]:
    return [json.loads(line)["text"] for name in names for line in (root / "clean" / name).read_bytes().splitlines()]


def ends(seed: int, length: int) -> list[str]:
    copy = passage(seed, length, "abcdefgh")
    return [copy, f"{copy}1", f"2{copy}", f"3{copy}4"]


CHINESE = "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生"
MIDDLE = passage(400, 120, "0123456789")
OTHERS = [passage(number) for number in range(500, 530)]
CASES: dict[str, tuple[list[list[str]], list[str]]] = {
    "one of two copies stays": (
        [[f"before {passage(1)} after"], [f"first {passage(1)} last"]],
        [f"before {passage(1)} after", "firstlast"],
    ),
    "repeats between files": ([[passage(2)], [passage(3)], [passage(3), passage(2)]], [passage(2), passage(3), "", ""]),
    "empty files and documents": ([[], ["", passage(4)], [], [passage(4)]], ["", passage(4), ""]),
    "a file larger than a shard": (
        [[passage(100 + number % 30, 300) for number in range(60)]],
        [*(passage(100 + number, 300) for number in range(30)), *[""] * 30],
    ),
    "a byte less than the least length": ([ends(200, 99)], ends(200, 99)),
    "the least length": ([ends(201, 100)], [passage(201, 100, "abcdefgh"), "1", "2", "34"]),
    "a byte more than the least length": ([ends(202, 101)], [passage(202, 101, "abcdefgh"), "1", "2", "34"]),
    # é and ĩ share a byte, and so do 中 and 丮: the bytes that repeat begin and end inside characters.
    "ends inside characters": ([[f"é{MIDDLE}中", f"ĩ{MIDDLE}丮"]], [f"é{MIDDLE}中", "ĩ丮"]),
    # Removal by replacing text would hit the first copy, or the shorter one that does not count.
    "other occurrences": (
        [[f"{passage(300, 100)}1{passage(300, 100)}2{passage(300, 100)[:60]}3{passage(300, 100)[40:]}"]],
        [f"{passage(300, 100)}12{passage(300, 100)[:60]}3{passage(300, 100)[40:]}"],
    ),
    "shards without repeats": ([OTHERS[at : at + 5] for at in range(0, 30, 5)], OTHERS),
    "no Latin letters": (
        [[passage(600, 400, CHINESE), f"x{passage(600, 400, CHINESE)[100:200]}y"]],
        [passage(600, 400, CHINESE), "xy"],
    ),
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The texts that one run, of two workers, leaves of each case; every file is a shard."""
    root = tmp_path_factory.mktemp("reported")
    files = {
        f"{number:02d}-{at}.jsonl": texts
        for number, (case, _) in enumerate(CASES.values())
        for at, texts in enumerate(case)
    }
    bad = b'{"text": "cut off\n{"text": "\\ud800"}\n'  # a broken line, and a lone surrogate
    write(root, {**files, "bad.jsonl": bad + lines_of([passage(5), passage(5)])})
    command = [sys.executable, "-m", "corpusmill.cli", "dedup", str(root / "corpus"), "--minimum-bytes", "100"]
    command += ["--output", str(root / "clean"), "--work-folder", str(root / "work"), "--workers", "2"]
    command += ["--shard-bytes", "1", "--max-rejected-share", "0.5"]
    subprocess.run(command, check=True, capture_output=True)
    everything = [text for texts in files.values() for text in texts]
    assert texts_in(root, *files) == deduplicated_texts(everything, 100)
    kept = {
        name: texts_in(root, *(file for file in files if file.startswith(f"{number:02d}-")))
        for number, name in enumerate(CASES)
    }
    return {**kept, "rejected lines": texts_in(root, "bad.jsonl")}


@pytest.mark.parametrize("case", CASES)
def test_dedup_of_what_others_report_leaves_what_it_should(reported: dict[str, list[str]], case: str) -> None:
    assert reported[case] == CASES[case][1]


def test_rejected_lines_are_left_out_and_the_rest_is_deduplicated(reported: dict[str, list[str]]) -> None:
    assert reported["rejected lines"] == [passage(5), ""]


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


@pytest.mark.parametrize("step", quick(EXCHANGES, 2, slow=0))
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

from tests.system.test_dedup_failures import run

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


@pytest.mark.parametrize("step", quick(EXCHANGES, 1, slow=1))
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
