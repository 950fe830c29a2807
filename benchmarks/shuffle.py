"""Claim: contexts of 2,049 tokens are shuffled at 150 MB/s of token bytes per core within the memory that was set.
Lines of text: what a bounded memory costs, start of the interpreter included, beside GNU shuf, which holds all.

Every program runs in a process and a memory control group of its own (memory_group.py): CPU seconds (user and system)
and peak memory are the kernel's. The group of what has a budget may hold that and PROGRAM_BYTES for the interpreter and
its libraries, page cache counted. Beside ours: a straightforward numpy shuffle in memory, GNU shuf, and terashuf's
algorithm in plain Python.
`python benchmarks/shuffle.py [--only lines] [--gigabytes 4] [--text-megabytes 400]`
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from memory_group import forget_pages, within
from results import write_result

CONTEXT = 2049
SHARD_TOKENS = 64 << 20  # 256 MiB of uint32
MEMORY = 256 << 20
TEXT_MEMORY = 64 << 20
PROGRAM_BYTES = 192 << 20
CONTEXTS_CLAIM = "scatter and gather at 150 MB/s of token bytes per core within 256 MiB and 192 for the program"
LINES_CLAIM = (
    "lines shuffled in 64 MiB and 192 for the program, beside GNU shuf, which holds them all, and terashuf's way"
)


def write_token_shards(folder: Path, total_bytes: int) -> list[Path]:
    """Random ids in documents of 100 to 1,900 tokens; not compressible, never equal."""
    shards = []
    words = np.random.Philox(key=1)
    for number in range(-(-total_bytes // (4 * SHARD_TOKENS))):
        item = folder / f"tokens-{number:05d}"
        item.mkdir(parents=True)
        with (item / "tokens").open("wb") as file:
            for _ in range(8):
                ids = (words.random_raw(SHARD_TOKENS // 16).view(np.uint32) % np.uint32(100_000)).astype("<u4")
                file.write(ids.data)
        lengths = words.random_raw(SHARD_TOKENS // 1000 + 10_000) % np.uint64(1800) + np.uint64(100)
        ends = np.cumsum(lengths, dtype=np.uint64)
        ends = ends[ends < SHARD_TOKENS]
        ends = np.append(ends, np.uint64(SHARD_TOKENS))
        (item / "ends").write_bytes(ends.astype("<u8").data)
        (item / "source_ends").write_bytes(np.array([len(ends)], "<u8").data)
        about = {"dtype": "uint32", "tokenizer": "random", "sha256": "0" * 64, "vocabulary_size": 100_001}
        about |= {"eot_id": 100_000, "pad_id": 100_000, "bos_id": None, "revision": ""}
        (item / "token_shard.json").write_text(json.dumps(about))
        shards.append(item)
    return shards


def ours(folder: Path) -> dict[str, object]:
    """Scatter every shard, gather every cell, in this process, one after another."""
    from corpusmill.kernels.content import NOTHING
    from corpusmill.shuffle.cells import cells_needed, gather_cell, open_scattered, scatter_records
    from corpusmill.tokens.records import context_records
    from corpusmill.tokens.token_shard import open_token_shard

    shards = sorted(folder.glob("tokens-*"))
    opened = [open_token_shard(shard) for shard in shards]
    token_bytes = sum(shard.tokens.nbytes for shard in opened)
    cells = cells_needed(token_bytes, sum(shard.documents for shard in opened), MEMORY)
    scattered, before, records = [], NOTHING, 0
    for number, shard in enumerate(opened):
        item = folder / f"scatter-{number:05d}"
        item.mkdir()
        done = scatter_records(
            context_records(shard, CONTEXT), seed=1, kind="contexts", shard=number, cells=cells, folder=item
        )
        before += done.content.records
        records += done.records
        scattered.append(item)
    scatter_cpu = time.process_time()
    after, gathered = NOTHING, 0
    for cell in range(cells):
        item = folder / "cell"
        item.mkdir()
        actual = gather_cell([open_scattered(shard, cell) for shard in scattered], cell, item)
        after += actual.content
        gathered += actual.records
        shutil.rmtree(item)
    assert (before, records) == (after, gathered)
    return {
        "token_bytes": token_bytes,
        "cells": cells,
        "records": records,
        "scatter_cpu_seconds": round(scatter_cpu, 2),
    }


def numpy_in_memory(folder: Path) -> dict[str, object]:
    """All contexts as one array, one fancy index, one write: the shortest program that does it."""
    shards = sorted(folder.glob("tokens-*"))[:4]
    tokens = np.concatenate([np.fromfile(shard / "tokens", "<u4") for shard in shards])
    contexts = tokens[: len(tokens) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
    shuffled = contexts[np.random.default_rng(1).permutation(len(contexts))]
    (folder / "shuffled").write_bytes(shuffled.data)
    (folder / "shuffled").unlink()
    return {"token_bytes": contexts.nbytes, "records": len(contexts)}


def text_ours(folder: Path, memory_bytes: int = TEXT_MEMORY) -> dict[str, object]:
    from corpusmill.direct.reshuffle.lines import shuffle_text

    done = shuffle_text(
        [str(folder / "in.jsonl")], str(folder / "ours.jsonl"), seed=1, memory_bytes=memory_bytes, scratch=folder / "s"
    )
    return {"lines": done.records, "memory_budget_bytes": memory_bytes}


def text_ours_in_memory(folder: Path) -> dict[str, object]:
    """With room for everything, as GNU shuf takes it: nothing goes to part files."""
    return text_ours(folder, 1 << 30)


def text_gnu_shuf(folder: Path) -> dict[str, object]:
    subprocess.run(["shuf", folder / "in.jsonl", "-o", folder / "shuf.jsonl"], check=True)
    return {}


def text_terashuf_like(folder: Path) -> dict[str, object]:
    """terashuf's algorithm: buffers shuffled in memory to files, then lines of files in proportion to what is left."""
    rng = random.Random(1)
    files, left = [], []
    with (folder / "in.jsonl").open("rb") as source:
        while lines := source.readlines(TEXT_MEMORY):
            rng.shuffle(lines)
            path = folder / f"buffer-{len(files)}"
            path.write_bytes(b"".join(lines))
            files.append(path.open("rb"))
            left.append(len(lines))
    with (folder / "terashuf.jsonl").open("wb") as out:
        while any(left):
            chosen = rng.choices(range(len(files)), left)[0]
            out.write(files[chosen].readline())
            left[chosen] -= 1
    return {}


