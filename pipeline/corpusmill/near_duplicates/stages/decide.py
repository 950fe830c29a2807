"""Decide: which documents are left out, from the pairs of all shards (the room's docstring)."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.context import sections_in
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage, StepName, whole
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.near_duplicates.stages.rounds import MATCHES, UNIT, rows_signed, wanted

with lazily:
    import numpy as np

    from corpusmill.engine import recounting
    from corpusmill.near_duplicates import decide as deciding
    from corpusmill.near_duplicates import groups, similarity
    from corpusmill.report import histograms


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.engine.build import Build

EXAMPLES = 5  # of pairs, for an error


class DecideSettings(Identity, frozen=True, kw_only=True):
    """`paths`: for each file of each shard, which entry of `source.paths` it is of. `references`: how many shards are
    of references.
    """

    paths: list[list[int]]
    references: int | UnsetType = UNSET


def _identity_decide(build: Build, _unit: str) -> DecideSettings:
    return DecideSettings(
        paths=[*map(list, build.plan.paths or ())],
        references=len(build.units("reference_sign")) or UNSET,
    )


def _inputs_decide(build: Build, _unit: str) -> dict[str, list[StepName]]:
    return {"signed": whole(build, "reference_sign", "sign"), "compared": whole(build, "compare")}


def _run_decide(inputs: Inputs, settings: DecideSettings, folder: Path, _resources: Resources) -> Outcome:
    signed = [step.receipt for step in inputs.every("signed")]
    documents = [receipt.counts["documents"] for receipt in signed]
    first = settings.references or 0
    compared = (sections_in(step.blocks).whole(MATCHES, similarity.MATCH) for step in inputs.every("compared"))
    rows, copies = deciding.decide(chain([np.empty(0, similarity.MATCH)] * first, compared), documents)
    deciding.write_decided(folder, rows, copies, documents)
    of_files = [receipt.details["file_documents"] for receipt in signed[first:]]
    begins = [groups.numbered(shard, np.cumsum([0, *sizes])[:-1]) for shard, sizes in enumerate(of_files, first)]
    rows_of_files = np.split(rows, np.searchsorted(rows["document"], np.concatenate(begins))[1:])
    there: Counter[int] = Counter()
    rows_of: dict[int, list[NDArray[Any]]] = defaultdict(list)
    for entry, size, own in zip(chain(*settings.paths), chain(*of_files), rows_of_files, strict=True):
        there[entry] += size
        rows_of[entry].append(own)
    left_out = {entry: sum(map(len, rows_of[entry])) for entry in sorted(there)}
    worst = max(left_out, key=lambda entry: left_out[entry] / max(there[entry], 1))
    least = np.sort(np.concatenate(rows_of[worst]), order=["similarity", "document"])[:EXAMPLES]
    groups_of = copies[(copies > 0) & (copies != deciding.LEFT_OUT)]
    in_references = sum(documents[:first])
    counts = {
        "documents": sum(documents) - in_references,
        "documents_left_out": len(rows),
        "documents_kept": int((copies != deciding.LEFT_OUT).sum()) - in_references,
        "groups": len(groups_of),
        "bytes_read": 24 * inputs.total("compared", "matches"),
    }
    percents = Counter(np.floor(100 * rows["similarity"] + 1e-9).astype(np.int64).tolist())
    details = {
        "sources": {str(entry): [there[entry], left_out[entry]] for entry in left_out},
        "examples": least.tolist(),
        "by_similarity": {str(percent): count for percent, count in sorted(percents.items())},
        "groups": histograms.power_histogram(groups_of + np.uint32(1)).model_dump(),
    }
    return Outcome(counts=counts, details=details)


def _checks_decide(build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    counts = receipt.counts
    read, written = build.total("propose", "rows"), rows_signed(build)
    kept, left_out = counts["documents_kept"], counts["documents_left_out"]
    return [
        Check("keys", (("written by sign", written),), (("read by propose", read),)),
        Check("documents", (("decided", counts["documents"]),), (("kept", kept), ("left out", left_out))),
    ]


def _recount_decide(build: Build, _unit: str, folder: Path) -> Recount:
    copies = np.fromfile(folder / deciding.COPIES, "<u4")
    kept, in_references = copies[copies != deciding.LEFT_OUT], build.total("reference_sign", "documents")
    counts = {"documents": len(copies) - in_references, "documents_kept": len(kept) - in_references}
    counts["groups"] = int((kept > 0).sum())
    rows = recounting.section_rows(folder, deciding.LEFT_OUT_FILE, 32)
    if rows != int(kept.sum(dtype=np.int64)):
        expected = f"{int(kept.sum(dtype=np.int64)):,} documents left out, as {deciding.COPIES} says"
        raise recounting.contradiction(folder / deciding.LEFT_OUT_FILE, expected, f"{rows:,}")
    return Recount({**counts, "documents_left_out": rows})


STAGE = Stage(
    "decide",
    version=1,
    after=("compare",),
    wanted=wanted,
    units=lambda _build: [UNIT],
    work=Work(DecideSettings, _identity_decide, _inputs_decide, _run_decide),
    checks=_checks_decide,
    recount=_recount_decide,
    shown=Shown(unit_word="dataset"),
)
