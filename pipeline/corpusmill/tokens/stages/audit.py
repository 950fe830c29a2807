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

import msgspec
from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.union import CUT_RANGES, cuts_stage
from corpusmill.engine.ledger import RECEIPT_NAME, Check, Outcome, Receipt, read_receipt, versions_of
from corpusmill.engine.stage import Recount, Shown, Stage, StepName, whole
from corpusmill.engine.work import Input, Inputs, Resources, Sources, Work
from corpusmill.engine.work_folder.small import refresh_all
from corpusmill.errors import CorruptDataError, VerificationError
from corpusmill.lazy import lazily
from corpusmill.sources.parts import PlacedSettings, lines_before, places_in, shard_sources
from corpusmill.sources.stages.index import final_stage
from corpusmill.tokens.stages.tokenize import engine_of, identified_tokenizer, selection_of

with lazily:
    import numpy as np

    from corpusmill.dedup import ranges as dedup_ranges
    from corpusmill.documents import text_shard
    from corpusmill.kernels import mapping
    from corpusmill.tokens import audit, token_shard


if TYPE_CHECKING:
    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build
    from corpusmill.tokens.tokenizer import Tokenizer

DATASET = "dataset"
AUDIT = "audit.json"
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


class Settings(PlacedSettings, frozen=True, kw_only=True):
    """The tokenizer and its libraries; of a shard how many of its `documents` are audited; of the dataset the `band`
    around bytes per token, and the settings of its text.
    """

    tokenizer: dict[str, Any]
    libraries: dict[str, str]
    documents: int | UnsetType = UNSET
    band: float | UnsetType = UNSET
    text: dict[str, Any] | UnsetType = UNSET


def _inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    if unit == DATASET:
        return {"tokens": whole(build, "tokenize")}
    removing = build.config.dedup.mode == "remove"
    return {
        "tokens": [("tokenize", unit)],
        "text": [(final_stage(build, unit), unit)],
        "cuts": [(cuts_stage(build), unit)] if removing else [],
    }


def _identity(build: Build, unit: str) -> Settings:
    config, engine = build.config, engine_of(build.config)
    tokenizer = {**config.tokenizer.model_dump(exclude={"file"}), "engine": engine}
    defining = config.lock.tokenizer_library if config.lock else ""
    libraries = versions_of(*sorted({engine, "tiktoken", "tokenizers"} | ({defining} if defining else set())))
    if unit == DATASET:
        text = config.model_dump(mode="json", include=OF_TEXT, exclude=NOT_OF_TEXT, exclude_none=True)
        return Settings(tokenizer=tokenizer, libraries=libraries, band=config.audit.bytes_per_token_band, text=text)
    documents, before = sampled_documents(build, unit), lines_before(build, unit) or UNSET
    return Settings(tokenizer=tokenizer, libraries=libraries, documents=documents, lines_before=before)


def _sources(build: Build, unit: str) -> list[Sources]:
    return [] if unit == DATASET else shard_sources(build, unit)


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:
    encoded = inputs.every("tokens")
    tokenizer = identified_tokenizer(settings.tokenizer, encoded[0].receipt.settings["lock"], resources)
    if settings.documents is UNSET:
        audited = audit.audit_tricky(tokenizer)
        sources = _bytes_per_token(encoded)
        _require_within_band(settings, sources, folder, resources)
        details: dict[str, Any] = {"tokenizer": tokenizer.name, "sources": sources}
        sampled = audited.documents
    else:
        sampled = settings.documents
        audited = audit.audit_documents(_sample(inputs, settings, sampled, tokenizer), tokenizer)
        details = {}
    counts = {"sampled": sampled, **asdict(audited), "bytes_read": audited.text_bytes}
    (folder / AUDIT).write_text(json.dumps({**counts, **details}, indent=1, ensure_ascii=False) + "\n")
    return Outcome(counts=counts, details=details)


