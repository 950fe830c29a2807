"""The progress of each step and shard of a run, from Airflow's records and the receipts so far."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache

from corpusmill.builds.chain import STEPS, Step, all_tasks
from corpusmill.builds.chain import Task as ChainTask
from corpusmill.builds.graph import GRAPH
from corpusmill.config import DatasetConfig
from corpusmill.engine.parts import Part
from corpusmill.report.shards import ShardRow, ShardTable, StepFacts, shard_row, step_name
from corpusmill_airflow.pages.receipts import stage_of
from corpusmill_airflow.pages.records import Task

AT_WORK = {"running", "restarting", "deferred"}
BEGUN = AT_WORK | {"success", "failed", "up_for_retry", "up_for_reschedule"}
ALL_TASKS = all_tasks()
ALONE = {task.name for task in ALL_TASKS if task.round.alone}
BY_HAND = "skipped in Airflow"
LAST_OF_A_SHARD = "shuffle"  # the step after which nothing is done by shards


@dataclass(frozen=True)
class Facts:
    """What receipts say. `by_task`: facts by path, of what a task returned; `unread`: tasks of which some are not read
    yet; `found`: those that tasks at work have written so far; `shards`: how many are planned.
    """

    by_task: Mapping[tuple[str, int], Mapping[str, StepFacts]] = field(default_factory=dict)
    unread: frozenset[tuple[str, int]] = frozenset()
    found: Mapping[str, StepFacts] = field(default_factory=dict)
    shards: int = 0


@dataclass(frozen=True)
class StageLine:
    """What of one stage has run inside of a step: receipts, their bytes, and the time from the first to the last."""

    name: str
    receipts: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class StepLine:
    """One step: how many of its tasks are done, run, failed; `inside`: its stages. `why_not`: why it is skipped.

    `idle`: tasks that reused everything, `nothing`: those that had nothing to do; they took no time. `share`: of the
    work of the tasks that run.
    """

    name: str
    title: str
    done: int = 0
    total: int = 0
    reused: int = 0
    nothing: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    running: int = 0
    failed: int = 0
    retrying: int = 0
    stopped: int = 0
    held_up: int = 0
    without_a_slot: int = 0
    pool: str = ""
    at: str = ""
    share: float = 0.0
    is_over: bool = False
    why_not: str = ""
    inside: tuple[StageLine, ...] = ()

    @property
    def word(self) -> str:
        """skipped, failed, running, stopped, done or waiting."""
        if self.why_not:
            return "skipped"
        if self.failed:
            return "failed"
        if self.running or self.retrying:
            return "running"
        if self.total and self.done == self.total:
            return "done"
        if self.stopped or self.is_over:
            return "stopped"
        return "running" if self.done else "waiting"

    @property
    def doing(self) -> str:
        """What its tasks do, such as `1 running, 3 reused`; why it is skipped."""
        if self.why_not:
            return self.why_not
        counts = (
            (self.failed, "failed"),
            (self.retrying, "will try again"),
            (self.running, "running"),
            (self.held_up, "waiting for another run"),
            (self.stopped, "not begun"),
            (self.reused, "reused"),
        )
        if self.total == 1:
            words = [word for count, word in counts if count]
        else:
            words = [f"{count:,} {word}" for count, word in counts if count]
        if self.at:
            words.append(self.at)
        if self.without_a_slot and not self.running:
            words.append(f"{self.without_a_slot:,} waiting for slots of the pool {self.pool}")
        return ", ".join(words)

    @property
    def share_done(self) -> float:
        """From 0 to 1, with what tasks at work have finished."""
        if not self.total:
            return 0.0
        return min(1.0, self.done / self.total + self.share)

    @property
    def share_running(self) -> float:
        """Of the bar, what tasks at work have still to do."""
        return min(1.0 - self.share_done, max(0.0, self.running / self.total - self.share)) if self.total else 0.0

    @property
    def bytes_per_second(self) -> float | None:
        """Of all tasks together; None before the first byte."""
        return self.bytes_read / self.seconds if self.bytes_read and self.seconds else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the tasks that worked; of a single one from what it has finished. None before that."""
        worked = self.done - self.reused - self.nothing
        if worked > 0:
            return self.seconds / worked * (self.total - self.done)
        if self.total == 1 and 0 < self.share < 1:
            return self.seconds / self.share * (1 - self.share)
        return None


@dataclass(frozen=True)
class ShardLine:
    """One shard: its row, its state (`word`: the kind, `doing`: as text), and the most tries of a task.

    `place`: the map index of its tasks, the same in every step; -1 if it has none.
    """

    row: ShardRow
    word: str
    doing: str
    tries: int
    log: Task | None = None
    place: int = -1


