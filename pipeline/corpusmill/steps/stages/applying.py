"""Applies steps to a text shard: asks them, writes the result, counts it and checks it, for `filter` and `refine`; and
what steps, decisions and takedowns did in all shards, for the report.

dropped.jsonl, attributes.jsonl   a row per document: file, line, id, and the reason, or its attributes
samples.jsonl                     some dropped documents, with the beginning of their texts
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from corpusmill.config import FORGOTTEN, StepConfig
from corpusmill.engine.ledger import Check, Receipt
from corpusmill.engine.stage import Recount, every
from corpusmill.kernels import advance
from corpusmill.kernels.content import ContentSum
from corpusmill.lazy import lazily
from corpusmill.report.content import DecisionsFound, DroppedExample, FilterSummary, StepFound
from corpusmill.sources.parts import PlacedSettings
from corpusmill.sources.stages.subset import account_of_subset, recount_subset
from corpusmill.steps.stages.decisions import first_unmatched

with lazily:
    import numpy as np
    import orjson

    from corpusmill.documents import text_shard_subset
    from corpusmill.kernels import mapping, slices
    from corpusmill.steps import answers
    from corpusmill.steps import chain as steps_chain


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import DocumentStrings, TextShard
    from corpusmill.engine.build import Build
    from corpusmill.engine.work import Resources
    from corpusmill.sources.parts import FilePlace
    from corpusmill.steps import Batch
    from corpusmill.steps.chain import Chain


DROPPED, ATTRIBUTES, SAMPLES = "dropped.jsonl", "attributes.jsonl", "samples.jsonl"
GONE, GONE_BYTES = "dropped_", "text_bytes_dropped_"  # counts by reason
COPY = f"{FORGOTTEN}: copy"  # the reason of documents with the text of a forgotten one
TO_FORGET = {FORGOTTEN, COPY}  # reasons for which only a document's place is written
EMPTIED = "emptied"  # the reason of documents of which deduplication or steps left nothing
SAMPLES_OF_A_REASON = 20  # per shard
PREVIEW_CHARACTERS = 300

Place = Literal["index", "writeback"]


class StepsSettings(PlacedSettings, frozen=True, kw_only=True):
    """The steps and the identities of their code."""

    steps: list[dict[str, Any]]
    code: list[dict[str, str]]


def steps_before(build: Build, place: Place) -> dict[str, Any]:
    """`steps` and `code` of the configured steps of a place, in order."""
    pairs = zip(build.config.steps or (), build.plan.steps or (), strict=True)
    own = [(step, code) for step, code in pairs if step.before == place]
    steps = [
        step.model_dump(mode="json", exclude={"seconds"} if step.fields else {"seconds", "fields"}) for step, _ in own
    ]
    return {"steps": steps, "code": [code for _, code in own]}


def chain_of(settings: StepsSettings, resources: Resources) -> Chain:
    """The steps that settings identify, loaded."""
    steps = [StepConfig.model_validate(step) for step in settings.steps]
    timed = [step.model_copy(update={"seconds": resources.seconds[step.called]}) for step in steps]
    return steps_chain.Chain(timed, settings.code)


def batch_of(
    text: TextShard,
    ids: DocumentStrings,
    first: int,
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    place: Callable[[int], FilePlace],
    between: int = 0,
) -> Batch:
    """Documents from `first` on, as steps see them. Document i of them is `data[bounds[i] + between : bounds[i + 1]]`:
    `between` bytes precede each. `place`: of a document of `text`, by its ordinal.
    """
    fields = text.document_fields()

    def fields_of(ordinal: int) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(fields[ordinal]) if fields else {}
        return found

    def where(ordinal: int) -> tuple[str, str, int]:
        source, line = place(ordinal)
        return ids[ordinal], source, line + 1

    ordinals = np.arange(first, first + len(bounds) - 1)
    return answers.Batch(data, bounds[:-1] + between, bounds[1:], where, ordinals, fields_of)


class AppliedSteps:
    """Applies a chain of steps to the documents of a shard and writes the result.

    `gone`      {ordinal: reason}, ascending, of documents that are dropped without asking the chain
    `passed`    ordinals of documents that are kept without asking the chain
    `place`     of a document, by its ordinal
    `drops_emptied`    documents of which the chain leaves nothing are dropped

    Afterwards `dropped` and `rewritten` have the ordinals of dropped documents, and of those with a new text.
    """

    def __init__(
        self,
        text: TextShard,
        chain: Chain,
        place: Callable[[int], FilePlace],
        *,
        gone: Mapping[int, str] | None = None,
        passed: Container[int] = (),
        drops_emptied: bool = False,
    ) -> None:
        self.dropped: list[int] = []
        self.rewritten: list[int] = []
        self._text, self._ids, self._chain = text, text.document_ids(), chain
        self._place_of = place
        self._gone, self._passed, self._drops_emptied = gone or {}, passed, drops_emptied
        self._reasons: Counter[str] = Counter()
        self._reason_bytes: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._added_bytes = self._cut_bytes = self._attributed = 0

    def write(self, folder: Path, read: Callable[[DocumentStrings, int, int], Batch]) -> None:
        """Write the resulting text shard and the files of rows; `read`: documents [first, last) as steps see them.

        StepError and StepChangedError as the chain raises them.
        """

        names = (DROPPED, ATTRIBUTES, SAMPLES)
        dropped, attributed, samples = ((folder / name).open("wb") for name in names)
        with text_shard_subset.SubsetWriter(folder, self._text) as subset, dropped, attributed, samples:
            bounds = self._text.bounds(0, self._text.documents)
            advance.begin(len(self._text.text))
            for number, (first, last) in enumerate(slices.runs(bounds[1:], steps_chain.BATCH_BYTES)):
                advance.note(int(bounds[last] - bounds[first]))
                batch = read(self._ids, first, last)
                asked = [
                    ordinal
                    for ordinal in range(first, last)
                    if ordinal not in self._gone and ordinal not in self._passed
                ]
                outcomes = self._chain.outcomes(
                    batch.taken(np.array(asked, np.int64) - first), twice=number % steps_chain.TWICE == 0
                )
                if self._drops_emptied:
                    outcomes.drop([place for place, text in outcomes.texts.items() if not text], EMPTIED)
                left_out = {ordinal: self._gone[ordinal] for ordinal in range(first, last) if ordinal in self._gone}
                left_out |= {asked[place]: reason for place, reason in outcomes.dropped.items()}
                left_out = dict(sorted(left_out.items()))
                texts = {asked[place]: outcomes.texts[place] for place in sorted(outcomes.texts)}
                subset.append(first, last, left_out, texts)
                self._failed += outcomes.failed
                for ordinal, reason in left_out.items():
                    self._drop(ordinal, reason, batch.text_of(ordinal - first), dropped, samples)
                for ordinal, text in texts.items():
                    change = len(text) - len(batch.text_of(ordinal - first))
                    self._added_bytes += max(0, change)
                    self._cut_bytes += max(0, -change)
                for place in sorted(outcomes.attributes):
                    own = {step: json.loads(data) for step, data in outcomes.attributes[place].items()}
                    _write_row(attributed, {**self._place(asked[place]), "attributes": own})
                    self._attributed += 1
                self.dropped += left_out
                self.rewritten += texts
                mapping.release_pages(self._text.text)
        self._chain.require_same_code()

    def _drop(self, ordinal: int, reason: str, data: bytes, dropped: BinaryIO, samples: BinaryIO) -> None:
        self._reasons[reason] += 1
        self._reason_bytes[reason] += len(data)
        row = {**self._place(ordinal), "reason": reason}
        if reason in TO_FORGET:
            _write_row(dropped, {**row, "id": ""})
            return
        _write_row(dropped, row)
        if self._reasons[reason] <= SAMPLES_OF_A_REASON:
            preview = data[: 4 * PREVIEW_CHARACTERS].decode(errors="ignore")[:PREVIEW_CHARACTERS]
            _write_row(samples, {**row, "text_bytes": len(data), "preview": preview})

    def _place(self, ordinal: int) -> dict[str, Any]:
        source, line = self._place_of(ordinal)
        return {"file": source, "line": line + 1, "id": self._ids[ordinal]}

    def account(self, shard: str, folder: Path) -> tuple[dict[str, int], dict[str, Any]]:
        """Counts and details of the step; kept texts are read again, each weighted by its place in the shard before."""

        gone, rewritten = (np.array(ordinals, np.int64) for ordinals in (self.dropped, self.rewritten))
        parts = {"dropped": gone, "rewritten": rewritten}
        counts, details = account_of_subset(self._text, shard, folder, gone, parts)
        counts |= {
            "documents_rewritten": len(rewritten),
            "text_bytes_added": self._added_bytes,
            "text_bytes_cut": self._cut_bytes,
            "documents_with_attributes": self._attributed,
            **{f"{GONE}{reason}": count for reason, count in sorted(self._reasons.items())},
            **{f"{GONE_BYTES}{reason}": count for reason, count in sorted(self._reason_bytes.items())},
            **{f"failed_{step}": count for step, count in sorted(self._failed.items()) if count},
        }
        return counts, details


def _write_row(file: BinaryIO, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def dropped_by_reason(counts: Mapping[str, int], of: str = GONE) -> dict[str, int]:
    """Documents that steps dropped, by reason; with GONE_BYTES, the bytes of their texts."""
    return {name.removeprefix(of): count for name, count in counts.items() if name.startswith(of)}


def account_checks(name: str, before: Receipt, receipt: Receipt, duplicates: int | None = None) -> list[Check]:
    """The input of a step, `before`, equals what it kept, dropped and rewrote: content, documents and bytes.

    `duplicates`: the bytes of texts that deduplication removed, if the step follows it; some are in what it kept.
    """
    counts = receipt.counts
    kept_bytes = counts["text_bytes_out"] - counts.get("removed_bytes", 0)
    removed = () if duplicates is None else (("duplicates", duplicates),)
    texts = tuple(
        (what, ContentSum.parse(receipt.details[f"{what}_content"])) for what in ("kept", "dropped", "rewritten")
    )
    return [
        Check(name, (("indexed", ContentSum.parse(before.details["content"])),), texts),
        Check(
            "documents",
            (("indexed", before.counts["documents_out"]),),
            (("kept", counts["documents_out"]), *dropped_by_reason(counts).items()),
        ),
        Check(
            "text bytes",
            (("indexed", before.counts["text_bytes_out"]), ("added", counts["text_bytes_added"])),
            (
                ("kept", kept_bytes),
                *removed,
                ("cut", counts["text_bytes_cut"]),
                *dropped_by_reason(counts, GONE_BYTES).items(),
            ),
        ),
    ]


def rewritten_bytes(totals: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """(bytes that rewriting cut from texts, bytes that it added), by reason; without an entry for none."""
    cut, added = (totals.get(f"text_bytes_{what}") for what in ("cut", "added"))
    return {"rewritten": cut} if cut else {}, {"rewritten": added} if added else {}


def recount_applied(unit: str, folder: Path) -> Recount:
    """Counts and content of a step's files, recomputed."""
    with (folder / DROPPED).open("rb") as rows:
        reasons = Counter(f"{GONE}{json.loads(row)['reason']}" for row in rows)
    with (folder / ATTRIBUTES).open("rb") as rows:
        attributes = sum(1 for _ in rows)
    return recount_subset(unit, folder, {"documents_with_attributes": attributes, **reasons})


