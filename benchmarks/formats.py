"""Claim: at which share of a plain copy's rate each format of whole documents is written, and what four cost together.

Writes 64 Mi tokens in documents of 2,000 as each format's module does (ids of 4 bytes, content sums included), then
copies the files that it left with a read and a write a MiB, in the same process; the best of four rounds each, by CPU
seconds. A format whose tokens are linked is the index alone. `together`: Megatron, Nanoset and OLMo-core linked to it,
and parquet, as a share of the most expensive one. `parts`: what placing special tokens and content sums take of
Megatron's seconds; the rest is the write. Memory: each format of
four times the tokens, in a process and a memory control group of its
own (memory_group.py) of 512 MiB, which counts the page cache: `group_peak_bytes_with_page_cache` is at most that, and
`rss_bytes` what the process held. `python benchmarks/formats.py`
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from memory_group import within
from results import write_result

from corpusmill.export import megatron, nanoset, numpy_shards, olmo, parquet, webdataset
from corpusmill.export.framing import Framed, Framing, frame

TOKENS = 1 << (28 if len(sys.argv) > 1 else 26)  # for memory so many that no file fits the group
DOCUMENT, BATCH = 2000, 1 << 19
EOS, SIZE = 100_257, 100_277
CONTEXT, LIMIT = 2048, 512 << 20
FRAMING = Framing(EOS)
DOCUMENTS = TOKENS // DOCUMENT


def batches() -> Iterator[Any]:
    """The documents, so many tokens at a time."""
    each = BATCH // DOCUMENT
    ids = np.random.Generator(np.random.PCG64(1)).integers(0, 100_000, each * DOCUMENT, np.uint32)
    ends = np.arange(1, each + 1, dtype=np.uint64) * np.uint64(DOCUMENT)
    for _ in range(DOCUMENTS // each):
        yield ids, ends


def index(folder: Path) -> None:
    """The csv of as many documents."""
    count = DOCUMENTS // (BATCH // DOCUMENT) * (BATCH // DOCUMENT)
    ordinals = np.arange(count, dtype=np.uint64)
    olmo.write_index(
        folder / "p.csv.gz", [(np.full(count, DOCUMENT + 1, np.uint64), ordinals % np.uint64(8), ordinals)]
    )


def raw_ids(folder: Path) -> None:
    """Tokens and csv."""
    dtype = np.dtype("<u4")
    olmo.write_tokens(folder / "p.npy", batches(), FRAMING, dtype=dtype, vocabulary_size=SIZE, written=len)
    index(folder)


def rows(folder: Path, *columns: str) -> None:
    """Parquet with these columns."""
    made: dict[str, Any] = {"columns": ("input_ids", *columns), "loss_mask": "token", "rows_per_group": 1024}
    parquet.write_documents(folder / "p.parquet", batches(), FRAMING, vocabulary_size=SIZE, written=len, **made)


def contexts() -> Iterator[parquet.Rows]:
    """The documents' tokens as contexts of two pieces."""
    for ids, _ in batches():
        count = len(ids) // CONTEXT
        pieces = np.tile(np.array([700, CONTEXT - 700]), count)
        yield parquet.Rows(
            ids[: count * CONTEXT], np.full(count, CONTEXT), pieces.astype(np.int64), np.full(count, 2, np.int64)
        )


def packed(folder: Path, *columns: str) -> None:
    """Contexts in parquet with these columns."""
    made: dict[str, Any] = {"columns": ("input_ids", *columns), "loss_mask": "token", "rows_per_group": 1024}
    parquet.write_contexts(folder / "p.parquet", contexts(), vocabulary_size=SIZE, written=len, **made)


