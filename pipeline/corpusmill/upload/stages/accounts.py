"""The accounts of a finished dataset (manifest.py): the shuffle, and every format, hold exactly the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusmill.dedup.stages.union import ranges_match_check
from corpusmill.engine.ledger import Check, Receipt
from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import framed_tokens
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.shuffle.stages import gather, scatter
from corpusmill.shuffle.stages.budget import shown_total
from corpusmill.upload.stages.description import content_by_cell, format_totals

if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def _exported(build: Build, name: str) -> dict[str, int]:
    return format_totals(build.receipts("export"), name)


def accounts_of(build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    """The shuffle is a permutation, and every format holds exactly the shuffled records."""
    checks = [ranges_match_check(build)] if build.units("match") else []
    checks += [_kept_check(build, shard) for shard in build.units("writeback")]
    for kind in scatter.kinds(build):
        checks += [*_budget_check(build, kind), *gather.permutation_check(build, kind)]
    for name in build.config.exports.formats():
        kind = scatter.KINDS[name]
        records, slots = (sum(gather.per_cell(build, kind, what)) for what in ("records", "slots"))
        exported = _exported(build, name)
        framed = records if FORMATS[name].stream else framed_tokens(build, records)
        special = () if kind == "contexts" else (("special", framed),)
        if name != "numpy":
            checks.append(
                Check(f"{name} records", (("shuffled", records),), (("exported", exported.get("records", 0)),))
            )
        left = (("shuffled", slots), *special)
        checks.append(Check(f"{name} tokens", left, (("exported", exported.get("slots", 0)),)))
        checks += _content_checks(build, name)
    if build.config.exports.webdataset is not None:
        sequences, listed = _exported(build, "webdataset").get("records", 0), receipt.counts["listed_sequences"]
        checks.append(Check("webdataset sequences", (("exported", sequences),), (("in manifest.jsonl", listed),)))
    return checks


def _budget_check(build: Build, kind: str) -> list[Check]:
    """Tokens that the budget shows, against the slots of the records that scatter wrote."""
    if not build.units("budget"):
        return []
    added = {"special": "special_tokens", "padding": "pad_tokens", "repeated": "repeated_tokens"}
    others = tuple((label, gather.of_kind(build, kind, count)) for label, count in added.items())
    left = (("shown", shown_total(build, "tokens")), *others)
    return [Check(f"{kind} budget", left, (("places in records", gather.of_kind(build, kind, "slots")),))]


def _kept_check(build: Build, shard: str) -> Check:
    """A shard's kept text as writeback wrote it from the source, against the text that tokenize encoded."""
    written = ContentSum.parse(build.receipt("writeback", shard).details["kept_content"])
    encoded = ContentSum.parse(build.receipt("tokenize", shard).details["text_content"])
    blame = (("writeback", shard), ("tokenize", shard))
    return Check("kept text", (("written back", written),), (("encoded", encoded),), blame)


def _content_checks(build: Build, name: str) -> list[Check]:
    """Every cell's gathered content, against its content in the files of one format."""
    exported = {unit: build.receipt("export", unit) for unit in build.units("export")}
    written = content_by_cell(exported.values(), name)
    gathered = {
        scatter.split_unit(unit)[1]: ContentSum.parse(build.receipt("gather", unit).details["places_content"])
        for unit in build.units("gather")
        if unit.startswith(f"{scatter.KINDS[name]}-")
    }
    return [
        Check(
            f"{name} content",
            (("gathered", content),),
            (("exported", written.get(cell, NOTHING)),),
            blame=tuple(
                ("export", unit) for unit, receipt in exported.items() if cell in content_by_cell([receipt], name)
            ),
        )
        for cell, content in gathered.items()
    ]
