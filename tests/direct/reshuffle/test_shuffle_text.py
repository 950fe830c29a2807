"""terashuf's job, and its two losses of data: input that ends with the buffer, and the byte 0xFF."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.direct.reshuffle.lines import list_inputs, shuffle_text
from corpusmill.shuffle import lines as shuffling
from corpusmill.shuffle.lines import PARTS, line_batches, shuffle_records
from corpusmill.storage import list_sources
from tests.quick import examples
from tests.raising import raises

LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"\xff") + b"\n"), max_size=200)


def shuffled(lines: list[bytes], folder: Path, *, seed: int = 1, memory_bytes: int = 1 << 20, cut: int = 7) -> bytes:
    blocks = [b"".join(lines[first : first + cut]) for first in range(0, len(lines), cut)]
    actual = shuffle_records(line_batches(blocks), seed=seed, memory_bytes=memory_bytes, scratch=folder)
    return b"".join(data.tobytes() for data, _ in actual)


@examples(60)
@given(LINES, st.integers(0, 2**64 - 1), st.sampled_from([1, 300, 3000]), st.integers(1, 50))
def test_shuffle_text_every_line_once_and_the_same_bytes_whatever_the_memory(
    tmp_path_factory, lines, seed: int, memory_bytes: int, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("scratch")
    whole = shuffled(lines, folder, seed=seed)
    assert Counter(whole.splitlines(keepends=True) if b"\r" not in whole else _lines(whole)) == Counter(lines)
    assert shuffled(lines, folder, seed=seed, memory_bytes=memory_bytes, cut=cut) == whole
    assert list(folder.iterdir()) == []


def _lines(text: bytes) -> list[bytes]:
    return [line + b"\n" for line in text.split(b"\n")[:-1]]


def test_shuffle_text_input_that_ends_with_the_buffer_is_written_once(tmp_path) -> None:
    """terashuf: 37 lines in, 74 out when the input ends exactly at a buffer's end."""
    lines = [b"%06d\n" % number for number in range(37)]
    for memory_bytes in (37 * 7 * 2, 37 * (7 + 48) * 2, 37 * (7 + 48) * 2 - 1):
        assert sorted(_lines(shuffled(lines, tmp_path, memory_bytes=memory_bytes))) == lines


def test_shuffle_text_holds_its_memory_and_its_buffers_however_much_there_is(tmp_path, monkeypatch) -> None:
    """30 MB of lines in 2 MiB, peaks as Python's and numpy's allocations count."""
    batch_bytes, budget_bytes = 256 << 10, 2 << 20
    monkeypatch.setattr("corpusmill.direct.reshuffle.lines.BLOCK_BYTES", batch_bytes)
    monkeypatch.setattr("corpusmill.shuffle.lines.WRITE_BYTES", batch_bytes)
    rng = random.Random(3)
    with (tmp_path / "in.jsonl").open("wb") as file:
        for number in range(60_000):
            file.write(b"%06d%s\n" % (number, rng.randbytes(rng.randrange(1000)).replace(b"\n", b"-")))

    def peak_bytes_of(memory_bytes: int, name: str) -> int:
        tracemalloc.start()
        try:
            inputs = [str(tmp_path / "in.jsonl")]
            shuffle_text(inputs, str(tmp_path / name), seed=1, memory_bytes=memory_bytes, scratch=tmp_path / "s")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    for memory_bytes in (1, 1 << 30):  # what importing and compiling take is not the shuffle's
        shuffled([b"a\n", b"b\n"] * 9, tmp_path / "s", memory_bytes=memory_bytes)
    # The records held, the part files' buffers, and batches on their way through.
    most_bytes = budget_bytes + (PARTS << 18) + 10 * batch_bytes
    assert peak_bytes_of(budget_bytes, "small") < most_bytes
    assert peak_bytes_of(1 << 30, "large") > most_bytes * 5 // 4
    assert (tmp_path / "small").read_bytes() == (tmp_path / "large").read_bytes()