def _sample(inputs: Inputs, settings: Settings, wanted: int, tokenizer: Tokenizer) -> Iterator[tuple[str, bytes, Any]]:
    """(place in the source, tokenized text, written ids) of the sampled documents of a shard."""

    text = text_shard.open_text_shard(inputs["text"].folder())
    tokens = token_shard.open_token_shard(inputs["tokens"].folder())
    text_of = _without_ranges(inputs["cuts"], text) if "cuts" in inputs else text.document_bytes
    place = places_in(inputs.source.files, text, settings.lines_before)
    minimum = inputs["tokens"].receipt.settings.get("selection", UNSET)
    selection = selection_of(minimum)
    for number, ordinal in enumerate(audit.sample_ordinals(int(inputs.unit), text.documents, wanted).tolist()):
        if number % RELEASE_EVERY == 0:  # the kernel may map 2 MiB for every document, and in the end all of both files
            mapping.release_pages(text.text)
            mapping.release_pages(tokens.tokens)
        source, line = place(ordinal)
        document, ids = text_of(ordinal), tokens.document(ordinal)
        if minimum is not UNSET and not len(ids) and document:
            whole = np.array([tokenizer.reference.encode(document).size], np.uint64)
            if selection.too_short(np.array([len(document)], np.uint64), whole)[0]:
                document = b""  # dropped by `selection`: it must have no ids
        yield f"{source}, line {line + 1:,}, as tokenized", document, ids


def _without_ranges(cuts: Input, text: TextShard) -> Callable[[int], bytes]:
    """A function from an ordinal to the document's text after deduplication."""
    ranges = dedup_ranges.read_ranges(cuts.folder() / CUT_RANGES)
    return lambda ordinal: dedup_ranges.remove_ranges_from(text.text, text.offsets, ranges, ordinal, ordinal + 1)[
        0
    ].tobytes()


def _bytes_per_token(encoded: list[Input]) -> dict[str, list[int]]:
    """[bytes of text, tokens] of every source, which here is a folder of source files."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for step in encoded:
        for detail in step.receipt.details["by_source_file"]:
            folder = totals[detail["path"].rpartition("/")[0] or HERE]
            folder[0] += detail["text_bytes"]
            folder[1] += detail["tokens"]
    return dict(sorted(totals.items()))


def _require_within_band(settings: Settings, sources: dict[str, list[int]], folder: Path, resources: Resources) -> None:
    """VerificationError for a source whose bytes per token left the band around the last comparable build's."""
    last = _last_audit(settings, folder, resources.steps_folder)
    band = settings.band or 0.0
    for name, (text_bytes, tokens) in sources.items():
        before_bytes, before_tokens = last.details["sources"].get(name, (0, 0)) if last else (0, 0)
        if min(text_bytes, before_bytes) < COMPARED_TEXT_BYTES or not min(tokens, before_tokens):
            continue
        now, before = text_bytes / tokens, before_bytes / before_tokens
        if abs(now / before - 1) > band:
            raise VerificationError(
                f"audit.bytes_per_token: the bytes per token of a source moved by more than {band:.0%} since the last"
                " build",
                where=", ".join(resources.sources) if name == HERE else name,
                expected=f"{before * (1 - band):.3f} to {before * (1 + band):.3f}: {before:.3f} with these settings",
                got=f"{now:.3f}: {text_bytes:,} bytes, {tokens:,} tokens",
                next_step="inspect the source's text; if the change is intended, raise audit.bytes_per_token_band once",
            )


def _last_audit(settings: Settings, folder: Path, audits: Path) -> Receipt | None:
    """The receipt of the newest other audit of this dataset with the same settings of text and tokenizer; None if there
    is none.

    Receipts that are damaged, or were sealed differently by another version, are skipped.
    """
    own_settings = _comparable(msgspec.json.decode(msgspec.json.encode(settings)))  # as a receipt holds them
    own = {folder, folder.parent}  # the second one during a rerun: see engine/ledger/once.py
    refresh_all(audits, RECEIPT_NAME)
    paths = [path for path in audits.glob(f"{DATASET}-*/{RECEIPT_NAME}") if path.parent not in own]
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
    units=lambda build: [DATASET, *build.units("tokenize")],
    work=Work(Settings, _identity, _inputs, _run, _sources),
    recount=_recount,
    checks=_checks,
    shown=Shown(on_trunk=False),
)
