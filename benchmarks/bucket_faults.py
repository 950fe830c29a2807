"""Claim: races, faults and kills of workers with a work folder in a bucket cost no byte, and gc finds what they leave.

One step of two outputs, 1 MiB and nothing, on an S3 server, each time by machines with empty mirrors:

* races    16 threads write one object at the same time, where none is and over one that is there: one wins
* faults   refused, reset, lost, truncated, delayed and damaged answers between worker and store: both of two machines
           read the right bytes, or end with an error, after which a third reads them. What arrived damaged at a store
           that compares nothing is noticed by the reader, and the step runs again
* kills    a worker is killed when it is about to send its n-th request, with its disk; the next one reads the bytes

At the end every object is of an attempt that a receipt names, or one that gc would remove.

    AWS_ENDPOINT_URL=http://127.0.0.1:8333 python -m benchmarks.bucket_faults s3://bucket/prefix
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.results import write_result
from corpusmill.engine.ledger import RECEIPT_NAME, read_receipt
from corpusmill.engine.work_folder.objects import objects_of
from corpusmill.engine.work_folder.outputs import OUTPUTS, abandoned
from corpusmill.engine.work_folder.small import RACERS, race_writers
from corpusmill.errors import CorpusmillError
from corpusmill.storage import retries
from corpusmill.storage.mirrored import mirror_of, object_of, place_of
from tests.engine.work_folder import test_commit as one_step
from tests.engine.work_folder.machines import WORK_FOLDER, machine
from tests.faults.proxy import FaultyProxy

RACES, FAULTS, KILLS = 1000, 1000, 200  # half of the races where no object is, half over one
KINDS = (*one_step.FAILURES, *one_step.DAMAGES)
MOST_REQUESTS = 11  # of the step, by a worker that nobody disturbs


def at(unit: str) -> None:
    """Let the functions of test_commit speak of another step."""
    one_step.STEP = replace(one_step.STEP, unit=unit)


def disturbed(folder: Path, endpoint: str, seed: int) -> tuple[Counter[str], bool]:
    """Two machines run and read a step through a proxy, a third without it; the faults that they met, and whether the
    third had the step run again.
    """
    with FaultyProxy(endpoint, seed=seed, share=0.4, faults=12, kinds=KINDS) as proxy:
        os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint
        for name in ("first", "second"):
            with machine(folder, f"{seed} {name}"), suppress(CorpusmillError):
                one_step.run()
                assert one_step.read_anew() == one_step.CONTENT
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    with machine(folder, f"{seed} last"):
        one_step.run()
        content, again = one_step.read_or_run_again()
        assert content == one_step.CONTENT
    return proxy.dealt, again


def killed(folder: Path, number: int) -> bool:
    """A worker dies at a random request; the next one reads the right bytes. False if it had ended before that."""
    import multiprocessing

    requests = random.Random(number).randrange(MOST_REQUESTS)
    victim = multiprocessing.get_context("spawn").Process(target=victim_of, args=(folder, f"{number:05d}", requests))
    victim.start()
    victim.join()
    with machine(folder, f"{number} next"):
        one_step.run()
        assert one_step.read_anew() == one_step.CONTENT
    return victim.exitcode == -9


def victim_of(folder: Path, unit: str, requests: int) -> None:
    at(unit)
    one_step.run_and_die(folder, f"{unit} victim", requests)


def left(folder: Path, place: str) -> dict[str, int]:
    """Of all attempts in the bucket: how many a receipt names, and how many gc would remove; no other may be there."""
    with machine(folder, "last of all"):
        work = mirror_of(f"{place}/tiny")
        bucket, key = object_of(work) or ("", "")
        objects = objects_of(bucket)
        keys = [row.key for row in objects.list(f"{key}/")]
        receipts = [key for key in keys if key.endswith(f"/{RECEIPT_NAME}")]
        named = set()
        for receipt in receipts:
            path = work / receipt.removeprefix(f"{key}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            small = objects.get(receipt)
            path.write_bytes(small.content if small else b"")
            named.add(read_receipt(path).attempt)
        attempts = {key.split(f"/{OUTPUTS}/")[1].split("/")[1] for key in keys if f"/{OUTPUTS}/" in key}
        garbage = {place.name for place, _ in abandoned(work, named, -3600)}
        assert named <= attempts
        assert attempts - named == garbage
        return {"receipts": len(receipts), "attempts_that_receipts_name": len(named), "attempts_for_gc": len(garbage)}


def main() -> None:
    """Race, disturb, kill; write results/bucket_faults.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place")
    parser.add_argument("--small", action="store_true", help="A hundredth of each.")
    asked = parser.parse_args()
    parts = 100 if asked.small else 1
    place = f"{asked.place}/{os.getpid()}"
    os.environ[WORK_FOLDER] = place
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    retries.POLICY = retries.RetryPolicy(first_pause_seconds=0.0)
    folder = Path(tempfile.mkdtemp(prefix="corpusmill-bucket-faults-"))
    try:
        with machine(folder, "racers"):
            race_writers(*place_of(place), RACES // parts // 2)
        dealt: Counter[str] = Counter()
        seeds = noticed = kills = tried = 0
        while dealt.total() < FAULTS // parts:
            at(f"{seeds:05d}")
            met, again = disturbed(folder, endpoint, seeds)
            dealt += met
            noticed += again
            seeds += 1
        while kills < KILLS // parts:
            at(f"{10_000 + tried:05d}")
            kills += killed(folder, 10_000 + tried)
            tried += 1
        figures = {
            "races_won_by_one": RACES // parts,
            "writers_of_a_race": RACERS,
            "faults": dict(sorted(dealt.items())),
            "faults_in_all": dealt.total(),
            "steps_disturbed": seeds,
            "of_which_a_reader_noticed_damage": noticed,
            "kills": kills,
            **left(folder, place),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(figures)
    if not asked.small:
        write_result("bucket_faults", (__doc__ or "").partition("\n")[0].removeprefix("Claim: "), figures)


if __name__ == "__main__":
    main()
