"""Lines of files in, the same lines in a global shuffle out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from corpusmill.documents.compression import (
    SOURCE_ENDINGS,
    Compression,
    compression_of_lines,
    is_table,
    open_compressed,
    open_decompressed,
)
from corpusmill.documents.kinds import HEAD_BYTES
from corpusmill.documents.lines import BYTE_ORDER_MARK, read_line_blocks
from corpusmill.documents.reading import open_lines, standard_input
from corpusmill.errors import ConfigError, CorruptDataError, MissingSourceError
from corpusmill.export.files import whole_file
from corpusmill.shuffle.lines import Shuffled, line_batches, shuffle_records
from corpusmill.storage.listing import OtherFiles, other_files
from corpusmill.storage.local import not_regular, reached_twice, walk_files
from corpusmill.storage.locations import file_keys

log = logging.getLogger(__name__)

BLOCK_BYTES = 4 << 20
STANDARD = "-"


def shuffle_text(inputs: list[str], output: str, *, seed: int, memory_bytes: int, scratch: Path) -> Shuffled:
    """Write every line of `inputs` once to `output` (`-`: standard output); endings .gz and .zst are (de)compressed.

    Folders are searched recursively for files of lines and tables, in order of path; a table's rows are lines of JSON.
    A byte order mark at the start of a file is
    dropped. The order of the lines is a function of the lines, their order and the seed. Raises SourceError when there
    is no input, ConfigError when the output is one of them.
    """
    files, others = list_inputs(inputs, SOURCE_ENDINGS)
    if others:
        log.warning("%s", others)
    if output != STANDARD and any(Path(output).resolve() == Path(file).resolve() for file in files if file != STANDARD):
        raise ConfigError(
            "reshuffle.output_is_input: the output is an input", where=output, next_step="write to another file"
        )
    records = data_bytes = 0
    with ExitStack() as stack:
        sink = stack.enter_context(_open_output(output))
        batches = line_batches(block for file in files for block in _blocks(file))
        for data, lengths in shuffle_records(batches, seed=seed, memory_bytes=memory_bytes, scratch=scratch):
            sink.write(data.data)
            records, data_bytes = records + len(lengths), data_bytes + len(data)
    return Shuffled(records, data_bytes)


def list_inputs(inputs: list[str], endings: tuple[str, ...]) -> tuple[list[str], OtherFiles | None]:
    """(files of `inputs`, files in folders that are not read): folders are searched for `endings`, through links as
    storage/local.py says. SourceError for a missing or empty input, a special file, or a file that is named twice.
    """
    paths: list[str] = []
    skipped: list[str] = []
    for entry in inputs:
        path = Path(entry)
        if entry == STANDARD or path.is_file():
            paths.append(entry)
            continue
        if path.exists() and not path.is_dir():
            raise not_regular(entry)
        names = list(walk_files(path, special=True))
        below = sorted(str(path / name) for name in names if name.lower().endswith(endings))
        if not below:
            what = "has no file of a kind that can be shuffled" if path.is_dir() else "does not exist"
            raise MissingSourceError(
                f"reshuffle.no_input: an input {what}",
                where=entry,
                expected=f"a file, or a folder with {', '.join(endings)}",
            )
        if special := [name for name in below if not Path(name).is_file()]:
            raise not_regular(special[0])
        paths += below
        skipped += [name for name in names if not name.lower().endswith(endings)]
    first: dict[str, str] = {}
    for name, key in zip(paths, file_keys(paths), strict=True):
        if key in first:
            raise reached_twice(first[key], name, what="file")
        first[key] = name
    return paths, other_files(skipped)


def _blocks(name: str) -> Iterator[bytes]:
    with ExitStack() as stack:
        shown, compression = "standard input", Compression.NONE
        if name == STANDARD:
            raw, named, compression = stack.enter_context(standard_input(sys.stdin.buffer, shown))
        else:
            file = stack.enter_context(Path(name).open("rb"))
            raw, named, shown = cast(BinaryIO, file), name, name
            compression = compression_of_lines(name, file.peek(HEAD_BYTES)[:HEAD_BYTES])
        opened = open_lines(raw, named) if is_table(named) else open_decompressed(raw, shown, compression)
        stream = stack.enter_context(opened)
        for number, block in enumerate(read_line_blocks(stream, block_bytes=BLOCK_BYTES)):
            if block.cut:
                raise CorruptDataError(
                    "reshuffle.line_too_long: a line is longer than 1 GiB",
                    where=shown,
                    next_step="is this a file of lines that end in newlines?",
                )
            data = block.data.removeprefix(BYTE_ORDER_MARK) if number == 0 else block.data
            if data:  # a file that is only a byte order mark holds no line
                yield data


@contextmanager
def _open_output(name: str) -> Iterator[BinaryIO]:
    """A sink: standard output, or a file that appears once it is complete."""
    if name == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    with whole_file(Path(name), keep_empty=True) as file:
        compression = compression_of_lines(name)
        if compression is Compression.NONE:
            yield file
        else:
            with open_compressed(file, compression) as compressed:
                yield compressed
