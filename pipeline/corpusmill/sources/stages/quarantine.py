"""Quarantine: the rejected lines of cut files, under the name and the line that each has in the user's own file.

    quarantine.jsonl   as of index (documents/quarantine.py), of all sources of the shard

Index reads a part of a file without knowing the lines before it; only shards with such parts, and rejected lines, are
units.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET

from corpusmill.engine.ledger import Check, Outcome, Receipt
from corpusmill.engine.stage import Recount, Shown, Stage
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.lazy import lazily
from corpusmill.sources.parts import PlacedSettings, lines_before, shard_sources
from corpusmill.sources.stages.index import QUARANTINE, RENAMED, rejected_reasons

with lazily:
    import orjson


if TYPE_CHECKING:
    from corpusmill.engine.build import Build


def _has_unit(build: Build, shard: str) -> bool:
    return any(file.part for file in build.plan.shards[int(shard)]) and bool(_rejected(build, shard))


def _rejected(build: Build, shard: str) -> int:
    return sum(rejected_reasons(build.receipt("index", shard).counts).values())


def _identity(build: Build, shard: str) -> PlacedSettings:
    return PlacedSettings(lines_before=lines_before(build, shard) or UNSET)


def _run(inputs: Inputs, settings: PlacedSettings, folder: Path, _resources: Resources) -> Outcome:
    before = settings.lines_before or {}
    whole = {file.name: file.part.of for file in inputs.source.files if file.part}
    rejected = bytes_read = 0
    with (inputs["index"].folder() / QUARANTINE).open("rb") as rows, (folder / QUARANTINE).open("wb") as written:
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


STAGE = Stage(
    RENAMED,
    version=1,
    after=("index",),
    per_shard=True,
    units_of="index",
    has_unit=_has_unit,
    work=Work(PlacedSettings, _identity, lambda _build, shard: {"index": [("index", shard)]}, _run, shard_sources),
    checks=_checks,
    recount=_recount,
    shown=Shown(on_trunk=False),
)
