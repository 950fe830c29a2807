"""Files beside the numpy shards: checkpoints for Jaxformer's `--continue`, and empty first files for its loader.

    checkpoints/<document>.txt      "<shard>:<documents>", no newline: the last full shard, and how many documents of
                                    the stream had begun when it closed, one that straddles its end included
    checkpoints/checkpoints.jsonl   {"shard":0,"documents":41,"document":"00003-000000017","carry_tokens":12} every one

The original writes one .txt per shard and continues from the one with the newest server time, which parallel uploads
make arbitrary; here there is only the last one. The original counts a straddling document as done and so loses the rest
of it: `carry_tokens` states how many of its tokens belong to the next shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

FOLDER = "checkpoints"
EVERY = "checkpoints.jsonl"
PLACEHOLDER = ".placeholder"  # sorts before every name that begins with a letter, a digit or an underscore

Provenance = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]


def shard_checkpoints(cells: Iterable[Provenance], shard_tokens: int) -> list[dict[str, int | str]]:
    """The checkpoint of every full shard of the stream EOT, document, EOT, document ...

    `cells`: (ends, shards, ordinals) of the documents in order; `ends` uint64, cumulative tokens without EOT in a cell.
    """
    checkpoints: list[dict[str, int | str]] = []
    documents = stream = 0
    for ends, shards, ordinals in cells:
        stream_ends = ends + np.arange(1, len(ends) + 1, dtype=np.uint64) + np.uint64(stream)
        last = int(stream_ends[-1]) if len(ends) else stream
        for bound in range(shard_tokens * (stream // shard_tokens + 1), last + 1, shard_tokens):
            row = int(np.searchsorted(stream_ends, np.uint64(bound), side="left"))
            checkpoints.append(
                {
                    "shard": bound // shard_tokens - 1,
                    "documents": documents + row + 1,
                    "document": f"{int(shards[row]):05d}-{int(ordinals[row]):09d}",
                    "carry_tokens": int(stream_ends[row]) - bound,
                }
            )
        documents, stream = documents + len(ends), last
    return checkpoints


def write_checkpoints(checkpoints: list[dict[str, int | str]], folder: Path) -> None:
    """Write `checkpoints/` below `folder`; nothing if no shard is full."""
    if not checkpoints:
        return
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    lines = b"".join(orjson.dumps(checkpoint, option=orjson.OPT_APPEND_NEWLINE) for checkpoint in checkpoints)
    (folder / FOLDER / EVERY).write_bytes(lines)
    newest = checkpoints[-1]
    (folder / FOLDER / f"{newest['document']}.txt").write_text(f"{newest['shard']}:{newest['documents']}")


def write_placeholders(names: Iterable[str], folder: Path) -> None:
    """Write an empty file that sorts first into every folder of the shards `names` (relative paths).

    Jaxformer's loader drops the first object of a listing, assuming that it is the folder itself.
    """
    for parent in sorted({Path(name).parent for name in names}):
        (folder / parent).mkdir(parents=True, exist_ok=True)
        (folder / parent / PLACEHOLDER).touch()
