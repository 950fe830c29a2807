"""Small corpora for the tests of this room, and range finding on them from documents to ranges."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from corpusmill.dedup.anchors import Slicing, open_anchors, slicing_of, write_anchors
from corpusmill.dedup.borders import count_repeated, match_borders
from corpusmill.dedup.exchange import TextFile, answer_borders, answer_contexts, windows_before
from corpusmill.dedup.ranges import Matches, kept_whole, union_ranges
from corpusmill.dedup.references import referred_windows, settled_pairs
from corpusmill.dedup.settle import settle
from corpusmill.dedup.shared import RepeatedWindow, share
from corpusmill.engine.sections import Sections
from tests.oracles.dedup import text_of

LENGTHS = (7, 8, 9, 10, 12, 15, 16, 17, 18, 20, 24, 30, 40, 64, 100)
ALPHABETS = (b"a", b"ab", b"abc", b"abcdefgh", bytes([0, 1]), bytes([0, 1, 254]), "aé中😀".encode())


def find_ranges(shards: Sequence[Sequence[bytes]], minimum_bytes: int, **how: int) -> tuple[list[list[list[int]]], int]:
    """What the stages do, over files: ranges per shard, and duplicate windows summed over partitions."""
    actual, _ = find_matches(shards, minimum_bytes, **how)
    return [united(actual, shard, minimum_bytes) for shard in range(len(shards))], sum(item.windows for item in actual)


def find_matches(
    shards: Sequence[Sequence[bytes]], minimum_bytes: int, *, run_anchors: int = 1 << 20, **how: int
) -> tuple[list[Matches], list[RepeatedWindow]]:
    """Every partition's matches, with what they equal, and what it repeats most: all steps of the stages."""
    with TemporaryDirectory() as name:
        write_anchor_folders(shards, minimum_bytes, Path(name), run_anchors=run_anchors)
        return match_folder(Path(name), len(shards), minimum_bytes, **how)


def write_anchor_folders(
    shards: Sequence[Sequence[bytes]], minimum_bytes: int, folder: Path, *, run_anchors: int = 1 << 20
) -> None:
    """`folder`/anchors<i>: the anchors of shard i, and its `text`."""
    for number, documents in enumerate(shards):
        data, positions = text_of(documents)
        own = made(folder / f"anchors{number}")
        (own / "text").write_bytes(data)
        offsets = np.array(positions, np.uint64)
        write_anchors(np.frombuffer(data, np.uint8), offsets, minimum_bytes, own, run_anchors=run_anchors)


def match_folder(
    folder: Path,
    shards: int,
    minimum_bytes: int,
    *,
    partitions: int = 1,
    block_bytes: int = 1 << 20,
    memory_bytes: int = 1 << 30,
    width: int = 0,
    most_paired: int = 32,
    references: Sequence[int] = (),
) -> tuple[list[Matches], list[RepeatedWindow]]:
    """The steps behind write_anchor_folders; `width`: windows of a slice, if not as usual; `references`: of shards."""
    anchors = [folder / f"anchors{number}" for number in range(shards)]
    texts = [TextFile(anchor / "text") for anchor in anchors]
    slicing = Slicing(minimum_bytes, width) if width else slicing_of(minimum_bytes)
    shared, contexts, settled, borders = (
        [Sections(made(folder / f"{step}{number}")) for number in range(count)]
        for step, count in (("shared", partitions), ("contexts", shards), ("settled", partitions), ("borders", shards))
    )
    own = sum(number < max(references) for number in references)
    for part, asked in enumerate(shared):
        share([Sections(anchor) for anchor in anchors], part, partitions, asked.folder, first_shard=own)
    for shard, text in enumerate(texts):
        answer_contexts(text, shared, shard, slicing, contexts[shard].folder, block_bytes=block_bytes)
    repeats = [open_anchors(anchor).repeats for anchor in anchors]
    data = [np.frombuffer(text.path.read_bytes(), np.uint8) for text in texts]
    periods = [windows_before(text, rows, minimum_bytes) for text, rows in zip(data, repeats, strict=True)]
    windows = []
    for part, asked in enumerate(settled):
        added = {"repeats": repeats, "periods": periods} if part == 0 else {}
        wanted = {"want_windows": True, "want_firsts": bool(references)}
        matches, _ = settle(shared[part], contexts, part, slicing, asked.folder, **wanted, **added)
        matches.write(asked.folder, with_windows=True)
        windows.append(matches.windows)
    for shard, text in enumerate(texts):
        answer_borders(text, settled, shard, slicing, borders[shard].folder, block_bytes=block_bytes)
    actual, repeated = [], []
    for part in range(partitions):
        limits = {"memory_bytes": memory_bytes, "most_paired": most_paired, "settled_windows": windows[part]}
        equal = settled_pairs(shared[part], settled[part], shards) if references else None
        matches = match_borders(settled[part], borders, part, slicing, want_windows=True, equal=equal, **limits)
        actual.append(replace(matches, referred=referred_windows(equal, references)) if equal else matches)
        repeated += count_repeated(shared[part], settled[part], borders, part, own)
    return actual, repeated


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def united(actual: Sequence[Matches], shard: int, minimum_bytes: int) -> list[list[int]]:
    return union_ranges(np.concatenate([item.ranges[shard] for item in actual])).tolist()


def united_kept_whole(actual: Sequence[Matches], shard: int, minimum_bytes: int) -> list[list[int]]:
    later, earlier = (
        union_ranges(np.concatenate([rows[shard] for rows in side]))
        for side in ([item.later for item in actual], [item.earlier for item in actual])
    )
    return kept_whole(later, earlier, minimum_bytes).tolist()


def random_shards(rng: random.Random, minimum_bytes: int) -> list[list[bytes]]:
    """One to four shards of up to eight documents that share pieces, repeat pieces, or are near the minimum length."""
    alphabet = rng.choice(ALPHABETS)

    def letters(most: int) -> bytes:
        return bytes(rng.choices(alphabet, k=rng.randint(0, most)))

    pieces = [letters(2 * minimum_bytes) for _ in range(4)]

    def document() -> bytes:
        kind = rng.randrange(6)
        if kind == 0:
            return b""
        if kind == 1:
            return b"".join(rng.choices(pieces, k=rng.randint(1, 5)))
        if kind == 2:
            return bytes(rng.choices(alphabet, k=minimum_bytes + rng.randint(-2, 2)))
        if kind == 3:
            return rng.choice(pieces)[: rng.randint(1, 9)] * rng.randint(1, 40)
        if kind == 4:
            return letters(4 * minimum_bytes)
        return letters(minimum_bytes) + rng.choice(pieces) + letters(minimum_bytes)

    return [[document() for _ in range(rng.randint(0, 8))] for _ in range(rng.randint(1, 4))]


def boilerplate_shards(rng: random.Random, minimum_bytes: int) -> list[list[bytes]]:
    """Two shards of documents that share stretches of one text, of every length around the minimum, between noise."""
    shared = bytes(rng.choices(b"abcd", k=3 * minimum_bytes))
    documents = []
    for _ in range(40):
        start = rng.randrange(2 * minimum_bytes)
        stretch = shared[start : start + rng.randint(minimum_bytes // 2, 3 * minimum_bytes)]
        noise = [bytes(rng.choices(b"xy", k=rng.randint(0, minimum_bytes))) for _ in range(2)]
        documents.append(noise[0] + stretch + noise[1])
    return [documents[:20], documents[20:]]
