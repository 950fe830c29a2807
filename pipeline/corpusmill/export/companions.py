"""What a dataset has beside its training files: a manifest and a dataset reference beside the WebDataset shards,
checkpoints beside the numpy shards, and a sample of Megatron and Nanoset files.

`manifest.jsonl`, for open_lm:

    {"num_sequences":8192,"shard":"shard_00000000"}
    {"num_sequences":8192,"shard":"shard_00000001"}
    {"num_sequences":1234,"shard":"shard_00000002"}

open_lm splits the file at newlines and drops the last piece, so the file must end with one, or it never sees the last
shard (tokshuf's own file has none). It takes shards in the order of the lines, requires equal sizes, and puts the
names into a brace expression, so names contain no comma and no brace.

Checkpoints for Jaxformer's `--continue`, and empty first files for its loader:

    checkpoints/<document>.txt      "<shard>:<documents>", no newline: the last full shard, and how many documents of
                                    the stream had begun when it closed, one that straddles its end included
    checkpoints/checkpoints.jsonl   {"shard":0,"documents":41,"document":"00003-000000017","carry_tokens":12} every one

The original writes one .txt per shard and continues from the one with the newest server time, which parallel uploads
make arbitrary; here there is only the last one. The original counts a straddling document as done and so loses the rest
of it: `carry_tokens` states how many of its tokens belong to the next shard.

A sample is the first documents of an export as a separate export: a uniform sample if the order is a global shuffle.
The tokens are those of the whole export, byte for byte, special ones included: nothing is tokenized again. Price: the
sampled tokens are read once and written once; memory is a block of documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from corpusmill.errors import ConfigError, PermanentError
from corpusmill.export import megatron, nanoset
from corpusmill.export.files import fault, file_bytes, whole_file
from corpusmill.export.framing import SequenceBatch
from corpusmill.export.webdataset import SHARD_NAME
from corpusmill.tokens.token_shard import Batch

MANIFEST = "manifest.jsonl"


def write_manifest(path: Path, shards: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Write (shard name without `.tar`, number of sequences) as lines sorted by shard. Returns shards, records, bytes.

    Raises PermanentError for a name that is not shard_<8 digits>, appears twice, or has no sequence.
    """
    ordered = sorted(shards, key=lambda shard: (len(shard[0]), shard[0]))
    refused = [pair for pair in ordered if not SHARD_NAME.fullmatch(pair[0]) or pair[1] < 1]
    refused += [pair for before, pair in pairwise(ordered) if before[0] == pair[0]]
    if refused or not ordered:
        raise PermanentError(
            "manifest.no_common_name: these shards cannot be listed in a manifest",
            where=path,
            expected="shard_<8 digits>, each once, with at least one sequence",
            got=refused[:3] or "no shards",
        )
    text = b"".join(manifest_line(name, records) for name, records in ordered)
    with whole_file(path) as file:
        file.write(text)
    return {"shards": len(ordered), "records": sum(records for _, records in ordered), "bytes": len(text)}


def manifest_line(name: str, records: int) -> bytes:
    return orjson.dumps(
        {"num_sequences": records, "shard": name}, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    )


def read_manifest(path: Path) -> list[tuple[str, int]]:
    """(shard, number of sequences) of every line. VerificationError, naming the byte, for a line not as written."""
    file_bytes(path)
    lines = path.read_bytes().splitlines(keepends=True)
    entries: list[tuple[str, int]] = []
    at = 0
    for line in lines:
        try:
            entry = orjson.loads(line)
            name, records = entry["shard"], entry["num_sequences"]
            as_written = manifest_line(name, int(records))
        except (ValueError, KeyError, TypeError) as error:
            raise fault(
                "manifest.not_a_shard: a line is not a shard",
                path,
                at,
                expected='{"num_sequences":N,"shard":"shard_N"}',
                got=line,
            ) from error
        if line != as_written:
            raise fault("manifest.line_differs: a line is not as written", path, at, expected=as_written, got=line)
        entries.append((name, records))
        at += len(line)
    return entries


