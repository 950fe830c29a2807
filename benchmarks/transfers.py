"""Claim: verified transfers to and from a loopback S3 server keep 90 % of boto3's own best case, in bounded memory.

The peer is boto3's transfer manager with its default checksums, at its best of three settings (parts of 8 and 16 MiB,
4 and 10 threads). All move the same file in the same run, in turn, REPEATS times; files and buckets lie in memory,
because the disk is shared. Ours digests what it sends and compares every part's and the whole's ETag on the way up; on
the way down it compares the sha256 that we left with an object of ours, and the store's md5 of an object of others, and
computes the XXH3-128 of the local copy. Shares are of wall seconds (the best of each, and the medians) and of CPU
seconds, client and server together. Memory: a process that moves a file of four times the size of its control group
(memory_group.py), which counts the page cache. Listing: the peak of Python's memory while 100,000 objects are listed
from a server that makes them up. `python benchmarks/transfers.py`
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
import xxhash
from memory_group import within
from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from corpusmill.storage import Checksum, Store, Wanted, fetch, open_store
from tests.servers import ACCESS_KEY, SECRET_KEY, many_objects, rclone_s3

FILE_BYTES = 128 << 20
REPEATS = 5
SETTINGS = ((8 << 20, 4), (8 << 20, 10), (16 << 20, 10))
LISTED = 100_000
LIMIT_BYTES = 160 << 20
MEMORY = Path("/dev/shm")  # noqa: S108

Times = tuple[float, float]  # wall seconds, CPU seconds of this process and its server


def cpu_seconds() -> float:
    own = psutil.Process()
    return sum(sum(item.cpu_times()[:2]) for item in (own, *own.children()))


def timed(call: Callable[[], object]) -> Times:
    wall, cpu = time.monotonic(), cpu_seconds()
    call()
    return time.monotonic() - wall, cpu_seconds() - cpu


def transfers(root: Path, endpoint: str) -> dict[str, object]:
    import boto3
    from boto3.s3.transfer import TransferConfig

    source, target = root / "source", root / "target"
    with source.open("wb") as file:
        for number in range(FILE_BYTES >> 20):
            file.write(hashlib.shake_128(b"%d" % number).digest(1 << 20))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    whole = Checksum("xxh3_128", xxhash.xxh3_128_hexdigest(source.read_bytes()))
    client = boto3.Session().client("s3", endpoint_url=endpoint)
    store = open_store("s3://corpus", endpoint_url=endpoint)
    peers = {
        f"{part >> 20} MiB, {threads} threads": TransferConfig(
            multipart_threshold=part, multipart_chunksize=part, max_concurrency=threads
        )
        for part, threads in SETTINGS
    }

    def down(name: str) -> dict[str, Callable[[], object]]:
        def peer(config: TransferConfig) -> Callable[[], object]:
            return lambda: client.download_file("corpus", name, str(target), Config=config)

        others = {setting: peer(config) for setting, config in peers.items()}
        return {"ours": lambda: require(whole, arrived(store, name, root)), **others}

    def up(config: TransferConfig) -> Callable[[], object]:
        return lambda: client.upload_file(str(source), "corpus", "theirs", Config=config)

    return {
        "up": compared(
            {
                "ours": lambda: store.receive(source, "ours", digest),
                **{setting: up(config) for setting, config in peers.items()},
            }
        ),
        "down, an object of ours": compared(down("ours")),
        "down, an object of others": compared(down("theirs")),
    }


def arrived(store: Store, name: str, root: Path) -> Checksum:
    there = store.stat(name)
    assert there is not None
    return fetch(store, Wanted(name, FILE_BYTES, there.identity), root / "target", root / "partial")


def require(whole: Checksum, got: Checksum) -> None:
    assert got == whole


def compared(contenders: dict[str, Callable[[], object]], size_bytes: int = FILE_BYTES) -> dict[str, object]:
    """Each in turn, REPEATS times after one to warm up; shares of the peer's best setting, above 1 where ours wins."""
    times: dict[str, list[Times]] = {name: [] for name in contenders}
    for turn in range(REPEATS + 1):
        for name, call in contenders.items():
            item = timed(call)
            times[name] += [item] if turn else []
    best = {name: min(wall for wall, _ in all_) for name, all_ in times.items()}
    middle = {name: median(wall for wall, _ in all_) for name, all_ in times.items()}
    cpu = {name: median(cpu for _, cpu in all_) for name, all_ in times.items()}

    def share(seconds: dict[str, float]) -> float:
        return round(min(second for name, second in seconds.items() if name != "ours") / seconds["ours"], 3)

    return {
        "megabytes_per_second": {name: round(size_bytes / 1e6 / wall) for name, wall in best.items()},
        "median_megabytes_per_second": {name: round(size_bytes / 1e6 / wall) for name, wall in middle.items()},
        "cpu_seconds_of_client_and_server": {name: round(item, 2) for name, item in cpu.items()},
        "share_of_each_peer": {name: round(item / best["ours"], 3) for name, item in best.items() if name != "ours"},
        "share_of_best_peer": share(best),
        "share_of_best_peer_by_medians": share(middle),
        "share_of_best_peer_by_cpu": share(cpu),
    }


def within_limit(endpoint: str) -> dict[str, object]:
    """Upload and download a file of four times the memory that the process may hold, page cache counted."""
    code = (
        "import sys; from pathlib import Path;"
        "from corpusmill.storage import Wanted, fetch, open_store; from corpusmill.fingerprint import file_digest;"
        "store = open_store('s3://corpus', endpoint_url=sys.argv[1]); root = Path(sys.argv[2]);"
        "store.receive(root / 'big', 'big', file_digest(root / 'big')); there = store.stat('big');"
        "fetch(store, Wanted('big', there.size_bytes, there.identity), root / 'out', root / 'partial')"
    )
    with tempfile.TemporaryDirectory(prefix="transfers-") as root:
        with (Path(root) / "big").open("wb") as file:
            file.truncate(4 * LIMIT_BYTES)
        return {"file_bytes": 4 * LIMIT_BYTES} | within(LIMIT_BYTES, [sys.executable, "-c", code, endpoint, root])


def listing() -> dict[str, object]:
    peaks = {}
    with many_objects(LISTED) as endpoint:
        store = open_store("s3://corpus/data", endpoint_url=endpoint)
        next(store.iter_files())  # imports and warms up
        for name, call in (
            ("iter_files", lambda: sum(1 for _ in store.iter_files())),
            ("list_files", lambda: len(store.list_files())),
        ):
            tracemalloc.start()
            assert call() == LISTED
            peaks[name] = round(tracemalloc.get_traced_memory()[1] / 2**20, 1)
            tracemalloc.stop()
    return {"objects": LISTED, "peak_mebibytes": peaks}


def main() -> None:
    os.environ |= {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with (
        tempfile.TemporaryDirectory(prefix="transfers-", dir=MEMORY if MEMORY.is_dir() else None) as folder,
        rclone_s3(root := Path(folder)) as server,
    ):
        assert server.folder is not None
        (server.folder / "corpus").mkdir()
        figures = {"load_average": round(os.getloadavg()[0], 1), **transfers(root, server.endpoint)}
        figures["within_a_limit"] = within_limit(server.endpoint)
    figures["listing"] = listing()
    print(figures)
    print(
        write_result(
            "transfers", "verified S3 transfers at 90 % of boto3's best, within 160 MiB, page cache counted", figures
        )
    )


if __name__ == "__main__":
    main()
