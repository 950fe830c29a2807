"""Digests of blocks: a step's outputs are compared when another step opens them, the parts that it reads.

Beside a step's outputs lies `.blocks`: for every output, in the order of the receipt, the XXH3-128 of each of its
blocks of 1 MiB, 16 bytes each; the receipt states the digest of that file. So a reader that needs a slice compares the
blocks that it touches, and nobody reads a file twice as large as what it wants.

    outputs   tokens (2.5 MiB)        ends (8 B)
    .blocks   16 B | 16 B | 16 B      16 B

A process compares a block once, as long as the file stays the same (inode, size, time of change).

Of a work folder in a bucket, what a reader needs and this machine has not is fetched here: the blocks of a file that
are not here yet are a hole, which has another digest than they, as has a block that was damaged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO

import xxhash

from corpusmill.errors import CorruptDataError
from corpusmill.ledger.receipt import Receipt
from corpusmill.work_folder import outputs
from corpusmill.work_folder.moved import moved
from corpusmill.work_folder.objects import GoneError
from corpusmill.work_folder.small import is_shared, write_here

BLOCKS_NAME = ".blocks"
BLOCK_BYTES = 1 << 20
DIGEST_BYTES = 16
WINDOW_BLOCKS = 8  # mapped at once
MOST_BLOCKS = 64  # fetched at once

_compared: dict[tuple[str, int, int, int], bytearray] = {}
"""(path, inode, size, time of change) -> a byte per block: 1 once it was right."""


class DamagedStepError(CorruptDataError):
    """A finished step's output is not what its receipt says. `stage` and `unit` name the step: it has to run again."""

    stage = ""
    unit = ""


class Blocks:
    """The block digests of one finished step."""

    def __init__(self, folder: Path, receipt: Receipt) -> None:
        self.folder = folder
        self._receipt = receipt
        self._first: dict[str, tuple[int, int]] = {}  # output -> its first block, its size
        blocks = 0
        for output in receipt.outputs:
            self._first[output.name] = blocks, output.size_bytes
            blocks += blocks_of(output.size_bytes)
        self._digests = read_digests(folder)
        if is_shared(folder) and not self._are_here(receipt):
            self._digests = self._fetched_digests(blocks)
        if xxhash.xxh3_128_hexdigest(self._digests) != receipt.blocks or len(self._digests) != blocks * DIGEST_BYTES:
            raise self._damaged(folder / BLOCKS_NAME, f"{blocks:,} digests of digest {receipt.blocks}")
        if is_shared(folder):
            os.utime(folder / BLOCKS_NAME)  # the cache lets go of what was opened longest ago
            for output in receipt.outputs:
                if output.name not in receipt.given_back:
                    _make_room(folder / output.name, output.size_bytes)

    def require(self, names: Iterable[str] | None = None) -> None:
        """Compare some outputs, by default all. DamagedStepError names the first file that differs."""
        for name in self._first if names is None else names:
            self.require_bytes(name, 0, self._first[name][1])

    def require_bytes(self, name: str, first: int, last: int) -> None:
        """Compare the blocks of an output that hold bytes [first, last)."""
        path, size = self.folder / name, self._first[name][1]
        try:
            status = path.stat()
        except OSError as error:
            raise self._damaged(path, f"{size:,} bytes") from error
        if status.st_size != size:
            raise self._damaged(path, f"{size:,} bytes")
        compared = _compared.setdefault(_same_file(path, status), bytearray(blocks_of(size)))
        begin, end = first // BLOCK_BYTES, blocks_of(min(last, size))
        if compared.find(0, begin, end) < 0:
            return
        wanted = [number for number in range(begin, end) if not compared[number]]
        differing = []
        with path.open("rb", buffering=0) as file:
            for number, digest in _digests_of(file, wanted, size):
                if self._is_of(name, number, digest):
                    compared[number] = 1
                else:
                    differing.append(number)
        if is_shared(path):
            moved().add(cache_hits=len(wanted) - len(differing), cache_misses=len(differing))
        elif differing:
            raise self._damaged(path, f"block {differing[0]:,} as written")
        if differing:
            self._fetch(name, differing)
            _compared[_same_file(path, path.stat())] = compared
            for number in differing:
                compared[number] = 1

    def _is_of(self, name: str, number: int, digest: bytes) -> bool:
        place = (self._first[name][0] + number) * DIGEST_BYTES
        return digest == self._digests[place : place + DIGEST_BYTES]

    def _fetch(self, name: str, numbers: list[int]) -> None:
        """Fetch blocks of an output, a request per stretch; each is compared before it is written."""
        path, size = self.folder / name, self._first[name][1]
        with path.open("r+b", buffering=0) as file:
            for begin, end in _stretches(numbers):
                data = memoryview(self._read(name, begin * BLOCK_BYTES, min(end * BLOCK_BYTES, size)))
                for number in range(begin, end):
                    block = data[(number - begin) * BLOCK_BYTES : (number - begin + 1) * BLOCK_BYTES]
                    if not self._is_of(name, number, xxhash.xxh3_128_digest(block)):
                        raise self._damaged(path, f"block {number:,} as written")
                    _write_all(file.fileno(), block, number * BLOCK_BYTES)

    def _are_here(self, receipt: Receipt) -> bool:
        whole = xxhash.xxh3_128_hexdigest(self._digests) == receipt.blocks
        return whole and (self.folder / BLOCKS_NAME).exists()  # of empty outputs there are none, wherever they are

    def _fetched_digests(self, blocks: int) -> bytes:
        digests = self._read(BLOCKS_NAME, 0, blocks * DIGEST_BYTES) if blocks else b""
        write_here(self.folder / BLOCKS_NAME, digests)
        return digests

    def _read(self, name: str, first: int, last: int) -> bytes:
        try:
            return outputs.read(self.folder, self._receipt.attempt, name, first, last)
        except GoneError as error:
            raise self._damaged(self.folder / name, f"{last:,} bytes or more in the bucket") from error

    def _damaged(self, path: Path, expected: str) -> DamagedStepError:
        gone = path.relative_to(self.folder).as_posix() in self._receipt.given_back
        error = DamagedStepError(
            "an output of a finished step was freed" if gone else "an output of a finished step is damaged",
            where=path,
            expected=expected,
            got="nothing: `reclaim: eager` deleted it" if gone else "other bytes",
            details=(("step", f"{self._receipt.stage} {self._receipt.unit}"),),
            next_step="run again: the step that wrote it reruns; if it persists, check the disk",
        )
        error.stage, error.unit = self._receipt.stage, self._receipt.unit
        return error


