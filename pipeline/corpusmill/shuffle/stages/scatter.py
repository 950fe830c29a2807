"""Scatter: stage 1 of the shuffle, per shard and kind of record.

Units are such as `documents-00017`, kind of record and shard. Of each kind scatter makes those that an export reads:

    documents   whole documents
    contexts    contexts of one length, padded
    unpadded    the same contexts without padding
    pieces      beside `unpadded`: of each context the slots of each of its documents (shuffle/carried.py)
    texts       the texts of `documents`

Kinds that are drawn alike are in one order: record 7 of `pieces` belongs to record 7 of `unpadded`.

With `shuffle.order: source` nothing is drawn: a shard is a cell of its own, and its records keep their order. The same
two stages run, so balance checks, lineage and exports work as in every build. A step then depends only on its own
shard: a refresh makes only the cells of new shards, and memory is a batch, whatever the size of a shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.config.exports import SECTIONS
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Stage, StepName
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import SourceError
from corpusmill.kernels.content import ContentSum
from corpusmill.lazy import lazily
from corpusmill.shuffle.stages.budget import ONCE, UNIT, as_shown, conditions_in, shares_of, shown_total
from corpusmill.tokens.stages.kept import text_and_cuts, text_inputs
from corpusmill.tokens.stages.tokenize import vocabulary

with lazily:
    import numpy as np

    from corpusmill.engine import recounting
    from corpusmill.kernels import mapping
    from corpusmill.shuffle import budget, carried
    from corpusmill.shuffle import cells as shuffle_cells
    from corpusmill.tokens import records as tokens_records
    from corpusmill.tokens import token_shard


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corpusmill.config import ExportsConfig
    from corpusmill.engine.build import Build
    from corpusmill.engine.ledger.balance import Terms
    from corpusmill.tokens.records import Packing

KINDS = {name: section.holds for name, section in SECTIONS.items()}
ORDER = ("documents", "contexts", "unpadded", "pieces", "texts")
WHOLE = ("documents", "texts")
DRAWN_AS = {"unpadded": "contexts", "pieces": "contexts", "texts": "documents"}
"""Kinds of record whose places are drawn as those of another one."""


def kinds(build: Build) -> list[str]:
    """The kinds of record that the configured exports need."""
    return kinds_of(build.config.exports)


def kinds_of(exports: ExportsConfig) -> list[str]:
    """The same of a configuration's exports."""
    needed = {kind for name in exports.formats() for kind in (SECTIONS[name].holds, SECTIONS[name].beside)}
    return [kind for kind in ORDER if kind in needed]


def held_kinds(exports: ExportsConfig) -> list[str]:
    """Those of them that are the records of an export, not beside others."""
    held = {KINDS[name] for name in exports.formats()}
    return [kind for kind in kinds_of(exports) if kind in held]


def in_source_order(build: Build) -> bool:
    """Whether the exports keep the order of the source."""
    return build.config.shuffle.order == "source"


def cells(build: Build) -> int:
    """Number of cells, the same for both kinds of record: as configured, from the memory budget, or one per shard."""
    return build.remembered(("cells",), lambda: _cells(build))


