"""Claim: ranks take at most 1.2 times the CPU of the same model's tokenizer.json; tekken and SentencePiece models of
marked spaces run at several times the speed of their library. Ids are those of the libraries.

Of each file: MB of text per CPU second of the engine that `auto` chooses, warm, in batches of 2 MiB, and of the library
that defines its ids, over every tenth document; how many of these documents have other ids. A pair `RANKS,PATTERN,JSON`
is encoded in turns. `python benchmarks/tokenizer_files.py CORPUS_FOLDER FILE|RANKS,PATTERN,JSON ...`
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import zstandard
from results import write_result

from corpusmill.tokens.tokenizer import Tokenizer, load_tokenizer

BATCH_BYTES = 2 << 20
ROUNDS = 3
EVERY = 10


def batches_of(folder: Path) -> list[list[bytes]]:
    batches: list[list[bytes]] = [[]]
    held = 0
    for path in sorted(folder.glob("*.zst")):
        for line in zstandard.decompress(path.read_bytes(), max_output_size=1 << 31).splitlines():
            text = orjson.loads(line)["text"].encode()
            if held > BATCH_BYTES:
                batches.append([])
                held = 0
            batches[-1].append(text)
            held += len(text)
    return batches


def cpu_of(tokenizer: Tokenizer, batches: list[list[bytes]]) -> float:
    began = time.process_time()
    for batch in batches:
        tokenizer.encode(batch)
    return time.process_time() - began


def figures_of(tokenizer: Tokenizer, batches: list[list[bytes]], seconds: float) -> dict[str, Any]:
    size = sum(len(text) for batch in batches for text in batch) / 1e6
    sample = [text for batch in batches for text in batch][::EVERY]
    began = time.process_time()
    expected = [tokenizer.reference.encode(text) for text in sample]
    by_library = time.process_time() - began
    tokens, ends = tokenizer.encode(sample)
    rows = [tokens[first:last] for first, last in pairwise([0, *ends.astype(int).tolist()])]
    return {
        "engine": tokenizer.engine,
        "why_slow": tokenizer.why_slow,
        "sha256": tokenizer.sha256,
        "megabytes_per_cpu_second": round(size / seconds, 1),
        "library": tokenizer.reference.package,
        "library_megabytes_per_cpu_second": round(sum(map(len, sample)) / 1e6 / by_library, 2),
        "documents_compared": len(sample),
        "documents_with_other_ids": sum(not np.array_equal(*pair) for pair in zip(rows, expected, strict=True)),
    }


def loaded(words: str) -> list[tuple[str, Tokenizer]]:
    """The tokenizer of a file, or of a pair's ranks and tokenizer.json."""
    ranks, _, rest = words.partition(",")
    if not rest:
        return [(ranks, load_tokenizer(Path(ranks).name, file=ranks))]
    pattern, _, described = rest.partition(",")
    special = load_tokenizer("json", file=described).reference.special_tokens
    own = load_tokenizer("ranks", file=ranks, pattern=pattern, special_tokens=tuple(special.items()))
    return [(ranks, own), (described, load_tokenizer("json", file=described))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("files", nargs="+")
    asked = parser.parse_args()
    batches, rows = batches_of(asked.corpus), {}
    for words in asked.files:
        tokenizers = loaded(words)
        taken: list[list[float]] = [[] for _ in tokenizers]
        for _ in range(ROUNDS + 1):  # the first warms up
            for seconds, (_, tokenizer) in zip(taken, tokenizers, strict=True):
                seconds.append(cpu_of(tokenizer, batches))
        least = [min(seconds[1:]) for seconds in taken]
        for (path, tokenizer), seconds in zip(tokenizers, least, strict=True):
            rows["/".join(Path(path).parts[-2:])] = figures_of(tokenizer, batches, seconds)
        if len(least) == 2:
            rows["/".join(Path(tokenizers[0][0]).parts[-2:])]["cpu_by_that_of_its_tokenizer_json"] = round(
                least[0] / least[1], 3
            )
    size = sum(len(text) for batch in batches for text in batch)
    claim = "Ranks take at most 1.2 times the CPU of their model's tokenizer.json; the ids are those of the libraries."
    print(write_result("tokenizer_files", claim, {"text_bytes": size, "files": rows}))


if __name__ == "__main__":
    main()
