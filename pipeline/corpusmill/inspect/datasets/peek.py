"""One record of any export, as ids and as text: what a trainer is about to read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from corpusmill.config import DatasetConfig
from corpusmill.errors import PermanentError, TokenizerError, TransientError, visible
from corpusmill.inspect.datasets.complete import require_complete
from corpusmill.inspect.datasets.dataset import dataset_above
from corpusmill.inspect.datasets.records import open_records

IDS_SHOWN = 16
KINDS = (".tar", ".npy", ".bin", ".ds", ".parquet")


@dataclass(frozen=True)
class Peek:
    """A record (`ids`: 1-D, at most as many as asked for, of `tokens` in all) and its text.

    `missing`: why there is no text, if the dataset's vocabulary is not on this machine.
    """

    path: Path
    record: int
    records: int
    tokens: int
    ids: NDArray[Any]
    text: str
    missing: str = ""


def peek_record(path: Path, record: int, tokens: int, config: DatasetConfig | None = None) -> Peek:
    """Read record `record` of an output file and decode it with the tokenizer that its dataset, or `config`, names.

    A record is a document of a `.bin`, a `.ds` or a `.npy` beside its `.csv.gz`, a context of a `.tar`; another `.npy`,
    or a `.bin` without its `.idx`, is one stream, of which `record` is the first token shown. Without `config`, ids
    have no text if the vocabulary cannot be loaded by the name that the dataset states. SourceError for another kind of
    file or one outside a finished dataset, PermanentError for a record that is not there, VerificationError for a
    damaged file or index, TokenizerError for a `config` with another tokenizer than the dataset's.
    """
    path = _file_of(path)
    dataset = dataset_above(path, config)
    require_complete([path.with_suffix("") if path.suffix in {".bin", ".idx", ".npy"} else path])
    records, ids, of_text = _read(path, record, dataset.vocabulary["dtype"])
    shown = ids[:tokens]
    if of_text:
        return Peek(path, record, records, len(ids), shown, shown.tobytes().decode("utf-8", "backslashreplace"))
    try:
        tokenizer = dataset.tokenizer
    except (TokenizerError, TransientError) as error:
        if config:
            raise
        return Peek(path, record, records, len(ids), shown, "", missing=error.what)
    return Peek(path, record, records, len(ids), shown, tokenizer.decode(shown).decode("utf-8", "backslashreplace"))


def _file_of(path: Path) -> Path:
    """A file of records for a Megatron prefix, and for a finished dataset's folder its first one; else `path`."""
    if path.is_dir():
        below = sorted(file for file in path.resolve().rglob("*") if file.suffix in KINDS)
        return below[0] if below else path
    prefix = path.with_name(f"{path.name}.bin")
    return prefix if not path.exists() and prefix.exists() else path


def _read(path: Path, record: int, dtype: str) -> tuple[int, NDArray[Any], bool]:
    """How many records there are, or of a stream tokens; the record's ids, or a text's bytes; whether it is one."""
    opened = open_records(path, dtype)
    count = len(opened.record(0)) if opened.is_stream else opened.records
    if record >= count:
        raise PermanentError(
            "record.unknown: no such record", where=path, expected=f"0 to {count - 1:,}", got=f"record {record:,}"
        )
    ids = opened.record(0)[record:] if opened.is_stream else opened.record(record)
    return count, ids, opened.of_text


def render_peek(peek: Peek) -> str:
    """For people: where it is, the first and last ids, and the text."""
    ids = peek.ids.tolist()
    listed = " ".join(map(str, ids[:IDS_SHOWN])) + (f" ... {ids[-1]}" if len(ids) > IDS_SHOWN else "")
    shown = "" if len(ids) == peek.tokens else f", the first {len(ids):,} shown"
    record = f"record {peek.record:,} of {peek.records:,}: {peek.tokens:,} tokens{shown}"
    head = f"{visible(str(peek.path))}\n{record}\nids  {listed}"
    if peek.missing:
        return f"{head}\n\nno text: {peek.missing}; --config CONFIG says where to find the tokenizer"
    return f"{head}\n\n{visible(peek.text)}"
