"""Claim: near-duplicates at 60 MB/s a core, 0.99 of what the definition removes, and nothing that it keeps.

Parts, each by itself or all of them:

labelled    real documents and edited copies (tests/near_duplicates/planted.py), a draw per seed. Ours and each peer:
            the share of the documents that the definition removes; removed documents without a kept one of at least
            0.8, by exact sets of runs of words; the documents that should still go from what was kept. Ours beside:
            pairs whose similarity, kept document or order is not that of the texts.
speed       MB of text per CPU second, from text shards (ours) or a list in memory (peers) to the decision. Ours of
            copies of the corpus, each in another alphabet, so that copies have no word in common; peers of the corpus.
            Beside: ours, signatures alone.
group       CPU seconds a document: `--group` documents of real text, and as many near-copies of one page beside them.
memory      the same rounds in a control group of a quarter of the text's bytes, page cache counted, and without limit.

Ours are the rounds of the room through their files, one after the other in one thread.

    python benchmarks/near_duplicates.py SCRATCH_FOLDER --peers PYTHON_WITH_THEM --seeds 0 1 2 --parts labelled group
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.memory_group import forget_pages, within
from benchmarks.results import HERE, write_result
from corpusmill.documents.text_shard import OFFSET_FILE, TEXT_FILE, TextShard
from corpusmill.near_duplicates.signatures import Signer, bands_for, batches
from tests.decontamination.planted import read_corpus
from tests.near_duplicates import planted
from tests.near_duplicates.test_engine import Found, decided_of, found_in, shard_of
from tests.oracles import near_duplicates as oracle

PEERS = ("datatrove", "rensa", "datasketch")
SIMILARITY = planted.SIMILARITY
PAGE_WORDS = 300
SHARD_BYTES = 64_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--peers", help="a Python that has datatrove, its spacy, rensa and datasketch")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--originals", type=int, default=1500, help="documents of a draw that are not edited")
    parser.add_argument("--each", type=int, default=80, help="documents of a draw that are edited in each way")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--gigabytes", type=float, default=2.0, help="text of speed and memory")
    parser.add_argument("--group", type=int, default=100_000, help="documents, and near-copies beside them")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--rounds-of", type=Path, help="of its own: all rounds over text shards")
    arguments = parser.parse_args()
    if arguments.rounds_of:
        print_rounds(arguments.rounds_of, arguments.scratch)
        return
    path = HERE / "results" / "near_duplicates.json"
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    for part in arguments.parts:
        figures[part] = PARTS[part](arguments)
        print(json.dumps({part: figures[part]}, indent=1))
    print(write_result("near_duplicates", __doc__.partition("\n")[0], figures))


# Quality


def of_labelled(arguments: argparse.Namespace) -> dict[str, object]:
    draws: dict[str, list[dict[str, Any]]] = {}
    versions: dict[str, str] = {}
    for seed in arguments.seeds:
        labelled = planted.plant(seed, arguments.originals, arguments.each)
        size = sum(len(text.encode()) for text in labelled.texts) / 1e6
        least, folder = float(SIMILARITY), arguments.scratch / "labelled"
        for _ in range(2):  # the second one compiles nothing
            shutil.rmtree(folder, ignore_errors=True)
            begun = time.process_time()
            found, _ = found_in(folder, [labelled.texts], least, planted.WORDS, bands_for(least), 16)
            rate = size / (time.process_time() - begun)
        removed = [number for number, match in enumerate(found) if match]
        judgement = {**judged(labelled, removed), "wrong": wrong_pairs(labelled, found), "rate": rate}
        draws.setdefault("corpusmill", []).append(judgement)
        for peer in PEERS if arguments.peers else ():
            told = of_peer(arguments.peers, peer, labelled.texts, arguments.scratch)
            judgement = {**judged(labelled, told["removed"]), "rate": size / told["cpu_seconds"]}
            draws.setdefault(peer, []).append(judgement)
            versions[peer] = told["version"]
    sizes = {"documents": len(labelled.texts), "removed_by_definition": len(labelled.removed)}
    return {"last_draw": sizes, "versions": versions, **{name: summed(rows) for name, rows in draws.items()}}


def judged(labelled: planted.Labelled, removed: list[int]) -> dict[str, Any]:
    """What a tool removed, beside the definition."""
    expected, gone = labelled.removed, set(removed)
    kept = [number for number in range(len(labelled.texts)) if number not in gone]
    still = oracle.decide_quickly(labelled.sets, SIMILARITY, kept)
    ways = Counter(labelled.ways[number] for number in expected)
    found = Counter(labelled.ways[number] for number in expected & gone)
    return {
        "removed": len(gone),
        "of_definition": len(expected),
        "found": len(expected & gone),
        "without_kept_match": len(oracle.unmatched(labelled.sets, removed, SIMILARITY)),
        "left": sum(match is not None for match in still),
        "ways": {way: (found[way], ways[way]) for way in sorted(ways)},
    }


def summed(draws: list[dict[str, Any]]) -> dict[str, object]:
    """Of all draws; the worst draw's recall beside."""
    keys = [key for key, value in draws[0].items() if isinstance(value, int)]
    sums = {key: sum(draw[key] for draw in draws) for key in keys}
    ways = {
        way or "unedited": "{} of {}".format(*(sum(draw["ways"].get(way, (0, 0))[i] for draw in draws) for i in (0, 1)))
        for way in draws[0]["ways"]
    }
    recalls = [draw["found"] / draw["of_definition"] for draw in draws]
    rate = round(statistics.median(draw["rate"] for draw in draws), 2)
    return {
        "mb_per_cpu_second": rate,
        "recall": round(sums["found"] / sums["of_definition"], 4),
        "least_recall": round(min(recalls), 4),
    } | {
        **sums,
        "ways": ways,
    }


