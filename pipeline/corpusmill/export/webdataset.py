"""WebDataset shards of token contexts, as DCLM's tokshuf writes them and open_lm trains on them.

    shard_00000000.tar
      00000000_00000000_<id>.json.gz     shard, place in the shard, record id
      00000000_00000001_<id>.json.gz     body = gzip of a compact JSON list of ints: [50,256,0,...]
      ...                                tar.py has the bytes around it

Source: tokshuf-rs in mlfoundations/dclm (writer); open_lm's data.py and the webdataset package (readers).
Megatron-Energon reads a copy indexed by `energon prepare --sample-type CrudeWebdataset`, with a cooker that unzips
`json.gz` (tests/consumers/energon).

Invariants: one field, json.gz, a sample (an id with a dot would change the field's name); names are unique and in
order; every context of a shard has the same length; order in the tar is training order.

Bytes: gzip headers hold no time and no name. The deflate stream is context_gzip.py's, a function of the ids alone; of
a vocabulary above 524,288 ids it is libdeflate's, whose release `requirements.lock` pins.

Price: one pass, memory is a batch of contexts. `benchmarks/results/gzip_members.json` has speed and size of our members
beside those of libdeflate, zlib and ISA-L, and their share of an export step and of a build.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpusmill.errors import BalanceError, CorruptDataError, PermanentError
from corpusmill.export.context_gzip import GZIP_HEADER, write_members
from corpusmill.export.context_json import read_list
from corpusmill.export.files import fault, whole_file
from corpusmill.export.framing import ignore_sums, refuse_ids_beyond
from corpusmill.export.tar import BLOCK_BYTES, end_of_archive, member_header, padding, read_members
from corpusmill.kernels.content_kernels import Words, token_sums
from corpusmill.kernels.slices import starts_of
from corpusmill.tokens.token_shard import TokenArray

GZIP_WINDOW = 31  # zlib's code for a 32 KiB window with gzip header and trailer
SUFFIX = ".json.gz"
RECORD_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
SHARD_NAME = re.compile(r"shard_(\d{8,})")


def shard_name(shard_index: int) -> str:
    """Name of a shard without `.tar`, as the manifest has it: shard_00000000."""
    return f"shard_{shard_index:08d}"


def write_shard(
    path: Path,
    contexts: Iterable[TokenArray],
    names: Iterable[str],
    shard_index: int,
    *,
    vocabulary_size: int,
    written: Callable[[Words], None] = ignore_sums,
) -> dict[str, int]:
    """Write batches of contexts (2-D, records x tokens, uint16 or uint32) as one tar; without a record, no file.

    `names` gives each record its id, in order: letters, digits, `_` and `-`. Ids of tokens, pads included, must be
    below `vocabulary_size`. `written` is given the token sums (content_kernels.py) of each batch. Returns records,
    tokens (records x context length, pads included) and bytes.
    Raises BalanceError when there are more or fewer names than contexts, CorruptDataError for contexts that are not
    2-D, differ in length, or hold other ids, PermanentError for a name, StorageFullError when the device is full.
    """
    records, context_tokens, written_bytes = 0, 0, 0
    ids = iter(names)
    with whole_file(path) as file:
        for batch in contexts:
            context_tokens = _checked_width(batch, records, context_tokens, vocabulary_size)
            written(_sums(batch))
            for body in write_members(np.ascontiguousarray(batch), vocabulary_size):
                name = member_name(shard_index, records, next(ids, None))
                member = b"".join((member_header(name, len(body)), body, padding(len(body))))
                file.write(member)
                written_bytes += len(member)
                records += 1
        if (left := next(ids, None)) is not None:
            raise BalanceError(
                "webdataset.ids_left_over: there are more record ids than contexts",
                where=path,
                expected=records,
                got=f"{left} and perhaps more",
            )
        if records:
            written_bytes += file.write(end_of_archive(written_bytes))
    return {"records": records, "tokens": records * context_tokens, "bytes": written_bytes}


def _sums(batch: TokenArray) -> Words:
    """uint64 (2, records): the token sum of each context, all slots."""
    lengths = np.full(len(batch), batch.shape[1], np.uint64)
    return token_sums(batch.reshape(-1), starts_of(lengths), lengths, np.zeros(len(batch), np.uint64))


def member_name(shard_index: int, place: int, record_id: str | None) -> bytes:
    """`<shard>_<place>_<record id>.json.gz`; BalanceError if there is none, PermanentError for an invalid one."""
    if record_id is None:
        raise BalanceError(
            "webdataset.ids_missing: there are fewer record ids than contexts",
            expected=f"an id for context {place}",
            got="none",
        )
    if not RECORD_ID.fullmatch(record_id):
        raise PermanentError(
            "webdataset.id_unusable: a record id cannot be part of a WebDataset key",
            where=f"context {place} of shard {shard_index}",
            expected="1 to 64 letters, digits, '_' and '-'; a dot would change the field's name",
            got=repr(record_id),
        )
    return f"{shard_index:08d}_{place:08d}_{record_id}{SUFFIX}".encode()


def _checked_width(batch: TokenArray, first: int, context_tokens: int, vocabulary_size: int) -> int:
    """Tokens a context of `batch`, after checking shape, dtype, ids, and the length of the contexts before it."""
    shape = batch.shape
    is_batch = batch.ndim == 2 and shape[1] > 0 and batch.dtype in (np.uint16, np.uint32)
    if not is_batch or context_tokens not in (0, shape[1]):
        raise CorruptDataError(
            "webdataset.batch_array: a batch of contexts has the wrong array",
            where=f"the batch that begins at context {first}",
            expected=f"(records, {context_tokens or 'tokens'}) of uint16 or uint32",
            got=f"{shape} of {batch.dtype}",
        )
    refuse_ids_beyond(vocabulary_size, batch, batch.dtype, f"the batch that begins at context {first}")
    return int(shape[1])


def read_shard(path: Path) -> Iterator[tuple[str, NDArray[np.uint32]]]:
    """Member name and context (1-D uint32) of every record, in order; memory is one record.

    Raises VerificationError, naming file and byte, for all `tar.read_members` refuses, a body that is not one gzip
    member with a bare header, and text that is not the compact JSON list of ints from 0 to 2^32 - 1.
    """
    for name, at, body in read_members(path):
        yield name, decode_context(path, at, body)


def decode_context(path: Path, at: int, body: bytes) -> NDArray[np.uint32]:
    """The ids in a member's body, 1-D; `at` is its place in the file. VerificationError as read_shard."""
    if not body.startswith(GZIP_HEADER):
        raise fault("webdataset.gzip_header: a body has another header", path, at, expected=GZIP_HEADER, got=body[:10])
    stream = zlib.decompressobj(wbits=GZIP_WINDOW)
    try:
        text = stream.decompress(body)
    except zlib.error as error:
        raise fault(
            "webdataset.not_decompressable: a body cannot be decompressed", path, at, expected="gzip", got=error
        ) from error
    if not stream.eof or stream.unused_data:
        got = f"{len(stream.unused_data)} bytes after it" if stream.eof else "no end"
        raise fault(
            "webdataset.gzip_members: a body is not exactly one gzip member", path, at, expected="one member", got=got
        )
    context, wrong_at = read_list(text)
    if wrong_at is not None:
        raise fault(
            "webdataset.body_malformed: a body is not a compact JSON list of token ids",
            path,
            at,
            expected="[int,int,...], each from 0 to 4294967295",
            got=f"{text[wrong_at : wrong_at + 16]!r} at byte {wrong_at} of the text",
        )
    return context


