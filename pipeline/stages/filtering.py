"""Filter: documents to be forgotten go, and those that decisions made elsewhere drop; then the configured steps decide.

Without steps only the shards that lose documents are written anew; the others stay what index made of them.

So the copy of a text that dedup would keep is never dropped after its repeats were: whatever is dropped was not there
when they were looked for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from corpusmill.config import FORGOTTEN
from corpusmill.content import ContentSum
from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages.copies import COPY, copies_of
from corpusmill.stages.index import filtered_stage, require_few_rejected, text_total
from corpusmill.stages.joined import left_out_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import DocumentIds, TextShard
    from corpusmill.engine.build import Build, StepView
    from corpusmill.report.facts import Flow
    from corpusmill.steps import Batch

DROPPED, ATTRIBUTES, SAMPLES = "dropped.jsonl", "attributes.jsonl", "samples.jsonl"
GONE, GONE_BYTES = "dropped_", "text_bytes_dropped_"  # counts by reason
TO_FORGET = {FORGOTTEN, COPY}  # nothing but the place is written of documents that go for these reasons
READERS = {"join": left_out_of, "copies": copies_of}
SAMPLES_OF_A_REASON = 20  # of a shard
PREVIEW_CHARACTERS = 300


def _units(build: Build) -> list[str]:
    if build.config.steps:
        return build.units("index")
    return [shard for shard in build.units("index") if _lists(build, shard)]


def _lists(build: Build, shard: str) -> list[str]:
    """The stages by which documents of a shard go before any step is asked; the first to say so says why."""
    lists = [stage for stage in READERS if build.units(stage)]
    return [stage for stage in lists if build.receipt(stage, shard).counts["left_out"]]


def _settings(build: Build, shard: str) -> dict[str, Any]:
    steps = [step.model_dump(mode="json", exclude={"seconds"}) for step in build.config.steps or ()]
    lists = _lists(build, shard)
    return {"steps": steps, "code": build.plan.steps or [], **({"lists": lists} if lists else {})}


def _inputs(build: Build, shard: str) -> list[tuple[str, str]]:
    return [("index", shard), *((stage, shard) for stage in _lists(build, shard))]


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    import numpy as np

    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.documents.text_shard_subset import SubsetWriter
    from corpusmill.slices import release_pages
    from corpusmill.steps.chain import BATCH_BYTES, TWICE, Chain
    from corpusmill.tokens.runs import runs

    text = open_text_shard(build.folder("index", shard))
    chain = Chain(build.config.steps or (), build.plan.steps)
    bounds = text.bounds(0, text.documents).astype(np.int64)
    ids = text.document_ids()
    listed = {stage: READERS[stage](build, shard) for stage in build.settings.get("lists", ())}
    decided = listed.get("copies", {}) | listed.get("join", {})
    tally = _Tally(folder, text, ids)
    with SubsetWriter(folder, text) as subset, tally:
        for number, (first, last) in enumerate(runs(bounds[1:].astype(np.uint64), BATCH_BYTES)):
            asked = np.array([one for one in range(first, last) if one not in decided], np.int64)
            outcomes = chain.outcomes(
                _batch(text, ids, bounds, first, last).taken(asked - first), twice=number % TWICE == 0
            )
            ordinals = asked.tolist()
            left_out = {one: decided[one] for one in range(first, last) if one in decided}
            left_out |= {ordinals[one]: reason for one, reason in outcomes.dropped.items()}
            left_out = dict(sorted(left_out.items()))
            texts = {ordinals[one]: outcomes.texts[one] for one in sorted(outcomes.texts)}
            attributes = {ordinals[one]: outcomes.attributes[one] for one in sorted(outcomes.attributes)}
            subset.append(first, last, left_out, texts)
            tally.add(left_out, texts, attributes, outcomes.failed)
            release_pages(text.text)
    counts, details = _written(text, shard, folder, tally)
    return Outcome(counts={**counts, "bytes_read": len(text.text)}, details=details)


def _batch(text: TextShard, ids: DocumentIds, bounds: NDArray[np.int64], first: int, last: int) -> Batch:
    import numpy as np

    from corpusmill.steps.answers import Batch

    def where(ordinal: int) -> tuple[str, str, int]:
        source, line = text.source_of(ordinal)
        return ids[ordinal], source, line + 1

    begin, end = int(bounds[first]), int(bounds[last])
    return Batch(
        text.text[begin:end],
        bounds[first:last] - begin + 1,
        bounds[first + 1 : last + 1] - begin,
        where,
        np.arange(first, last),
    )


class _Tally:
    """What became of a shard's documents: counted, and written to DROPPED, ATTRIBUTES and SAMPLES."""

    def __init__(self, folder: Path, text: TextShard, ids: DocumentIds) -> None:
        self.reasons: Counter[str] = Counter()
        self.reason_bytes: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.gone: list[int] = []
        self.rewritten: list[int] = []
        self.added_bytes = self.cut_bytes = self.attributes = 0
        self._folder, self._text, self._ids = folder, text, ids

    def __enter__(self) -> _Tally:
        self._dropped, self._attributes, self._samples = (
            (self._folder / name).open("wb") for name in (DROPPED, ATTRIBUTES, SAMPLES)
        )
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._dropped, self._attributes, self._samples):
            file.close()

    def add(
        self,
        left_out: dict[int, str],
        texts: dict[int, bytes],
        attributes: dict[int, dict[str, bytes]],
        failed: Counter[str],
    ) -> None:
        """A batch's documents by ordinal, ascending."""
        self.failed += failed
        for ordinal, reason in left_out.items():
            data = self._text.document_bytes(ordinal)
            self.reasons[reason] += 1
            self.reason_bytes[reason] += len(data)
            row = {**self._place(ordinal), "reason": reason}
            if reason in TO_FORGET:
                _write_row(self._dropped, {**row, "id": ""})
                continue
            _write_row(self._dropped, row)
            if self.reasons[reason] <= SAMPLES_OF_A_REASON:
                preview = data[: 4 * PREVIEW_CHARACTERS].decode(errors="ignore")[:PREVIEW_CHARACTERS]
                _write_row(self._samples, {**row, "text_bytes": len(data), "preview": preview})
        for ordinal, text in texts.items():
            change = len(text) - len(self._text.document_bytes(ordinal))
            self.added_bytes += max(0, change)
            self.cut_bytes += max(0, -change)
        for ordinal, by_step in attributes.items():
            own = {step: json.loads(data) for step, data in by_step.items()}
            _write_row(self._attributes, {**self._place(ordinal), "attributes": own})
            self.attributes += 1
        self.gone += left_out
        self.rewritten += texts

    def _place(self, ordinal: int) -> dict[str, Any]:
        source, line = self._text.source_of(ordinal)
        return {"file": source, "line": line + 1, "id": self._ids[ordinal]}


