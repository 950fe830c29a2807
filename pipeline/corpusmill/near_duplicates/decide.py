"""Which documents go: decided in the order of documents, each once, by the matches of all shards.

A document is left out if it has a match that is kept, and its kept match is the most similar of those, of several the
earliest. What a document was compared with may be left out itself; then that comparison decides nothing. So nothing is
left out for a likeness to a document that goes: there are no chains. A document that equals one that goes is as similar
to that one's kept match, whether it was compared with it or not.

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
from corpusmill.kernels.compiled import inlined, kernel
from corpusmill.near_duplicates.groups import documents_of, shards_of, split_by_shard
from corpusmill.near_duplicates.similarity import MATCH

LEFT_OUT_FILE, COPIES = "left_out", "copies"
LEFT_OUT = (1 << 32) - 1


def decide(matches: Iterable[NDArray[Any]], documents: list[int]) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """(MATCH rows of the documents left out, numbered, in order; `copies` uint32 (all documents,)).

    `matches`: of each shard, by document, then earlier one; `documents`: how many each shard has.
    """
    bases = np.cumsum([0, *documents], dtype=np.int64)
    copies = np.zeros(int(bases[-1]), np.uint32)
    left_out, filled = np.empty(len(copies), MATCH), 0  # its end is never touched
    columns = [left_out[name] for name in MATCH.names or ()]
    for shard, rows in enumerate(matches):
        filled = _decide(*(rows[name] for name in MATCH.names or ()), bases, shard, copies, *columns, filled)
    return left_out[:filled], copies


def write_decided(folder: Path, left_out: NDArray[Any], copies: NDArray[np.uint32], documents: list[int]) -> None:
    """Write what `decide` returned."""
    bases, kept = np.cumsum([0, *documents], dtype=np.int64), left_out["earlier"]
    of_kept = copies[bases[shards_of(kept)] + documents_of(kept)]
    rows = np.column_stack([left_out.view("<u8").reshape(-1, 3), of_kept])
    rows[:, 0] &= np.uint64(0xFFFFFFFF)
    write_sections(folder, LEFT_OUT_FILE, split_by_shard(rows, left_out["document"], len(documents)))
    write_sections(folder, COPIES, np.split(copies, bases[1:-1]), "<u4")


def read_left_out(decided: Sections, shard: int) -> tuple[NDArray[Any], NDArray[np.uint64]]:
    """(MATCH rows of the documents of a shard that are left out; uint64: the copies of each one's kept document)."""
    rows = decided.read(LEFT_OUT_FILE, shard, columns=4)
    return np.ascontiguousarray(rows[:, :3]).view(MATCH).reshape(-1), rows[:, 3]


@inlined
def _place(number: Any, bases: Any) -> Any:
    """Of a numbered document among all."""
    return bases[np.int64(number >> np.uint64(32))] + np.int64(number & np.uint64(0xFFFFFFFF))


@kernel
def _decide(
    documents: Any, earlier: Any, similarities: Any, bases: Any, shard: Any, copies: Any, gone: Any, kept: Any,
    shares: Any, filled: Any,
) -> Any:  # fmt: skip
    """Decide a shard: append to `gone`, `kept` and `shares`, of which `filled` rows are; returns how many are now."""
    row = 0
    while row < len(documents):
        document, best, most = documents[row], np.uint64(0), 0.0
        while row < len(documents) and documents[row] == document:
            number, share = earlier[row], similarities[row]
            if share == 1.0 and copies[_place(number, bases)] == LEFT_OUT:
                equal = np.searchsorted(gone[:filled], number)
                number, share = kept[equal], shares[equal]
            if copies[_place(number, bases)] != LEFT_OUT and (share > most or (share == most and number < best)):
                best, most = number, share
            row += 1
        if most > 0.0:
            copies[_place(best, bases)] += 1
            copies[bases[shard] + np.int64(document)] = LEFT_OUT
            gone[filled], kept[filled], shares[filled] = document | np.uint64(shard) << np.uint64(32), best, most
            filled += 1
    return filled