def wrong_pairs(labelled: planted.Labelled, found: Found) -> int:
    """Pairs whose kept document was removed or is not earlier, or whose similarity is not that of the texts."""
    wrong = 0
    for number, match in enumerate(found):
        if match:
            kept, share = match
            similarity = oracle.jaccard(labelled.sets[number], labelled.sets[kept])
            wrong += found[kept] is not None or kept >= number or float(similarity) != share
    return wrong


# Rates


def of_speed(arguments: argparse.Namespace) -> dict[str, object]:
    folder, text_bytes = corpus_of(arguments)
    runs = [run_ours(folder, arguments.scratch) for _ in range(arguments.rounds)]
    ours = max(text_bytes / 1e6 / run["rounds_cpu_seconds"] for run in runs)
    signed = min(seconds_of_signatures(folder) for _ in range(arguments.rounds + 1))  # the first compiles
    figures: dict[str, object] = {
        "text_bytes": text_bytes,
        "corpusmill": {
            "mb_per_cpu_second": round(ours, 1),
            "signatures_alone_mb_per_cpu_second": round(text_bytes / 1e6 / signed, 1),
        },
    }
    texts = list(read_corpus())
    size = sum(len(text.encode()) for text in texts) / 1e6
    for peer in PEERS if arguments.peers else ():
        told = of_peer(arguments.peers, peer, texts, arguments.scratch)
        rate = size / told["cpu_seconds"]
        figures[peer] = {
            "mb_per_cpu_second": round(rate, 2),
            "ours_times": round(ours / rate, 1),
            "version": told["version"],
        }
    return figures


def seconds_of_signatures(folder: Path) -> float:
    """CPU seconds of the keys of all texts of a folder of text shards, from mapped text, in one thread."""
    signer, bands, begun = Signer(planted.WORDS), bands_for(float(SIMILARITY)), time.process_time()
    for path in sorted(folder.iterdir()):
        shard = mapped_shard(path)
        for _, _, starts, ends in batches(shard):
            signer.keys(shard.text, starts, ends, bands)
    return time.process_time() - begun


def of_group(arguments: argparse.Namespace) -> dict[str, object]:
    """CPU seconds of both commands, and of a document of each kind."""
    chance = random.Random(arguments.seeds[0])
    pages = [" ".join(page) for page in pages_of(in_alphabets(), PAGE_WORDS, arguments.group + 1)]
    page = pages.pop()
    ordinary, both = arguments.scratch / "ordinary", arguments.scratch / "both"
    copies = [planted.WAYS["words replaced"](page, chance) for _ in range(arguments.group)]
    for folder, texts in ((ordinary, pages), (both, pages + copies)):
        write_shards(folder, texts)
    rounds = [[run_ours(folder, arguments.scratch) for folder in (ordinary, both)] for _ in range(arguments.rounds)]
    seconds = [min(each[i]["rounds_cpu_seconds"] for each in rounds) for i in (0, 1)]
    return {
        "documents": arguments.group,
        "near_copies": arguments.group,
        "bytes_a_document": round(sum(len(text.encode()) for text in pages) / arguments.group),
        "bytes_a_near_copy": round(sum(len(text.encode()) for text in copies) / arguments.group),
        "cpu_seconds_ordinary": seconds[0],
        "cpu_seconds_with_the_group": seconds[1],
        "cost_of_a_near_copy_to_that_of_a_document": round((seconds[1] - seconds[0]) / seconds[0], 2),
        "left_out": rounds[0][1]["left_out"] - rounds[0][0]["left_out"],
    }


