"""Shared, settle and match: what repeats, one partition of the hash space of all shards at a time, without any text.

Shared finds the anchors that share their hash with another, and writes the first of the two requests to the texts
(dedup step 2). Settle decides what digests can decide, and requests bytes for the rest (step 4). Match has the bytes
that occurred earlier, and the strings that repeat most (step 6).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.context import PERIODS, WindowSettings, sections_in, windows_listed
from corpusmill.dedup.stages.reference import all_shards, text_step
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName, whole
from corpusmill.engine.work import Identity, Inputs, Resources, Work
from corpusmill.errors import ConfigError
from corpusmill.lazy import lazily
from corpusmill.sources.parts import file_of_part
from corpusmill.sources.stages.index import require_few_rejected

with lazily:
    import numpy as np

    from corpusmill.dedup import anchors as dedup_anchors
    from corpusmill.dedup import borders, exchange, ranges
    from corpusmill.dedup import references as dedup_references
    from corpusmill.dedup import settle as dedup_settle
    from corpusmill.dedup import shared as dedup_shared
    from corpusmill.documents import text_shard
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.documents.text_shard import TextShard
    from corpusmill.engine.build import Build


BUCKETS = 4096  # of every shard's anchors (dedup/anchors.py, which imports numpy)
MINIMUM_PARTITIONS, MAXIMUM_PARTITIONS = 4, BUCKETS
# In memory: the peak is in dedup/settle.py if all are shared; dedup/shared.py takes 49 if none is.
BYTES_PER_ANCHOR = 96
EXCERPT_BYTES = 160  # of a repeated string, for the report
REPEATED = "repeated.json"  # the most repeated windows: [count, shard, position]


def _shared_units(build: Build) -> list[str]:
    """As many partitions as keep one partition's anchors within dedup.memory: a power of two, from 4 to 4096.

    The number changes how work is divided, never a byte of the ranges.
    """
    anchors, largest = (
        build.total("anchor", count) + build.total("reference_index", count) for count in ("anchors", "largest_bucket")
    )
    partitions = partitions_for(anchors, largest, build.config.dedup.memory)
    return [f"{partition:05d}" for partition in range(partitions)]


def partitions_for(anchors: int, largest_bucket: int, memory_bytes: int) -> int:
    """The smallest power of two, at least 4, of partitions that each need at most `memory_bytes`.

    `largest_bucket`: the anchors of every shard's largest bucket, added up. Hashes spread different strings evenly, so
    that a partition holds anchors / partitions; but a string that occurs everywhere has all its anchors in one bucket,
    and its partition holds those in addition. Each anchor takes BYTES_PER_ANCHOR.
    """
    beyond = max(0, largest_bucket - anchors // BUCKETS)
    partitions = MINIMUM_PARTITIONS
    while partitions <= MAXIMUM_PARTITIONS and anchors / partitions + beyond > memory_bytes / BYTES_PER_ANCHOR:
        partitions *= 2
    if partitions > MAXIMUM_PARTITIONS:
        least = (beyond + -(-anchors // MAXIMUM_PARTITIONS)) * BYTES_PER_ANCHOR
        raise ConfigError(
            "dedup.too_little_memory: the anchors of one partition do not fit into the memory of a match task",
            where="dedup.memory",
            expected=f"at least {least:,} bytes: {anchors:,} anchors in {MAXIMUM_PARTITIONS:,} partitions, and up to "
            f"{beyond:,} of one string",
            got=f"{memory_bytes:,} bytes",
            next_step="raise dedup.memory, or dedup.minimum_bytes: longer repeats have fewer anchors",
        )
    return partitions


class SharedSettings(Identity, frozen=True, kw_only=True):
    """Which partition it is, and how many shards of references come first."""

    minimum_bytes: int
    first_shard: int | UnsetType = UNSET
    partition: int
    partitions: int


def _shared_identity(build: Build, unit: str) -> SharedSettings:
    units = build.units("shared")
    return SharedSettings(
        minimum_bytes=build.config.dedup.window_bytes,
        first_shard=len(build.units("reference")) or UNSET,
        partition=units.index(unit),
        partitions=len(units),
    )


def _shared_run(inputs: Inputs, settings: SharedSettings, folder: Path, _resources: Resources) -> Outcome:
    shards = [sections_in(step.blocks) for step in inputs.every("anchors")]
    first_shard = settings.first_shard or 0
    counts = dedup_shared.share(shards, settings.partition, settings.partitions, folder, first_shard=first_shard)
    return Outcome(counts={**counts, "bytes_read": 16 * counts["anchors"]})


def _shared_recount(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"candidates": recounting.section_rows(folder, exchange.CONTEXTS, 8)})


SHARED = Stage(
    "shared",
    version=1,
    after=("anchor", "reference_index"),
    wanted=lambda config: config.dedup.mode != "none",
    units=_shared_units,
    work=Work(
        SharedSettings,
        _shared_identity,
        lambda build, _unit: {"anchors": whole(build, "reference_index", "anchor")},
        _shared_run,
    ),
    recount=_shared_recount,
    gate=require_few_rejected,
    reclaimed=("*",),
    read_until="match",
    schedule=Schedule(memory=lambda config: ("dedup.memory", int(config.dedup.memory))),
    shown=Shown(unit_word="partition"),
)


class SettleSettings(WindowSettings, frozen=True, kw_only=True):
    """Which partition it is, and how many shards of references come first, if there are references."""

    partition: int
    against: int | UnsetType = UNSET


def _settle_inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    """The first partition adds what repeats within the windows of one anchor."""
    first = unit == build.units("settle")[0]
    return {
        "shared": [("shared", unit)],
        "anchors": whole(build, "reference_index", "anchor") if first else [],
        "answers": whole(build, "reference_context", "context"),
    }


def _settle_identity(build: Build, unit: str) -> SettleSettings:
    return SettleSettings(
        minimum_bytes=build.config.dedup.window_bytes,
        keep=build.config.dedup.keep,
        windows=windows_listed(build),
        partition=build.units("settle").index(unit),
        against=len(build.units("reference")) if build.plan.references else UNSET,
    )


def _settle_run(inputs: Inputs, settings: SettleSettings, folder: Path, _resources: Resources) -> Outcome:
    repeats, periods, answers = [], [], inputs.every("answers")
    if "anchors" in inputs:
        for anchors, answer in zip(inputs.every("anchors"), answers, strict=True):
            repeats.append(dedup_anchors.open_repeats(anchors.folder(*dedup_anchors.SMALL_FILES)))
            if settings.wants_windows:
                with answer.opened(PERIODS) as answered:
                    periods.append(ranges.read_ranges(answered / PERIODS))
    matches, counts = dedup_settle.settle(
        sections_in(inputs["shared"].blocks),
        [sections_in(answer.blocks) for answer in answers],
        settings.partition,
        dedup_anchors.slicing_of(settings.minimum_bytes),
        folder,
        repeats=repeats,
        periods=periods,
        want_windows=settings.wants_windows,
        want_firsts=settings.against is not UNSET,
    )
    matches.without(settings.against or 0).write(folder, with_windows=settings.wants_windows)
    return Outcome(
        counts={**counts, "windows": matches.windows, "bytes_read": 24 * (counts["settled"] + counts["open"])}
    )


def _settle_recount(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"borders": recounting.section_rows(folder, exchange.BORDERS, 8)})


SETTLE = Stage(
    "settle",
    version=1,
    after=("context", "reference_context"),
    units_of="shared",
    work=Work(SettleSettings, _settle_identity, _settle_inputs, _settle_run),
    recount=_settle_recount,
    reclaimed=("*",),
    read_until="match",
    schedule=Schedule(memory=lambda config: ("dedup.memory", int(config.dedup.memory))),
    shown=Shown(unit_word="partition"),
)


class MatchSettings(WindowSettings, frozen=True, kw_only=True):
    """Which partition it is. `against`: how many shards each reference has; `first_shard`: how many all have."""

    against: list[int] | UnsetType = UNSET
    first_shard: int | UnsetType = UNSET
    partition: int
    partitions: int

    def references(self, shards: int) -> list[int]:
        """For all shards the number of their reference, for the dataset's the number of references; [] without any."""
        against = self.against or []
        numbers = [number for number, of_reference in enumerate(against) for _ in range(of_reference)]
        return [*numbers, *[len(against)] * (shards - len(numbers))] if against else []


