"""The steps of dedup over text shards, one after another in this process, as the stages run them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from corpusmill.dedup.anchors import open_anchors, slicing_of, write_anchors
from corpusmill.dedup.borders import count_repeated, match_borders
from corpusmill.dedup.exchange import TextFile, answer_borders, answer_contexts
from corpusmill.dedup.ranges import MATCH_RANGES, Ranges, union_ranges, write_ranges
from corpusmill.dedup.settle import settle
from corpusmill.dedup.shared import share
from corpusmill.engine.sections import Sections

STEPS = ("anchor", "shared", "context", "settle", "border", "match", "union")


@dataclass
class Steps:
    """What the steps cost, and what they found.

    cpu_seconds     of each step; `union` writes the ranges of every shard
    counts          of all steps
    scratch_bytes   everything that is written
    """

    cpu_seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    partitions: int = 0
    scratch_bytes: int = 0
    ranges: list[Ranges] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(self.cpu_seconds.values())


def find_ranges(
    texts: Sequence[Path], minimum_bytes: int, folder: Path, partitions: int | Callable[[int, int], int]
) -> Steps:
    """From folders with `tokenized` and `offset` to the ranges of every shard; `folder` must not be there.

    partitions      how many, or a function of (anchors, anchors of the largest buckets)
    """
    done, slicing = Steps(), slicing_of(minimum_bytes)
    folders: dict[str, list[Sections]] = {}
    marks = [time.process_time()]

    def count(counts: dict[str, int]) -> None:
        for name, value in counts.items():
            done.counts[name] = done.counts.get(name, 0) + value

    def open_step(name: str, units: int) -> list[tuple[int, Path]]:
        folders[name] = [Sections(folder / f"{name}{unit}") for unit in range(units)]
        for item in folders[name]:
            item.folder.mkdir(parents=True)
        return [(unit, folder.folder) for unit, folder in enumerate(folders[name])]

    def ended(name: str) -> None:
        marks.append(time.process_time())
        done.cpu_seconds[name] = round(marks[-1] - marks[-2], 3)

    for shard, own in open_step("anchor", len(texts)):
        text, offsets = (
            np.memmap(texts[shard] / name, kind, "r") for name, kind in (("tokenized", "u1"), ("offset", "<u8"))
        )
        count(write_anchors(text.view(np.ndarray), offsets.view(np.ndarray), minimum_bytes, own))
        del text, offsets
    ended("anchor")
    done.partitions = (
        partitions if isinstance(partitions, int) else partitions(done.counts["anchors"], done.counts["largest_bucket"])
    )
    for part, own in open_step("shared", done.partitions):
        count({"candidates": share(folders["anchor"], part, done.partitions, own)["candidates"]})
    ended("shared")
    for shard, own in open_step("context", len(texts)):
        answer_contexts(TextFile(texts[shard] / "tokenized"), folders["shared"], shard, slicing, own)
    ended("context")
    repeats = [open_anchors(folder.folder).repeats for folder in folders["anchor"]]
    settled = []
    for part, own in open_step("settle", done.partitions):
        more = {"repeats": repeats} if part == 0 else {}
        matches, counts = settle(folders["shared"][part], folders["context"], part, slicing, own, **more)
        matches.write(own, with_windows=False)
        settled.append(matches.windows)
        count(counts)
    ended("settle")
    for shard, own in open_step("border", len(texts)):
        answer_borders(TextFile(texts[shard] / "tokenized"), folders["settle"], shard, slicing, own)
    ended("border")
    for part, own in open_step("match", done.partitions):
        actual = match_borders(folders["settle"][part], folders["border"], part, slicing, settled_windows=settled[part])
        actual.write(own, with_windows=False)
        count_repeated(folders["shared"][part], folders["settle"][part], folders["border"], part)
    ended("match")
    for shard, own in open_step("union", len(texts)):
        rows = [folder.read(MATCH_RANGES, shard, columns=2) for folder in folders["match"]]
        done.ranges.append(union_ranges(np.concatenate(rows)))
        write_ranges(own / "remove_ranges", done.ranges[-1])
    ended("union")
    done.scratch_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return done


def covered(ranges: Sequence[Ranges]) -> int:
    """Bytes in ranges."""
    return sum(int((rows[:, 1] - rows[:, 0]).sum()) for rows in ranges)