def _cells(build: Build) -> int:
    if in_source_order(build):
        return len(build.units("tokenize"))
    if build.config.shuffle.cells is not None:
        return build.config.shuffle.cells
    width = np.dtype(vocabulary(build).dtype).itemsize
    tokens, documents = shown_total(build, "tokens"), shown_total(build, "documents_out")
    largest = tokens * width
    if "texts" in kinds(build):  # a budget shows about as much of the text as of the tokens
        text_bytes, all_tokens = (build.total("tokenize", count) for count in ("text_bytes_encoded", "tokens"))
        largest = max(largest, text_bytes * tokens // max(1, all_tokens))
    return shuffle_cells.cells_needed(largest, documents, build.config.shuffle.memory)


def cells_of_records(build: Build, kind: str, shard: int, records: int) -> NDArray[np.uint32]:
    """The cell of the records 0, 1, 2, ... of a shard, drawn again."""
    if in_source_order(build):
        return np.full(records, shard, np.uint32)
    drawn_as = DRAWN_AS.get(kind, kind)
    return shuffle_cells.draw_placements(build.config.shuffle.seed, drawn_as, shard, records, cells(build))[0]


def require_tokens(build: Build) -> None:
    """Raise SourceError if there is nothing to shuffle and export."""
    if build.total("tokenize", "tokens") == 0:
        lines, documents = build.total("index", "lines"), build.total("index", "documents_out")
        left, empty = build.total("tokenize", "documents_out"), build.total("tokenize", "documents_empty")
        short = build.total("tokenize", "documents_short") if build.config.selection.leaves_out() else 0
        raise SourceError(
            "dataset.no_text: no document of the dataset has any text",
            expected="at least one token",
            got=f"{lines:,} lines, {documents:,} documents: {documents - left:,} dropped, {empty - short:,} empty, "
            f"{short:,} too short",
            next_step="check source.paths and source.text_field, and what steps, decisions and selection drop",
        )


def packing_of(build: Build) -> Packing:
    """How the configuration packs contexts."""
    return tokens_records.Packing(**build.config.packing.model_dump())


def split_unit(unit: str) -> tuple[str, int]:
    """`documents-00017` -> ("documents", 17)."""
    kind, _, number = unit.partition("-")
    return kind, int(number)


def number_of_unit(unit: str) -> str:
    """`documents-00017` -> `00017`: both kinds of record of a shard (or a cell) make one task."""
    return unit.partition("-")[2]


def _units(build: Build) -> list[str]:
    return [f"{kind}-{shard}" for kind in kinds(build) for shard in build.units("tokenize")]


class Settings(Identity, frozen=True, kw_only=True):
    """How the records of a shard are made and drawn. `shares`: how often its files are shown, then the documents of
    each condition of the budget, unless once each; `conditions`: how many these are, UNSET without any.
    """

    kind: str
    shard: int
    order: str | UnsetType = UNSET
    seed: int | UnsetType | None = UNSET
    cells: int | UnsetType = UNSET
    context_tokens: int | UnsetType = UNSET
    packing: dict[str, Any] | UnsetType = UNSET
    empty_documents: str | UnsetType = UNSET
    shares: list[tuple[int, int | None]] | UnsetType = UNSET
    conditions: int | UnsetType = UNSET


def _inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    """With conditions the budget, too, which has that of each document."""
    budget = [("budget", UNIT)] if build.config.budget_conditions() else []
    inputs = {"tokens": [("tokenize", number_of_unit(unit))], "budget": budget}
    return inputs | text_inputs(build, number_of_unit(unit)) if split_unit(unit)[0] == "texts" else inputs


def _identity(build: Build, unit: str) -> Settings:
    kind, shard = split_unit(unit)
    ordered, contexts = in_source_order(build), kind not in WHOLE
    context_tokens = build.config.exports.context_tokens()
    shares = shares_of(build, number_of_unit(unit))
    return Settings(
        kind=kind,
        shard=shard,
        order="source" if ordered else UNSET,
        seed=UNSET if ordered else build.config.shuffle.seed,
        cells=UNSET if ordered else cells(build),
        context_tokens=context_tokens["unpadded" if kind == "pieces" else kind] if contexts else UNSET,
        packing=build.config.packing.model_dump() if contexts else UNSET,
        empty_documents=build.config.framing.empty_documents if keeps_empty(build) and not contexts else UNSET,
        shares=shares if any(share != ONCE for share in shares) else UNSET,
        conditions=len(build.config.budget_conditions()) or UNSET,
    )


def keeps_empty(build: Build) -> bool:
    """Whether documents without tokens are records, too."""
    return build.config.framing.empty_documents != "skip"


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    shard = token_shard.open_token_shard(inputs["tokens"].folder())
    bytes_read, difference = shard.tokens.nbytes, None
    seed = None if settings.seed is UNSET else settings.seed
    if settings.shares:
        assert seed is not None  # without one there is no budget
        files = len(settings.shares) - (settings.conditions or 0)
        of_documents = conditions_in(inputs["budget"], number_of_unit(inputs.unit)) if settings.conditions else None
        shown = as_shown(shard, settings.shares, seed, settings.shard, files, of_documents)
        difference = budget.difference_of(shard, shown, settings.shard)
        shard = shown
    if settings.packing and settings.context_tokens:
        packing = tokens_records.Packing(**settings.packing)
        records = (
            carried.piece_records(shard, settings.context_tokens, packing)
            if settings.kind == "pieces"
            else tokens_records.context_records(
                shard, settings.context_tokens, packing, padded=settings.kind == "contexts"
            )
        )
    elif settings.kind == "texts":
        text, cuts = text_and_cuts(inputs)
        bounds = text.bounds(0, text.documents)
        records = carried.text_records(shard, text.text, bounds, cuts, keep_empty=settings.empty_documents is not UNSET)
    else:
        records = tokens_records.document_records(shard, keep_empty=settings.empty_documents is not UNSET)
    drawn_as = DRAWN_AS.get(settings.kind, settings.kind)
    written = shuffle_cells.scatter_records(
        records, seed=seed, kind=drawn_as, shard=settings.shard, cells=settings.cells or 1, folder=folder
    )
    counts = {
        "records": written.records,
        "slots": written.tokens,
        "special_tokens": records.special_tokens,
        "pad_tokens": records.pad_tokens,
        "repeated_tokens": records.repeated_tokens,
        "document_slots": written.content.document_tokens,
        "special_slots": written.content.special_tokens,
        "bytes_read": bytes_read,
    }
    details = {
        "content": str(written.content.records),
        "documents_content": str(written.content.documents),
        "repeated_content": str(records.repeated_content(settings.shard)),
        "records_per_cell": written.records_per_cell,
        "slots_per_cell": written.tokens_per_cell,
    }
    if isinstance(records, carried.Texts) and shard.shown is None:
        details["other_texts"] = str(records.content_of_others(settings.shard))
    if difference:
        for name, counted in (("left_out", difference.left_out), ("again", difference.again)):
            counts |= {f"{what}_{name}": count for what, count in counted._asdict().items()}
        details |= {
            "content_left_out": str(difference.left_out_content),
            "content_again": str(difference.again_content),
        }
    return Outcome(counts=counts, details=details)


def _per_cell(receipts: Iterator[Receipt]) -> dict[str, Any]:
    """Records and slots of every cell of each kind; in source order the shards are the cells."""
    rolled: dict[str, list[int]] = {}
    for receipt in receipts:
        for what in ("records", "slots"):
            name, row = f"{receipt.settings['kind']} {what}", receipt.details[f"{what}_per_cell"]
            if "order" in receipt.settings:
                rolled.setdefault(name, []).append(sum(row))
            else:
                rolled[name] = [a + b for a, b in zip(rolled.get(name, [0] * len(row)), row, strict=True)]
    return rolled


def _checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:
    kind, shard = unit.partition("-")[::2]
    whole = build.receipt("tokenize", shard)
    counts, tokenized = receipt.counts, whole.counts
    documents, repeated = (ContentSum.parse(receipt.details[f"{name}_content"]) for name in ("documents", "repeated"))
    parts = (
        ("tokens", tokenized["tokens"]),
        ("special", counts["special_tokens"]),
        ("padding", counts["pad_tokens"]),
        ("repeated", counts["repeated_tokens"]),
    )
    twice = (("repeated", repeated),) if kind != "documents" else ()
    again, beyond = _of_budget(receipt, "tokens", "content")
    if kind == "texts":
        return [*_documents_check(build, receipt, tokenized), *_texts_check(receipt, whole)]
    if kind == "pieces":
        left = (*parts, *again["tokens"])
        return [Check("pieces", left, (("slots of pieces", counts["document_slots"]), *beyond["tokens"]))]
    checks = [
        Check("tokens", (*parts, *again["tokens"]), (("places in records", counts["slots"]), *beyond["tokens"])),
        Check(
            "slots",
            (("places in records", counts["slots"]),),
            (("documents", counts["document_slots"]), ("special and padding in place", counts["special_slots"])),
        ),
        Check(
            "content",
            (("tokenized", ContentSum.parse(whole.details["content"])), *twice, *again["content"]),
            ((f"in {kind}", documents), *beyond["content"]),
        ),
    ]
    return [*checks, *(_documents_check(build, receipt, tokenized) if kind == "documents" else [])]


def _documents_check(build: Build, receipt: Receipt, tokenized: dict[str, int]) -> list[Check]:
    counts = receipt.counts
    empty = tokenized["documents_empty"] + counts.get("empty_again", 0) - counts.get("empty_left_out", 0)
    again, beyond = _of_budget(receipt, "documents")
    left = (("tokenized", tokenized["documents_out"]), *again["documents"])
    right = (("records", counts["records"]), ("without tokens", 0 if keeps_empty(build) else empty))
    return [Check("documents", left, (*right, *beyond["documents"]))]


def _texts_check(receipt: Receipt, whole: Receipt) -> list[Check]:
    """The text that was tokenized, unless a budget shows it in parts."""
    if "other_texts" not in receipt.details:
        return []
    tokenized, shown, others = (
        ContentSum.parse(content)
        for content in (
            whole.details["text_content"],
            receipt.details["documents_content"],
            receipt.details["other_texts"],
        )
    )
    return [Check("text", (("tokenized", tokenized),), (("in texts", shown), ("without tokens", others)))]


def _of_budget(receipt: Receipt, *accounts: str) -> tuple[dict[str, Terms], dict[str, Terms]]:
    """The terms of a budget on both sides of accounts, of counts or of content; empty without a budget."""

    def terms(label: str, name: str) -> dict[str, Terms]:
        stated = {**receipt.counts, **receipt.details}
        values = {what: stated[f"{what}_{name}"] for what in accounts}
        return {
            what: ((label, ContentSum.parse(value) if what == "content" else value),) for what, value in values.items()
        }

    if "shares" not in receipt.settings:
        return dict.fromkeys(accounts, ()), dict.fromkeys(accounts, ())
    return terms("shown again", "again"), terms("beyond the budget", "left_out")


def _recount(_build: Build, unit: str, folder: Path) -> Recount:
    dtype = np.dtype(json.loads((folder / "scatter.json").read_bytes())["dtype"]).newbyteorder("<")
    tokens, rows = (
        mapping.mapped(folder / "tokens", dtype),
        mapping.mapped(folder / "rows", "<u8").reshape(-1, 3),
    )
    ends = np.cumsum(rows[:, 2], dtype=np.uint64)
    bounds = np.fromfile(folder / "cells", "<u8").reshape(-1, 2)
    recounting.require_ascending(folder / "rows", ends)
    recounting.require_ascending(folder / "cells", bounds[:, 0], bounds[:, 1])
    stated = bounds[-1].tolist()
    seen = [len(rows), len(tokens)]
    token_ends = np.concatenate([np.zeros(1, np.uint64), ends])
    if stated != seen or int(token_ends[-1]) != len(tokens) or (token_ends[bounds[:, 0]] != bounds[:, 1]).any():
        raise recounting.contradiction(
            folder / "cells", f"{seen} rows and tokens, each cell at a row's first token", stated
        )
    shard = split_unit(unit)[1]
    details = {
        "content": str(recounting.records_content(tokens, ends, shard, np.ascontiguousarray(rows[:, 0]))),
        "records_per_cell": np.diff(bounds[:, 0]).tolist(),
        "slots_per_cell": np.diff(bounds[:, 1]).tolist(),
    }
    return Recount({"records": len(rows), "slots": len(tokens)}, details)


STAGE = Stage(
    "scatter",
    version=4,
    after=("audit", "budget"),
    per_shard=True,
    units=_units,
    work=Work(Settings, _identity, _inputs, _run),
    recount=_recount,
    checks=_checks,
    rolled_up=_per_cell,
    reclaimed=("tokens", "rows"),
    read_until="gather",
    gate=require_tokens,
    schedule=Schedule(memory=lambda config: ("shuffle.memory", int(config.shuffle.memory)), task=number_of_unit),
)
