"""Claim: our gzip members of contexts take half the CPU of libdeflate 1 at most, for 1 % more bytes at most.

The sample corpus is built up to its WebDataset shards, and the ids of their members, contexts of 2,048 tokens and the
one behind them, are written as JSON and compressed anew by each writer, round after round: MB of JSON a CPU second in
the best round, and how many times smaller it gets. ISA-L is not used: equal input gave unequal bytes
(tests/test_house_rules). Beside it, the share of the members in the CPU seconds of the export step, and of the build.
`python benchmarks/gzip_members.py CORPUS_FOLDER`
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import deflate
import numpy as np
from isal import isal_zlib
from results import write_result
from tokshuf_job import as_tokshuf

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.export import webdataset
from corpusmill.export.context_gzip import write_members
from corpusmill.export.context_json import write_lists
from corpusmill.export.webdataset import GZIP_WINDOW, read_shard
from corpusmill.tokens.stages.tokenize import vocabulary

TEXT_BYTES = 64 << 20  # of members, so that a round of all writers takes seconds
ROUNDS = 3

Writer = Callable[[Any, int], Iterator[bytes | bytearray]]


def of_text(compress: Callable[[Any], bytes | bytearray]) -> Writer:
    return lambda contexts, _vocabulary_size: map(compress, write_lists(contexts))


OURS, REPLACED = "context_gzip", "libdeflate 1"
WRITERS: dict[str, Writer] = {
    OURS: write_members,
    REPLACED: of_text(lambda text: deflate.gzip_compress(text, 1)),
    "libdeflate 2": of_text(lambda text: deflate.gzip_compress(text, 2)),
    "ISA-L 1": of_text(partial(isal_zlib.compress, level=1, wbits=GZIP_WINDOW)),
    "zlib 1": of_text(partial(zlib.compress, level=1, wbits=GZIP_WINDOW)),
    "zlib 6": of_text(partial(zlib.compress, level=6, wbits=GZIP_WINDOW)),
}


def export(corpus: str, root: Path) -> tuple[Any, int, dict[str, object]]:
    """(contexts of about TEXT_BYTES, the vocabulary's size, CPU seconds of the build, the export steps and of members
    in them).
    """
    started = time.process_time()
    plan_receipt = plan_dataset(as_tokshuf(corpus, root))
    run_build(plan_receipt, workers=1, until="gather")
    build = open_build(plan_receipt)
    inside = 0.0

    def timed(contexts: Any, vocabulary_size: int) -> list[bytes]:
        nonlocal inside
        began = time.thread_time()
        members = list(write_members(contexts, vocabulary_size))
        inside += time.thread_time() - began
        return members

    webdataset.write_members = timed  # type: ignore[assignment]
    try:
        began = time.process_time()
        receipts = [build.run("export", unit) for unit in build.units("export")]
        whole, built = time.process_time() - began, time.process_time() - started
    finally:
        webdataset.write_members = write_members
    tars = sorted(path for receipt in receipts for path in receipt.parent.rglob("*.tar"))
    contexts: list[Any] = []
    for tar in tars:
        contexts += [ids for _, ids in read_shard(tar) if 4 * len(ids) * len(contexts) < TEXT_BYTES]
    return (
        np.stack(contexts),
        vocabulary(build).size,
        {
            "cpu_seconds": round(whole, 2),
            "member_cpu_seconds": round(inside, 2),
            "member_share": round(inside / whole, 3),
            "build_cpu_seconds": round(built, 2),
            "member_share_of_build": round(inside / built, 3),
        },
    )


def measured(contexts: Any, vocabulary_size: int) -> dict[str, dict[str, object]]:
    """Of every writer MB a CPU second, by round, and the size ratio; each round compresses all contexts with each."""
    texts = [bytes(text) for text in write_lists(contexts)]
    text_bytes = sum(map(len, texts))
    rates: dict[str, list[float]] = {name: [] for name in WRITERS}
    sizes: dict[str, int] = {}
    for _ in range(ROUNDS):
        for name, write in WRITERS.items():
            began = time.process_time()
            sizes[name] = sum(map(len, write(contexts, vocabulary_size)))
            rates[name].append(round(text_bytes / 1e6 / (time.process_time() - began), 1))
    for name, write in WRITERS.items():
        members = list(write(contexts[:100], vocabulary_size))
        assert [zlib.decompress(member, GZIP_WINDOW) for member in members] == texts[:100], name
    return {
        name: {
            "megabytes_per_cpu_second": max(rates[name]),
            "times_smaller": round(text_bytes / sizes[name], 3),
            "megabytes_per_cpu_second_by_round": rates[name],
        }
        for name in WRITERS
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    corpus = parser.parse_args().corpus
    for _ in range(2):  # the first compiles the kernels and fills the page cache
        with tempfile.TemporaryDirectory(prefix="members-") as root:
            contexts, vocabulary_size, step = export(corpus, Path(root))
    writers = measured(contexts, vocabulary_size)
    rate, smaller = (
        [float(str(writers[name][key])) for name in (OURS, REPLACED)]
        for key in ("megabytes_per_cpu_second", "times_smaller")
    )
    figures: dict[str, object] = {
        "members": len(contexts),
        "writers": writers,
        "speed_over_libdeflate_1": round(rate[0] / rate[1], 2),
        "bytes_over_libdeflate_1": round(smaller[1] / smaller[0], 3),
        "export_step": step,
    }
    print(json.dumps(figures, indent=1))
    claim = (__doc__ or "").split("\n\n", maxsplit=1)[0].removeprefix("Claim: ")
    print(write_result("gzip_members", claim, figures))


if __name__ == "__main__":
    main()