def texts(folder: Path) -> None:
    """As many bytes of text as the others have of tokens, half of them random letters."""
    ids = next(batches())[0].view(np.uint8) % 26 + 97
    ids[::2] = 32
    ends = np.arange(1, len(ids) // (4 * DOCUMENT) + 1, dtype=np.uint64) * np.uint64(4 * DOCUMENT)
    some = ids[: int(ends[-1])], ends
    parquet.write_texts(folder / "p.parquet", (some for _ in batches()), rows_per_group=1024, written=len)


def tars(folder: Path) -> None:
    """A sixteenth of the contexts: JSON and gzip take most of the time."""
    some = [rows.ids.reshape(-1, CONTEXT) for rows in islice(contexts(), TOKENS // BATCH // 16)]
    names = [str(number) for number in range(sum(map(len, some)))]
    webdataset.write_shard(folder / "p.tar", some, names, 0, vocabulary_size=SIZE)


def stream(folder: Path) -> None:
    """A shard of the stream; the EOTs are among its tokens."""
    tokens = sum(len(ids) for ids, _ in batches())
    numpy_shards.write_shard(folder / "p.npy", (ids for ids, _ in batches()), tokens, np.dtype("<u4"), layout="npy")


WRITERS: dict[str, Callable[[Path], Any]] = {
    "megatron": lambda folder: megatron.write_part(
        folder, "p", batches(), dtype=megatron.INT32, eod_id=EOS, vocabulary_size=SIZE, written=len
    ),
    "nanoset": lambda folder: nanoset.write_file(
        folder, "p", batches(), eos_id=EOS, tokenizer_name="cl100k_base", vocabulary_size=SIZE, written=len
    ),
    "olmo": raw_ids,
    "olmo, linked: csv alone": index,
    "parquet_documents": rows,
    "parquet_documents, 3 columns": lambda folder: rows(folder, "labels", "attention_mask"),
    "parquet_contexts": lambda folder: packed(folder, "seq_lengths"),
    "parquet_text": texts,
    "numpy": stream,
    "webdataset": tars,
}


def together(folder: Path) -> None:
    """Four formats, as a build writes them: the tokens of three are one file."""
    WRITERS["megatron"](folder)
    nanoset.link_file(folder, "p", megatron.open_part(folder / "p"), tokenizer_name="cl100k_base", special_tokens=1)
    index(folder)
    rows(folder)


def framed(some: list[Any]) -> list[Framed]:
    """Batches with their special tokens; nothing is written."""
    return [frame(batch, FRAMING, dtype=np.dtype("<u4"), vocabulary_size=SIZE) for batch in some]


def cpu_of(run: Callable[[], Any]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def copy(source: Path, target: Path) -> None:
    """Every file, a MiB at a time."""
    for path in sorted(source.iterdir()):
        with path.open("rb") as file, (target / path.name).open("wb") as written:
            shutil.copyfileobj(file, written, 1 << 20)


def memory_of(name: str) -> dict[str, int]:
    """What writing a format takes in a group of LIMIT bytes."""
    with tempfile.TemporaryDirectory() as made:
        held = Path(made, "rss")
        group = within(LIMIT, [sys.executable, __file__, name, made], held)
        kept = ("limit_bytes", "group_peak_bytes_with_page_cache", "group_was_full_times")
        return {**json.loads(held.read_text()), **{key: group[key] for key in kept}}


def main() -> None:
    if len(sys.argv) > 1:
        WRITERS[sys.argv[1]](Path(sys.argv[2]))
        print(json.dumps({"rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}))
        return
    figures: dict[str, dict[str, Any]] = {}
    for name, write in WRITERS.items():
        spent: dict[str, list[float]] = {"write": [], "copy": []}
        size = 0
        for _ in range(4):
            with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as copied:
                spent["write"].append(cpu_of(lambda: write(Path(made))))  # noqa: B023 (runs at once)
                spent["copy"].append(cpu_of(lambda: copy(Path(made), Path(copied))))
                size = sum(path.stat().st_size for path in Path(made).iterdir())
        best = {way: min(times) for way, times in spent.items()}
        figures[name] = {
            "bytes": size,
            "write_cpu_seconds": round(best["write"], 3),
            "copy_cpu_seconds": round(best["copy"], 3),
            "rate_of_a_copy": round(best["copy"] / best["write"], 3),
            "memory": memory_of(name),
        }
        print(name, figures[name])
    with tempfile.TemporaryDirectory() as made:
        four = cpu_of(lambda: together(Path(made)))
    dearest = max(figures[name]["write_cpu_seconds"] for name in ("megatron", "nanoset", "olmo", "parquet_documents"))
    figures["together"] = {"cpu_seconds": round(four, 3), "of_the_most_expensive": round(four / dearest, 2)}
    some = list(islice(batches(), 8))
    times = TOKENS / sum(len(tokens) for tokens, _ in some)
    placing = min(cpu_of(lambda: framed(some)) for _ in range(4)) * times
    placed = framed(some)
    sums = min(cpu_of(lambda: [batch.token_sums(FRAMING) for batch in placed]) for _ in range(4)) * times
    figures["parts"] = {"placing_cpu_seconds": round(placing, 3), "content_sums_cpu_seconds": round(sums, 3)}
    print(figures["together"], figures["parts"])
    claim = "share of a plain copy's rate at which each format is written, by CPU seconds, on a shared machine"
    print(write_result("formats", claim, figures))


if __name__ == "__main__":
    main()