EXAMPLES = 5  # of a reason, and of rows without a document
STAGES = ("filter", "refine")


def filter_summary(build: Build) -> FilterSummary | None:
    """What the list of `forget`, decisions and steps dropped and changed; None if the dataset has none of them."""
    if not any(build.units(stage) for stage in (*STAGES, "decided")):
        return None
    totals: Counter[str] = Counter()
    early, late = (build.rollup(stage).totals for stage in STAGES)
    for of_stage in (early, late):
        totals.update(of_stage)
    documents, text_bytes = (dropped_by_reason(totals, of) for of in (GONE, GONE_BYTES))
    reasons = [
        StepFound(reason=name, documents=count, text_bytes=text_bytes[name]) for name, count in documents.items()
    ]
    return FilterSummary(
        documents=build.total("index", "documents_out"),
        documents_dropped=sum(documents.values()),
        documents_dropped_late=sum(dropped_by_reason(late).values()),
        documents_lost=build.total("lost", "documents_lost"),
        text_bytes_lost=build.total("lost", "text_bytes_lost"),
        documents_rewritten=early.get("documents_rewritten", 0),
        documents_rewritten_late=late.get("documents_rewritten", 0),
        documents_with_attributes=early.get("documents_with_attributes", 0),
        documents_with_attributes_late=late.get("documents_with_attributes", 0),
        failed=dict(sorted(dropped_by_reason(totals, "failed_").items())),
        reasons=tuple(sorted(reasons, key=lambda row: (-row.documents, row.reason))),
        examples=tuple(_examples(build)),
        decisions=decisions_found(build),
    )


def decisions_found(build: Build) -> tuple[DecisionsFound, ...]:
    """How many rows of each list match a document, and the first that do not."""
    return tuple(
        DecisionsFound(
            name=name,
            decisions=build.receipt("decisions", name).counts["decisions"],
            unmatched=build.receipt("decided", name).counts["unmatched"],
            unmatched_places=first_unmatched(build, name, EXAMPLES),
        )
        for name in build.units("decided")
    )


def _examples(build: Build) -> list[DroppedExample]:
    """The first few documents of each reason, in dataset order."""
    shown: dict[str, list[DroppedExample]] = {}
    for stage, shard in [*every(build, "filter"), *every(build, "refine")]:
        with build.opened(stage, shard) as folder, (folder / SAMPLES).open("rb") as rows:
            for row in map(orjson.loads, rows):
                examples = shown.setdefault(row["reason"], [])
                if len(examples) < EXAMPLES:
                    examples.append(
                        DroppedExample(
                            reason=row["reason"],
                            source_file=row["file"],
                            line=row["line"],
                            id=row["id"],
                            text_bytes=row["text_bytes"],
                            excerpt=row["preview"],
                        )
                    )
    return [example for reason in sorted(shown) for example in shown[reason]]
