"""Claim: 1,000 faults of all seven kinds over uploads and downloads of 200 MB leave every byte right, or refuse.

A proxy (tests/faults/proxy.py) stands between the client and rclone's S3 server and harms a quarter of the requests
until its faults are dealt out. Parts are small, so that every download has several on their way and answers can come
out of order. A file that is refused is sent or fetched again, as a user would. Pauses between retries are off, so that
the figures say what was done and not how long was waited. `python benchmarks/faults.py`
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpusmill.errors import CorpusmillError
from corpusmill.storage import Store, Traffic, Wanted, fetch, open_store, retries, transfers
from tests.faults.proxy import KINDS, FaultyProxy
from tests.servers import ACCESS_KEY, SECRET_KEY, rclone_s3

OBJECTS, OBJECT_BYTES = 720, 250_000
LARGE_OBJECTS, LARGE_BYTES = 2, 10 << 20  # these go up in two parts
DOWNLOAD_PART_BYTES = 64 << 10  # four parts of an object, 160 of a large one
FAULTS, SHARE, SEED = 1_000, 0.25, 1
ALL_KINDS = (*KINDS, "reordered")
TRIES = 20


def content(number: int) -> bytes:
    size = LARGE_BYTES if number < LARGE_OBJECTS else OBJECT_BYTES
    return hashlib.shake_128(b"%d" % number).digest(size)


def send(store: Store, number: int, path: Path) -> None:
    data = content(number)
    path.write_bytes(data)
    store.receive(path, f"o/{number}", hashlib.sha256(data).hexdigest())


def get(store: Store, number: int, path: Path) -> None:
    there = store.stat(f"o/{number}")
    if there is None:
        raise CorpusmillError("store.object_missing: an object is not there after its upload", where=number)
    fetch(store, Wanted(f"o/{number}", there.size_bytes, there.identity), path, path.with_suffix(".partial"))


def main() -> None:
    os.environ |= {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    retries.POLICY = retries.RetryPolicy(first_pause_seconds=0.0)
    transfers.PART_BYTES = DOWNLOAD_PART_BYTES
    root = Path(tempfile.mkdtemp(prefix="faults-"))
    refused: Counter[str] = Counter()
    wrong = 0
    began = time.process_time()
    with rclone_s3(root) as server:
        assert server.folder is not None
        (server.folder / "corpus").mkdir()
        with FaultyProxy(server.endpoint, seed=SEED, share=SHARE, faults=FAULTS, kinds=ALL_KINDS) as proxy:
            traffic = Traffic()
            store = open_store("s3://corpus", endpoint_url=proxy.endpoint, traffic=traffic)
            for number in range(OBJECTS + LARGE_OBJECTS):
                for verb, call in (("upload", send), ("download", get)):
                    for _ in range(TRIES):
                        try:
                            call(store, number, root / "file")
                            break
                        except CorpusmillError:
                            refused[verb] += 1
                    else:
                        raise AssertionError(f"{verb} of {number} was refused {TRIES} times")
                wrong += (root / "file").read_bytes() != content(number)
        for number in range(OBJECTS + LARGE_OBJECTS):
            wrong += (server.folder / f"corpus/o/{number}").read_bytes() != content(number)
    figures = {
        "megabytes_each_way": round((OBJECTS * OBJECT_BYTES + LARGE_OBJECTS * LARGE_BYTES) / 1e6),
        "faults": {kind: proxy.dealt[kind] for kind in ALL_KINDS},
        "answers_overtaken_by_a_later_one": proxy.overtaken,
        "faults_in_all": sum(proxy.dealt.values()),
        "files_wrong": wrong,
        "calls_refused_and_made_again": dict(refused),
        "traffic": traffic.as_counts(),
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    print(figures)
    assert wrong == 0
    assert sum(proxy.dealt.values()) == FAULTS
    assert proxy.overtaken
    print(write_result("faults", "1,000 faults of all kinds over 200 MB: every byte right, or refused", figures))


if __name__ == "__main__":
    main()
