"""Match: the bytes of each partition that occurred earlier, and the strings that it repeats most (dedup step 6)."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages.context import sections_of, windows_settings
from corpusmill.stages.parts import file_of_part
from corpusmill.stages.reference import (
    all_shards,
    every_answer,
    every_index,
    numbers,
    text_step,
    whole_answer,
    whole_index,
)
from corpusmill.stages.shared import MINIMUM_PARTITIONS, partition_names

if TYPE_CHECKING:
    from corpusmill.dedup.matches import Matches
    from corpusmill.dedup.repeated import RepeatedWindow
    from corpusmill.engine.build import Build

EXCERPT_BYTES = 160  # of a repeated string, for the report
REPEATED = "repeated.json"  # the most repeated windows: [count, shard, position]


def _units(build: Build) -> list[str]:
    if build.config.dedup.mode == "none":
        return []
    by_suffixes = build.config.index.method == "suffix_array"
    return partition_names(MINIMUM_PARTITIONS) if by_suffixes else build.units("shared")


def _inputs(build: Build, unit: str) -> list[tuple[str, str]]:
    if build.config.index.method == "suffix_array":
        return [*(text_step(build, shard) for shard in all_shards(build)), *whole_index(build)]
    return [("shared", unit), ("settle", unit), *whole_answer(build, "border")]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    units = build.units("match")
    settings = {"minimum_bytes": build.config.dedup.minimum_bytes, **windows_settings(build)}
    if build.plan.references:
        settings["against"] = [len(reference.shards) for reference in build.plan.references]
        settings["first_shard"] = len(build.units("reference"))
    return {**settings, "partition": units.index(unit), "partitions": len(units)}


def _run(build: Build, unit: str, folder: Path) -> Outcome:
    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    by_suffixes = build.config.index.method == "suffix_array"
    matches, repeated, counts = (_by_suffixes if by_suffixes else _by_anchors)(build, unit, minimum_bytes)
    matches = matches.without(len(build.units("reference")))
    matches.write(folder, with_windows=build.config.wants_windows)
    rows = [[string.count, string.shard, string.position] for string in repeated]
    (folder / REPEATED).write_text(json.dumps(rows) + "\n", encoding="ascii")
    return Outcome(counts={**counts, "windows": matches.windows, "ranges": sum(map(len, matches.ranges))})


def _by_anchors(build: Build, unit: str, minimum_bytes: int) -> tuple[Matches, list[RepeatedWindow], dict[str, int]]:
    from corpusmill.dedup.borders import count_repeated, match_borders
    from corpusmill.dedup.references import referred_windows, settled_pairs
    from corpusmill.dedup.slices import slicing_of

    partition = build.units("match").index(unit)
    shared, settled = sections_of(build, "shared", unit), sections_of(build, "settle", unit)
    answers = every_answer(build, "border")
    answered = [sections_of(build, *answer) for answer in answers]
    references = numbers(build)
    equal = settled_pairs(shared, settled, len(answered)) if references else None
    matches = match_borders(
        settled,
        answered,
        partition,
        slicing_of(minimum_bytes),
        want_windows=build.config.wants_windows,
        memory_bytes=int(build.config.dedup.memory),
        settled_windows=build.receipt("settle", unit).counts["windows"],
        equal=equal,
    )
    if equal:
        matches = replace(matches, referred=referred_windows(equal, references))
    repeated = count_repeated(shared, settled, answered, partition, len(build.units("reference")))
    # Every partition gets answers about all text, so each counts its share, which adds up over partitions.
    texts = sum(build.receipt(*answer).counts["bytes_read"] for answer in answers)
    return matches, repeated, {"bytes_read": texts // len(build.units("match")), "shards": len(answers)}


def _by_suffixes(build: Build, unit: str, minimum_bytes: int) -> tuple[Matches, list[RepeatedWindow], dict[str, int]]:
    from corpusmill.dedup.suffix_array import open_suffix_array
    from corpusmill.dedup.suffix_matches import SortedShard, match_suffixes
    from corpusmill.documents.text_shard import open_text_shard

    units = build.units("match")
    texts = [open_text_shard(build.folder(*text_step(build, shard))).text for shard in all_shards(build)]
    folders = (build.folder(*step) for step in every_index(build))
    ordered = [
        SortedShard(text, open_suffix_array(folder, len(text))) for text, folder in zip(texts, folders, strict=True)
    ]
    part = units.index(unit), len(units)
    matches, repeated, counts = match_suffixes(ordered, *part, minimum_bytes, numbers(build))
    return matches, repeated, {**counts, "bytes_read": sum(map(len, texts)) // len(units), "shards": len(texts)}


def repeated_strings(build: Build) -> list[dict[str, Any]]:
    """The strings of the dataset that each partition repeats most: how often, where they are first in it (file, line
    from 1), their beginning.
    """
    import numpy as np

    from corpusmill.documents.text_shard import OFFSET_FILE, TEXT_FILE, open_text_shard

    minimum_bytes = build.config.dedup.minimum_bytes
    assert minimum_bytes is not None
    rows: list[tuple[int, int, int]] = []
    for partition in build.units("match"):
        with build.opened("match", partition, REPEATED) as folder:
            rows += json.loads((folder / REPEATED).read_bytes())
    shards = all_shards(build)
    strings = []
    for shard, of_shard in groupby(sorted(rows, key=itemgetter(1)), itemgetter(1)):
        step = text_step(build, shards[shard])
        blocks, outputs = build.blocks(*step), build.receipt(*step).outputs
        with ExitStack() as files:
            files.enter_context(blocks.opened(output.name for output in outputs if output.name != TEXT_FILE))
            last = int(np.fromfile(blocks.folder / OFFSET_FILE, "<u8")[-1])  # a text shard is opened by its separators
            for place in (0, last):
                files.enter_context(blocks.open(TEXT_FILE, place, place + EXCERPT_BYTES))
            text = open_text_shard(blocks.folder)
            for count, _, position in of_shard:
                blocks.open(TEXT_FILE, position, position + EXCERPT_BYTES).close()  # it stays here: it is open above
                document = int(np.searchsorted(text.offsets, np.uint64(position), side="right")) - 1
                source, line = text.source_of(document)
                file, before = file_of_part(build, int(shards[shard]), source)
                string = text.text[position : position + min(minimum_bytes, EXCERPT_BYTES)].tobytes()
                where = {"source_file": file, "line": before + line + 1, "excerpt": string.decode(errors="ignore")}
                strings.append({"count": count, **where})
    return strings


def _checks(build: Build, _unit: str, receipt: Receipt) -> list[Check]:
    references = sum(len(reference.shards) for reference in build.plan.references or ())
    planned = ("of references", references), ("of the dataset", len(build.plan.shards))
    return [Check("shards", planned, (("compared", receipt.counts["shards"]),))]


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    from corpusmill.dedup.matches import MATCH_RANGES
    from corpusmill.stages.recounting import section_rows

    return Recount({"ranges": section_rows(folder, MATCH_RANGES, 16)})


STAGE = Stage(
    "match",
    version=5,
    after=("border", "reference_border", "suffix_array", "reference_index"),
    units_after=("anchor", "suffix_array", "reference_index"),
    group="find_ranges",
    unit_word="partition",
    units=_units,
    inputs=_inputs,
    settings=_settings,
    run=_run,
    recount=_recount,
    checks=_checks,
    memory=lambda config: ("dedup.memory", int(config.dedup.memory)),
)
