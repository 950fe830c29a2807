"""Which documents go: decided in the order of documents, each once, by the matches of all shards.

A document is left out if it has a match that is kept, and its kept match is the most similar of those, of several the
earliest. What a document was compared with may be left out itself; then that comparison decides nothing. So nothing is
left out for a likeness to a document that goes: there are no chains.

    left_out        sections by shard: document u64 | kept document u64 | similarity f64 | copies of the kept one u64
    copies          sections by shard: u32 for each document, how many are left out for it; LEFT_OUT: it is left out

Price: four bytes for each document, and 32 for each one left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.engine.sections import Sections, write_sections
from corpusmill.kernels.compiled import kernel
from corpusmill.near_duplicates.groups import documents_of, shards_of
from corpusmill.near_duplicates.similarity import MATCH

LEFT_OUT_FILE, COPIES = "left_out", "copies"
LEFT_OUT = (1 << 32) - 1


def decide(matches: Iterable[NDArray[Any]], documents: list[int]) -> tuple[list[NDArray[Any]], NDArray[np.uint32]]:
    """(MATCH rows of the documents left out, for each shard; `copies` uint32 (all documents,)).

    `matches`: of each shard, by document, then earlier one; `documents`: how many each shard has.
    """
    bases = np.cumsum([0, *documents], dtype=np.int64)
    copies = np.zeros(int(bases[-1]), np.uint32)
    decided = []
    for shard, rows in enumerate(matches):
        chosen = np.empty(len(rows), np.int64)
        columns = (np.ascontiguousarray(rows[name]) for name in MATCH.names or ())
        decided.append(rows[chosen[: _decide(*columns, bases, shard, copies, chosen)]])
    return decided, copies


def write_decided(folder: Path, decided: list[NDArray[Any]], copies: NDArray[np.uint32], documents: list[int]) -> None:
    """Write what `decide` returned."""
    bases = np.cumsum([0, *documents], dtype=np.int64)
    rows = [
        np.column_stack([own.view("<u8").reshape(-1, 3), copies[bases[shards_of(kept)] + documents_of(kept)]])
        for own, kept in ((own, own["earlier"]) for own in decided)
    ]
    write_sections(folder, LEFT_OUT_FILE, rows)
    write_sections(folder, COPIES, np.split(copies, bases[1:-1]), "<u4")


def read_left_out(decided: Sections, shard: int) -> tuple[NDArray[Any], NDArray[np.uint64]]:
    """(MATCH rows of the documents of a shard that are left out; uint64: the copies of each one's kept document)."""
    rows = decided.read(LEFT_OUT_FILE, shard, columns=4)
    return np.ascontiguousarray(rows[:, :3]).view(MATCH).reshape(-1), rows[:, 3]


@kernel
def _decide(documents: Any, earlier: Any, similarities: Any, bases: Any, shard: Any, copies: Any, chosen: Any) -> Any:
    filled = row = 0
    while row < len(documents):
        document, best, place = documents[row], -1, 0
        while row < len(documents) and documents[row] == document:
            number = bases[np.int64(earlier[row] >> np.uint64(32))] + np.int64(earlier[row] & np.uint64(0xFFFFFFFF))
            if copies[number] != LEFT_OUT and (best < 0 or similarities[row] > similarities[best]):
                best, place = row, number
            row += 1
        if best >= 0:
            copies[place] += 1
            copies[bases[shard] + np.int64(document)] = LEFT_OUT
            chosen[filled] = best
            filled += 1
    return filled
