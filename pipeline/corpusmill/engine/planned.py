"""Reads a plan's step: the configuration with its lock, and the plan."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from corpusmill.engine.ledger import Blocks, Receipt, read_receipt_as
from corpusmill.engine.ledger.receipt import UNREADABLE
from corpusmill.engine.plan import Plan
from corpusmill.engine.work_folder.small import refresh
from corpusmill.errors import CorruptDataError
from corpusmill.lazy import lazily

with lazily:
    from corpusmill.config import dataset


if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig

GONE = frozenset({"index"})  # which way to index a shard: there is one


def read_plan(plan_receipt: Path) -> Plan:
    """The plan of a receipt; CorruptDataError if it is damaged, or written by a version with other keys."""
    text = read_planned(plan_receipt, name := "plan.json")
    try:
        return msgspec.json.decode(text, type=Plan)  # of ten thousand files in a third of pydantic's time
    except UNREADABLE as error:
        raise _of_another_version(plan_receipt, name, str(error)) from error


def read_config(plan_receipt: Path) -> DatasetConfig:
    """The configuration that was planned; CorruptDataError as for the plan."""
    text = read_planned(plan_receipt, name := "config.json")
    try:
        return planned_config(msgspec.json.decode(text))
    except ValidationError as error:
        first = error.errors()[0]
        got = f"{error.error_count()} problems, first: {'.'.join(map(str, first['loc']))}: {first['type']}"
        raise _of_another_version(plan_receipt, name, got) from error


def planned_config(values: dict[str, Any]) -> DatasetConfig:
    """A configuration as a plan states it, without the sections of before that decide nothing any more."""
    return dataset.DatasetConfig.model_validate({key: value for key, value in values.items() if key not in GONE})


def _of_another_version(plan_receipt: Path, name: str, got: str) -> CorruptDataError:
    return CorruptDataError(
        "plan.other_version: a plan was written by another version of Corpusmill, and this one cannot read it",
        where=plan_receipt.with_name(name),
        got=got,
        next_step="build the dataset, which plans it again",
    )


def read_planned(plan_receipt: Path, name: str) -> bytes:
    """A file of the plan's step, checked against its receipt."""
    with Blocks(plan_receipt.parent, plan_of(plan_receipt)).open(name) as file:
        return file.read()


class Planned(msgspec.Struct, frozen=True):
    """The part of a plan step's settings that tasks need, out of the whole plan: the versions of the code."""

    code: dict[str, str] = {}


class PlanReceipt(Receipt, frozen=True, kw_only=True):
    """The receipt of a plan without most of its settings, which takes two fifths of the time to parse."""

    settings: Planned  # type: ignore[assignment]


def plan_of(plan_receipt: Path) -> PlanReceipt:
    """The receipt of a plan, which may be megabytes: it is cached until the file changes."""
    refresh(plan_receipt)
    status = plan_receipt.stat()
    return _read_once(plan_receipt, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _read_once(plan_receipt: Path, _inode: int, _mtime_ns: int) -> PlanReceipt:
    return read_receipt_as(PlanReceipt, plan_receipt)


def tokenizer_versions(config: DatasetConfig) -> dict[str, str]:
    """The versions of the locked tokenizer, which every receipt states."""
    lock = config.lock
    if lock is None:
        return {}
    revision = {"tokenizer_revision": lock.tokenizer_revision} if lock.tokenizer_revision else {}
    return {"tokenizer_sha256": lock.tokenizer_sha256, **revision}
