"""Runs of a dataset's plans: their order, which delivered, and which one `latest` follows.

A plan's folder holds two marks beside its receipt. `.started` is written when a run of the plan begins, `.delivered`
copies it when that run's report is written, and says which versions runs of the plan have delivered. A dry run's plan
has neither. Runs of a dataset are ordered by a number that begins at 1, not by time, so a clock that was wrong for a
day reorders nothing.

`latest` follows the newest run that delivered. A run leaves it unchanged if it was started that way (an experiment, an
older plan reprocessed), or if a newer run has delivered in the meantime (a task of an old run was cleared).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.work_folder.small import refresh, refresh_all, write
from corpusmill.errors import MissingConfigError

STARTED = ".started"  # its modification time says when the newest run began; receipts older than that were reused
DELIVERED = ".delivered"


class RunMark(BaseModel):
    """One run of a plan: its number among the dataset's runs, and why it leaves `latest` alone ("" if it moves it).

    `versions`: {version of the dataset that runs of this plan delivered: number of the last run that did}.
    """

    model_config = ConfigDict(frozen=True)

    number: int = 0
    latest_stays: str = ""
    versions: dict[Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")], int] = {}


def begin_run(plan_receipt: Path, *, latest_stays: str = "") -> Path:
    """Record that a run of this plan begins now; older receipts count as reused. Returns `plan_receipt`."""
    newest = max((_mark(path.parent, STARTED).number for path in _plans(plan_receipt.parents[2])), default=0)
    _write(plan_receipt.parent / STARTED, RunMark(number=newest + 1, latest_stays=latest_stays))
    return plan_receipt


def mark_delivered(plan_folder: Path, version: str) -> None:
    """Record that the newest run of this plan has delivered this version of the dataset."""
    mark = _mark(plan_folder, STARTED)
    versions = _mark(plan_folder, DELIVERED).versions | {version: mark.number}
    _write(plan_folder / DELIVERED, mark.model_copy(update={"versions": versions}))


def begun_at(plan_folder: Path) -> float:
    """When the newest run of a plan began; 0 if none has."""
    started = plan_folder / STARTED
    return started.stat().st_mtime if refresh(started) else 0.0


def delivered_plans(work: Path) -> list[Path]:
    """Receipts of the plans whose runs delivered: first those that moved `latest`, the newest first."""
    delivered = [path for path in _plans(work) if refresh(path.parent / DELIVERED, again=True)]
    return sorted(delivered, key=lambda path: _rank(_mark(path.parent, DELIVERED)), reverse=True)


def begun_plans(work: Path) -> list[Path]:
    """Receipts of the plans of which a run began, the newest first."""
    begun = [path for path in _plans(work) if refresh(path.parent / STARTED, again=True)]
    return sorted(begun, key=lambda path: _mark(path.parent, STARTED).number, reverse=True)


def delivered_versions(work: Path) -> list[str]:
    """The versions that runs of this work folder delivered, the newest first."""
    runs = [(number, version) for path in _plans(work) for version, number in _versions(path).items()]
    return list(dict.fromkeys(version for _, version in sorted(runs, reverse=True)))


def version_before(plan_receipt: Path) -> str:
    """The version that `latest` followed before the newest run of this plan; "" if that is not known.

    Not after that run has delivered the same version again: then the one before.
    """
    mine = _mark(plan_receipt.parent, STARTED).number
    moved = [path for path in _plans(plan_receipt.parents[2]) if not _mark(path.parent, DELIVERED).latest_stays]
    runs = [(number, version) for path in moved for version, number in _versions(path).items() if number < mine]
    return max(runs, default=(0, ""))[1]


def last_configuration(work: Path) -> Path:
    """The copy of the configuration of the dataset's newest run; ConfigError if no run began."""
    begun = begun_plans(work)
    if not begun:
        raise MissingConfigError(
            "run.none_started: no run of a dataset has started in this folder",
            where=work,
            expected="a configuration, or a dataset's work folder, such as work/web",
        )
    return begun[0].with_name("config.json")


def plan_of_version(work: Path, version: str) -> Path | None:
    """The receipt of the plan whose run was the last to deliver a version; None if no plan here did."""
    plans = [path for path in _plans(work) if version in _versions(path)]
    return max(plans, key=lambda path: _versions(path)[version], default=None)


def needed_plans(work: Path, keep: int = 1) -> list[Path]:
    """Receipts of the plans whose steps are needed: of the `keep` newest that delivered, and of all begun since.

    If none has delivered: all that were begun, or if none was, all.
    """
    delivered = delivered_plans(work)
    since = _mark(delivered[0].parent, DELIVERED).number if delivered else -1
    newer = [path for path in begun_plans(work) if _mark(path.parent, STARTED).number > since]
    return list(dict.fromkeys([*delivered[: max(1, keep)], *newer])) or _plans(work)


def why_latest_stays(plan_receipt: Path) -> str:
    """Why the newest run of this plan leaves `latest` alone, and how to move it; "" if it moves it."""
    mine = _mark(plan_receipt.parent, STARTED)
    if mine.latest_stays:
        return mine.latest_stays
    newest = next(iter(delivered_plans(plan_receipt.parents[2])), plan_receipt)
    theirs = _mark(newest.parent, DELIVERED)
    if newest == plan_receipt or theirs.latest_stays or theirs.number < mine.number:
        return ""
    return (
        f"a newer run has delivered since this one started (plan {newest.parent.name});"
        " to move it, start a new run with these settings, which reuses every step"
    )


def _plans(work: Path) -> list[Path]:
    refresh_all(work / "plan", RECEIPT_NAME)
    return sorted((work / "plan").glob(f"*/{RECEIPT_NAME}"))


def _versions(plan_receipt: Path) -> dict[str, int]:
    return _mark(plan_receipt.parent, DELIVERED).versions


def _rank(mark: RunMark) -> tuple[bool, int]:
    return not mark.latest_stays, mark.number


def _mark(plan_folder: Path, name: str) -> RunMark:
    """Read a mark; one that is missing or truncated sorts before all others."""
    refresh(plan_folder / name, again=True)
    try:
        return RunMark.model_validate_json((plan_folder / name).read_bytes())
    except (FileNotFoundError, ValidationError):
        return RunMark()


def _write(path: Path, mark: RunMark) -> None:
    write(path, f"{mark.model_dump_json()}\n".encode())