TEXT_PROGRAMS = (text_ours, text_ours_in_memory, text_gnu_shuf, text_terashuf_like)
PROGRAMS = {item.__name__: item for item in (ours, numpy_in_memory, *TEXT_PROGRAMS)}


LIMITS = {"ours": MEMORY + PROGRAM_BYTES, "text_ours": TEXT_MEMORY + PROGRAM_BYTES}


def measure(name: str, folder: Path) -> dict[str, object]:
    """Run one program in a new process, and where it has a budget within a limit: what it took, and what it says."""
    printed = folder / "printed"
    forget_pages()
    command = [sys.executable, __file__, "--program", name, "--scratch", str(folder)]
    taken = within(LIMITS.get(name, 0), command, printed)
    return json.loads(printed.read_bytes()) | taken


def run_program(name: str, folder: Path) -> None:
    print(json.dumps(PROGRAMS[name](folder)))


def with_rate(figures: dict[str, object], size_bytes: int) -> dict[str, object]:
    return figures | {"megabytes_per_cpu_second": round(size_bytes / 1e6 / float(str(figures["cpu_seconds"])), 1)}


def write_lines(path: Path, size_bytes: int) -> None:
    rng = random.Random(2)
    words = [f"word{rng.randrange(10**6)}" for _ in range(5000)]
    with path.open("w") as file:
        written = 0
        while written < size_bytes:
            text = " ".join(rng.choices(words, k=rng.randrange(20, 400)))
            written += file.write(json.dumps({"id": written, "text": text}) + "\n")


def contexts_figures(folder: Path, size_bytes: int) -> dict[str, object]:
    """Scatter and gather of contexts, and a shuffle of what fits in memory."""
    write_token_shards(folder / "warm", 1)
    measure("ours", folder / "warm")  # compiles the kernels
    shutil.rmtree(folder / "warm")
    write_token_shards(folder, size_bytes)
    actual = {name: measure(name, folder) for name in ("ours", "numpy_in_memory")}
    rated = {name: with_rate(item, int(str(item["token_bytes"]))) for name, item in actual.items()}
    return {"memory_budget_bytes": MEMORY, **rated}


def lines_figures(folder: Path, size_bytes: int) -> dict[str, object]:
    """Lines of text, by every program."""
    (folder / "warm").mkdir()
    write_lines(folder / "warm" / "in.jsonl", 1 << 20)
    measure("text_ours", folder / "warm")
    write_lines(folder / "in.jsonl", size_bytes)
    size = (folder / "in.jsonl").stat().st_size
    return {"text_bytes": size} | {
        item.__name__: with_rate(measure(item.__name__, folder), size) for item in TEXT_PROGRAMS
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", choices=PROGRAMS)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--only", choices=["contexts", "lines"])
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--text-megabytes", type=int, default=400)
    arguments = parser.parse_args()
    if arguments.program:
        run_program(arguments.program, arguments.scratch)
        return
    parts = {
        "contexts": (contexts_figures, int(arguments.gigabytes * 1e9), "shuffle", CONTEXTS_CLAIM),
        "lines": (lines_figures, arguments.text_megabytes * 10**6, "shuffle_lines", LINES_CLAIM),
    }
    for part, (measured, size_bytes, result, claim) in parts.items():
        if arguments.only in {None, part}:
            with tempfile.TemporaryDirectory(prefix="shuffle-", dir=arguments.scratch) as folder:
                figures = measured(Path(folder), size_bytes)
            print(json.dumps(figures, indent=1))
            print(write_result(result, claim, figures))


if __name__ == "__main__":
    main()
