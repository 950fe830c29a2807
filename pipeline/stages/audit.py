"""Audit: compares a sample of the tokenized documents with the library that defines the ids; exports wait for it.

Units are the shards, each with its share of the sample, and `dataset`: the fixed tricky strings, and every source's
bytes per token against those of the last build with the same settings of its text and tokenizer.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage, whole
from corpusmill.errors import CorruptDataError, VerificationError
from corpusmill.ledger import RECEIPT_NAME, Check, Outcome, Receipt, read_receipt, versions_of
from corpusmill.stages.index import final_stage
from corpusmill.stages.parts import lines_before_settings, places_of
from corpusmill.stages.tokenize import configured_tokenizer, engine_of, selection_of
from corpusmill.stages.union import CUT_RANGES, cuts_stage
from corpusmill.work_folder.small import refresh_all

if TYPE_CHECKING:
    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build, StepView

DATASET = "dataset"
AUDIT = "audit.json"
MOST_TASKS = 4  # each task loads the vocabulary twice, for the engine and the reference: a second, longer than its work
HERE = "."  # the source of files that lie in none of the folders below source.paths
UNPROVEN_FACTOR = 4
RELEASE_EVERY = 32  # documents
COMPARED_TEXT_BYTES = 1 << 16  # sources with less text are not compared: chance moves them
OF_TEXT = {"source": {"text_field"}} | dict.fromkeys(
    ("dedup", "steps", "decisions", "decontamination", "selection"), True
)
NOT_OF_TEXT = {"dedup": {"memory", "writeback", "annotate_key", "replace_existing"}}
"""Settings that decide what text of a source is tokenized."""

log = logging.getLogger(__name__)


def require_audited(build: Build) -> None:
    """Raise StepMissingError until the whole audit has passed."""
    build.rollup("audit")


def sampled_documents(build: Build, shard: str) -> int:
    """How many documents of a shard are audited: its part of the share, or of the minimum if that is more.

    Up to UNPROVEN_FACTOR times as many if decoding could not prove the ids (tokens/decoding.py).
    """
    wanted = build.config.audit
    counts = build.receipt("tokenize", shard).counts
    total, here = build.total("tokenize", "documents_out"), counts["documents_out"]
    wider = 1 + (UNPROVEN_FACTOR - 1) * counts["documents_unproven"] / max(1, here)
    return min(here, -int(-here * wider * max(wanted.share, wanted.minimum_documents / max(1, total)) // 1))


def _inputs(build: Build, unit: str) -> list[tuple[str, str]]:
    if unit == DATASET:
        return whole(build, "tokenize")
    removing = build.config.dedup.mode == "remove"
    read = ["tokenize", final_stage(build, unit), *([cuts_stage(build)] if removing else [])]
    return [(stage, unit) for stage in dict.fromkeys(read)]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    tokenizer = {**build.config.tokenizer.model_dump(exclude={"file"}), "engine": engine_of(build.config)}
    settings = {"tokenizer": tokenizer, "libraries": _libraries(build)}
    if unit == DATASET:
        text = build.config.model_dump(mode="json", include=OF_TEXT, exclude=NOT_OF_TEXT, exclude_none=True)
        return {**settings, "band": build.config.audit.bytes_per_token_band, "text": text}
    return {**settings, "documents": sampled_documents(build, unit), **lines_before_settings(build, unit)}


def _libraries(build: Build) -> dict[str, str]:
    return versions_of(*sorted({engine_of(build.config), "tiktoken", "tokenizers"}))


def _run(build: StepView, unit: str, folder: Path) -> Outcome:
    from corpusmill.tokens.audit import audit_documents, audit_tricky

    if unit == DATASET:
        audited = audit_tricky(configured_tokenizer(build.config))
        sources = _bytes_per_token(build)
        _require_within_band(build, sources, folder)
        details: dict[str, Any] = {"tokenizer": build.config.tokenizer.name, "sources": sources}
        sampled = audited.documents
    else:
        sampled = build.settings["documents"]
        audited = audit_documents(_sample(build, unit, sampled), configured_tokenizer(build.config))
        details = {}
    counts = {"sampled": sampled, **asdict(audited), "bytes_read": audited.text_bytes}
    (folder / AUDIT).write_text(json.dumps({**counts, **details}, indent=1, ensure_ascii=False) + "\n")
    return Outcome(counts=counts, details=details)


def _sample(build: StepView, shard: str, wanted: int) -> Iterator[tuple[str, bytes, Any]]:
    """(place in the source, tokenized text, written ids) of the sampled documents of a shard."""
    import numpy as np

    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.slices import release_pages
    from corpusmill.tokens.audit import sample_ordinals
    from corpusmill.tokens.token_shard import open_token_shard

    text = open_text_shard(build.folder(final_stage(build, shard), shard))
    tokens = open_token_shard(build.folder("tokenize", shard))
    text_of = _without_ranges(build, shard, text) if build.config.dedup.mode == "remove" else text.document_bytes
    place = places_of(build, shard, text, build.settings.get("lines_before", {}))
    leaves_out, selection = build.config.selection.leaves_out(), selection_of(build.config)
    reference = configured_tokenizer(build.config).reference
    for number, ordinal in enumerate(sample_ordinals(int(shard), text.documents, wanted).tolist()):
        if number % RELEASE_EVERY == 0:  # the kernel may map 2 MiB for every document, and in the end all of both files
            release_pages(text.text)
            release_pages(tokens.tokens)
        source, line = place(ordinal)
        document, ids = text_of(ordinal), tokens.document(ordinal)
        if leaves_out and not len(ids) and document:
            whole = np.array([reference.encode(document).size], np.uint64)
            if selection.too_short(np.array([len(document)], np.uint64), whole)[0]:
                document = b""  # dropped by `selection`: it must have no ids
        yield f"{source}, line {line + 1:,}, as tokenized", document, ids


def _without_ranges(build: Build, shard: str, text: TextShard) -> Callable[[int], bytes]:
    """A function from an ordinal to the document's text after deduplication."""
    from corpusmill.dedup.ranges import read_ranges, remove_ranges_from  # compiled, and only needed here

    ranges = read_ranges(build.folder(cuts_stage(build), shard) / CUT_RANGES)
    return lambda ordinal: remove_ranges_from(text.text, text.offsets, ranges, ordinal, ordinal + 1)[0].tobytes()