def verify_shard(path: Path, *, context_tokens: int, vocabulary_size: int, records: int) -> dict[str, int]:
    """Read a shard from its file alone and check names, order, lengths, ids and count.

    The shard's index comes from its file name. Raises VerificationError, naming file and byte. Returns records, tokens
    and bytes as re-read.
    """
    named = SHARD_NAME.fullmatch(path.name.removesuffix(".tar"))
    if named is None:
        raise fault(
            "webdataset.shard_name: this is not a shard's name", path, 0, expected="shard_<8 digits>.tar", got=path.name
        )
    shard_index = int(named[1])
    number = 0
    for name, at, body in read_members(path):
        prefix = f"{shard_index:08d}_{number:08d}_"
        record_id = name.removeprefix(prefix).removesuffix(SUFFIX)
        if name != f"{prefix}{record_id}{SUFFIX}" or not RECORD_ID.fullmatch(record_id):
            raise fault(
                f"webdataset.member_name: member {number} has another name",
                path,
                at - BLOCK_BYTES,
                expected=f"{prefix}<record id>{SUFFIX}",
                got=name,
            )
        context = decode_context(path, at, body)
        if context.size != context_tokens:
            raise fault(
                f"webdataset.context_length: {name} has another length",
                path,
                at,
                expected=context_tokens,
                got=context.size,
            )
        if int(context.max()) >= vocabulary_size:
            raise fault(
                f"webdataset.id_outside_vocabulary: {name} holds an id outside the vocabulary",
                path,
                at,
                expected=f"ids below {vocabulary_size}",
                got=int(context.max()),
            )
        number += 1
    if number != records:
        raise fault(
            "webdataset.record_count: the shard has another number of records",
            path,
            path.stat().st_size,
            expected=records,
            got=number,
        )
    return {"records": number, "tokens": number * context_tokens, "bytes": path.stat().st_size}