def test_shuffle_text_order_is_uniform(tmp_path) -> None:
    """Chi-square over the 24 orders of 4 lines; 49.73 is the 99.9 % quantile at 23 degrees."""
    lines = [b"a\n", b"b\n", b"c\n", b"d\n"]
    orders = Counter(shuffled(lines, tmp_path, seed=seed) for seed in range(1200))
    assert set(orders) == {b"".join(order) for order in permutations(lines)}
    assert sum((count - 50) ** 2 / 50 for count in orders.values()) < 49.73


def test_shuffle_text_files_in_any_compression_and_a_last_line_without_newline(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_bytes(b'{"text":"a"}\n{"text":"b"}')
    (tmp_path / "in/b.jsonl.zst").write_bytes(zstandard.compress(b'{"text":"c"}\n\n'))
    done = shuffle_text(
        [str(tmp_path / "in")], str(tmp_path / "out.jsonl.gz"), seed=3, memory_bytes=1 << 20, scratch=tmp_path / "s"
    )
    assert (done.records, done.data_bytes) == (4, 40)
    plain = tmp_path / "out.jsonl"
    shuffle_text([str(tmp_path / "in")], str(plain), seed=3, memory_bytes=1 << 20, scratch=tmp_path / "s")
    import gzip

    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == plain.read_bytes()
    assert sorted(plain.read_bytes().split(b"\n")) == [b"", b"", b'{"text":"a"}', b'{"text":"b"}', b'{"text":"c"}']


def test_shuffle_text_byte_order_mark_of_a_file_is_nowhere_in_the_output(tmp_path) -> None:
    """It went along with the first line into the middle, where no parser of JSON takes it."""
    mark = "\ufeff".encode()
    (tmp_path / "in").mkdir()
    for name in "abc":
        lines = b"".join(b'{"text":"%s%d"}\n' % (name.encode(), number) for number in range(20))
        (tmp_path / "in" / f"{name}.jsonl").write_bytes(mark + lines)
    (tmp_path / "in" / "mark.jsonl").write_bytes(mark)
    (tmp_path / "in" / "twice.jsonl").write_bytes(b"first\n" + mark + b"second\n")  # of a later line it is content
    out = tmp_path / "out"
    done = shuffle_text([str(tmp_path / "in")], str(out), seed=3, memory_bytes=1 << 20, scratch=tmp_path / "s")
    expected = [f'{{"text":"{name}{number}"}}'.encode() for name in "abc" for number in range(20)]
    assert sorted(out.read_bytes().splitlines()) == sorted([*expected, b"first", mark + b"second"])
    assert done.records == 62


@pytest.mark.parametrize("ending", [".gz", ".zstd"])
def test_shuffle_text_compresses_lines_of_any_name_by_the_last_ending(tmp_path, ending: str) -> None:
    """`--output x.gz` was refused, though its help says that .gz compresses; only .jsonl.gz did."""
    lines = [b"%d\n" % number for number in range(100)]
    (tmp_path / "in.txt").write_bytes(b"".join(lines))
    packed, again = tmp_path / f"packed{ending}", tmp_path / "again.txt"
    for source, output in ((tmp_path / "in.txt", packed), (packed, again)):
        command = ["shuffle-text", str(source), "--output", str(output), "--work-folder", str(tmp_path / "s")]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert "100 lines" in done.output
    assert packed.read_bytes()[:2] == (b"\x1f\x8b" if ending == ".gz" else b"\x28\xb5")
    assert sorted(again.read_bytes().splitlines(keepends=True)) == sorted(lines)


@pytest.mark.parametrize("before", [None, b"an older line\n"])
def test_shuffle_text_of_no_lines_writes_an_empty_output(before: bytes | None, tmp_path) -> None:
    (tmp_path / "empty.jsonl").touch()
    if before is not None:
        (tmp_path / "out").write_bytes(before)
    done = shuffle_text(
        [str(tmp_path / "empty.jsonl")], str(tmp_path / "out"), seed=1, memory_bytes=100, scratch=tmp_path / "s"
    )
    assert done.records == 0
    assert (tmp_path / "out").read_bytes() == b""


def test_shuffle_text_missing_input_and_output_among_inputs_are_refused(tmp_path) -> None:
    with raises("reshuffle.no_input"):
        shuffle_text([str(tmp_path / "no")], "-", seed=1, memory_bytes=1, scratch=tmp_path)
    (tmp_path / "a.jsonl").write_text("x\n")
    with raises("reshuffle.output_is_input"):
        shuffle_text([str(tmp_path)], str(tmp_path / "a.jsonl"), seed=1, memory_bytes=1, scratch=tmp_path)
    assert (tmp_path / "a.jsonl").read_text() == "x\n"


def test_shuffle_text_full_disk_is_said_and_leaves_nothing(tmp_path) -> None:
    """/dev/full stands for the disk."""
    lines = [b"x" * 50 + b"\n" for _ in range(2000)]
    records = shuffling.Records(
        np.frombuffer(b"".join(lines), np.uint8), np.full(2000, 51, np.uint64), np.arange(2000, dtype=np.uint64) << 50
    )
    files = [open("/dev/full", "wb", buffering=1 << 10) for _ in range(PARTS)]  # noqa: PTH123, SIM115
    with (
        raises("shuffle.disk_full"),
        shuffling.full_folder_explained(tmp_path, "it needs more"),
    ):
        shuffling._part(records, 58, files, files)


@pytest.mark.parametrize("damaged", [Path, shuffling._index])
def test_shuffle_text_truncated_part_or_index_is_refused(damaged, tmp_path, monkeypatch) -> None:
    whole = shuffling._read_part

    def cut(part: Path, held_bytes: int) -> Iterator[shuffling.Records]:
        os.truncate(damaged(part), damaged(part).stat().st_size - 1)
        return whole(part, held_bytes)

    monkeypatch.setattr(shuffling, "_read_part", cut)
    with raises("shuffle.part_truncated"):
        shuffled([b"%d\n" % number for number in range(500)], tmp_path, memory_bytes=1000)
    assert list(tmp_path.iterdir()) == []


def test_shuffle_inputs_follow_links_by_the_rule_of_source_paths(tmp_path) -> None:
    """`shuffle-text` and `shuffle` skipped linked folders, whose lines were then missing."""
    for folder in ("real", "src/.hidden"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.jsonl").write_text(f'"{folder}"\n')
    (tmp_path / "src/link").symlink_to("../real")
    (tmp_path / "src/loop").symlink_to(".")
    inputs = [str(tmp_path / "src")]
    assert list_inputs(inputs, (".jsonl",)) == ([str(tmp_path / "src/link/a.jsonl")], None)
    assert [Path(file.location) for file in list_sources(inputs, (".jsonl",))] == [tmp_path / "src/link/a.jsonl"]
    shuffle_text(inputs, str(tmp_path / "out"), seed=1, memory_bytes=1 << 20, scratch=tmp_path / "scratch")
    assert (tmp_path / "out").read_text() == '"real"\n'
    (tmp_path / "src/gone.jsonl").symlink_to("nowhere")
    with raises("source.dangling_link"):
        list_inputs(inputs, (".jsonl",))


def test_shuffle_inputs_hard_links_and_special_files_are_refused(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    (tmp_path / "b.jsonl").hardlink_to(tmp_path / "a.jsonl")
    with raises("source.reached_twice"):
        list_inputs([str(tmp_path)], (".jsonl",))
    (tmp_path / "b.jsonl").unlink()
    os.mkfifo(tmp_path / "b.jsonl")
    for entry in (tmp_path, tmp_path / "b.jsonl"):
        with raises("source.not_a_regular_file"):
            list_inputs([str(entry)], (".jsonl",))
