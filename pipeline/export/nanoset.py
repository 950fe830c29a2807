"""Nanoset files, as datatrove's DocumentTokenizer writes them: `<stem>.ds`, `<stem>.ds.index`, `<stem>.ds.metadata`.

    .ds            tokens of all documents back to back, EOS after each, little endian, uint16 or uint32, no header
    .ds.index      u64 a document: the exclusive end of each in tokens, cumulative; no count, no leading 0
    .ds.metadata   <tokenizer>|<2 or 4> \\n <tokens, EOS included> \\n <the same for people>     no final newline

Source: huggingface/datatrove pipeline/tokens/tokenizer.py and tokenization.py; nanotron reads the result.

Invariants: `.ds` holds the same bytes as Megatron's `.bin` of the same documents and width (uint32 and int32
agree below 2^31); no document is empty, since a repeated end breaks datatrove's position ids.

Price: one pass over the tokens; memory is a batch; 8 B of disk a document beside the tokens. Speed is that of
megatron.py: 0.6 to 1.4 GB of tokens a second written, 5 GB verified, one core, page cache.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import humanize
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import ConfigError
from pipeline.export.batches import Batch, no_counts, refuse_special_beyond, with_special
from pipeline.export.files import BUFFER_BYTES, TokenArray, fault, file_bytes, mapped, whole_file
from pipeline.export.megatron import MegatronPart
from pipeline.export.scan import BLOCK_DOCUMENTS, scan_ids, scan_last_tokens


def token_bytes(vocabulary_size: int) -> int:
    """Bytes of a token: 4 if the vocabulary has more than 65,536 ids, else 2."""
    return 4 if vocabulary_size > 65_536 else 2


def file_name(rank: int, sub: int) -> str:
    """The stem datatrove gives a file of shuffled documents, e.g. 00000_00000_doc_shuffled."""
    return f"{rank:05d}_{sub:05d}_doc_shuffled"


def write_file(
    folder: Path, stem: str, batches: Iterable[Batch], *, eos_id: int, tokenizer_name: str, vocabulary_size: int
) -> dict[str, int]:
    """Write the three files of `stem` into `folder`, which exists; without a document, none of them (N10).

    The width follows from the vocabulary. `tokenizer_name` is what transformers' AutoTokenizer can load (N19).
    Returns documents, documents_empty, tokens (of documents), special_tokens (EOSs) and bytes (of the three files).
    Raises ConfigError for a name the metadata cannot hold or an EOS outside the vocabulary, CorruptDataError for
    batches that are not batches and ids outside the vocabulary, StorageFullError when the device is full.
    """
    if not tokenizer_name or "|" in tokenizer_name or "\n" in tokenizer_name:
        raise ConfigError(
            "nanotron splits the metadata's first line at '|', so the tokenizer's name must hold none",
            expected="a name without '|' and line breaks",
            got=repr(tokenizer_name),
            next_step="give the name or folder AutoTokenizer loads the tokenizer from",
        )
    refuse_special_beyond(vocabulary_size, eos_id)
    width = token_bytes(vocabulary_size)
    counts = no_counts()
    path = folder / f"{stem}.ds"
    with (
        whole_file(metadata_path(path)) as metadata,
        whole_file(index_path(path)) as index,
        whole_file(path) as data,
    ):
        for batch in batches:
            marked = with_special(
                batch,
                eos_id,
                before=False,
                dtype=np.dtype(f"<u{width}"),
                vocabulary_size=vocabulary_size,
                first_document=counts["documents"] + counts["documents_empty"],
            )
            written_tokens = counts["tokens"] + counts["special_tokens"]
            data.write(marked.tokens.data)
            index.write((np.cumsum(marked.lengths) + written_tokens).astype("<u8").data)
            marked.add_to(counts)
        if counts["documents"]:
            total_tokens = counts["tokens"] + counts["special_tokens"]
            text = metadata_text(tokenizer_name, width, total_tokens)
            metadata.write(text)
            counts["bytes"] = total_tokens * width + 8 * counts["documents"] + len(text)
    return counts


def link_file(folder: Path, stem: str, part: MegatronPart, *, tokenizer_name: str) -> dict[str, int]:
    """Make the three files of `stem` from a Megatron part of the same documents: its tokens get a second name (N20).

    The part has one sequence a document, EOD included, and none is empty, as megatron.write_part leaves it. Returns
    what write_file returns. One file on disk has both names; a file system without hard links gets a copy.
    """
    if not len(part):
        return no_counts()
    path = folder / f"{stem}.ds"
    try:
        path.hardlink_to(part.data_path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        with whole_file(path) as data, part.data_path.open("rb") as source:
            shutil.copyfileobj(source, data, BUFFER_BYTES)
    with whole_file(metadata_path(path)) as metadata, whole_file(index_path(path)) as index:
        position = 0
        for first in range(0, len(part), BLOCK_DOCUMENTS):
            ends = np.cumsum(part.lengths[first : first + BLOCK_DOCUMENTS], dtype="<u8") + np.uint64(position)
            index.write(ends.data)
            position = int(ends[-1])
        text = metadata_text(tokenizer_name, part.tokens.dtype.itemsize, position)
        metadata.write(text)
    written_bytes = position * part.tokens.dtype.itemsize + 8 * len(part) + len(text)
    return {
        "documents": len(part),
        "documents_empty": 0,
        "tokens": position - len(part),
        "special_tokens": len(part),
        "bytes": written_bytes,
    }


def index_path(path: Path) -> Path:
    return path.with_name(path.name + ".index")


def metadata_path(path: Path) -> Path:
    return path.with_name(path.name + ".metadata")


def metadata_text(tokenizer_name: str, width_bytes: int, total_tokens: int) -> bytes:
    """The three lines of `.ds.metadata`, e.g. b"gpt2|2\\n12\\n12.0 T"."""
    return f"{tokenizer_name}|{width_bytes}\n{total_tokens}\n{humanize.metric(total_tokens, unit='T')}".encode()


@dataclass(frozen=True, slots=True)
class NanosetFile:
    """An opened file; both arrays are memory-mapped, `ends` counts tokens."""

    path: Path
    tokenizer_name: str
    total_tokens: int
    ends: NDArray[np.uint64]
    tokens: TokenArray

    def __len__(self) -> int:
        return self.ends.size

    def document(self, ordinal: int) -> TokenArray:
        """Tokens of document `ordinal`, EOS included, as they are in the file."""
        start = int(self.ends[ordinal - 1]) if ordinal else 0
        return self.tokens[start : int(self.ends[ordinal])]


def open_file(path: Path) -> NanosetFile:
    """Map the `.ds` file at `path` with its index, by the width its metadata states.

    Raises VerificationError for a missing file, metadata that is not the three lines datatrove writes, and an index
    that is not whole.
    """
    data_bytes, index_bytes = file_bytes(path), file_bytes(index_path(path))
    name, width, total_tokens = _read_metadata(metadata_path(path))
    if index_bytes % 8:
        raise fault(
            "the index ends within an item",
            index_path(path),
            index_bytes // 8 * 8,
            expected="8 bytes a document",
            got=index_bytes,
        )
    ends = mapped(index_path(path), "<u8", index_bytes // 8)
    return NanosetFile(path, name, total_tokens, ends, mapped(path, f"<u{width}", data_bytes // width))


def _read_metadata(path: Path) -> tuple[str, int, int]:
    """Tokenizer name, bytes of a token, total tokens; the file must be what `metadata_text` makes of them."""
    file_bytes(path)
    text = path.read_bytes()
    first, _, rest = text.partition(b"\n")
    name, _, width = first.partition(b"|")
    total = rest.partition(b"\n")[0]
    if not name or width not in (b"2", b"4") or not total.isdigit():
        raise fault(
            "the metadata does not say tokenizer, width and tokens",
            path,
            0,
            expected="<tokenizer>|<2 or 4>, tokens, tokens for people",
            got=text,
        )
    expected = metadata_text(name.decode("utf-8", "replace"), int(width), int(total))
    if text != expected:
        raise fault("the metadata is not as datatrove writes it", path, len(first) + 1, expected=expected, got=text)
    return name.decode(), int(width), int(total)


def verify_file(path: Path, *, vocabulary_size: int, eos_id: int, tokenizer_name: str) -> dict[str, int]:
    """Check the three files of a `.ds` against the format and against each other.

    Raises VerificationError, naming file and byte, for: metadata of another tokenizer, width or count; ends that do not
    rise by a token and EOS at least; a token file longer or shorter than the last end; ids outside the vocabulary;
    documents that do not end with EOS. datatrove's own check reads 2-byte files only. Returns documents, tokens,
    special_tokens and bytes as re-read. One pass over both files; memory is a block.
    """
    opened = open_file(path)
    documents, width, data_bytes = len(opened), opened.tokens.dtype.itemsize, file_bytes(path)
    if (opened.tokenizer_name, width) != (tokenizer_name, token_bytes(vocabulary_size)):
        raise fault(
            "the metadata names another tokenizer or width",
            metadata_path(path),
            0,
            expected=f"{tokenizer_name}|{token_bytes(vocabulary_size)}",
            got=f"{opened.tokenizer_name}|{width}",
        )
    position = 0
    for first in range(0, documents, BLOCK_DOCUMENTS):
        position = _verify_ends(opened, first, position)
    if opened.total_tokens != position:
        raise fault(
            "the metadata counts other tokens than the index",
            metadata_path(path),
            len(f"{tokenizer_name}|{width}\n".encode()),
            expected=position,
            got=opened.total_tokens,
        )
    if data_bytes != position * width:
        what = "is truncated" if data_bytes < position * width else "has bytes behind its end"
        raise fault(
            f"the token file {what}",
            path,
            min(data_bytes, position * width),
            expected=f"{position * width} bytes, as the index says",
            got=data_bytes,
        )
    scan_ids(path, opened.tokens, vocabulary_size)
    for first in range(0, documents, BLOCK_DOCUMENTS):
        ends = opened.ends[first : first + BLOCK_DOCUMENTS].astype(np.int64)
        scan_last_tokens(path, opened.tokens, ends, eos_id, first)
    total_bytes = data_bytes + file_bytes(index_path(path)) + file_bytes(metadata_path(path))
    return {
        "documents": documents,
        "tokens": position - documents,
        "special_tokens": documents,
        "bytes": total_bytes,
    }


def _verify_ends(opened: NanosetFile, first: int, position: int) -> int:
    """Check that one block of ends rises by 2 at least from `position`; returns the last."""
    ends = opened.ends[first : first + BLOCK_DOCUMENTS].astype(np.int64)
    before = np.concatenate(([position], ends[:-1]))
    wrong = ends < before + 2  # an end of 2^63 or more counts as negative here
    if bool(wrong.any()):
        ordinal = int(np.argmax(wrong))
        raise fault(
            f"the end of document {first + ordinal} cannot be",
            index_path(opened.path),
            8 * (first + ordinal),
            expected=f"at least {int(before[ordinal]) + 2}: a token and EOS",
            got=int(opened.ends[first + ordinal]),
        )
    return int(ends[-1])