def _match_inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    return {
        "shared": [("shared", unit)],
        "settled": [("settle", unit)],
        "answers": whole(build, "reference_border", "border"),
    }


def _match_identity(build: Build, unit: str) -> MatchSettings:
    units, references = build.units("match"), build.plan.references
    return MatchSettings(
        minimum_bytes=build.config.dedup.window_bytes,
        keep=build.config.dedup.keep,
        windows=windows_listed(build),
        against=[len(reference.shards) for reference in references] if references else UNSET,
        first_shard=len(build.units("reference")) if references else UNSET,
        partition=units.index(unit),
        partitions=len(units),
    )


def _match_run(inputs: Inputs, settings: MatchSettings, folder: Path, resources: Resources) -> Outcome:
    shared, settled = sections_in(inputs["shared"].blocks), sections_in(inputs["settled"].blocks)
    answers = inputs.every("answers")
    answered = [sections_in(answer.blocks) for answer in answers]
    references = settings.references(len(answers))
    equal = dedup_references.settled_pairs(shared, settled, len(answered)) if references else None
    matches = borders.match_borders(
        settled,
        answered,
        settings.partition,
        dedup_anchors.slicing_of(settings.minimum_bytes),
        want_windows=settings.wants_windows,
        memory_bytes=resources.dedup_memory,
        settled_windows=inputs["settled"].receipt.counts["windows"],
        equal=equal,
    )
    if equal:
        matches = replace(matches, referred=dedup_references.referred_windows(equal, references))
    own = settings.first_shard or 0
    matches = matches.without(own)
    matches.write(folder, with_windows=settings.wants_windows)
    repeated = borders.count_repeated(shared, settled, answered, settings.partition, own)
    rows = [[string.count, string.shard, string.position] for string in repeated]
    (folder / REPEATED).write_text(json.dumps(rows) + "\n", encoding="ascii")
    # Every partition gets answers about all text, so each counts its share, which adds up over partitions.
    texts = sum(answer.receipt.counts["bytes_read"] for answer in answers)
    counts = {"bytes_read": texts // settings.partitions, "shards": len(answers)}
    return Outcome(counts={**counts, "windows": matches.windows, "ranges": sum(map(len, matches.ranges))})


@contextmanager
def text_opened(build: Build, step: StepName) -> Iterator[tuple[TextShard, Callable[[int, int], None]]]:
    """A step's text shard of which little is read; call the function for each span of its text before it is read."""
    blocks, outputs = build.blocks(*step), build.receipt(*step).outputs
    with ExitStack() as files:
        files.enter_context(blocks.opened(output.name for output in outputs if output.name != text_shard.TEXT_FILE))
        # A text shard is opened by its separators.
        for place in (0, int(np.fromfile(blocks.folder / text_shard.OFFSET_FILE, "<u8")[-1])):
            files.enter_context(blocks.open(text_shard.TEXT_FILE, place, place + EXCERPT_BYTES))

        def need(first: int, last: int) -> None:
            # It stays here: it is open above.
            blocks.open(text_shard.TEXT_FILE, first, last).close()

        yield text_shard.open_text_shard(blocks.folder), need


def repeated_strings(build: Build) -> list[dict[str, Any]]:
    """The strings of the dataset that each partition repeats most: how often, where they are first in it (file, line
    from 1), their beginning.
    """

    rows: list[tuple[int, int, int]] = []
    for partition in build.units("match"):
        with build.opened("match", partition, REPEATED) as folder:
            rows += json.loads((folder / REPEATED).read_bytes())
    shards = all_shards(build)
    excerpt_bytes = min(build.config.dedup.window_bytes, EXCERPT_BYTES)
    strings = []
    for shard, of_shard in groupby(sorted(rows, key=itemgetter(1)), itemgetter(1)):
        with text_opened(build, text_step(build, shards[shard])) as (text, need):
            for count, _, position in of_shard:
                need(position, position + EXCERPT_BYTES)
                document = int(np.searchsorted(text.offsets, np.uint64(position), side="right")) - 1
                source, line = text.source_of(document)
                file, before = file_of_part(build, int(shards[shard]), source)
                string = text.text[position : position + excerpt_bytes].tobytes()
                where = {"source_file": file, "line": before + line + 1, "excerpt": string.decode(errors="ignore")}
                strings.append({"count": count, **where})
    return strings


def _match_checks(build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    references = sum(len(reference.shards) for reference in build.plan.references or ())
    planned = ("of references", references), ("of the dataset", len(build.plan.shards))
    return [Check("shards", planned, (("compared", receipt.counts["shards"]),))]


def _match_recount(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"ranges": recounting.section_rows(folder, ranges.MATCH_RANGES, 16)})


MATCH = Stage(
    "match",
    version=5,
    after=("border", "reference_border"),
    units_of="shared",
    work=Work(MatchSettings, _match_identity, _match_inputs, _match_run),
    recount=_match_recount,
    checks=_match_checks,
    schedule=Schedule(memory=lambda config: ("dedup.memory", int(config.dedup.memory))),
    shown=Shown(unit_word="partition"),
)
