"""Claim: near-duplicates at 60 MB/s a core, 0.99 of what the definition removes, and nothing that it keeps.

Parts, each by itself or all of them:

labelled    real documents and edited copies (tests/near_duplicates/planted.py), a draw per seed. The command and each
            peer: the share of the documents that the definition removes; removed documents without a kept one of at
            least 0.8, by exact sets of runs of words; the documents that should still go from what was kept. Ours
            beside: pairs whose similarity, kept document or order is not that of the texts.
speed       MB of text per CPU second, from files (ours) or a list in memory (peers) to the decision. Ours of copies
            of the corpus, each in another alphabet, so that copies have no word in common; peers of the corpus alone.
group       CPU seconds a document: 100,000 documents of real text, and 100,000 near-copies of one page beside them.
memory      the same command in a control group of a quarter of the text's bytes, page cache counted, and without limit.

The CPU seconds of a command are those of all its processes, with their start. One worker.

    python benchmarks/near_duplicates.py SCRATCH_FOLDER --peers PYTHON_WITH_THEM --seeds 0 1 2 --parts labelled group
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.memory_group import forget_pages, within
from benchmarks.results import HERE, write_result
from tests.decontamination.planted import read_corpus
from tests.near_duplicates import planted
from tests.oracles import near_duplicates as oracle

PEERS = ("datatrove", "rensa", "datasketch")
SIMILARITY = planted.SIMILARITY
GROUP, PAGE_WORDS = 100_000, 300
FILE_BYTES = 64_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--peers", help="a Python that has datatrove, rensa and datasketch")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--gigabytes", type=float, default=2.0, help="text of speed and memory")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    path = HERE / "results" / "near_duplicates.json"
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    for part in arguments.parts:
        figures[part] = PARTS[part](arguments)
        print(json.dumps({part: figures[part]}, indent=1))
    print(write_result("near_duplicates", __doc__.partition("\n")[0], figures))


# Quality


def of_labelled(arguments: argparse.Namespace) -> dict[str, object]:
    draws: dict[str, list[dict[str, Any]]] = {}
    for seed in arguments.seeds:
        labelled = planted.plant(seed)
        source = arguments.scratch / "labelled.jsonl"
        write_documents(source, labelled.texts)
        pairs = pairs_of(source, arguments.scratch)
        removed = [int(pair["id"]) for pair in pairs]
        draws.setdefault("corpusmill", []).append({**judged(labelled, removed), "wrong": wrong_pairs(labelled, pairs)})
        for peer in PEERS if arguments.peers else ():
            told = of_peer(arguments.peers, peer, labelled.texts, arguments.scratch)
            draws.setdefault(peer, []).append(judged(labelled, told["removed"]))
    sizes = {"documents": len(labelled.texts), "removed_by_definition": len(labelled.removed)}
    return {"last_draw": sizes, **{name: summed(rows) for name, rows in draws.items()}}


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
    return {"recall": round(sums["found"] / sums["of_definition"], 4), "least_recall": round(min(recalls), 4)} | {
        **sums,
        "ways": ways,
    }


def wrong_pairs(labelled: planted.Labelled, pairs: list[dict[str, Any]]) -> int:
    """Pairs whose kept document was removed or is not earlier, or whose similarity is not that of the texts."""
    removed = {int(pair["id"]) for pair in pairs}
    wrong = 0
    for pair in pairs:
        own, kept = int(pair["id"]), int(pair["kept"]["id"])
        similarity = oracle.jaccard(labelled.sets[own], labelled.sets[kept])
        wrong += kept in removed or kept >= own or abs(similarity - pair["similarity"]) > 1e-6
    return wrong + len(pairs) - len(removed)


# Rates


def of_speed(arguments: argparse.Namespace) -> dict[str, object]:
    folder, text_bytes = corpus_of(arguments)
    runs = [run_ours(folder, arguments.scratch) for _ in range(arguments.rounds)]
    ours = max(text_bytes / 1e6 / run["cpu_seconds"] for run in runs)
    figures: dict[str, object] = {"text_bytes": text_bytes, "corpusmill": {"mb_per_cpu_second": round(ours, 1)}}
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


def of_group(arguments: argparse.Namespace) -> dict[str, object]:
    """CPU seconds of both commands, and of a document of each kind."""
    chance = random.Random(arguments.seeds[0])
    pages = [" ".join(page) for page in pages_of(in_alphabets(), PAGE_WORDS, GROUP + 1)]
    page = pages.pop()
    ordinary, both = arguments.scratch / "ordinary", arguments.scratch / "both"
    copies = [planted.WAYS["words replaced"](page, chance) for _ in range(GROUP)]
    for folder, texts in ((ordinary, pages), (both, pages + copies)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_documents(folder / "texts.jsonl", texts)
    rounds = [[run_ours(folder, arguments.scratch) for folder in (ordinary, both)] for _ in range(arguments.rounds)]
    seconds = [min(each[i]["cpu_seconds"] for each in rounds) for i in (0, 1)]
    return {
        "documents": GROUP,
        "near_copies": GROUP,
        "bytes_a_document": round(sum(len(text.encode()) for text in pages) / GROUP),
        "bytes_a_near_copy": round(sum(len(text.encode()) for text in copies) / GROUP),
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
        table = str.maketrans("")
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
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        size.write_text(str(write_files(folder, in_alphabets(), arguments.gigabytes * 1e9)))
    return folder, int(size.read_text())


def write_files(folder: Path, texts: Iterator[str], most: float) -> int:
    written, batch, batch_bytes = 0, [], 0
    for text in texts:
        batch.append(text)
        batch_bytes += len(text.encode())
        if batch_bytes >= FILE_BYTES:
            write_documents(folder / f"{written:015d}.jsonl", batch, written)
            written += batch_bytes
            batch, batch_bytes = [], 0
            if written >= most:
                break
    return written


def write_documents(path: Path, texts: list[str], first: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for number, text in enumerate(texts, first):
            file.write(orjson.dumps({"id": str(number), "text": text}) + b"\n")


# Commands


def run_ours(source: Path, scratch: Path, limit: int = 0) -> dict[str, Any]:
    """The command over files, in a control group; what it took, and how many documents it would leave out."""
    pairs = scratch / "pairs.jsonl"
    pairs.unlink(missing_ok=True)
    work = scratch / "work"
    shutil.rmtree(work, ignore_errors=True)
    forget_pages()
    command = [sys.executable, "-m", "corpusmill.cli", "near-duplicates", str(source), "--pairs", str(pairs)]
    told = within(limit, [*command, "--workers", "1", "--work-folder", str(work)], scratch / "printed")
    with pairs.open("rb") as lines:
        told["left_out"] = sum(1 for _ in lines)
    return told


def pairs_of(source: Path, scratch: Path) -> list[dict[str, Any]]:
    run_ours(source, scratch)
    return [orjson.loads(line) for line in (scratch / "pairs.jsonl").read_bytes().splitlines()]


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
