"""What little most steps need of a .tiktoken file: its ids, a few tokens' bytes. Lines of base64, a space, the id.

Loading the vocabulary into tiktoken takes 0.6 s, because every line is decoded and hashed; splitting lines takes 10 ms,
reading their ids 30. All functions take the file's content, not its path: what is used is what was hashed.
"""

from __future__ import annotations

from binascii import a2b_base64
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import CorruptDataError


@lru_cache(maxsize=1)  # the table of ids and the reference library are made from the same ones
def read_ranks(content: bytes) -> dict[bytes, int]:
    """{token: id} of every line, not to be changed; ValueError names the first malformed line by its number."""
    ranks = {}
    for number, line in enumerate(content.splitlines(), 1):
        if line:
            try:
                token, rank = line.split()
                ranks[a2b_base64(token)] = int(rank)
            except ValueError:
                raise ValueError(f"line {number:,} is malformed") from None
    return ranks


def read_ids(content: bytes) -> list[int]:
    """The id of every line; ValueError or IndexError for a line without one."""
    return [int(line.split()[1]) for line in content.splitlines() if line]


@lru_cache(maxsize=1)  # asked for by piece after piece of text
def _lines(content: bytes) -> list[bytes]:
    return content.splitlines()


def token_lengths(content: bytes, ids: NDArray[Any], *, where: Path) -> list[int]:
    """How many bytes each id stands for. A special token has no line: CorruptDataError, as for an unknown id."""
    lines = _lines(content)
    by_id: dict[int, bytes] = {}
    lengths = []
    distinct, places = np.unique(ids, return_inverse=True)  # a long document's tokens are mostly the same few thousand
    for one in distinct.tolist():
        # Published files hold line i for id i; p50k_base leaves an id out, and any file may be in another order.
        word, _, rank = lines[one].partition(b" ") if one < len(lines) else (b"", b"", b"")
        if rank != b"%d" % one:
            by_id = by_id or {int(rank): word for word, _, rank in (line.partition(b" ") for line in lines if line)}
            if one not in by_id:
                raise CorruptDataError("the vocabulary has no such id", where=where, got=one)
            word = by_id[one]
        lengths.append(len(a2b_base64(word)))
    counts: list[int] = np.array(lengths, np.int64)[places].tolist()
    return counts
