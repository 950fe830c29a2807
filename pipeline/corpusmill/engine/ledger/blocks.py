"""Block digests: a step checks the parts of another step's outputs that it reads when it opens them.

The file `.blocks` beside a step's outputs holds, for every output in the order of the receipt, the XXH3-128 of each of
its blocks of 1 MiB, 16 bytes each; the receipt states that file's digest. So a reader of a slice checks only the blocks
that it touches.

    outputs   tokens (2.5 MiB)        ends (8 B)
    .blocks   16 B | 16 B | 16 B      16 B

A build checks a block once for as long as the file stays the same (compared.py); what a step has read to state the
digests counts as checked.

In a bucket, blocks that a reader needs and this machine lacks are fetched: missing blocks of a local file are holes,
whose digests differ as those of damaged blocks do. Files are open with a shared lock while they are read, and a map of
an open file keeps the lock after it is closed: files that no process has open may be removed at any time, and are
fetched again (cache.py).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from mmap import MAP_POPULATE, MAP_SHARED, PROT_READ, mmap
from pathlib import Path
from typing import BinaryIO, cast

import xxhash

from corpusmill.engine.ledger.cache import fetched_at_once, make_room
from corpusmill.engine.ledger.compared import ComparedBlocks
from corpusmill.engine.ledger.lock import is_still
from corpusmill.engine.ledger.receipt import BLOCKS_NAME, Receipt
from corpusmill.engine.work_folder import outputs
from corpusmill.engine.work_folder.moved import moved
from corpusmill.engine.work_folder.objects import GoneError
from corpusmill.engine.work_folder.small import is_shared
from corpusmill.errors import CorruptDataError
from corpusmill.storage.local import write_whole

BLOCK_BYTES = 1 << 20
DIGEST_BYTES = 16
WINDOW_BLOCKS = 8  # mapped at once
MAPPED_BYTES = BLOCK_BYTES // 4  # and more; fewer are read
NO_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}
MOST_BLOCKS = 64  # fetched at once, fewer if the cache is small


class DamagedStepError(CorruptDataError):
    """A finished step's output differs from its receipt. `stage` and `unit` name the step, which must run again."""

    stage = ""
    unit = ""


