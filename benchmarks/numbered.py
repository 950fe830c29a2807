"""Text of any size for benchmarks: the sample corpus over and over, of which no copy repeats another.

A number stands after every 300 characters, so repeats of 500 bytes are those within the sample alone.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import orjson
import zstandard

from deploy.sample_corpus import write_sample_corpus


def write_numbered(folder: Path, megabytes: int, files: int, *, compressed: bool = False) -> None:
    """`files` files of about equal size, `megabytes` of lines in all; as .jsonl, or .jsonl.zst."""
    with tempfile.TemporaryDirectory() as written:
        write_sample_corpus(Path(written), target_bytes=40_000_000, files=1)
        with next(Path(written).glob("*.zst")).open("rb") as packed:
            lines = zstandard.ZstdDecompressor().stream_reader(packed).read().splitlines()
    texts = [orjson.loads(line)["text"] for line in lines]
    pieces = [[text[at : at + 300] for at in range(0, len(text), 300)] for text in texts]
    folder.mkdir()
    copies = itertools.count()
    for number in range(files):
        written_lines, left = [], megabytes * 1_000_000 // files
        while left > 0:
            mark = f" {next(copies)} "
            for piece in pieces:
                written_lines.append(orjson.dumps({"text": mark.join(piece)}) + b"\n")
                left -= len(written_lines[-1])
                if left <= 0:
                    break
        content = b"".join(written_lines)
        if compressed:
            (folder / f"{number:03d}.jsonl.zst").write_bytes(zstandard.ZstdCompressor(level=3).compress(content))
        else:
            (folder / f"{number:03d}.jsonl").write_bytes(content)
