"""Claim: xz, bzip2 and lz4 are decompressed at 0.9 or more of their libraries' own speed.

`python benchmarks/decompressing.py CORPUS_FOLDER`. The library's file object and ours, as every reader opens a source,
read the same file by turns, a MiB at a time; CPU time, the best of ROUNDS.
"""

from __future__ import annotations

import argparse
import bz2
import io
import json
import lzma
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import lz4.frame
import zstandard
from results import write_result

from corpusmill.documents.compression import open_decompressed

ROUNDS, BYTES, MIB = 5, 20 << 20, 1 << 20
OPENED: dict[str, tuple[Callable[[bytes], bytes], Callable[[BinaryIO], Any]]] = {
    "xz": (lzma.compress, lzma.open),
    "bz2": (bz2.compress, bz2.open),
    "lz4": (lz4.frame.compress, lz4.frame.open),
}


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """What a stream has, a MiB at a time."""
    return iter(lambda: stream.read(MIB), b"")


def seconds(opened: Callable[[BinaryIO], Any], held: bytes, wanted: int) -> float:
    """CPU seconds of reading a stream of so many bytes."""
    began = time.process_time()
    with opened(io.BytesIO(held)) as stream:
        assert sum(map(len, blocks(stream))) == wanted
    return time.process_time() - began


def main() -> None:
    """Measure, print, and write results/decompressing.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    texts = b"".join(
        zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())).read()
        for path in sorted(parser.parse_args().corpus.glob("*.jsonl.zst"))
    )[:BYTES]
    figures: dict[str, object] = {"bytes": len(texts), "rounds": ROUNDS}
    for kind, (compress, library) in OPENED.items():
        held, name = compress(texts), f"a.jsonl.{kind}"
        ours_open = partial(open_decompressed, name=name)
        pairs = [(seconds(library, held, len(texts)), seconds(ours_open, held, len(texts))) for _ in range(ROUNDS)]
        theirs, ours = (min(side) for side in zip(*pairs, strict=True))
        figures[kind] = {
            "library_MB_a_second": round(len(texts) / theirs / 1e6, 1),
            "ours_MB_a_second": round(len(texts) / ours / 1e6, 1),
            "rate_of_library": round(theirs / ours, 3),
        }
    print(json.dumps(figures, indent=1))
    write_result("decompressing", "xz, bzip2 and lz4 at 0.9 or more of their libraries' own speed", figures)


if __name__ == "__main__":
    main()