class Blocks:
    """The block digests of one finished step."""

    def __init__(self, folder: Path, receipt: Receipt) -> None:
        self.folder = folder
        self._receipt = receipt
        self._shared = is_shared(folder)
        self._first: dict[str, tuple[int, int]] = {}  # output -> its first block, its size
        blocks = 0
        for output in receipt.outputs:
            self._first[output.name] = blocks, output.size_bytes
            blocks += blocks_of(output.size_bytes)
        self._digests = read_digests(folder)
        if self._shared and not self._are_here(receipt):
            self._digests = self._fetched_digests(blocks)
        if xxhash.xxh3_128_hexdigest(self._digests) != receipt.blocks or len(self._digests) != blocks * DIGEST_BYTES:
            raise self._damaged(folder / BLOCKS_NAME, f"{blocks:,} digests of digest {receipt.blocks}")
        if self._shared:
            with suppress(FileNotFoundError):
                os.utime(folder / BLOCKS_NAME)  # the cache evicts the steps that were opened longest ago

    def require(self, names: Iterable[str] | None = None) -> None:
        """Check some outputs, by default all. DamagedStepError names the first file that differs."""
        for name in self._first if names is None else names:
            self.open(name).close()

    def kept(self, names: Iterable[str] | None = None) -> Iterator[BinaryIO]:
        """The same for callers that read by path: outputs of a bucket stay here while these files are open."""
        for name in self._first if names is None else names:
            file = self.open(name)
            if self._shared:
                yield file
            else:
                file.close()

    @contextmanager
    def opened(self, names: Iterable[str] | None = None) -> Iterator[Path]:
        """Check some outputs, by default all, and keep them on this machine during the `with`; yields the folder."""
        with ExitStack() as files:
            for file in self.kept(names):
                files.enter_context(file)
            yield self.folder

    def open(self, name: str, first: int = 0, last: int = sys.maxsize) -> BinaryIO:
        """Open an output after checking the blocks that hold bytes [first, last)."""
        file, status = self._opened(name)
        try:
            self._compare(name, file, status, first, last)
            if self._shared:
                file.seek(0)  # looking for holes moves it
        except BaseException:
            file.close()
            raise
        return file

    def _opened(self, name: str) -> tuple[BinaryIO, os.stat_result]:
        size = self._first[name][1]
        if self._shared and name not in self._receipt.reclaimed:
            file = _kept_here(self.folder / name, size)
            return file, os.fstat(file.fileno())
        try:
            # Paths and buffered files would take longer than the system calls. A pipe must not make anybody wait.
            descriptor = os.open(f"{self.folder}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            raise self._damaged(self.folder / name, f"{size:,} bytes") from error
        status = os.fstat(descriptor)
        if status.st_size != size or not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise self._damaged(self.folder / name, f"{size:,} bytes")
        return cast("BinaryIO", FileIO(descriptor)), status

    def _compare(self, name: str, file: BinaryIO, status: os.stat_result, first: int, last: int) -> None:
        place, size = f"{self.folder}/{name}", self._first[name][1]
        compared = ComparedBlocks(place, status, blocks_of(size))
        begin, end = first // BLOCK_BYTES, blocks_of(min(last, size))
        wanted = compared.missing(begin, end)
        differing: list[int] = []
        if self._shared and _has_hole(file.fileno(), begin, end, size):
            differing = [n for n in range(begin, end) if _has_hole(file.fileno(), n, n + 1, size)]
            wanted = sorted({*wanted, *differing})  # a file may be evicted, and created, in one tick of a slow clock
        if not wanted:
            return
        for number, digest in _digests_of(file, sorted({*wanted} - {*differing}), size):
            if self._is_of(name, number, digest):
                compared.add([number])
            else:
                differing.append(number)
        if self._shared:
            moved().add(cache_hits=len(wanted) - len(differing), cache_misses=len(differing))
        elif differing:
            raise self._damaged(self.folder / name, f"block {differing[0]:,} as written")
        if differing:
            self._fetch(name, sorted(differing))  # which makes it another file
            written = ComparedBlocks(place, os.fstat(file.fileno()), blocks_of(size))
            written.add_all_of(compared)
            written.add(differing)

    def _is_of(self, name: str, number: int, digest: bytes) -> bool:
        place = (self._first[name][0] + number) * DIGEST_BYTES
        return digest == self._digests[place : place + DIGEST_BYTES]

    def _fetch(self, name: str, numbers: list[int]) -> None:
        """Fetch blocks of an output, one request per stretch; each is checked before it is written."""
        path, size = self.folder / name, self._first[name][1]
        with path.open("r+b", buffering=0) as file:
            for begin, end in _stretches(numbers, fetched_at_once(MOST_BLOCKS, BLOCK_BYTES)):
                first, last = begin * BLOCK_BYTES, min(end * BLOCK_BYTES, size)
                make_room(path, last - first)
                data = memoryview(self._read(name, first, last))
                for number in range(begin, end):
                    block = data[(number - begin) * BLOCK_BYTES : (number - begin + 1) * BLOCK_BYTES]
                    if not self._is_of(name, number, xxhash.xxh3_128_digest(block)):
                        raise self._damaged(path, f"block {number:,} as written")
                    _write_all(file.fileno(), block, number * BLOCK_BYTES)

    def _are_here(self, receipt: Receipt) -> bool:
        whole = xxhash.xxh3_128_hexdigest(self._digests) == receipt.blocks
        return whole and (self.folder / BLOCKS_NAME).exists()  # empty outputs have no digests, here or in the bucket

    def _fetched_digests(self, blocks: int) -> bytes:
        digests = self._read(BLOCKS_NAME, 0, blocks * DIGEST_BYTES) if blocks else b""
        make_room(self.folder, len(digests))
        write_whole(self.folder / BLOCKS_NAME, digests, flush=False)
        return digests

    def _read(self, name: str, first: int, last: int) -> bytes:
        try:
            return outputs.read(self.folder, self._receipt.attempt, name, first, last)
        except GoneError as error:
            raise self._damaged(self.folder / name, f"{last:,} bytes or more in the bucket") from error

    def _damaged(self, path: Path, expected: str) -> DamagedStepError:
        gone = path.relative_to(self.folder).as_posix() in self._receipt.reclaimed
        error = DamagedStepError(
            "step.output_reclaimed: an output of a finished step was deleted to free space"
            if gone
            else "step.output_damaged: an output of a finished step is damaged",
            where=path,
            expected=expected,
            got="nothing: `reclaim: eager` deleted it" if gone else "other bytes",
            details=(("step", f"{self._receipt.stage} {self._receipt.unit}"),),
            next_step="run again: the step that wrote it reruns; if it persists, check the disk",
        )
        error.stage, error.unit = self._receipt.stage, self._receipt.unit
        return error


def _has_hole(descriptor: int, first: int, last: int, size_bytes: int) -> bool:
    """Whether part of the blocks [first, last) was never written. Reading a mapped hole on a full tmpfs would be a
    SIGBUS.
    """
    begin, end = first * BLOCK_BYTES, min(last * BLOCK_BYTES, size_bytes)
    return begin < end and os.lseek(descriptor, begin, os.SEEK_HOLE) < end


def _digests_of(file: BinaryIO, wanted: list[int], size_bytes: int) -> Iterator[tuple[int, bytes]]:
    """(block, its digest) of some blocks, ascending, of a file of `size_bytes`; b"" if it has been truncated since.

    Blocks are mapped, all pages of a window at once, because reading copies them, which takes five times as long as the
    digests. Few bytes are read, because mapping takes 50 us.
    """
    for begin, end in _stretches(wanted, WINDOW_BLOCKS):
        start, size = begin * BLOCK_BYTES, min(end * BLOCK_BYTES, size_bytes) - begin * BLOCK_BYTES
        if end - begin < WINDOW_BLOCKS:
            # For a missing page of a map the kernel reads as many megabytes on either side as its read-ahead: more
            # than a section is long.
            os.posix_fadvise(file.fileno(), start, size, os.POSIX_FADV_WILLNEED)
        if size < MAPPED_BYTES:
            yield begin, xxhash.xxh3_128_digest(os.pread(file.fileno(), size, start))
            continue
        try:
            mapped = mmap(file.fileno(), size, MAP_SHARED | MAP_POPULATE, PROT_READ, offset=start)
        except ValueError:
            yield begin, b""
            return
        with mapped, memoryview(mapped) as view:
            for number in range(begin, end):
                place = number * BLOCK_BYTES - start
                yield number, xxhash.xxh3_128_digest(view[place : place + BLOCK_BYTES])


def note_read(path: Path, status: os.stat_result) -> None:
    """An output of which this process has just stated the digests, with the file's status before it read it."""
    if not is_shared(path):
        blocks = blocks_of(status.st_size)
        ComparedBlocks(str(path), status, blocks).add(range(blocks))


def _kept_here(path: Path, size_bytes: int) -> BinaryIO:
    """Open a file of the cache, which stays while it is open; a missing one is created as a hole that any process may
    fill.
    """
    while True:
        with suppress(FileNotFoundError):
            file = path.open("rb", buffering=0)
            fcntl.flock(file, fcntl.LOCK_SH)
            if is_still(file, path) and os.fstat(file.fileno()).st_size == size_bytes:
                return file
            file.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            os.ftruncate(descriptor, size_bytes)
        finally:
            os.close(descriptor)


def _stretches(numbers: list[int], most: int) -> Iterator[tuple[int, int]]:
    """[begin, end) of runs of consecutive numbers, at most `most` each."""
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1 or at - begin == most:
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
    """The content of `.blocks`; empty if it does not exist."""
    try:
        return (folder / BLOCKS_NAME).read_bytes()
    except FileNotFoundError:
        return b""
