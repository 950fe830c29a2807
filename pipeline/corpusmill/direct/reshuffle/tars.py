"""Finished tars of contexts in, the same samples reshuffled into tars of equal size out, with their manifest.

Bodies are copied verbatim, neither decompressed nor parsed. A member written by Corpusmill keeps its record's id;
others get `<file>-<place>`, their place in the inputs. Names are new, so repeated passes do not lengthen them
(tokshuf's do).
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from corpusmill.direct.reshuffle.folders import listed_tars, whole_folder
from corpusmill.errors import CorruptDataError
from corpusmill.export.companions import MANIFEST, write_manifest
from corpusmill.export.files import whole_file
from corpusmill.export.tar import BLOCK_BYTES, end_of_archive, member_header, padding
from corpusmill.export.webdataset import member_name, shard_name
from corpusmill.inspect.datasets.complete import require_one_length, require_one_vocabulary
from corpusmill.shuffle.lines import Shuffled, shuffle_records

BATCH_BYTES = 4 << 20
OUR_NAME = re.compile(r"\d{8,}_\d{8,}_([A-Za-z0-9_-]{1,64})\.json\.gz")
DIVIDER = b"\0"
END_BYTES = 2 * BLOCK_BYTES


def reshuffle(
    files: list[Path], output: Path, *, seed: int, contexts_per_shard: int = 8192, memory_bytes: int, scratch: Path
) -> Shuffled:
    """Write shard_00000000.tar ... and manifest.jsonl into `output`, a new or empty folder.

    Raises ConfigError when `output` holds anything, or for tars of different vocabularies or context lengths;
    CorruptDataError for a tar that is truncated, holds members other than `.json.gz` files or other numbers of them
    than the manifest beside it lists; StorageFullError.
    """
    require_one_vocabulary(files)
    require_one_length(files)
    records = data_bytes = 0
    shards: list[tuple[str, int]] = []
    shuffled = shuffle_records(_batches(files), seed=seed, memory_bytes=memory_bytes, scratch=scratch)
    samples = (sample for data, lengths in shuffled for sample in _split(data, lengths))
    with whole_folder(output) as inner:
        first = next(samples, None)
        while first is not None:
            path = inner / f"{shard_name(len(shards))}.tar"
            with whole_file(path) as file:
                written = place = 0
                while first is not None and place < contexts_per_shard:
                    identity, _, body = first.partition(DIVIDER)
                    name = member_name(len(shards), place, identity.decode())
                    member = b"".join((member_header(name, len(body)), body, padding(len(body))))
                    written += file.write(member)
                    place, data_bytes = place + 1, data_bytes + len(body)
                    first = next(samples, None)
                file.write(end_of_archive(written))
            shards.append((path.stem, place))
            records += place
        if shards:
            write_manifest(inner / MANIFEST, shards)
    return Shuffled(records, data_bytes)


def _split(data: NDArray[np.uint8], lengths: NDArray[np.uint64]) -> Iterator[bytes]:
    whole, start = data.tobytes(), 0
    for length in lengths.tolist():
        yield whole[start : start + length]
        start += length


def _batches(files: list[Path]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint64]]]:
    held: list[bytes] = []
    held_bytes = 0
    listed = {
        tar: samples
        for folder in sorted({file.parent for file in files})
        for tar, samples in listed_tars(folder).items()
    }
    for number, file in enumerate(files):
        place = -1
        for place, (name, body) in enumerate(_members(file)):
            ours = OUR_NAME.fullmatch(name)
            held.append((ours[1] if ours else f"{number:05d}-{place:09d}").encode() + DIVIDER + body)
            held_bytes += len(held[-1])
            if held_bytes >= BATCH_BYTES:
                yield _joined(held)
                held, held_bytes = [], 0
        if listed.get(file, place + 1) != place + 1:
            raise CorruptDataError(
                "reshuffle.sample_count: a tar has another number of samples than the manifest lists",
                where=file,
                expected=f"{listed[file]:,}",
                got=f"{place + 1:,}",
                next_step="fetch or write this tar again",
            )
    if held:
        yield _joined(held)


def _joined(samples: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    return np.frombuffer(b"".join(samples), np.uint8), np.array([len(sample) for sample in samples], np.uint64)


def _kind(member: tarfile.TarInfo) -> str:
    if member.isfile():
        return "the file"
    if member.isdir():
        return "the folder"
    return "the link" if member.issym() or member.islnk() else "the device"


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bodies of a tar of any dialect; CorruptDataError for one that is truncated or holds other members.

    tarfile takes a missing end, a damaged header and a block of zeros for the end of an archive, so the end is checked
    here: at least two blocks of zeros, and only zeros up to the end of the file.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                body: IO[bytes] | None = archive.extractfile(member) if member.isfile() else None
                if body is None or not member.name.endswith(".json.gz"):
                    raise CorruptDataError(
                        "reshuffle.not_a_sample: a tar has a member that is not a sample",
                        where=path,
                        expected="files *.json.gz alone",
                        got=f"{_kind(member)} {member.name}",
                        next_step="extract the tar, and pack its samples alone: find FOLDER -name '*.json.gz' | sort |"
                        " tar -cf NEW.tar -T -",
                    )
                yield member.name, body.read()
            end = archive.offset
    except (tarfile.TarError, OSError) as error:
        raise CorruptDataError("reshuffle.tar_not_readable: a tar cannot be read", where=path, got=error) from error
    if path.stat().st_size < end + END_BYTES:
        raise CorruptDataError(
            "reshuffle.tar_truncated: a tar is truncated: its end is missing",
            where=path,
            expected=f"{END_BYTES:,} bytes of zeros from byte {end:,} on",
            got=f"{path.stat().st_size:,} bytes in all",
            next_step="fetch or write this tar again",
        )
    with path.open("rb") as file:
        file.seek(end)
        while block := file.read(BATCH_BYTES):
            if block.strip(b"\0"):
                raise CorruptDataError(
                    "reshuffle.tar_with_rest: a tar is damaged, or several are concatenated: there are bytes after its"
                    " end",
                    where=f"{path}, from byte {end:,} on",
                    expected="a header, or zeros up to the end of the file",
                    next_step="fetch or write this tar again; extract concatenated tars and repack them",
                )
