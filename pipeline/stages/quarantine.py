"""Quarantine: the rejected lines of cut files, under the name and the line that each has in the user's own file.

    quarantine.jsonl   as of index (documents/quarantine.py), of all sources of the shard

Index reads a part of a file without knowing the lines before it; only shards with such parts, and rejected lines, are
units.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.engine.stage import Recount, Stage
from corpusmill.ledger import Check, Outcome, Receipt
from corpusmill.stages.index import QUARANTINE, RENAMED, rejected_reasons
from corpusmill.stages.parts import lines_before_settings

if TYPE_CHECKING:
    from corpusmill.engine.build import Build, StepView


def _units(build: Build) -> list[str]:
    shards = zip(build.units("index"), build.plan.shards, strict=True)
    with_parts = [shard for shard, files in shards if any(file.part for file in files)]
    return [shard for shard in with_parts if _rejected(build, shard)]


def _rejected(build: Build, shard: str) -> int:
    return sum(rejected_reasons(build.receipt("index", shard).counts).values())


def _run(build: StepView, shard: str, folder: Path) -> Outcome:
    import orjson

    before = build.settings["lines_before"]
    whole = {file.name: file.part.of for file in build.plan.shards[int(shard)] if file.part}
    rejected = bytes_read = 0
    with (build.folder("index", shard) / QUARANTINE).open("rb") as rows, (folder / QUARANTINE).open("wb") as written:
        for line in rows:
            row = orjson.loads(line)
            row["line"] += before.get(row["source"], 0)
            row["source"] = whole.get(row["source"], row["source"])
            written.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            rejected += 1
            bytes_read += len(line)
    return Outcome(counts={"rejected": rejected, "bytes_read": bytes_read})


def _checks(build: Build, shard: str, receipt: Receipt) -> list[Check]:
    return [Check("rejected", (("indexed", _rejected(build, shard)),), (("renamed", receipt.counts["rejected"]),))]


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    with (folder / QUARANTINE).open("rb") as rows:
        return Recount({"rejected": sum(1 for _ in rows)})


def _settings(build: Build, shard: str) -> dict[str, Any]:
    return lines_before_settings(build, shard)


STAGE = Stage(
    RENAMED,
    version=1,
    after=("index",),
    units_after=("index",),
    per_shard=True,
    units=_units,
    inputs=lambda _build, shard: [("index", shard)],
    settings=_settings,
    run=_run,
    checks=_checks,
    recount=_recount,
    on_trunk=False,
)