def exp_data(
    *,
    name: str,
    sources: list[str],
    num_tokens: int,
    size_bytes: int,
    dataset_url: str,
    manifest_url: str,
    tokenizer: str,
) -> dict[str, object]:
    """DCLM's dataset reference (training/dataset_reference.py), whose loader refuses unknown keys.

    `num_tokens` is sequences x context length, pads included, as DCLM counts. `uuid` and `creation_date` are left out:
    DCLM fills them in, and nothing here depends on a clock. Raises ConfigError for a folder URL without
    its slash, or a manifest elsewhere: open_lm takes the tars from the manifest's own folder.
    """
    if not dataset_url.endswith("/") or manifest_url != f"{dataset_url}{MANIFEST}":
        raise ConfigError(
            "manifest.shards_not_found: open_lm would not find the shards",
            expected=f"dataset_url ending in '/', manifest_url = dataset_url + {MANIFEST}",
            got=f"{dataset_url} and {manifest_url}",
        )
    return {
        "name": name,
        "sources": sources,
        "tokenized": True,
        "num_tokens": num_tokens,
        "size": size_bytes,
        "dataset_url": dataset_url,
        "manifest_url": manifest_url,
        "dcnlp_commit_hash": "",
        "dcnlp_diff": "",
        "sampling_yaml": "",
        "tokenizer": tokenizer,
        "data_key": "json.gz",
        "note": "",
    }


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


BLOCK_DOCUMENTS = 1 << 12


def sample_parts(
    prefixes: Sequence[Path], folder: Path, prefix: str, documents: int, *, vocabulary_size: int
) -> dict[str, int]:
    """Write the first `documents` documents of Megatron parts, in order, as `folder`/`prefix`; see write_part."""
    parts = [megatron.open_part(path) for path in prefixes]
    return megatron.write_part(
        folder,
        prefix,
        _sequences(parts, documents),
        dtype=parts[0].tokens.dtype,
        eod_id=None,
        empty_documents="boundary",
        vocabulary_size=vocabulary_size,
    )


def _sequences(parts: Sequence[megatron.MegatronPart], documents: int) -> Iterator[SequenceBatch]:
    for part in parts:
        taken = min(part.documents, documents)
        documents -= taken
        for first in range(0, taken, BLOCK_DOCUMENTS):
            bounds = np.asarray(part.boundaries[first : min(first + BLOCK_DOCUMENTS, taken) + 1])
            lengths = part.lengths[bounds[0] : bounds[-1]].astype(np.uint64)
            start = int(part.pointers[bounds[0]]) // part.tokens.dtype.itemsize if lengths.size else 0
            tokens = part.tokens[start : start + int(lengths.sum())]
            ends = np.cumsum(lengths, dtype=np.uint64)
            yield _unsigned(tokens), ends, (bounds[1:] - bounds[0]).astype(np.uint64)


def sample_files(
    paths: Sequence[Path], folder: Path, stem: str, documents: int, *, vocabulary_size: int
) -> dict[str, int]:
    """Write the first `documents` documents of `.ds` files, in order, as `folder`/`stem`.ds; see write_file."""
    files = [nanoset.open_file(path) for path in paths]
    return nanoset.write_file(
        folder,
        stem,
        _documents(files, documents),
        eos_id=None,
        tokenizer_name=files[0].tokenizer_name,
        vocabulary_size=vocabulary_size,
    )


def _documents(files: Sequence[nanoset.NanosetFile], documents: int) -> Iterator[Batch]:
    for file in files:
        taken = min(len(file), documents)
        documents -= taken
        for first in range(0, taken, BLOCK_DOCUMENTS):
            start = int(file.ends[first - 1]) if first else 0
            ends = file.ends[first : min(first + BLOCK_DOCUMENTS, taken)] - np.uint64(start)
            yield _unsigned(file.tokens[start : start + int(ends[-1])]), np.asarray(ends)


def _unsigned(tokens: Any) -> Any:
    """Megatron's int32 as the uint32 it is: ids are below 2^31."""
    return np.asarray(tokens).view(f"<u{tokens.dtype.itemsize}")