def step_lines(
    tasks: list[Task], facts: Facts, parts: int, config: DatasetConfig | None = None, *, is_over: bool = False
) -> list[StepLine]:
    """A line for every step in order: also for one that the configuration does not need, with the reason; not for one
    that the run does not have. `is_over`: the run is.
    """
    lines = []
    for step in STEPS.values():
        of_step = [task for task in tasks if task.step == step.name]
        needed = [task for task in of_step if _counts(task, parts, config)]
        if needed:
            lines.append(replace(_line(step, needed, facts, parts, config), is_over=is_over))
        elif why := _why_not(step, of_step, config):
            lines.append(StepLine(step.name, step.title, why_not=why))
    return lines


def _counts(task: Task, parts: int, config: DatasetConfig | None) -> bool:
    """Whether a task is work of the run: it has begun, or may be needed."""
    if task.state in BEGUN:
        return True
    if task.state == "skipped":
        return False
    return config is None or any(of.stages(config, parts) and not of.round.asked for of in _chain_tasks(task.task_id))


@cache
def _chain_tasks(task_id: str) -> list[ChainTask]:
    """The tasks of the chain that an id stands for: a step's own that of any of its rounds."""
    return [task for task in ALL_TASKS if task_id in {task.name, task.step.name}]


def _why_not(step: Step, tasks: list[Task], config: DatasetConfig | None) -> str:
    if config is not None and not any(GRAPH.is_wanted(stage, config) for stage in step.stages):
        return step.unneeded
    return BY_HAND if tasks else ""


def _line(step: Step, tasks: list[Task], facts: Facts, parts: int, config: DatasetConfig | None) -> StepLine:
    done = [task for task in tasks if task.state == "success"]
    nothing = [task for task in done if facts.by_task.get(task.key) == {} and task.key not in facts.unread]
    unread = [task for task in done if task.key not in facts.by_task or task.key in facts.unread]  # counted as work
    fresh = {
        task.key: [step for step in facts.by_task.get(task.key, {}).values() if _is_fresh(task, step)] for task in done
    }
    worked = [task for task in done if task in unread or fresh[task.key]]
    running = [task for task in tasks if task.state in AT_WORK]
    begun = [task.started for task in (*worked, *running) if task.started]
    ends = [task.ended for task in worked if task.ended]

    def count(state: str) -> int:
        return sum(_instances(task, parts) for task in tasks if task.state == state)

    total = sum(_instances(task, parts) for task in tasks)
    until = max(ends, default=None) if len(done) == total else datetime.now(UTC)
    seconds = (until - min(begun)).total_seconds() if begun and until else 0.0
    found = [path for path in facts.found if running and stage_of(path) in step.stages]
    read = [step for of_task in fresh.values() for step in of_task]
    finished = [path for task in done for path in facts.by_task.get(task.key, {})]
    at, share = _at_work(step, found, finished, facts.shards, config)
    return StepLine(
        step.name,
        step.title,
        done=len(done),
        total=total,
        reused=len(done) - len(worked) - len(nothing),
        nothing=len(nothing),
        bytes_read=0 if unread else _bytes_read((*read, *(facts.found[path] for path in found))),
        seconds=max(0.0, seconds),
        running=len(running),
        failed=count("failed"),
        retrying=count("up_for_retry"),
        stopped=count("upstream_failed"),
        held_up=count("up_for_reschedule"),
        without_a_slot=count("scheduled"),
        pool=next((task.pool for task in tasks if task.state == "scheduled"), ""),
        at=at,
        share=min(share, len(running) / total),
        inside=_inside(step, tasks, facts, found),
    )


def _instances(task: Task, parts: int) -> int:
    """A mapped task that has no instances yet will have one for each part."""
    return max(1, parts) if task.map_index < 0 and task.task_id not in ALONE else 1


def _is_fresh(task: Task, step: StepFacts) -> bool:
    """Whether the task wrote the receipt itself, rather than finding it."""
    return task.started is None or step.finished_at >= task.started.timestamp()


def _bytes_read(facts: Iterable[StepFacts]) -> int:
    return sum(step.counts.get("bytes_read", 0) for step in facts)


def stages_at_work(tasks: Iterable[Task], config: DatasetConfig | None, parts: int) -> dict[str, float]:
    """{stage: when the first of the tasks that are at it began, in seconds}."""
    began: dict[str, float] = {}
    for task in tasks:
        if task.step and task.state in AT_WORK and task.started:
            for of in _chain_tasks(task.task_id):
                for stage in of.stages(config, parts) if config else of.step.stages:
                    began[stage] = min(began.get(stage, task.started.timestamp()), task.started.timestamp())
    return began


