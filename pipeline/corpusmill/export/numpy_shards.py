"""Token shards as Jaxformer's loader reads them: 1-D `.npy` files of exactly N tokens, documents running across them.

    stream   EOT a a a EOT b b EOT c c c c ...            EOT before every document
    shards   [EOT a a][a EOT b][b EOT c][c c c ]...       N tokens each; the last one may be shorter

    .npy   0  6 B   93 "NUMPY"
           6  2 B   01 00, format version 1.0
           8  u16   118, bytes of the text that follows
          10 118 B  {'descr': '<u4', 'fortran_order': False, 'shape': (N,), } spaces, newline
         128 4 B x N  tokens, little endian (2 B x N for '<u2')

nanoGPT's layout is the same stream as one raw file per split, `train.bin` and `val.bin`: the tokens without a header.
`llmc`, `llama3` and `automodel` are shards behind a header of 1,024 bytes, 256 int32:

    .bin   0  i32     20240520 (llmc), 20240801 (llama3) or 278895051 (automodel)
           4  i32     1, the version; llama3: 7
           8  i32     N, tokens of the file
          12  i32     automodel: 2 or 4, bytes of a token; others: 0
          16  252 i32 zeros
        1024  tokens, little endian: uint16; llama3: uint32; automodel: either
    .bos.idx  on request beside automodel's: i32 a document that begins in the file, the position of its EOT in tokens

Readers of llmc: llm.c, modded-nanogpt, parameter-golf, dion; of llama3: llm.c's train_llama3.py; of llmc and automodel:
NeMo AutoModel. They take sorted globs, hold
nothing out, and want every file to have more than a global batch of tokens. modded-nanogpt needs two training files,
AutoModel twice as many as there are ranks times loader workers.

Source: the JAXformer repository, data/ray_distributed/main.py (writer) and dataset.py (loader); numpy.lib.format;
karpathy/llm.c dev/data/data_common.py; NVIDIA-NeMo/Automodel nanogpt_dataset.py.

Invariants: a shard's bytes are those of numpy.save; no tokens are lost or repeated where a document straddles shards,
because a shard is an interval of the stream; listing order is stream order within a split.

Price: one pass; memory is the largest piece handed in. One core writes 0.5 to 1.2 GB of tokens a second, EOTs and all,
and verifies 5 GB (page cache).
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpusmill.errors import BalanceError, ConfigError, CorruptDataError
from corpusmill.export.checks import scan_ids
from corpusmill.export.files import fault, file_bytes, whole_file
from corpusmill.export.framing import Framing, frame, refuse_special_beyond
from corpusmill.kernels.mapping import mapped
from corpusmill.tokens.token_shard import Batch, TokenArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

HEADER_BYTES = 128
RAW_SUFFIX = ".bin"
HEADED_BYTES = 1024
MAGIC = {"llmc": 20240520, "llama3": 20240801, "automodel": 278895051}
VERSION = {"llmc": 1, "llama3": 7, "automodel": 1}
DTYPES = (np.dtype("<u2"), np.dtype("<u4"))
MOST_HELD_OUT = 0.5


def with_eot_before(batch: Batch, eot_id: int, *, vocabulary_size: int, keep_empty: bool = False) -> TokenArray:
    """The stream tokens of a batch, in the batch's dtype: EOT, a document, EOT, a document, ...

    Documents without tokens are left out; with `keep_empty` each becomes a single EOT. Raises ConfigError for an
    EOT outside the vocabulary or too large for the batch's dtype, CorruptDataError for a bad batch or id.
    """
    refuse_special_beyond(vocabulary_size, eot_id)
    dtype = batch[0].dtype
    if eot_id > np.iinfo(dtype).max:
        raise ConfigError(
            "numpy.eot_too_large: EOT does not fit the dtype of the tokens",
            expected=f"an id that fits {dtype.name}",
            got=eot_id,
        )
    framing = Framing(None, bos_id=eot_id, empty_documents="eod" if keep_empty else "skip")
    return frame(batch, framing, dtype=dtype, vocabulary_size=vocabulary_size).tokens


def shard_bounds(stream_tokens: int, shard_tokens: int, *, merge_rest: bool = False) -> list[int]:
    """Where the shards of a stream begin, and its end: `shard_tokens` each, the remainder in a last one, or, with
    `merge_rest`, in the last full one. No shard is empty.
    """
    bounds = [*range(0, stream_tokens, shard_tokens), stream_tokens]
    if merge_rest and stream_tokens % shard_tokens and len(bounds) > 2:
        del bounds[-2]
    return bounds


def held_out_shards(shards: int, held_out: int | float) -> int:
    """How many shards, the first ones, are held out: an int gives the number, a float below 1 the share.

    A share is rounded, and at least one shard if it is not zero. Neither may take more than half of the shards (rounded
    down): the original takes the first 350 whatever there is, so that a corpus of 350 shards or fewer has no train data
    at all. A single shard is train.
    """
    if held_out < 0 or (isinstance(held_out, float) and held_out >= 1):
        raise ConfigError(
            "numpy.held_out: held_out is neither a count nor a share",
            expected="an int from 0, or a float from 0.0 to below 1.0",
            got=held_out,
        )
    if isinstance(held_out, float):
        held_out = max(1, int(held_out * shards + 0.5)) if held_out else 0
    return min(held_out, shards // 2)


def split_doubt(bounds: Sequence[int], held: int, held_out: int | float, split: str) -> str:
    """What is wrong with a split of about so many tokens whose first `held` shards, or files, are held out; "" if its
    share is within a half and twice of what was asked.
    """
    shards, tokens = max(1, len(bounds) - 1), bounds[-1]
    about = f"exports.numpy: about {tokens:,} tokens are {shards:,} shard{'s' * (shards > 1)}, so {split} gets"
    if isinstance(held_out, int):
        return "" if held == held_out else f"{about} {held:,} of the {held_out:,} test_shards"
    share = bounds[held] / max(1, tokens)
    if held_out <= MOST_HELD_OUT and held_out / 2 <= share <= held_out * 2:
        return ""
    advice = f"set tokens_per_shard to {max(1, int(tokens * held_out / 2)):,} or less, or test_shards"
    return f"{about} {100 * share:.3g} % of the tokens instead of {100 * held_out:.3g} %: " + (
        advice if held_out <= MOST_HELD_OUT else "no more than half can be held out"
    )


def shard_names(
    shards: int,
    test_shards: int | float,
    *,
    splits: tuple[str, str] = ("test", "train"),
    pattern: str = "{split}/{split}_{number}.npy",
    digits: int = 4,
) -> list[str]:
    """Relative paths of the shards in stream order: `test/test_0000.npy` ..., then `train/train_0000.npy` ...

    The first shards are held out, see held_out_shards. A number grows beyond `digits` for all shards alike, so that
    listing order stays stream order within a split.
    """
    test = held_out_shards(shards, test_shards)
    width = max(digits, len(str(shards - test - 1)))
    counted = [(splits[0], number) for number in range(test)] + [(splits[1], number) for number in range(shards - test)]
    return [pattern.replace("{split}", split).replace("{number}", f"{number:0{width}d}") for split, number in counted]


def raw_bounds(stream_tokens: int, held_out: float, splits: tuple[str, str]) -> tuple[list[str], list[int]]:
    """nanoGPT's two files: names, and where each begins and the last ends; at most half of the tokens are held out."""
    test = min(int(stream_tokens * held_out), stream_tokens // 2)
    names = [f"{split}{RAW_SUFFIX}" for split in splits]
    return (names, [0, test, stream_tokens]) if test else (names[1:], [0, stream_tokens])


def shard_header(tokens: int, dtype: np.dtype[Any]) -> bytes:
    """The 128 bytes numpy.save puts before `tokens` items of `dtype` (uint16 or uint32)."""
    if dtype not in DTYPES or tokens < 1:
        raise ConfigError(
            "numpy.shard_tokens: a shard holds at least one token of uint16 or uint32",
            expected="<u2 or <u4",
            got=f"{tokens} x {dtype}",
        )
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype.str, "fortran_order": False, "shape": (tokens,)})
    return header.getvalue()


