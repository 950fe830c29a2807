"""Listings and transfers hold what their docstrings say, whatever the size of the store."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from corpusmill.storage import StoredFile, Wanted, fetch, list_sources, open_store, transfers
from tests.servers import many_objects

OBJECTS = 3_000


def test_listing_of_many_objects_holds_one_page_and_what_it_accepts(monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def peak_bytes_of(work: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    actual: list[StoredFile] = []
    with many_objects(OBJECTS) as endpoint:
        list_sources(["s3://corpus/data"], (".jsonl",), endpoint)  # what importing takes is not the listing's
        one_page_bytes = peak_bytes_of(lambda: next(open_store("s3://corpus/data", endpoint_url=endpoint).iter_files()))
        peak_bytes = peak_bytes_of(lambda: actual.extend(list_sources(["s3://corpus/data"], (".jsonl",), endpoint)))
    assert len(actual) == OBJECTS // 10
    assert [file.size_bytes for file in actual[:3]] == [0, 10, 20]
    # Two clients (is it a file? what is in the folder?) of about 13 MB each, a page, and 300 accepted files.
    assert peak_bytes < 2 * one_page_bytes + (4 << 20)


def test_fetch_holds_no_more_than_its_parts_in_flight(rclone, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 256 << 10)
    store = open_store("s3://corpus", endpoint_url=rclone.endpoint)
    store.receive_bytes(bytes(16 << 20), "big")
    there = store.stat("big")
    assert there is not None
    tracemalloc.start()
    try:
        fetch(store, Wanted("big", there.size_bytes, there.identity), tmp_path / "file", tmp_path / "partial")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "file").stat().st_size == 16 << 20
    assert peak_bytes < 2 * (transfers.PARTS_IN_FLIGHT + transfers.THREADS) << 18
