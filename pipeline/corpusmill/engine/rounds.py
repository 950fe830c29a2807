"""The steps that people know and the rounds in them, of any graph of stages; chain.py makes tasks of them.

This imports no graph, so that a stage, the report, can say which step each stage is part of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from corpusmill.config.exports import FORMATS

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.engine.stage import Graph

EXPORT = "export"


def _always(_config: DatasetConfig) -> bool:
    return True


@dataclass(frozen=True)
class Round:
    """Stages whose steps of one shard may follow each other without waiting for other shards.

    `barrier`: whether the next round must wait for all of its parts; otherwise that one does its stages, too
    `later`: those of its stages that need all shards, and so are left to a later round where there are several parts
    `left`: stages that an earlier round left to it
    `moved`: stages of an earlier step that it does instead, where any of its own is needed
    `alone`: it has one part, whatever the size of the dataset
    `asked`: it is needed only where somebody is asked before the next step, which otherwise does its stages
    """

    name: str
    stages: tuple[str, ...]
    barrier: Callable[[DatasetConfig], bool] = _always
    later: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    alone: bool = False
    asked: bool = False


@dataclass(frozen=True)
class Step:
    """One of the steps.

    `title`: what happens in it, for people; `beside`: its rounds may run at the same time; `unneeded`: why a
    configuration may not need it, for people
    """

    name: str
    title: str
    rounds: tuple[Round, ...]
    beside: bool = False
    unneeded: str = "not needed by this configuration"

    @property
    def stages(self) -> tuple[str, ...]:
        """Its stages, each once, in order."""
        return tuple(dict.fromkeys(stage for round_ in self.rounds for stage in round_.stages))


BUILT_IN = (
    Step(
        "download",
        "Sources arrive and are checked; so are references, lists of decisions and benchmarks",
        (Round("download", ("download", "reference", "decisions", "benchmarks")),),
    ),
    Step(
        "index",
        "Lines become text; lists, steps and decontamination drop documents; anchors are sampled for dedup",
        (
            # The lines of a file that was cut are counted before any is named by its number, and too many rejected ones
            # stop the build before other work.
            Round("read", ("index",)),
            # A list is matched with all shards before it drops a document of one.
            Round("join", ("quarantine", "join"), barrier=lambda config: bool(config.listed_decisions())),
            Round(
                "index",
                ("reference_index", "reference_sign", "decided", "copies", "filter", "decontaminate", "sign", "anchor"),
            ),
        ),
    ),
    Step(
        "near_duplicates",
        "Documents that are copies of an earlier one but for small differences are found, and left out",
        (
            Round("propose", ("propose",)),
            Round("sets", ("sets", "reference_sets")),
            Round("compare", ("compare",)),
            Round("decide", ("decide",), alone=True),
            Round("left_out", ("near_duplicates",), moved=("anchor",)),
        ),
        unneeded="not needed: the configuration has no near_duplicates",
    ),
    Step(
        "find_ranges",
        "Which bytes repeat, over the whole dataset",
        (
            Round("shared", ("shared",)),
            Round("context", ("context", "reference_context")),
            Round("settle", ("settle",)),
            Round("border", ("border", "reference_border")),
            Round("match", ("match",)),
            Round("union", ("union",), asked=True),
        ),
        unneeded="not needed: deduplication is off (dedup.mode: none)",
    ),
    Step(
        "writeback",
        "What repeats is cut out of each shard, and its documents are written back",
        (Round("writeback", ("union", "refine", "lost", "writeback")),),
        unneeded="not needed: nothing is cut out, and no documents are written back",
    ),
    Step(
        "tokenize",
        "Text becomes ids, which are audited against the text",
        (Round("tokenize", ("tokenize", "audit"), later=("audit",)),),
    ),
    Step(
        "shuffle",
        "Records in random order: scattered over cells, then each cell by itself",
        (
            Round("budget", ("budget",), alone=True),
            Round("scatter", ("scatter",), left=("audit",)),
            Round("gather", ("gather",)),
        ),
    ),
    Step(
        EXPORT,
        "The training formats, written and read again",
        tuple(Round(name, (EXPORT,)) for name in FORMATS),
        beside=True,
    ),
    Step(
        "upload",
        "The manifest is written; every destination receives the dataset and is listed again",
        (Round("upload", ("manifest", "upload"), alone=True),),
    ),
    Step("report", "The accounts, the pictures, what `latest` is", (Round("report", ("report",), alone=True),)),
)


def steps_of(graph: Graph) -> dict[str, Step]:
    """{name: step} of a graph's stages, with a round for each stage of the user's own: the last of its step, or the
    first of the next step if its step's rounds run beside each other.
    """
    place = {stage: number for number, step in enumerate(BUILT_IN) for stage in step.stages}
    first: dict[int, list[Round]] = {}
    last: dict[int, list[Round]] = {}
    for name in (stage.name for stage in graph if stage.name not in place):
        after = max((place[other] for other in graph.after(name)), default=0)
        place[name] = after + BUILT_IN[after].beside
        (first if BUILT_IN[after].beside else last).setdefault(place[name], []).append(Round(name, (name,)))
    return {
        step.name: replace(step, rounds=(*first.get(number, ()), *step.rounds, *last.get(number, ())))
        for number, step in enumerate(BUILT_IN)
    }