def _bytes_per_token(build: Build) -> dict[str, list[int]]:
    """[bytes of text, tokens] of every source, which here is a folder of source files."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for receipt in build.receipts("tokenize"):
        for detail in receipt.details["by_source_file"]:
            folder = totals[detail["path"].rpartition("/")[0] or HERE]
            folder[0] += detail["text_bytes"]
            folder[1] += detail["tokens"]
    return dict(sorted(totals.items()))


def _require_within_band(build: StepView, sources: dict[str, list[int]], folder: Path) -> None:
    """VerificationError for a source whose bytes per token left the band around the last comparable build's."""
    last = _last_audit(build, folder)
    band = build.config.audit.bytes_per_token_band
    for name, (text_bytes, tokens) in sources.items():
        before_bytes, before_tokens = last.details["sources"].get(name, (0, 0)) if last else (0, 0)
        if min(text_bytes, before_bytes) < COMPARED_TEXT_BYTES or not min(tokens, before_tokens):
            continue
        now, before = text_bytes / tokens, before_bytes / before_tokens
        if abs(now / before - 1) > band:
            raise VerificationError(
                f"the bytes per token of a source moved by more than {band:.0%} since the last build",
                where=", ".join(build.config.source.paths) if name == HERE else name,
                expected=f"{before * (1 - band):.3f} to {before * (1 + band):.3f}: {before:.3f} with these settings",
                got=f"{now:.3f}: {text_bytes:,} bytes, {tokens:,} tokens",
                next_step="inspect the source's text; if the change is intended, raise audit.bytes_per_token_band once",
            )


def _last_audit(build: StepView, folder: Path) -> Receipt | None:
    """The receipt of the newest other audit of this dataset with the same settings of text and tokenizer; None if there
    is none.

    Receipts that are damaged, or were sealed differently by another version, are skipped.
    """
    own_settings = _comparable(json.loads(json.dumps(build.settings)))  # as a receipt holds them
    own = {folder, folder.parent}  # the second one during a rerun: see ledger/once.py
    refresh_all(build.work / "audit", RECEIPT_NAME)
    paths = [path for path in (build.work / "audit").glob(f"{DATASET}-*/{RECEIPT_NAME}") if path.parent not in own]
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime, path.parent.name)):
        try:
            receipt = read_receipt(path)
        except CorruptDataError as error:
            log.warning("bytes per token are not compared with an earlier audit: %s", error)
            continue
        if _comparable(receipt.settings) == own_settings:
            return receipt
    return None


def _comparable(settings: dict[str, Any]) -> Any:
    """What must be equal; the engine may differ, since all give the same ids."""
    return settings.get("text"), {key: value for key, value in settings["tokenizer"].items() if key != "engine"}


def _checks(_build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    counts = receipt.counts
    return [Check("audited documents", (("sampled", counts["sampled"]),), (("equal", counts["documents"]),))]


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    stated = json.loads((folder / AUDIT).read_bytes())
    return Recount({key: stated[key] for key in ("sampled", "documents", "text_bytes", "tokens", "round_trips")})


STAGE = Stage(
    "audit",
    version=3,
    after=("tokenize",),
    on_trunk=False,
    units=lambda build: [DATASET, *build.units("tokenize")],
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    checks=_checks,
    most_tasks=MOST_TASKS,
)
