"""What a plan's step holds: the configuration with its lock, and the plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.ledger import Blocks, read_receipt

if TYPE_CHECKING:
    from corpusmill.config import DatasetConfig
    from corpusmill.sources.plan import Plan


def read_plan(plan_receipt: Path) -> Plan:
    """The plan that a receipt belongs to."""
    from corpusmill.sources.plan import Plan

    return Plan.model_validate_json(read_planned(plan_receipt, "plan.json"))


def read_planned(plan_receipt: Path, name: str) -> bytes:
    """A file of the plan's step, compared with its receipt."""
    Blocks(plan_receipt.parent, read_receipt(plan_receipt)).require([name])
    return (plan_receipt.parent / name).read_bytes()


def tokenizer_versions(config: DatasetConfig) -> dict[str, str]:
    """What every receipt states of the tokenizer that the configuration is locked to."""
    lock = config.lock
    if lock is None:
        return {}
    revision = {"tokenizer_revision": lock.tokenizer_revision} if lock.tokenizer_revision else {}
    return {"tokenizer_sha256": lock.tokenizer_sha256, **revision}
