"""Claim: of 200 pairs of uploads of one version at once, every second one with a kill -9, all leave the whole version.

A dataset of some MB is built once; its work folder is copied, as another machine would have it. In every round both
copies upload to an empty bucket (rclone's S3 server) and an empty folder, from two processes. In every second round one
of them is killed at a moment drawn from the time that a pair takes. Who is not killed must succeed, and what lies at
both places must be the dataset, byte for byte, with the manifest and `latest`; no upload in parts of another version
may be left. `python benchmarks/upload_pairs.py --pairs 200`
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.errors import CorpusmillError
from corpusmill.storage import Store, open_store, s3_multipart
from corpusmill.upload.stages.manifest import dataset_version
from tests.servers import ACCESS_KEY, SECRET_KEY, rclone_s3
from tests.system.corpus import configuration, write_corpus

PART_BYTES = 128 << 10  # so that a dataset of some MB goes in many parts
COPIES = ("one", "other")
LATEST = "latest.json"


def built(root: Path, endpoint: str) -> dict[str, Path]:
    """The plans of a finished build and of its copy."""
    write_corpus(root / "corpus", documents=1600)
    destinations = [{"path": "s3://corpus/ready", "endpoint_url": endpoint}, {"path": str(root / "ready")}]
    exports = {"megatron": {}, "nanoset": {}, "numpy": {"tokens_per_shard": 200_000}}
    source = {"paths": [str(root / "corpus")], "shard_bytes": "1MiB"}
    changes = {"exports": exports, "destinations": destinations, "source": source, "work_folder": str(root / "one")}
    plan = build_dataset(check_config(configuration(root, **changes), where="benchmark"), workers=1)
    shutil.copytree(root / "one", root / "other", symlinks=True)
    return {"one": plan, "other": root / "other" / plan.relative_to(root / "one")}


def start(plan: Path, log: Path) -> int:
    """A process that uploads; its id."""
    if child := os.fork():
        return child
    try:
        build = open_build(plan)
        for unit in build.units("upload"):
            build.run("upload", unit)
        os._exit(0)
    except BaseException as error:
        log.write_text(f"{type(error).__name__}: {error}")
        os._exit(1)


def files_at(place: str, version: str, endpoint: str) -> dict[str, bytes]:
    """The version's files by name, and what says which one is the latest."""
    version_folder = open_store(f"{place}/{version}", endpoint_url=endpoint)
    files = {file.name: version_folder.open(file.name).read() for file in version_folder.list_files()}
    above = open_store(place, endpoint_url=endpoint)
    return {**files, LATEST: above.open(LATEST).read()} if above.stat(LATEST) else files


def settled_files(place: str, version: str, endpoint: str) -> dict[str, bytes]:
    """The same, once nobody writes there: a server may still be busy with what a killed client has sent."""
    for _ in range(20):
        try:
            return files_at(place, version, endpoint)
        except CorpusmillError:
            time.sleep(0.5)
    return files_at(place, version, endpoint)


def emptied(root: Path, bucket: Store) -> None:
    """Nothing at either place; the bucket by its server, which remembers what it has listed."""
    shutil.rmtree(root / "ready", ignore_errors=True)
    for file in bucket.list_files():
        bucket.delete(file.name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    s3_multipart.PART_BYTES = PART_BYTES
    os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
    rng = random.Random(given.seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pairs-") as name:
        root = Path(name)
        (root / "buckets" / "corpus").mkdir(parents=True)
        with rclone_s3(root) as server:
            plans = built(root, server.endpoint)
            assert all(plan.name == RECEIPT_NAME for plan in plans.values())
            bucket = open_store("s3://corpus/ready/tiny", endpoint_url=server.endpoint)
            places = (str(root / "ready" / "tiny"), bucket.folder)
            version = dataset_version(open_build(plans["one"]))
            right = files_at(places[0], version, server.endpoint)
            assert len(right) > 10
            seconds = 1.0
            for number in range(given.pairs):
                emptied(root, bucket)
                began = time.monotonic()
                children = {copy: start(plans[copy], root / f"{copy}.log") for copy in COPIES}
                killed = rng.choice(COPIES) if number % 2 else None
                if killed:
                    time.sleep(rng.random() * seconds)
                    with suppress(ProcessLookupError):
                        os.kill(children[killed], signal.SIGKILL)
                ends = {copy: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for copy, child in children.items()}
                seconds = seconds if killed else time.monotonic() - began
                failed = [copy for copy, end in ends.items() if end and not (copy == killed and end == -signal.SIGKILL)]
                for copy in failed:
                    print(f"pair {number}: {(root / f'{copy}.log').read_text()}")
                outcomes[
                    "whole"
                    if all(settled_files(place, version, server.endpoint) == right for place in places)
                    else "not whole"
                ] += 1
                outcomes["an upload failed"] += bool(failed)
                outcomes["killed in time"] += -signal.SIGKILL in ends.values()
            emptied(root, bucket)
            outcomes["unfinished at the end"] = bucket.remove_unfinished(keep="none/")
    dataset_bytes = sum(map(len, right.values()))
    figures = {"pairs": given.pairs, "dataset_bytes": dataset_bytes, "seconds_of_a_pair": round(seconds, 2), **outcomes}
    print(figures)
    print(write_result("upload_pairs", "pairs of uploads at once with kills: one whole version every time", figures))
    assert outcomes["whole"] == given.pairs
    assert not outcomes["an upload failed"]


if __name__ == "__main__":
    main()
