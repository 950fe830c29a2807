"""Jaxformer's --continue and its loader, said plainly from their description: one token, one object at a time."""

from __future__ import annotations

from itertools import pairwise

Object = tuple[int, str]  # when the server says that it was written, and its text


def newest_checkpoint(bucket: dict[str, Object]) -> tuple[str, int, int] | None:
    """(document id, last shard, documents consumed) of the checkpoints/*.txt written last; None: begin anew."""
    actual = [
        (written, name, text)
        for name, (written, text) in bucket.items()
        if name.startswith("checkpoints/") and name.endswith(".txt")
    ]
    if not actual:
        return None
    _, name, text = max(actual)
    shard, documents = text.split(":")
    return name.removeprefix("checkpoints/").removesuffix(".txt"), int(shard), int(documents)


def continued(documents: list[list[int]], eot: int, shard_tokens: int, consumed: int, carry: int) -> list[list[int]]:
    """The shards behind a checkpoint: the last `carry` tokens of the last document consumed, then all that follow.

    With `carry` 0 this is the original, which forgets them.
    """
    behind = [token for document in documents[:consumed] for token in (eot, *document)]
    stream = behind[len(behind) - carry :]
    for document in documents[consumed:]:
        stream += [eot, *document]
    bounds = [*range(0, len(stream), shard_tokens), len(stream)]
    return [stream[first:last] for first, last in pairwise(bounds) if last > first]


def listed(objects: list[str], folder: str) -> list[str]:
    """What the loader sees: names with the prefix, in order, but for the first, which it takes for the folder's own."""
    return sorted(name for name in objects if name.startswith(folder))[1:]
