"""The progress of each stage and shard of a run, from Airflow's records and the receipts so far."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from corpusmill.report.progress import StageProgress
from corpusmill.report.shards import ShardRow, ShardTable, StepFacts, shard_row, step_name
from corpusmill.stages.graph import GRAPH
from corpusmill_airflow.pages.records import Run, Task

STAGES = list(GRAPH.names)
AT_WORK = {"running", "restarting", "deferred"}


@dataclass(frozen=True)
class StageLine:
    """One stage: its progress, and how many of its tasks run or failed."""

    progress: StageProgress
    running: int
    failed: int
    waiting_to_retry: int
    stopped: int
    without_a_slot: int = 0
    pool: str = ""

    @property
    def word(self) -> str:
        """failed, running, stopped, done or waiting."""
        if self.failed:
            return "failed"
        if self.running or self.waiting_to_retry:
            return "running"
        if self.stopped:
            return "stopped"
        return "done" if self.progress.units_total and self.progress.is_finished else "waiting"

    @property
    def doing(self) -> str:
        """What its tasks do, such as `1 running, 3 reused`."""
        counts = (
            (self.failed, "failed"),
            (self.waiting_to_retry, "will try again"),
            (self.running, "running"),
            (self.stopped, "not begun"),
            (self.progress.units_reused, "reused"),
        )
        words = [f"{count:,} {word}" for count, word in counts if count]
        if self.without_a_slot and not self.running:
            words.append(f"{self.without_a_slot:,} waiting for slots of the pool {self.pool}")
        return ", ".join(words)


@dataclass(frozen=True)
class ShardLine:
    """One shard: its row, its state (`word`: the kind, `doing`: as text), and the most tries of a task.

    `place`: the map index of its tasks, the same in every stage; -1 if it has none.
    """

    row: ShardRow
    word: str
    doing: str
    tries: int
    log: Task | None = None
    place: int = -1


def stage_lines(tasks: list[Task], steps: Mapping[tuple[str, int], list[StepFacts]], run: Run) -> list[StageLine]:
    """A line for every stage in order, without stages that Airflow skipped or that the run does not have."""
    by_stage: dict[str, list[Task]] = {}
    for task in tasks:
        by_stage.setdefault(task.stage, []).append(task)
    begun = [STAGES.index(stage) for stage, of_stage in by_stage.items() if any(task.started for task in of_stage)]
    lines = []
    for number, stage in enumerate(STAGES):
        of_stage = by_stage.get(stage, [])
        left_out = not of_stage and (run.is_over or number < max(begun, default=0))
        if left_out or any(task.state == "skipped" for task in of_stage):
            continue
        lines.append(_stage_line(stage, of_stage, steps))
    return lines


def _stage_line(stage: str, tasks: list[Task], steps: Mapping[tuple[str, int], list[StepFacts]]) -> StageLine:
    done = [(task, steps.get((task.task_id, task.map_index), [])) for task in tasks if task.state == "success"]
    unread = [task for task, of_task in done if not of_task]  # counted as work until their receipts are read
    fresh = [(task, step) for task, of_task in done for step in of_task if _is_fresh(task, step)]
    worked = {(task.task_id, task.map_index): task for task in (*unread, *(task for task, _ in fresh))}.values()
    begun = [task.started for task in (*worked, *(task for task in tasks if task.state in AT_WORK)) if task.started]
    ends = [task.ended for task in worked if task.ended]
    until = max(ends, default=None) if len(done) == len(tasks) else datetime.now(UTC)
    seconds = (until - min(begun)).total_seconds() if begun and until else 0.0
    progress = StageProgress(
        stage=stage,
        units_done=len(done),
        units_total=len(tasks) or None,
        bytes_done=0 if unread else sum(step.counts.get("bytes_read", 0) for _, step in fresh),
        seconds=max(0.0, seconds),
        units_reused=len(done) - len(worked),
    )
    return StageLine(
        progress=progress,
        running=sum(task.state in AT_WORK for task in tasks),
        failed=sum(task.state == "failed" for task in tasks),
        waiting_to_retry=sum(task.state == "up_for_retry" for task in tasks),
        stopped=sum(task.state == "upstream_failed" for task in tasks),
        without_a_slot=sum(task.state == "scheduled" for task in tasks),
        pool=next((task.pool for task in tasks if task.state == "scheduled"), ""),
    )


def _is_fresh(task: Task, step: StepFacts) -> bool:
    """Whether the task wrote the receipt itself, rather than finding it."""
    return task.started is None or step.finished_at >= task.started.timestamp()


def shard_lines(
    tasks: list[Task],
    paths: Mapping[tuple[str, int], list[str]],
    steps: Mapping[str, StepFacts],
    *,
    is_over: bool = False,
) -> list[ShardLine]:
    """Every shard that a task works on, in order."""
    by_shard: dict[str, list[Task]] = {}
    for task in tasks:
        if task.stage in GRAPH.per_shard and task.map_index >= 0:
            for shard in task.shards:
                by_shard.setdefault(shard, []).append(task)
    lines = []
    for shard in sorted(by_shard):
        mine = by_shard[shard]
        facts = {}
        for task in mine:
            for path in paths.get((task.task_id, task.map_index), []):
                of, name = step_name(task.stage, path.rsplit("/", 2)[1].rpartition("-")[0])
                if of == shard and path in steps:
                    facts[name] = steps[path]
        word, words, log = doing(mine, is_over=is_over)
        tries = max((task.tries for task in mine), default=0)
        lines.append(ShardLine(shard_row(shard, facts), word, words, tries, log, mine[0].map_index))
    return lines


def doing(tasks: list[Task], *, is_over: bool = False) -> tuple[str, str, Task | None]:
    """(kind of state, text, the task whose log explains it) of a shard, from its tasks; `is_over`: of its run."""
    ordered = sorted(tasks, key=lambda task: GRAPH.per_shard.index(task.stage))
    for word, states in (("failed", {"failed"}), ("running", AT_WORK), ("retry", {"up_for_retry"})):
        for task in ordered:
            if task.state in states:
                words = {
                    "failed": f"{task.stage} failed",
                    "running": task.stage,
                    "retry": f"{task.stage}: will try again",
                }
                return word, words[word], task
    if all(task.state in {"success", "skipped"} for task in ordered) and any(
        task.stage == "scatter" for task in ordered
    ):
        return "done", "done", None
    for task in ordered:
        if task.state in {"queued", "scheduled"}:
            return "waiting", f"queued for {task.stage}", task
    if any(task.state == "upstream_failed" for task in ordered):
        return "stopped", "stopped: an earlier task failed", None
    word = "stopped" if is_over else "waiting"
    last = [task.stage for task in ordered if task.state == "success"]
    return word, f"{last[-1]} done" if last else word, None


def with_rows(lines: list[ShardLine], table: ShardTable) -> list[ShardLine]:
    """The lines with the rows of a finished report, which has every shard; a shard without a task is done."""
    known = {line.row.shard: line for line in lines}
    return [
        replace(known[row.shard], row=row) if row.shard in known else ShardLine(row, "done", "done", 0)
        for row in table.rows
    ]