def of_memory(arguments: argparse.Namespace) -> dict[str, object]:
    folder, text_bytes = corpus_of(arguments)
    limits = (0, text_bytes // 4)
    rounds = [[run_ours(folder, arguments.scratch, limit) for limit in limits] for _ in range(arguments.rounds)]
    rates = [round(free["seconds"] / held["seconds"], 3) for free, held in rounds]
    return {
        "text_bytes": text_bytes,
        "memory_bytes": limits[1],
        "runs": rounds[-1],
        "rate_to_that_in_memory": statistics.median(rates),
        "that_rate_by_round": rates,
    }


# Text


def in_alphabets() -> Iterator[str]:
    """The corpus's texts, then the same in another alphabet, again and again: each copy swaps letters and digits."""
    texts, copy = list(read_corpus()), 0
    while True:
        table = str.maketrans({})
        if copy:
            chance = random.Random(copy)
            letters, digits = (chance.sample(symbols, len(symbols)) for symbols in (ascii_lowercase, "0123456789"))
            swapped = "".join(letters)
            table = str.maketrans(
                ascii_lowercase + ascii_uppercase + "0123456789", swapped + swapped.upper() + "".join(digits)
            )
        yield from (text.translate(table) for text in texts)
        copy += 1


def pages_of(texts: Iterable[str], words: int, count: int) -> Iterator[list[str]]:
    """Pages of so many words, of consecutive text."""
    for text in texts:
        every = text.split()
        for at in range(0, len(every) - words + 1, words):
            if not count:
                return
            count -= 1
            yield every[at : at + words]


def corpus_of(arguments: argparse.Namespace) -> tuple[Path, int]:
    """The folder of `--gigabytes` of text, written once, and the bytes of text there."""
    folder = arguments.scratch / f"corpus{arguments.gigabytes:g}"
    size = folder.with_suffix(".bytes")
    if not size.exists():
        size.write_text(str(write_shards(folder, in_alphabets(), arguments.gigabytes * 1e9)))
    return folder, int(size.read_text())


# Rounds


def run_ours(folder: Path, scratch: Path, limit: int = 0) -> dict[str, Any]:
    """All rounds over a folder of text shards, in a process and a control group of their own: what they took."""
    shutil.rmtree(scratch / "rounds", ignore_errors=True)
    (scratch / "rounds").mkdir()
    forget_pages()
    command = [sys.executable, __file__, str(scratch), "--rounds-of", str(folder)]
    told = within(limit, command, scratch / "printed", {"env": {**os.environ, "PYTHONPATH": str(HERE.parent)}})
    return {**told, **json.loads((scratch / "printed").read_text())}


def print_rounds(folder: Path, scratch: Path) -> None:
    begun = time.process_time()
    shards = [mapped_shard(path) for path in sorted(folder.iterdir())]
    loaded = time.process_time() - begun
    least = float(SIMILARITY)
    decided, copies, counts = decided_of(scratch / "rounds", shards, least, planted.WORDS, bands_for(least), 16)
    seconds = time.process_time() - begun - loaded
    figures = {"documents": len(copies), "left_out": len(decided), "rounds_cpu_seconds": round(seconds, 2)}
    print(json.dumps({**counts, **figures}))


def mapped_shard(folder: Path) -> TextShard:
    text, offsets = (np.memmap(folder / name, dtype, "r") for name, dtype in ((TEXT_FILE, "u1"), (OFFSET_FILE, "<u8")))
    none = np.empty(0, np.uint64)
    return TextShard(folder, text, offsets, none, none, (), np.empty(0, np.int64))


def write_shards(folder: Path, texts: Iterable[str], most: float = math.inf) -> int:
    """Text shards of SHARD_BYTES, until there are `most` bytes of text; returns their number."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written = 0
    texts = iter(texts)
    while written < most and (batch := [*batch_of(texts)]):
        shard_of(folder / f"{written:015d}", batch)
        written += sum(len(text.encode()) for text in batch)
    return written


def batch_of(texts: Iterator[str]) -> Iterator[str]:
    size = 0
    for text in texts:
        yield text
        size += len(text.encode())
        if size >= SHARD_BYTES:
            return


def of_peer(python: str, peer: str, texts: list[str], scratch: Path) -> dict[str, Any]:
    source = scratch / "texts.jsonl"
    with source.open("w") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
    told = subprocess.run(
        [python, str(HERE / "near_duplicates_peers.py"), peer, str(source)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env={**os.environ, "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    read: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return read


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, object]]] = {
    "labelled": of_labelled,
    "speed": of_speed,
    "group": of_group,
    "memory": of_memory,
}

if __name__ == "__main__":
    main()
