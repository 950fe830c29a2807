"""Claim: boto3, our client, takes more CPU for a small request than obstore, which hangs in a forked process.

Objects of one store, by both in turn, in one process: receipts are written where none is, and read; ranges of
64 KiB are read. Ours compares what the store says of the content and counts traffic; obstore does neither. Then a
forked child reads one object with the client that its parent used. CPU is that of the process, all threads. What the
difference is to a whole build follows from the requests of bucket_build.json.

    pip install --target FOLDER obstore==0.12.1
    AWS_ENDPOINT_URL=http://127.0.0.1:8333 python -m benchmarks.small_requests s3://bucket/prefix --peer FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.results import HERE, write_result
from corpusmill.engine.work_folder.objects import objects_of

REQUESTS, ROUNDS = 200, 5
RECEIPT_BYTES, RANGE_BYTES, OBJECT_BYTES = 2_000, 64 << 10, 8 << 20
CHILD_SECONDS = 20  # a range takes milliseconds


def cpu_milliseconds(request: Callable[[int], object]) -> float:
    """Of one request: the least of some rounds of many."""
    rounds = []
    for number in range(ROUNDS):
        began = time.process_time()
        for place in range(number * REQUESTS, (number + 1) * REQUESTS):
            request(place)
        rounds.append((time.process_time() - began) / REQUESTS * 1000)
    return round(min(rounds), 2)


def in_a_child(request: Callable[[int], object]) -> str:
    """What a request does in a process that is forked after this one has made some: answered, failed, or hung."""
    child = os.fork()
    if not child:
        signal.alarm(CHILD_SECONDS)  # ends the child if the request does not
        try:
            request(0)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "answered", -signal.SIGALRM: "hung"}.get(status, "failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place")
    parser.add_argument("--peer", type=Path, required=True)
    asked = parser.parse_args()
    sys.path.append(str(asked.peer))
    import obstore  # type: ignore[import-not-found]
    from obstore.store import S3Store  # type: ignore[import-not-found]

    bucket, _, prefix = asked.place.removeprefix("s3://").partition("/")
    ours = objects_of(f"s3://{bucket}")
    theirs: Any = S3Store(
        bucket,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        region=os.environ.get("AWS_DEFAULT_REGION", "us-east-1"),
        client_options={"allow_http": True},
    )
    receipt, whole = os.urandom(RECEIPT_BYTES), os.urandom(OBJECT_BYTES)
    ours.put(f"{prefix}/ours/whole", whole)
    obstore.put(theirs, f"{prefix}/theirs/whole", whole)
    at = [number * 61_000 % (OBJECT_BYTES - RANGE_BYTES) for number in range(ROUNDS * REQUESTS)]
    requests: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
        "a receipt written": (
            lambda number: ours.put(f"{prefix}/ours/{number}", receipt, over=""),
            lambda number: obstore.put(theirs, f"{prefix}/theirs/{number}", receipt, mode="create"),
        ),
        "a receipt read": (
            lambda number: ours.get(f"{prefix}/ours/{number}"),
            lambda number: obstore.get(theirs, f"{prefix}/theirs/{number}").bytes(),
        ),
        "64 KiB read": (
            lambda number: ours.read(f"{prefix}/ours/whole", at[number], at[number] + RANGE_BYTES),
            lambda number: obstore.get_range(
                theirs, f"{prefix}/theirs/whole", start=at[number], end=at[number] + RANGE_BYTES
            ),
        ),
    }
    milliseconds = {
        name: {"ours": cpu_milliseconds(ours_does), "obstore": cpu_milliseconds(theirs_does)}
        for name, (ours_does, theirs_does) in requests.items()
    }
    more = statistics.mean(each["ours"] - each["obstore"] for each in milliseconds.values()) / 1000
    runs = json.loads((HERE / "results" / "bucket_build.json").read_text())["figures"]["runs"]
    read = requests["a receipt read"]
    figures = {
        "cpu_milliseconds_a_request": milliseconds,
        "in_a_forked_child": {"ours": in_a_child(read[0]), "obstore": in_a_child(read[1])},
        "share_of_the_cpu_of_a_build_that_obstore_would_save_at_most": {
            kind: round(min(run["requests"] * more / run["cpu_seconds"] for run in runs[kind]), 3)
            for kind in ("bucket", "machines")
        },
    }
    print(json.dumps(figures, indent=1))
    write_result("small_requests", (__doc__ or "").partition("\n")[0].removeprefix("Claim: "), figures)


if __name__ == "__main__":
    main()