def headed_header(layout: str, tokens: int, dtype: np.dtype[Any]) -> bytes:
    """The 1,024 bytes before `tokens` tokens of `dtype` in a file of layout llmc or automodel."""
    header = np.zeros(HEADED_BYTES // 4, "<i4")
    header[:4] = MAGIC[layout], VERSION[layout], tokens, dtype.itemsize if layout == "automodel" else 0
    return header.tobytes()


def refuse_width(layout: str, vocabulary_size: int) -> None:
    """ConfigError for ids that llm.c's files cannot hold; a warning where nanoGPT's loader would misread them."""
    if layout == "llama3" and vocabulary_size <= 1 << 16:
        raise ConfigError(
            "numpy.layout_wide: the reader of layout llama3 takes ids of 4 bytes",
            where="exports.numpy.layout: llama3",
            expected=f"a vocabulary of more than {1 << 16:,} ids",
            got=f"{vocabulary_size:,} ids, which have 2 bytes",
            next_step="use layout: llmc for ids of 2 bytes",
        )
    if vocabulary_size <= 1 << 16:
        return
    if layout == "bin":
        log.warning(
            "exports.numpy.layout bin: ids of %s need 4 bytes, and nanoGPT's own loader reads 2: read the files as"
            " uint32, or use layout automodel or npy, which state the width",
            f"{vocabulary_size:,}",
        )
    if layout == "llmc":
        raise ConfigError(
            "numpy.layout_width: the readers of layout llmc take ids of 2 bytes",
            where="exports.numpy.layout: llmc",
            expected=f"a vocabulary of at most {1 << 16:,} ids",
            got=f"{vocabulary_size:,} ids",
            next_step="layout: llama3 is llm.c's for 4 bytes; automodel and npy state the width in their headers",
        )


def _header_of(path: Path, tokens: int, dtype: np.dtype[Any], layout: str) -> bytes:
    """The bytes before the tokens: numpy's header, that of a layout which has one; none in a raw file."""
    if layout in MAGIC:
        return headed_header(layout, tokens, dtype)
    return b"" if path.suffix == RAW_SUFFIX else shard_header(tokens, dtype)


def write_shard(
    path: Path, pieces: Iterable[TokenArray], tokens: int, dtype: np.dtype[Any], *, layout: str = ""
) -> dict[str, int]:
    """Write a shard of exactly `tokens` tokens from consecutive pieces of the stream. Returns tokens and bytes.

    Raises BalanceError when the pieces hold more or fewer, CorruptDataError for a piece that is not 1-D or holds an id
    `dtype` cannot, StorageFullError when the device is full; the shard does not appear then.
    """
    dtype = np.dtype(dtype).newbyteorder("<")
    with whole_file(path) as file:
        file.write(_header_of(path, tokens, dtype, layout))
        written_tokens = 0
        for piece in pieces:
            largest = int(piece.max(initial=0))
            if piece.ndim != 1 or largest > np.iinfo(dtype).max:
                raise CorruptDataError(
                    "numpy.piece_differs: a piece of the stream does not match its shard",
                    where=f"{path}, from token {written_tokens} on",
                    expected=f"a 1-D array of ids up to {np.iinfo(dtype).max}",
                    got=f"a {piece.ndim}-D array of ids up to {largest}",
                )
            written_tokens += piece.size
            if written_tokens > tokens:
                break
            file.write(np.ascontiguousarray(piece, dtype).data)
        if written_tokens != tokens:
            raise BalanceError(
                "numpy.pieces_miscounted: the pieces of a shard do not add up",
                where=path,
                expected=f"{tokens} tokens",
                got=f"{written_tokens} tokens" + (" and more" if written_tokens > tokens else ""),
                next_step="check the interval of the stream that was planned for this shard",
            )
    return {"tokens": tokens, "bytes": len(_header_of(path, tokens, dtype, layout)) + tokens * dtype.itemsize}


def bos_index_path(path: Path) -> Path:
    """The `.bos.idx` of a shard."""
    return path.with_name(path.name.removesuffix(RAW_SUFFIX) + ".bos.idx")


def write_bos_index(path: Path, places: NDArray[np.int64]) -> None:
    """Write the positions of the EOTs that begin documents in the shard at `path`, below 2^31, beside it."""
    with whole_file(bos_index_path(path), keep_empty=True) as file:
        file.write(places.astype("<i4").data)


def verify_bos_index(path: Path, tokens: TokenArray, eot_id: int, *, all_eots: bool) -> None:
    """Check the `.bos.idx` of the shard at `path`: ascending positions of EOTs; with `all_eots` of every one.

    VerificationError, naming file and byte.
    """
    index = bos_index_path(path)
    size = file_bytes(index)
    places = mapped(index, "<i4", size // 4).astype(np.int64)
    inside = (places >= 0) & (places < len(tokens))
    right = inside & (tokens[np.where(inside, places, 0)] == eot_id) & (np.diff(places, prepend=-1) > 0)
    if size % 4 or not right.all() or (all_eots and len(places) != np.count_nonzero(tokens == eot_id)):
        at = int(np.argmin(right)) if not right.all() else len(places)
        raise fault(
            "numpy.bos_index_differs: the index does not list the beginnings of documents",
            index,
            4 * at,
            expected=f"ascending positions of id {eot_id}",
            got=int(places[at]) if at < len(places) else f"{len(places)} positions",
        )


def open_shard(path: Path, dtype: np.dtype[Any] | None = None) -> TokenArray:
    """The tokens of a shard, memory-mapped. VerificationError when the header is not numpy.save's of a 1-D array.

    A `.bin` is raw unless it begins with the header that its size asks for. It does not state its dtype, so that must
    be given.
    """
    shard_bytes = file_bytes(path)
    if path.suffix == RAW_SUFFIX and dtype is not None:
        with path.open("rb") as file:
            header = file.read(HEADED_BYTES)
        tokens = (shard_bytes - HEADED_BYTES) // dtype.itemsize
        if 0 < tokens < 1 << 31 and header in {headed_header(layout, tokens, dtype) for layout in MAGIC}:
            return mapped(path, dtype.newbyteorder("<"), tokens, HEADED_BYTES)
        return mapped(path, dtype.newbyteorder("<"), shard_bytes // dtype.itemsize)
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    for candidate in DTYPES:
        tokens, rest = divmod(shard_bytes - HEADER_BYTES, candidate.itemsize)
        if tokens > 0 and rest == 0 and header == shard_header(tokens, candidate):
            return mapped(path, candidate, tokens, HEADER_BYTES)
    raise fault(
        "numpy.header_malformed: the header does not describe the shard",
        path,
        0,
        expected=f"numpy.save's header of a 1-D uint16 or uint32 array in {shard_bytes} bytes",
        got=header,
    )


def verify_shard(
    path: Path, *, tokens: int, dtype: np.dtype[Any], vocabulary_size: int, layout: str = ""
) -> dict[str, int]:
    """Check header, size and ids of a shard. Raises VerificationError, naming file and byte. Returns tokens and bytes.

    One pass; memory is a block.
    """
    dtype = np.dtype(dtype).newbyteorder("<")
    shard_bytes = file_bytes(path)
    expected = _header_of(path, tokens, dtype, layout)
    with path.open("rb") as file:
        header = file.read(len(expected))
    if header != expected:
        same = next(
            (at for at, pair in enumerate(zip(header, expected, strict=False)) if pair[0] != pair[1]), len(header)
        )
        raise fault("numpy.header_differs: the header is not as planned", path, same, expected=expected, got=header)
    expected_bytes = len(expected) + tokens * dtype.itemsize
    if shard_bytes != expected_bytes:
        what = "is truncated" if shard_bytes < expected_bytes else "has bytes after its end"
        raise fault(
            f"numpy.shard_size: the shard {what}",
            path,
            min(shard_bytes, expected_bytes),
            expected=expected_bytes,
            got=shard_bytes,
        )
    scan_ids(path, mapped(path, dtype, tokens, len(expected)), vocabulary_size, data_offset=len(expected))
    return {"tokens": tokens, "bytes": shard_bytes}
