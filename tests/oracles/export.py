"""Obviously right versions of the four exports: one token at a time, struct and standard library only."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable
from itertools import accumulate, pairwise

import humanize
import numpy as np

Documents = list[list[int]]


def with_special(documents: Documents, special: int, *, before: bool) -> Documents:
    return [[special, *doc] if before else [*doc, special] for doc in documents if doc]


def token_bytes(documents: Documents, letter: str) -> bytes:
    return b"".join(struct.pack("<" + letter, token) for doc in documents for token in doc)


def megatron(documents: Documents, eod: int, width: int) -> tuple[bytes, bytes]:
    """(.bin, .idx)"""
    kept = with_special(documents, eod, before=False)
    return indexed(kept, list(range(len(kept) + 1)), width)


def indexed(sequences: Documents, boundaries: list[int], width: int) -> tuple[bytes, bytes]:
    """(.bin, .idx) of sequences, and of how many of them stand before each document and behind the last."""
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, {2: 8, 4: 4}[width], len(sequences), len(boundaries))
    index += b"".join(struct.pack("<i", len(sequence)) for sequence in sequences)
    offset = 0
    for sequence in sequences:
        index += struct.pack("<q", offset)
        offset += len(sequence) * width
    index += b"".join(struct.pack("<q", boundary) for boundary in boundaries)
    return token_bytes(sequences, {2: "H", 4: "i"}[width]), index


def nanoset_metadata(tokenizer: str, width: int, tokens: int) -> bytes:
    """The three lines of .ds.metadata, as datatrove writes them."""
    return f"{tokenizer}|{width}\n{tokens}\n{humanize.metric(tokens, unit='T')}".encode()


def nanoset(documents: Documents, eos: int, width: int) -> tuple[bytes, bytes]:
    """(.ds, .ds.index)"""
    kept = with_special(documents, eos, before=False)
    index, end = b"", 0
    for doc in kept:
        end += len(doc)
        index += struct.pack("<Q", end)
    return token_bytes(kept, {2: "H", 4: "I"}[width]), index


def framed(documents: list[Documents], eod: int | None, bos: int | None, empty: str) -> tuple[Documents, list[int]]:
    """Documents of sequences -> (sequences with special tokens, boundaries as Megatron's index holds them)."""
    sequences: Documents = []
    boundaries = [0]
    for document in documents:
        kept = [list(sequence) for sequence in document if sequence]
        if not kept and empty == "eod":
            kept = [[]]
        if kept:
            kept[0] = ([] if bos is None else [bos]) + kept[0]
            kept[-1] += [] if eod is None else [eod]
        if kept or empty == "boundary":
            sequences += kept
            boundaries.append(len(sequences))
    return sequences, boundaries


def jaxformer_shards(documents: Documents, eot: int, shard_tokens: int) -> list[list[int]]:
    shards: list[list[int]] = []
    shard: list[int] = []
    for doc in with_special(documents, eot, before=True):
        for token in doc:
            shard.append(token)
            if len(shard) == shard_tokens:
                shards.append(shard)
                shard = []
    return shards + ([shard] if shard else [])


def shard_sizes(tokens: int, shard_tokens: int, merge_rest: bool) -> list[int]:
    """Tokens of each shard of a stream; `merge_rest`: a short last one belongs to the one before."""
    sizes = []
    while tokens:
        sizes.append(min(tokens, shard_tokens))
        tokens -= sizes[-1]
    if merge_rest and len(sizes) > 1 and sizes[-1] < shard_tokens:
        sizes[-2:] = [sum(sizes[-2:])]
    return sizes


def tar_of(members: list[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


def contexts_of(tar_bytes: bytes) -> list[tuple[str, list[int]]]:
    with tarfile.open(fileobj=io.BytesIO(tar_bytes)) as tar:
        files = [(info.name, tar.extractfile(info)) for info in tar]
        return [(name, json.loads(gzip.decompress(file.read()))) for name, file in files if file]


def open_lm_manifest(text: str) -> list[dict[str, object]]:
    """open_lm reads the whole file, splits at newlines and drops the last piece."""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def batches_of(documents: Documents, dtype: str, cuts: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """The documents as batches (tokens, ends), cut before each document ordinal in `cuts`; cuts may repeat."""
    bounds = [0, *sorted(min(cut, len(documents)) for cut in cuts), len(documents)]
    groups = [documents[first:last] for first, last in pairwise(bounds)]
    return [
        (
            np.array([token for doc in group for token in doc], dtype),
            np.array(list(accumulate(len(doc) for doc in group)), np.uint64),
        )
        for group in groups
    ]


Damage = Callable[[bytes], bytes]


def put(at: int, new: bytes) -> Damage:
    """Overwrite at byte `at`; it must be another value than before."""

    def change(data: bytes) -> bytes:
        assert data[at : at + len(new)] != new
        return data[:at] + new + data[at + len(new) :]

    return change


def put_number(at: int, layout: str, number: int) -> Damage:
    return put(at, struct.pack(layout, number))


def keep(size: int | None) -> Damage:
    return lambda data: data[:size]


def append(junk: bytes) -> Damage:
    return lambda data: data + junk


def compact_json(numbers: list[int]) -> bytes:
    return json.dumps(numbers, separators=(",", ":")).encode()