def _digests_of(file: BinaryIO, wanted: list[int], size_bytes: int) -> Iterator[tuple[int, bytes]]:
    """(block, its digest) of some blocks, ascending, of a file of `size_bytes`; b"" where it was cut since.

    A window of several blocks is mapped: reading copies them, which takes twice as long as the digests. A window of one
    is read: mapping takes 50 us.
    """
    for window, numbers in groupby(wanted, lambda number: number // WINDOW_BLOCKS):
        begin = window * WINDOW_BLOCKS * BLOCK_BYTES
        length = min(WINDOW_BLOCKS * BLOCK_BYTES, size_bytes - begin)
        if length <= BLOCK_BYTES:
            yield next(numbers), xxhash.xxh3_128_digest(os.pread(file.fileno(), length, begin))
            continue
        try:
            mapped = mmap(file.fileno(), length, access=ACCESS_READ, offset=begin)
        except ValueError:
            yield next(numbers), b""
            return
        with mapped, memoryview(mapped) as view:
            for number in numbers:
                start = number * BLOCK_BYTES - begin
                yield number, xxhash.xxh3_128_digest(view[start : start + BLOCK_BYTES])


def _same_file(path: Path, status: os.stat_result) -> tuple[str, int, int, int]:
    return str(path), status.st_ino, status.st_size, status.st_ctime_ns


def _make_room(path: Path, size_bytes: int) -> None:
    """Let a file that is not here be one great hole; other processes may be filling it."""
    if not path.is_file() or path.stat().st_size != size_bytes:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            os.ftruncate(descriptor, size_bytes)
        finally:
            os.close(descriptor)


def _stretches(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """[begin, end) of stretches of following numbers, each of which is held in memory."""
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1 or at - begin == MOST_BLOCKS:
            yield numbers[begin], numbers[at - 1] + 1
            begin = at


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def blocks_of(size_bytes: int) -> int:
    """How many blocks a file has."""
    return -(-size_bytes // BLOCK_BYTES)


def read_digests(folder: Path) -> bytes:
    """What `.blocks` holds; nothing if it is not there."""
    try:
        return (folder / BLOCKS_NAME).read_bytes()
    except FileNotFoundError:
        return b""
