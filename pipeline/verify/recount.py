"""What a step's own files hold, counted again: independent of the counters that ran when they were written.

A function per stage: `(build, unit, folder)` to the counts and details that its files give. It reads the step's own
outputs and the plan, and raises an error of the rooms for content that contradicts itself. Not counted again is what
only the work itself could give (candidates of a match, seconds, the histograms): the digests of receipts bind that.

Price: one pass over the files, which the digests have just brought into the page cache; memory is a block.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.content import NOTHING, ContentSum
from pipeline.content_kernels import records_sum, texts_sum
from pipeline.dedup.anchors import open_anchors
from pipeline.dedup.infini_gram import METADATA, METADATA_OFFSETS
from pipeline.dedup.ranges import read_ranges
from pipeline.dedup.suffix_array import open_suffix_array
from pipeline.documents.batch import SEPARATOR
from pipeline.documents.compression import open_decompressed
from pipeline.documents.parquet import open_parquet
from pipeline.documents.quarantine import read_quarantine
from pipeline.documents.text_shard import OFFSET_FILE, SOURCES_FILE, TEXT_FILE, open_text_shard
from pipeline.errors import CorruptDataError
from pipeline.report.summary import from_json
from pipeline.stages import download, writeback
from pipeline.stages.audit import AUDIT
from pipeline.stages.index import QUARANTINE
from pipeline.stages.manifest import DATASET, version_of
from pipeline.stages.manifest import UNIT as DATASET_UNIT
from pipeline.stages.report import SUMMARY, headline, listed_details
from pipeline.stages.scatter import split_unit
from pipeline.stages.union import CUT_RANGES, REMOVE_RANGES
from pipeline.tokens.record_shard import open_record_shard
from pipeline.tokens.runs import runs
from pipeline.tokens.token_shard import mapped, open_token_shard
from pipeline.verify.recorded import RecordedBuild

BLOCK = 1 << 22  # items or bytes looked at at a time
WINDOWS_MASK = np.uint64(1023)  # the low bits of an anchor's row: windows - 1 (dedup/__init__.py)


@dataclass(frozen=True)
class Recount:
    """Counts and details as the files give them; `complete` if the receipt must have no others."""

    counts: dict[str, int]
    details: dict[str, Any] = field(default_factory=dict)
    complete: bool = False


def _plan(build: RecordedBuild, _unit: str, _folder: Path) -> Recount:
    plan = build.plan
    files = sum(len(shard) for shard in plan.shards)
    counts = {"files": files, "shards": len(plan.shards), "source_bytes": plan.source_bytes()}
    return Recount(counts, complete=True)


def _download(build: RecordedBuild, unit: str, folder: Path) -> Recount:
    listed = json.loads((folder / download.LISTING).read_bytes())
    planned = [[file.name, file.size_bytes] for file in build.plan.shards[int(unit)]]
    got = [[one["name"], one["size_bytes"]] for one in listed]
    if got != planned:
        raise _contradiction(folder / download.LISTING, f"{planned}, as planned", got)
    size = sum(one["size_bytes"] for one in listed)
    return Recount({"files": len(listed), "source_bytes": size, "bytes_read": size}, complete=True)


def _index(_build: RecordedBuild, unit: str, folder: Path) -> Recount:
    text = open_text_shard(folder)
    bounds = text.bounds(0, text.documents)
    separators = sum(int((text.text[at : at + BLOCK] == SEPARATOR[0]).sum()) for at in range(0, len(text.text), BLOCK))
    if separators != text.documents or bool((bounds[1:] <= bounds[:-1]).any()):
        expected = f"{text.documents:,} separators, one at every offset, ascending"
        raise _contradiction(folder / TEXT_FILE, expected, f"{separators:,} separators")
    rejected: Counter[str] = Counter()
    for source in text.sources:
        rejected.update(source.rejected)
    with (folder / QUARANTINE).open("rb") as stream:
        kept = Counter(one.reason.value for _, one in read_quarantine(stream, name=str(folder / QUARANTINE)))
    if kept != rejected:
        raise _contradiction(folder / QUARANTINE, f"{dict(rejected)}, as {SOURCES_FILE} says", dict(kept))
    counts = {
        "files": len(text.sources),
        "lines": sum(source.lines for source in text.sources),
        "documents_out": text.documents,
        "documents_empty": int((np.diff(bounds) == 1).sum()),
        "text_bytes_out": text.text_bytes,
        "bytes_read": sum(source.line_bytes for source in text.sources),
        **{f"rejected_{reason}": count for reason, count in rejected.items()},
    }
    content = NOTHING
    for first, last in runs(bounds[1:], BLOCK):
        content += texts_sum(text.text, bounds[first : last + 1], 1, int(unit), first)
    return Recount(counts, {"content": str(content)})


def _anchor(_build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    anchors = open_anchors(folder)
    repeated = int((anchors.repeats[:, 1] - anchors.repeats[:, 0]).sum())
    owned = 0
    for at in range(0, len(anchors.rows), BLOCK):
        rows = anchors.rows[at : at + BLOCK, 1]
        owned += int((rows & WINDOWS_MASK).sum()) + len(rows)
    counts = {"anchors": len(anchors.rows), "repeats": len(anchors.repeats), "repeated_windows": repeated}
    return Recount({**counts, "windows": owned + repeated})


def _suffix_array(_build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    """Beside counts: the separators stand together, behind all other suffixes, and each where `offset` says."""
    text_bytes = (folder / TEXT_FILE).stat().st_size
    suffixes = open_suffix_array(folder, text_bytes)
    offsets = np.fromfile(folder / OFFSET_FILE, "<u8")
    last = np.sort(suffixes.starts(text_bytes - len(offsets), text_bytes))
    if not np.array_equal(last, offsets.astype(np.int64)):
        raise _contradiction(folder / "table", "the separators' suffixes last", last[:5].tolist())
    starts = np.fromfile(folder / METADATA_OFFSETS, "<u8")
    counts = {"suffixes": text_bytes, "pointer_bytes": suffixes.pointer_bytes, "documents": len(starts)}
    return Recount({**counts, "metadata_bytes": (folder / METADATA).stat().st_size})


def _match(_build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    starts = np.fromfile(folder / "match_ranges.index", "<u8")
    ranges, rest = divmod((folder / "match_ranges").stat().st_size, 16)
    if rest or not len(starts) or int(starts[-1]) != ranges or bool((starts[1:] < starts[:-1]).any()):
        expected = f"{ranges:,} ranges, ascending starts of shards"
        raise _contradiction(folder / "match_ranges.index", expected, starts[-3:].tolist())
    return Recount({"ranges": ranges})


def _union(_build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    ranges, cut = read_ranges(folder / REMOVE_RANGES), read_ranges(folder / CUT_RANGES)
    counts = {"ranges_out": len(ranges), "duplicate_bytes": _covered(ranges), "removed_bytes": _covered(cut)}
    return Recount(counts)


def _covered(ranges: NDArray[np.uint64]) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def _writeback(build: RecordedBuild, unit: str, folder: Path) -> Recount:
    names = [file.name for file in build.plan.shards[int(unit)]]
    return Recount({"documents_out": sum(_lines(folder / writeback.FOLDER / name) for name in names)})


def _lines(path: Path) -> int:
    """Lines of a file, decompressed; the last one need not end."""
    if path.name.endswith(".parquet"):
        with path.open("rb") as table:
            return int(open_parquet(table, str(path)).metadata.num_rows)
    lines, last = 0, b"\n"
    with path.open("rb") as raw, open_decompressed(raw, str(path)) as stream:
        while block := stream.read(BLOCK):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


def _tokenize(_build: RecordedBuild, unit: str, folder: Path) -> Recount:
    shard = open_token_shard(folder)
    _require_ascending(folder / "ends", shard.ends)
    largest = max((int(shard.tokens[at : at + BLOCK].max()) for at in range(0, len(shard.tokens), BLOCK)), default=0)
    if largest >= shard.vocabulary_size:
        raise _contradiction(folder / "tokens", f"ids below {shard.vocabulary_size:,}", largest)
    vocabulary = {
        "name": shard.tokenizer,
        "sha256": shard.tokenizer_sha256,
        "size": shard.vocabulary_size,
        "eot_id": shard.eot_id,
        "dtype": shard.tokens.dtype.name,
        "pad_id": shard.pad_id,
        "bos_id": shard.bos_id,
        "revision": shard.tokenizer_revision,
    }
    empty = int((np.diff(shard.ends, prepend=np.uint64(0)) == 0).sum())
    counts = {"documents_out": shard.documents, "documents_empty": empty, "tokens": len(shard.tokens)}
    ordinals = np.arange(shard.documents, dtype=np.uint64)
    content = _content(shard.tokens, np.asarray(shard.ends), int(unit), ordinals)
    return Recount(counts, {"vocabulary": vocabulary, "content": str(content)})


def _audit(_build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    said = json.loads((folder / AUDIT).read_bytes())
    return Recount({key: said[key] for key in ("sampled", "documents", "text_bytes", "tokens", "round_trips")})


def _scatter(_build: RecordedBuild, unit: str, folder: Path) -> Recount:
    dtype = np.dtype(json.loads((folder / "scatter.json").read_bytes())["dtype"]).newbyteorder("<")
    tokens, rows = mapped(folder / "tokens", dtype), mapped(folder / "rows", "<u8").reshape(-1, 3)
    ends = np.cumsum(rows[:, 2], dtype=np.uint64)
    bounds = np.fromfile(folder / "cells", "<u8").reshape(-1, 2)
    _require_ascending(folder / "rows", ends)
    _require_ascending(folder / "cells", bounds[:, 0], bounds[:, 1])
    stated = bounds[-1].tolist()
    seen = [len(rows), len(tokens)]
    token_ends = np.concatenate([np.zeros(1, np.uint64), ends])
    if stated != seen or int(token_ends[-1]) != len(tokens) or (token_ends[bounds[:, 0]] != bounds[:, 1]).any():
        raise _contradiction(folder / "cells", f"{seen} rows and tokens, each cell at a row's first token", stated)
    shard = split_unit(unit)[1]
    details = {
        "content": str(_content(tokens, ends, shard, np.ascontiguousarray(rows[:, 0]))),
        "records_per_cell": np.diff(bounds[:, 0]).tolist(),
        "slots_per_cell": np.diff(bounds[:, 1]).tolist(),
    }
    return Recount({"records": len(rows), "slots": len(tokens)}, details)


def _gather(_build: RecordedBuild, unit: str, folder: Path) -> Recount:
    cell = open_record_shard(folder)
    _require_ascending(folder / "records", cell.ends)
    counts = {"records": cell.records, "slots": len(cell.tokens), "bytes_read": cell.tokens.nbytes}
    places = np.arange(cell.records, dtype=np.uint64)
    details = {
        "content": str(_content(cell.tokens, cell.ends, cell.shards, cell.ordinals)),
        "places_content": str(_content(cell.tokens, cell.ends, split_unit(unit)[1], places)),
    }
    return Recount(counts, details, complete=True)


def _content(tokens: NDArray[Any], ends: NDArray[np.uint64], units: Any, ordinals: NDArray[np.uint64]) -> ContentSum:
    """The content of records laid back to back, block by block; `ends` must lie in `tokens`."""
    units = np.broadcast_to(np.asarray(units, np.uint64), ordinals.shape)
    content = NOTHING
    for first, last in runs(ends, BLOCK):
        start = ends[first - 1] if first else np.uint64(0)
        lengths = np.diff(ends[first:last], prepend=start)
        block = tokens[int(start) : int(ends[last - 1])]
        content += records_sum(block, lengths, units[first:last], ordinals[first:last])
    return content


def _manifest(_build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    files = json.loads((folder / DATASET).read_bytes())["files"]
    size = sum(one["size_bytes"] for one in files)
    return Recount({"files": len(files), "dataset_bytes": size, "bytes_read": 0}, complete=True)


def _upload(_build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    files = json.loads((folder / "uploaded.json").read_bytes())
    size = sum(one["size_bytes"] for one in files)
    return Recount({"files": len(files), "dataset_bytes": size, "bytes_read": size}, complete=True)


def _report(build: RecordedBuild, _unit: str, folder: Path) -> Recount:
    summary = from_json((folder / SUMMARY).read_bytes())
    manifest = build.find("manifest", DATASET_UNIT)  # without one, a finding of its own says so
    details = listed_details(build.config, version_of(manifest), summary) if manifest else {}
    return Recount(headline(summary), details, complete=manifest is not None)


def _require_ascending(path: Path, *columns: NDArray[np.uint64]) -> None:
    """CorruptDataError if a column falls: kernels trust ends, and a sum that wrapped around falls somewhere."""
    for column in columns:
        falls = np.flatnonzero(column[1:] < column[:-1])
        if len(falls):
            at = int(falls[0])
            raise _contradiction(
                path, "counts that never fall", f"{column[at]:,} then {column[at + 1]:,} at {at + 1:,}"
            )


def _contradiction(path: Path, expected: object, got: object) -> CorruptDataError:
    return CorruptDataError("a file contradicts what lies beside it", where=path, expected=expected, got=got)


RECOUNTS: dict[str, Callable[[RecordedBuild, str, Path], Recount]] = {
    "plan": _plan,
    "download": _download,
    "index": _index,
    "anchor": _anchor,
    "suffix_array": _suffix_array,
    "match": _match,
    "union": _union,
    "writeback": _writeback,
    "tokenize": _tokenize,
    "audit": _audit,
    "scatter": _scatter,
    "gather": _gather,
    "manifest": _manifest,
    "upload": _upload,
    "report": _report,
}
