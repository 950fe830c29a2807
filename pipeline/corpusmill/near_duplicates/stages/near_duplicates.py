"""Near-duplicates: names the documents of a shard that are copies of an earlier one but for small differences, and
leaves them out before the search for repeats.

Because they take no part in deduplication, the copy that dedup keeps is never dropped after its repeats were removed.
`annotate` and `report` leave the text unchanged; with `annotate`, writeback names the kept one in each document.

    pairs.jsonl     a line for each document that is left out (or would be), in order of documents: id, file, line,
                    kept_id, kept_file, kept_line, similarity, stands_for; if the n-th entry of `dedup.against` holds
                    the kept one, kept_reference: n
    left_out        u64 each: the ordinal of each line's document
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.annotating import LEFT_OUT, PAIRS
from corpusmill.dedup.stages.context import sections_in
from corpusmill.dedup.stages.partitions import text_opened
from corpusmill.dedup.stages.reference import is_reference, of_unit, places_of
from corpusmill.dedup.stages.union import code_span
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName, whole
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.errors import PermanentError
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.near_duplicates.stages.rounds import (
    ABOUT,
    ABOUT_ENDS,
    UNIT,
    compared_shards,
    place_among,
    settings_of,
    text_step,
    wanted,
)
from corpusmill.report.facts import Flow
from corpusmill.sources.parts import PlacedSettings, lines_before, places_in, shard_sources
from corpusmill.sources.stages.index import compared_stage, require_few_rejected
from corpusmill.sources.stages.subset import account_of_subset, checks_of_subset, flows_of_subset, recount_subset

with lazily:
    import numpy as np
    import orjson

    from corpusmill.documents import text_shard, text_shard_subset
    from corpusmill.kernels import mapping, slices
    from corpusmill.near_duplicates import decide as deciding
    from corpusmill.near_duplicates import groups, similarity


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build

STANDS_FOR = "near_duplicates.stands_for"  # a document's field: of how many alike it is the one that is kept
NEAR_DUPLICATE = "near-duplicates"  # why a line of a source file is not a document
WRITTEN_BYTES, LONGEST_PAIR_BYTES = 32 << 20, 1 << 20


class TooManyNearDuplicatesError(PermanentError):
    """A source would lose a larger share of its documents than the configuration allows."""


def _removes(build: Build) -> bool:
    return build.config.near_duplicates is not None and build.config.near_duplicates.action == "remove"


class Settings(PlacedSettings, frozen=True, kw_only=True):
    """Whether documents are left out, whether the others get the field STANDS_FOR, and the shard's place among those
    that are compared.
    """

    removes: bool
    shard: int
    stands_for: bool | UnsetType = UNSET


def _identity(build: Build, shard: str) -> Settings:
    before = lines_before(build, shard) or UNSET
    stands_for = build.plan.stands_for or UNSET
    place = place_among(build, shard)
    return Settings(removes=_removes(build), shard=place, lines_before=before, stands_for=stands_for)


def _inputs(build: Build, shard: str) -> dict[str, list[StepName]]:
    return {
        "text": [text_step(build, shard)],
        "decided": [("decide", UNIT)],
        "answers": whole(build, "reference_sets", "sets"),
    }


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    text = text_shard.open_text_shard(inputs["text"].folder())
    decided = sections_in(inputs["decided"].blocks)
    matches, copies = deciding.read_left_out(decided, settings.shard)
    left_out = matches["document"].astype(np.int64)
    kept = _about_kept(inputs, matches["earlier"])
    ids, place = text.document_ids(), places_in(inputs.source.files, text, settings.lines_before)
    with (folder / PAIRS).open("wb") as rows:
        for ordinal, about, share, number in zip(
            left_out.tolist(), kept, matches["similarity"].tolist(), copies.tolist(), strict=True
        ):
            file, line = place(ordinal)
            row = {"id": ids[ordinal], "file": file, "line": line + 1, **about, "similarity": share}
            rows.write(orjson.dumps({**row, "stands_for": number + 1}) + b"\n")
    (folder / LEFT_OUT).write_bytes(left_out.astype("<u8").data)
    counts: dict[str, int] = {}
    details: dict[str, Any] = {}
    if settings.removes:
        stand_for = decided.read(deciding.COPIES, settings.shard, "<u4") + np.uint32(1)
        _write_without(text, left_out, folder, (STANDS_FOR, stand_for) if settings.stands_for else None)
        counts, details = account_of_subset(text, inputs.unit, folder, left_out, {"left_out": left_out})
    sizes = np.diff(text.bounds(0, text.documents))[left_out] - np.uint64(1)
    counts |= {"documents_in": text.documents, "documents_left_out": len(left_out), "bytes_read": len(text.text)}
    counts |= {"text_bytes_left_out": int(sizes.sum())}
    return Outcome(counts=counts, details=details)


def is_pairs(file: BinaryIO) -> bool:
    """Whether a file holds pairs: it is empty, or its first line is one."""
    first = file.readline(LONGEST_PAIR_BYTES)
    try:
        return not first or {"kept_id", "similarity", "stands_for"} <= set(orjson.loads(first))
    except (orjson.JSONDecodeError, TypeError):
        return False


def _about_kept(inputs: Inputs, kept: NDArray[np.uint64]) -> list[dict[str, Any]]:
    """The id, file and line of each of these documents of any shard, and its reference if it is of one."""
    about: list[dict[str, Any]] = []
    numbers, of_each = np.unique(kept, return_inverse=True)
    answers = inputs.every("answers")
    for answer, own in zip(answers, groups.split_by_shard(numbers, numbers, len(answers)), strict=True):
        if not len(own):
            continue
        files = sections_in(answer.blocks)
        at = np.searchsorted(files.whole(similarity.LEADERS), own & np.uint64(0xFFFFFFFF))
        ends = np.concatenate([np.zeros(1, np.uint64), files.whole(ABOUT_ENDS)])
        with files.require(ABOUT, int(ends[at[0]]), int(ends[at[-1] + 1])), (files.folder / ABOUT).open("rb") as lines:
            about += [_line_at(lines, int(ends[place])) for place in at.tolist()]
    return [about[place] for place in of_each.tolist()]


def _line_at(lines: Any, place: int) -> dict[str, Any]:
    lines.seek(place)
    return {f"kept_{key}": value for key, value in orjson.loads(lines.readline()).items()}


def _write_without(
    text: TextShard, left_out: NDArray[np.int64], folder: Path, added: tuple[str, NDArray[Any]] | None
) -> None:
    """Write the text without some documents (`added`: see SubsetWriter)."""
    advance.begin(len(text.text))
    bounds = text.bounds(0, text.documents)
    with text_shard_subset.SubsetWriter(folder, text, added) as subset:
        for first, last in slices.runs(bounds[1:], WRITTEN_BYTES):
            own = left_out[np.searchsorted(left_out, first) : np.searchsorted(left_out, last)].tolist()
            subset.append(first, last, dict.fromkeys(own, NEAR_DUPLICATE), {})
            mapping.release_pages(text.text)
            advance.note(int(bounds[last] - bounds[first]))


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    before = build.receipt(compared_stage(build, shard), shard)
    to_compare = (("to compare", before.counts["documents_out"]),)
    compared = Check("compared", to_compare, (("documents", receipt.counts["documents_in"]),))
    if not _removes(build):
        return [compared]
    return [compared, *checks_of_subset("compared text", "before", before, receipt, "left_out", "left_out")]


def decided_check(build: Build) -> Check:
    """Documents that were decided to go = documents that all shards name."""
    decided = build.receipt("decide", UNIT).counts["documents_left_out"]
    named = build.total("near_duplicates", "documents_left_out")
    return Check("near-duplicates", (("decided", decided),), (("named", named),))


def _flows(build: Build) -> dict[str, Flow]:
    return flows_of_subset(build, "near_duplicates", compared_stage, NEAR_DUPLICATE) if _removes(build) else {}


def _recount(build: Build, unit: str, folder: Path) -> Recount:
    with (folder / PAIRS).open("rb") as rows:
        counts = {"documents_left_out": sum(1 for _ in rows)}
    return recount_subset(unit, folder, counts) if _removes(build) else Recount(counts)


def shares_of(build: Build) -> list[tuple[str, int, int]]:
    """(entry of `source.paths`, its documents, how many of them are near-duplicates) of each with files, in order."""
    counts, paths = build.receipt("decide", UNIT).details["sources"], build.config.source.paths
    return [(path, *counts[str(entry)]) for entry, path in enumerate(paths) if str(entry) in counts]


def copies_of_references(build: Build) -> list[tuple[str, int]]:
    """(path of a reference, how many documents are near-duplicates of its own) of each that was compared with."""
    counts: Counter[str] = Counter()
    decided = sections_in(build.blocks("decide", UNIT))
    for shard, unit in enumerate(build.units("reference_sign")):
        counts[of_unit(build, unit)[0].path] += int(decided.read(deciding.COPIES, shard, "<u4").sum())
    return [*counts.items()]


def require_few_removed(build: Build) -> None:
    """Raise TooManyNearDuplicatesError if a source would lose a larger share of documents than `most_removed`."""
    require_few_rejected(build)
    most = settings_of(build).most_removed
    if not _removes(build):
        return
    path, there, gone = max(shares_of(build), key=lambda share: share[2] / max(share[1], 1))
    if gone / max(there, 1) > most:
        raise TooManyNearDuplicatesError(
            "near_duplicates.too_many_removed: a source would lose more of its documents than is allowed",
            where=path,
            expected=f"at most {most:.2%} near-duplicates (near_duplicates.most_removed)",
            got=f"{gone:,} of {there:,} documents ({gone / there:.2%})",
            details=tuple(("such as", example) for example in _examples(build)),
            next_step="build with near_duplicates.action: report, and look at the pairs in the report; then raise"
            " near_duplicates.similarity, or most_removed if they are copies",
        )


def _examples(build: Build) -> list[str]:
    """The places of the least similar pairs of the source that would lose the largest share."""
    pairs = build.receipt("decide", UNIT).details["examples"]
    found = documents_at(build, {number for pair in pairs for number in pair[:2]})
    places = {number: f"{about.file} line {about.line:,}" for number, about in found.items()}
    return [f"{share:.3f}: {places[document]} and {places[kept]}" for document, kept, share in pairs]


class PlacedDocument(NamedTuple):
    """A document that was compared: its text, and its place in the user's own files.

    `file` begins with its reference, if it is of one.
    """

    text: bytes
    file: str
    line: int
    id: str


def documents_at(build: Build, numbers: set[int]) -> dict[int, PlacedDocument]:
    """{number of a document: that document}."""
    shards = compared_shards(build)
    of_shards: dict[str, list[int]] = defaultdict(list)
    for number in sorted(numbers):
        of_shards[shards[number >> 32]].append(number)
    found = {}
    for shard, own in of_shards.items():
        reference = f"{of_unit(build, shard)[1].path}: " if is_reference(shard) else ""
        with text_opened(build, text_step(build, shard)) as (text, need):
            place, ids = places_of(build, shard, text), text.document_ids()
            for number in own:
                ordinal = number & 0xFFFFFFFF
                need(*text.bounds(ordinal, 1).tolist())
                file, line = place(ordinal)
                found[number] = PlacedDocument(text.document_bytes(ordinal), reference + file, line + 1, ids[ordinal])
    return found


def removal_in_words(build: Build) -> str:
    """Markdown: how many documents of which source are near-duplicates and would be left out; "" if none would."""
    if not _removes(build):
        return ""
    shares = shares_of(build)
    documents, gone = sum(there for _, there, _ in shares), sum(out for _, _, out in shares)
    rows = [
        f"**{gone:,} of {documents:,} documents are near-duplicates of an earlier one and would be left out.**",
        "",
        "| source | documents | would go | share |",
        "|---|--:|--:|--:|",
        *(f"| {code_span(path)} | {there:,} | {out:,} | {out / max(there, 1):.1%} |" for path, there, out in shares),
    ]
    return "\n".join(rows) if gone else ""


STAGE = Stage(
    "near_duplicates",
    version=1,
    after=("decide",),
    per_shard=True,
    wanted=wanted,
    units_of="sign",
    work=Work(Settings, _identity, _inputs, _run, shard_sources),
    recount=_recount,
    checks=_checks,
    gate=require_few_removed,
    schedule=Schedule(approval=removal_in_words),
    shown=Shown(flows=_flows),
)
