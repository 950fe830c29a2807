"""CPU seconds of what a whole build cannot do without, each part alone by its library; only the ranges are ours.

One core, one process, one part after the other. benchmarks/whole_build.py measures a build beside their sum. Kept as it
is, so that later builds are measured by the same parts.
"""

import hashlib
import os
import time
from pathlib import Path

import deflate
import numpy as np
import orjson
import zstandard

from benchmarks.dedup_steps import find_ranges
from corpusmill.tokens.tokenizer import load_tokenizer


def parts(sources: list[Path], kept: list[Path], scratch: Path) -> dict[str, float]:
    """`sources` and what deduplication leaves of them, `kept`, are jsonl.zst; `scratch` must not be there."""
    seconds, scratch = {}, scratch.resolve()
    scratch.mkdir()

    def timed(name, work, items):
        began = time.process_time()
        done = [work(item) for item in items]
        seconds[name] = round(time.process_time() - began, 2)
        return done

    def read(path):
        return zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True).read()

    def parse(data):
        return [orjson.loads(line)["text"].encode() for line in data.splitlines()]

    def write(data):
        with (scratch / hashlib.sha256(data[:64]).hexdigest()).open("wb") as file:
            file.write(data)
            os.fsync(file.fileno())

    texts = timed("parse", parse, timed("decompress", read, sources))
    folders = [scratch / f"text{number}" for number in range(len(texts))]
    for folder, own in zip(folders, texts, strict=True):  # a text shard: 0xFF before every document
        folder.mkdir()
        (folder / "tokenized").write_bytes(b"".join(b"\xff" + text for text in own))
        ends = np.cumsum([0, *(len(text) + 1 for text in own)], dtype="<u8")
        (folder / "offset").write_bytes(ends[:-1].tobytes())
    timed("ranges", lambda folder: find_ranges(folders, 500, folder, 4), [scratch / "ranges"])
    lines = [read(path) for path in kept]
    ids = [own[0] for own in timed("encode", load_tokenizer("cl100k_base").encode, map(parse, lines))]
    packed = timed("compress", zstandard.ZstdCompressor(level=3).compress, lines)
    contexts = [orjson.dumps(own[at : at + 2049].tolist()) for own in ids for at in range(0, len(own), 2049)]
    packed.append(b"".join(timed("gzip", lambda body: deflate.gzip_compress(body, 1), contexts)))
    delivered = [*packed, *(own.astype("<u4").tobytes() for own in ids for _ in range(3))]
    timed("sha256", lambda data: hashlib.sha256(data).digest(), delivered)
    timed("write", write, delivered)
    return seconds
