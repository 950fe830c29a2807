"""Claim: verified transfers to and from a loopback S3 server keep 90 % of boto3's own best case, in bounded memory.

The peer is boto3's transfer manager at its best of three settings (parts of 8 and 16 MiB, 4 and 10 threads), which
checks nothing but lengths. Both move the same file in the same run, in turn, best of REPEATS. Ours compares md5s on the
way up, and on the way down computes sha256 and the store's own checksum of all bytes. Listing: the peak of Python's
memory while 100,000 objects are listed from a server that makes them up. `python benchmarks/transfers.py`
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from results import write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pipeline.storage import Wanted, fetch, open_store
from tests.servers import ACCESS_KEY, SECRET_KEY, rclone_s3

FILE_BYTES = 64 << 20
REPEATS = 2
SETTINGS = ((8 << 20, 4), (8 << 20, 10), (16 << 20, 10))
LISTED, PAGE = 100_000, 1000


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """(wall seconds, CPU seconds of this process)."""
    wall, cpu = time.monotonic(), time.process_time()
    call()
    return time.monotonic() - wall, time.process_time() - cpu


def transfers(root: Path, endpoint: str) -> dict[str, object]:
    import boto3
    from boto3.s3.transfer import TransferConfig

    source, target = root / "source", root / "target"
    with source.open("wb") as file:
        for number in range(FILE_BYTES >> 20):
            file.write(hashlib.shake_128(b"%d" % number).digest(1 << 20))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    client = boto3.Session().client("s3", endpoint_url=endpoint)
    store = open_store("s3://corpus", endpoint_url=endpoint)
    peers = {
        f"{part >> 20} MiB, {threads} threads": TransferConfig(
            multipart_threshold=part, multipart_chunksize=part, max_concurrency=threads
        )
        for part, threads in SETTINGS
    }

    def ours_down() -> None:
        there = store.stat("ours")
        assert there is not None
        assert fetch(store, Wanted("ours", FILE_BYTES, there.identity), target, root / "partial") == digest

    calls: dict[str, dict[str, Callable[[], object]]] = {
        "up": {"ours": lambda: store.receive(source, "ours", digest)},
        "down": {"ours": ours_down},
    }
    for name, config in peers.items():
        calls["up"][name] = lambda config=config: client.upload_file(str(source), "corpus", "peer", Config=config)
        calls["down"][name] = lambda config=config: client.download_file("corpus", "peer", str(target), Config=config)
    figures: dict[str, object] = {}
    for way, contenders in calls.items():
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(REPEATS):
            for name, call in contenders.items():
                seconds[name].append(timed(call))
        best = {name: min(times) for name, times in seconds.items()}
        peer = min((one for one in best if one != "ours"), key=lambda one: best[one])
        figures[way] = {
            "megabytes_per_second": {name: round(FILE_BYTES / 1e6 / wall) for name, (wall, _) in best.items()},
            "cpu_seconds": {name: round(cpu, 2) for name, (_, cpu) in best.items()},
            "share_of_best_peer": round(best[peer][0] / best["ours"][0], 3),
        }
    return figures


def peak_memory(root: Path, endpoint: str, megabytes: int) -> int:
    """Peak RSS in MiB of a process that uploads and downloads one file of this size."""
    code = (
        "import hashlib, resource, sys; from pathlib import Path;"
        "from pipeline.storage import Wanted, fetch, open_store; from pipeline.fingerprint import file_digest;"
        "store = open_store('s3://corpus', endpoint_url=sys.argv[1]); root = Path(sys.argv[2]);"
        "store.receive(root / 'big', 'big', file_digest(root / 'big')); there = store.stat('big');"
        "fetch(store, Wanted('big', there.size_bytes, there.identity), root / 'out', root / 'partial');"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    with (root / "big").open("wb") as file:
        file.truncate(megabytes << 20)
    done = subprocess.run([sys.executable, "-c", code, endpoint, str(root)], check=True, capture_output=True, text=True)
    return int(done.stdout)


class MadeUpListing(BaseHTTPRequestHandler):
    """ListObjectsV2 over LISTED objects that do not exist."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        first = int(parse_qs(urlsplit(self.path).query).get("continuation-token", ["0"])[0])
        last = min(LISTED, first + PAGE)
        rows = "".join(
            f"<Contents><Key>data/part-{number:06d}.jsonl.zst</Key><Size>{number}</Size>"
            f"<ETag>&quot;{number:032x}&quot;</ETag></Contents>"
            for number in range(first, last)
        )
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < LISTED else ""
        truncated = "true" if more else "false"
        body = f"<ListBucketResult>{rows}<IsTruncated>{truncated}</IsTruncated>{more}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def listing() -> dict[str, object]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), MadeUpListing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    store = open_store("s3://corpus/data", endpoint_url=f"http://127.0.0.1:{server.server_address[1]}")
    next(store.iter_files())  # imports and warms up
    peaks = {}
    for name, call in (("iter_files", lambda: sum(1 for _ in store.iter_files())), ("list_files", store.list_files)):
        tracemalloc.start()
        found = call()
        peaks[name] = round(tracemalloc.get_traced_memory()[1] / 2**20, 1)
        tracemalloc.stop()
        assert (found if isinstance(found, int) else len(found)) == LISTED
    server.shutdown()
    return {"objects": LISTED, "peak_mebibytes": peaks}


def main() -> None:
    os.environ |= {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    root = Path(tempfile.mkdtemp(prefix="transfers-"))
    with rclone_s3(root) as server:
        assert server.folder is not None
        (server.folder / "corpus").mkdir()
        figures = transfers(root, server.endpoint)
        figures["peak_rss_mebibytes"] = {f"{size} MiB": peak_memory(root, server.endpoint, size) for size in (32, 160)}
    figures["listing"] = listing()
    figures["own_peak_rss_mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(figures)
    print(write_result("transfers", "verified S3 transfers at 90 % of boto3's best, in bounded memory", figures))


if __name__ == "__main__":
    main()