def _at_work(
    step: Step, found: list[str], finished: list[str], shards: int, config: DatasetConfig | None
) -> tuple[str, float]:
    """(the latest stage of tasks at work, and for how many shards it is done; the share of the step's work by shards
    that they have done), from the receipts found, and those of tasks that have finished.
    """
    by_shards = [
        stage for stage in step.stages if GRAPH[stage].per_shard and (config is None or GRAPH.is_wanted(stage, config))
    ]
    done = {stage: {_shard_of(path) for path in found if stage_of(path) == stage} for stage in by_shards}
    latest = next((stage for stage in reversed(by_shards) if done[stage]), None)
    if latest is None or not shards:
        return "", 0.0
    share = sum(len(of_stage) for of_stage in done.values()) / (shards * len(by_shards))
    in_all = done[latest] | {_shard_of(path) for path in finished if stage_of(path) == latest}
    return f"{latest} {len(in_all):,} of {shards:,} shards" if shards > 1 else latest, share


def _shard_of(path: str) -> str:
    folder = path.rsplit("/", 2)[1]
    return step_name("", folder.rpartition("-")[0])[0]


def _inside(step: Step, tasks: list[Task], facts: Facts, found: list[str]) -> tuple[StageLine, ...]:
    """The stages of which there are receipts, in order."""
    by_stage: dict[str, list[StepFacts]] = {}
    of_tasks = {path: one for task in tasks for path, one in facts.by_task.get(task.key, {}).items()}
    for path, one in (of_tasks | {path: facts.found[path] for path in found}).items():
        by_stage.setdefault(stage_of(path), []).append(one)
    lines = []
    for stage in step.stages:
        if of_stage := by_stage.get(stage):
            began = min(one.finished_at - one.seconds for one in of_stage)
            seconds = max(one.finished_at for one in of_stage) - began
            lines.append(StageLine(stage, len(of_stage), _bytes_read(of_stage), seconds))
    return tuple(lines)


def shard_lines(
    tasks: list[Task],
    steps: Mapping[str, StepFacts],
    shards: list[str],
    sizes: list[int],
    parts: int,
    *,
    is_over: bool = False,
) -> list[ShardLine]:
    """Every planned shard, in order; `sizes`: their source bytes, `steps`: facts of receipts by path."""
    facts: dict[str, dict[str, StepFacts]] = {}
    for path, of_path in steps.items():
        stage, folder = path.rsplit("/", 3)[1:3]
        shard, name = step_name(stage, folder.rpartition("-")[0])
        if stage in GRAPH.per_shard:
            facts.setdefault(shard, {})[name] = of_path
    # One that has no instances yet stands for those of all parts.
    of_shards = [task for task in tasks if works_on_shards(task, parts)]
    lines = []
    for place in range(parts):
        mine = [task for task in of_shards if task.map_index in {place, -1}]
        word, words, log = doing(mine, is_over=is_over)
        tries = max((task.tries for task in mine), default=0)
        for shard in Part(place + 1, parts).of_units(shards, sizes):
            lines.append(ShardLine(shard_row(shard, facts.get(shard, {})), word, words, tries, log, place))
    return lines


def works_on_shards(task: Task, parts: int) -> bool:
    """Whether a task works on shards; of a step of one part, the first task does all of it."""
    of_chain = _chain_tasks(task.task_id) if task.step else []
    if parts == 1:
        return any(not BY_SHARDS.isdisjoint(of.step.stages) for of in of_chain)
    return any(not of.round.alone and not BY_SHARDS.isdisjoint(of.round.stages) for of in of_chain)


BY_SHARDS = frozenset(GRAPH.per_shard)


def doing(tasks: list[Task], *, is_over: bool = False) -> tuple[str, str, Task | None]:
    """(kind of state, text, the task whose log explains it) of a part's shards, from its tasks in order; `is_over`: of
    its run.
    """
    for word, states in (
        ("failed", {"failed"}),
        ("running", AT_WORK),
        ("retry", {"up_for_retry"}),
        ("waiting", {"up_for_reschedule"}),
    ):
        for task in tasks:
            if task.state in states:
                words = {
                    "failed": f"{task.step} failed",
                    "running": task.step,
                    "retry": f"{task.step}: will try again",
                    "waiting": f"{task.step} waits for another run",
                }
                return word, words[word], task
    if all(task.state in {"success", "skipped"} for task in tasks) and any(
        task.step == LAST_OF_A_SHARD for task in tasks
    ):
        return "done", "done", None
    for task in tasks:
        if task.state in {"queued", "scheduled"}:
            return "waiting", f"queued for {task.step}", task
    if any(task.state == "upstream_failed" for task in tasks):
        return "stopped", "stopped: an earlier task failed", None
    word = "stopped" if is_over else "waiting"
    last = [task.step for task in tasks if task.state == "success"]
    return word, f"{last[-1]} done" if last else word, None


def with_rows(lines: list[ShardLine], table: ShardTable) -> list[ShardLine]:
    """The lines with the rows of a finished report, which has every shard; a shard without a task is done."""
    known = {line.row.shard: line for line in lines}
    return [
        replace(known[row.shard], row=row) if row.shard in known else ShardLine(row, "done", "done", 0)
        for row in table.rows
    ]
