"""Match: the bytes of each partition that occurred earlier, and the strings that it repeats most (dedup step 6)."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from corpusmill.dedup.stages.context import WindowSettings, sections_in, windows_listed
from corpusmill.dedup.stages.reference import all_shards, text_step, whole_answer
from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, StepName
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.sources.parts import file_of_part

with lazily:
    import numpy as np

    from corpusmill.dedup import anchors, borders, ranges
    from corpusmill.dedup import references as dedup_references
    from corpusmill.documents import text_shard
    from corpusmill.engine import recounting


if TYPE_CHECKING:
    from corpusmill.engine.build import Build

EXCERPT_BYTES = 160  # of a repeated string, for the report
REPEATED = "repeated.json"  # the most repeated windows: [count, shard, position]


class Settings(WindowSettings, frozen=True, kw_only=True):
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


def _inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    return {"shared": [("shared", unit)], "settled": [("settle", unit)], "answers": whole_answer(build, "border")}


def _identity(build: Build, unit: str) -> Settings:
    units, references = build.units("match"), build.plan.references
    return Settings(
        minimum_bytes=build.config.dedup.window_bytes,
        keep=build.config.dedup.keep,
        windows=windows_listed(build),
        against=[len(reference.shards) for reference in references] if references else UNSET,
        first_shard=len(build.units("reference")) if references else UNSET,
        partition=units.index(unit),
        partitions=len(units),
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, resources: Resources) -> Outcome:
    shared, settled = sections_in(inputs["shared"].blocks), sections_in(inputs["settled"].blocks)
    answers = inputs.every("answers")
    answered = [sections_in(answer.blocks) for answer in answers]
    references = settings.references(len(answers))
    equal = dedup_references.settled_pairs(shared, settled, len(answered)) if references else None
    matches = borders.match_borders(
        settled,
        answered,
        settings.partition,
        anchors.slicing_of(settings.minimum_bytes),
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
        step = text_step(build, shards[shard])
        blocks, outputs = build.blocks(*step), build.receipt(*step).outputs
        with ExitStack() as files:
            files.enter_context(blocks.opened(output.name for output in outputs if output.name != text_shard.TEXT_FILE))
            last = int(
                np.fromfile(blocks.folder / text_shard.OFFSET_FILE, "<u8")[-1]
            )  # a text shard is opened by its separators
            for place in (0, last):
                files.enter_context(blocks.open(text_shard.TEXT_FILE, place, place + EXCERPT_BYTES))
            text = text_shard.open_text_shard(blocks.folder)
            for count, _, position in of_shard:
                blocks.open(
                    text_shard.TEXT_FILE, position, position + EXCERPT_BYTES
                ).close()  # it stays here: it is open above
                document = int(np.searchsorted(text.offsets, np.uint64(position), side="right")) - 1
                source, line = text.source_of(document)
                file, before = file_of_part(build, int(shards[shard]), source)
                string = text.text[position : position + excerpt_bytes].tobytes()
                where = {"source_file": file, "line": before + line + 1, "excerpt": string.decode(errors="ignore")}
                strings.append({"count": count, **where})
    return strings


def _checks(build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    references = sum(len(reference.shards) for reference in build.plan.references or ())
    planned = ("of references", references), ("of the dataset", len(build.plan.shards))
    return [Check("shards", planned, (("compared", receipt.counts["shards"]),))]


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    return Recount({"ranges": recounting.section_rows(folder, ranges.MATCH_RANGES, 16)})


STAGE = Stage(
    "match",
    version=5,
    after=("border", "reference_border"),
    units_of="shared",
    work=Work(Settings, _identity, _inputs, _run),
    recount=_recount,
    checks=_checks,
    schedule=Schedule(memory=lambda config: ("dedup.memory", int(config.dedup.memory))),
    shown=Shown(unit_word="partition"),
)
