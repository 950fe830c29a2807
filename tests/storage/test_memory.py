"""Listings and transfers hold what their docstrings say, whatever the size of the store."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from pipeline.storage import StoredFile, Wanted, fetch, list_sources, open_store, transfers

OBJECTS, PAGE = 10_000, 1000


class Many(BaseHTTPRequestHandler):
    """A bucket of OBJECTS objects that nobody stored; every tenth is JSON lines."""

    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        first = int(parse_qs(urlsplit(self.path).query).get("continuation-token", ["0"])[0])
        last = min(OBJECTS, first + PAGE)
        rows = "".join(
            f"<Contents><Key>d/{n}.{'bin' if n % 10 else 'jsonl'}</Key><Size>{n}</Size><ETag>{n:x}</ETag></Contents>"
            for n in range(first, last)
        )
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < OBJECTS else ""
        end = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        body = f"<ListBucketResult>{rows}{end}{more}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_listing_of_many_objects_holds_one_page_and_what_it_accepts(monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Many)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    list_sources(["s3://corpus/d"], (".jsonl",), endpoint)  # what importing takes is not the listing's

    def peak_bytes_of(work: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    found: list[StoredFile] = []
    try:
        one_page_bytes = peak_bytes_of(lambda: next(open_store("s3://corpus/d", endpoint_url=endpoint).iter_files()))
        peak_bytes = peak_bytes_of(lambda: found.extend(list_sources(["s3://corpus/d"], (".jsonl",), endpoint)))
    finally:
        server.shutdown()
        server.server_close()
    assert len(found) == OBJECTS // 10
    assert [file.size_bytes for file in found[:3]] == [0, 10, 20]
    # Two clients (is it a file? what is in the folder?) of about 13 MB each, a page, and 1,000 accepted files.
    assert peak_bytes < 2 * one_page_bytes + (4 << 20)


def test_fetch_holds_no_more_than_its_parts_in_flight(rclone, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 1 << 20)
    store = open_store("s3://corpus", endpoint_url=rclone.endpoint)
    store.receive_bytes(bytes(64 << 20), "big")
    there = store.stat("big")
    assert there is not None
    tracemalloc.start()
    try:
        fetch(store, Wanted("big", there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "file").stat().st_size == 64 << 20
    assert peak_bytes < 2 * (transfers.PARTS_IN_FLIGHT + transfers.THREADS) << 20