def _write_row(file: BinaryIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _written(text: TextShard, shard: str, folder: Path, tally: _Tally) -> tuple[dict[str, int], dict[str, Any]]:
    """Counts and details of the step; what stays is read again, each text at its place in the indexed shard."""
    import numpy as np

    from corpusmill.content_kernels import texts_sum
    from corpusmill.documents.text_shard import open_text_shard
    from corpusmill.documents.text_shard_subset import content_at
    from corpusmill.report.histograms import power_histogram

    kept = open_text_shard(folder)
    bounds = kept.bounds(0, kept.documents)
    gone, rewritten = (np.array(ordinals, np.int64) for ordinals in (tally.gone, tally.rewritten))
    stays = np.delete(np.arange(text.documents), gone)
    same = np.isin(stays, rewritten, assume_unique=True, invert=True)
    counts = {
        "documents_out": kept.documents,
        "text_bytes_out": kept.text_bytes,
        "documents_rewritten": len(rewritten),
        "text_bytes_added": tally.added_bytes,
        "text_bytes_cut": tally.cut_bytes,
        "documents_with_attributes": tally.attributes,
        **{f"{GONE}{reason}": count for reason, count in sorted(tally.reasons.items())},
        **{f"{GONE_BYTES}{reason}": count for reason, count in sorted(tally.reason_bytes.items())},
        **{f"failed_{step}": count for step, count in sorted(tally.failed.items()) if count},
    }
    details = {
        "content": str(texts_sum(kept.text, bounds, 1, int(shard), 0)),
        "kept_content": str(content_at(kept, np.flatnonzero(same), stays[same], int(shard))),
        "dropped_content": str(content_at(text, gone, gone, int(shard))),
        "rewritten_content": str(content_at(text, rewritten, rewritten, int(shard))),
        "document_bytes": power_histogram(np.diff(bounds).astype(np.int64) - 1).model_dump(),
    }
    return counts, details


def dropped_by_reason(counts: Mapping[str, int], of: str = GONE) -> dict[str, int]:
    """Documents that steps dropped, by reason; with GONE_BYTES, the bytes of their texts."""
    return {name.removeprefix(of): count for name, count in counts.items() if name.startswith(of)}


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    indexed = build.receipt("index", shard)
    counts = receipt.counts
    texts = tuple(
        (what, ContentSum.parse(receipt.details[f"{what}_content"])) for what in ("kept", "dropped", "rewritten")
    )
    return [
        Check("filtered text", (("indexed", ContentSum.parse(indexed.details["content"])),), texts),
        Check(
            "documents",
            (("indexed", indexed.counts["documents_out"]),),
            (("kept", counts["documents_out"]), *dropped_by_reason(counts).items()),
        ),
        Check(
            "text bytes",
            (("indexed", indexed.counts["text_bytes_out"]), ("added", counts["text_bytes_added"])),
            (
                ("kept", counts["text_bytes_out"]),
                ("cut", counts["text_bytes_cut"]),
                *dropped_by_reason(counts, GONE_BYTES).items(),
            ),
        ),
    ]


def _flows(build: Build) -> dict[str, Flow]:
    from corpusmill.report.facts import Flow

    totals = build.rollup("filter").totals
    documents, texts = (build.total("index", name) for name in ("documents_out", "text_bytes_out"))
    documents_out, texts_out = (
        text_total(build, f"{name}_out", filtered_stage) for name in ("documents", "text_bytes")
    )
    cut, added = (
        {"rewritten": count} if (count := totals.get(f"text_bytes_{what}")) else {} for what in ("cut", "added")
    )
    lost = {**dropped_by_reason(totals, GONE_BYTES), **cut}
    return {
        "documents": Flow(into=documents, out=documents_out, lost=dropped_by_reason(totals)),
        "text_bytes": Flow(into=texts, out=texts_out, lost=lost, gained=added),
    }


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    from corpusmill.content_kernels import texts_sum
    from corpusmill.documents.text_shard import open_text_shard

    text = open_text_shard(folder)
    content = texts_sum(text.text, text.bounds(0, text.documents), 1, int(unit), 0)
    with (folder / DROPPED).open("rb") as rows:
        reasons = Counter(f"{GONE}{json.loads(row)['reason']}" for row in rows)
    with (folder / ATTRIBUTES).open("rb") as rows:
        attributes = sum(1 for _ in rows)
    counts = {
        "documents_out": text.documents,
        "text_bytes_out": text.text_bytes,
        "documents_rewritten": len(text.rewritten),
        "documents_with_attributes": attributes,
        **reasons,
    }
    return Recount(counts, {"content": str(content)})


STAGE = Stage(
    "filter",
    version=1,
    after=("decided", "copies"),
    units_after=("join", "copies"),
    per_shard=True,
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    flows=_flows,
    checks=_checks,
    gate=require_few_rejected,
)
