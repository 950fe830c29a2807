"""Claim: of well over 60 faults planted in the program, a line of source each, none delivers wrong data unnoticed.

The list (tests/faults/planted.py) was chosen before it was known what catches each. Every fault is tried in a process
of its own: a small build with all exports, or where the fault is in what decides on reuse, a build, an edit, and a
second build in the same work folder. The result says by what each was caught: by the build itself (an account by
stage and name, or an error), by `verify`, which has the fault as well, or by a golden digest alone (other bytes than
a right build's). Of those `without_effect` the right bytes are delivered all the same. `python
benchmarks/planted_faults.py` goes on behind the last row of its table (.cache/planted_faults.jsonl); remove that to
begin anew.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path

from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.faults.mutation import import_everything
from tests.faults.planted import FAULTS
from tests.faults.planted_builds import own_s3, warm_up
from tests.faults.planted_runs import BUILD, GOLDEN, NOTHING, VERIFY, Tries

TABLE = Path(__file__).resolve().parent.parent / ".cache" / "planted_faults.jsonl"
MEMORY = Path("/dev/shm")  # noqa: S108 - receipts and deliveries are flushed, which costs nothing there


def key_of(what: str, scenario: str, edit: str) -> str:
    return " | ".join(part for part in (what, scenario, edit) if part)


def main() -> None:
    logging.disable(logging.CRITICAL)
    TABLE.parent.mkdir(exist_ok=True)
    rows = [json.loads(row) for row in TABLE.read_text().splitlines()] if TABLE.exists() else []
    verdicts = {row["key"]: row for row in rows}
    import_everything()
    with (
        tempfile.TemporaryDirectory(prefix="planted-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder,
        own_s3(Path(folder)) as endpoint,
        TABLE.open("a") as table,
    ):
        warm_up(Path(folder) / "warm")
        tries = Tries(Path(folder) / "tries", endpoint)
        for fault in FAULTS:
            key = key_of(fault.what, fault.scenario, fault.edit)
            if key not in verdicts:
                by, how = tries.caught_by(fault)
                verdicts[key] = {"key": key, "room": fault.room, "by": by, "how": how}
                table.write(json.dumps(verdicts[key]) + "\n")
                table.flush()
                print(f"{by}: {key}: {how}", flush=True)
    actual = [verdicts[key_of(fault.what, fault.scenario, fault.edit)] for fault in FAULTS]
    lists: dict[str, dict[str, str]] = {by: {} for by in (BUILD, VERIFY, GOLDEN, NOTHING)}
    for row in actual:
        lists[row["by"]][f"{row['room']}: {row['key']}"] = row["how"]
    accounts = sum(how.startswith("account") for how in lists[BUILD].values())
    figures = {
        "faults": len(actual),
        "caught_by_the_build": len(lists[BUILD]),
        "of_them_by_an_account": accounts,
        "caught_by_verify": len(lists[VERIFY]),
        "caught_by_a_golden_digest_alone": len(lists[GOLDEN]),
        "by_the_build": lists[BUILD],
        "by_verify": lists[VERIFY],
        "by_a_golden_digest_alone": lists[GOLDEN],
        "without_effect": lists[NOTHING],
    }
    print(write_result("planted_faults", f"{len(actual)} planted faults: by what each is caught", figures))


if __name__ == "__main__":
    main()
