"""Answers that look well and are wrong: edited, cut, exchanged, repeated. What arrives is right, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corpusmill.errors import CorpusmillError, StoreUnavailableError
from corpusmill.storage import (
    Store,
    WindowedFile,
    digest_windows,
    fetch,
    open_once,
    transfers,
)
from corpusmill.upload.stages.upload import _require_same
from tests.faults.proxy import Answer
from tests.hub import Hub
from tests.quick import quick
from tests.raising import raises
from tests.servers import many_gcs_objects, many_objects
from tests.storage.far import DATA, OBJECTS, Far, wanted

PIECES = ((1_000, 60_000), (90_000, 10_000))
PART = DATA[1_000:61_000] + DATA[90_000:]


@pytest.fixture(autouse=True)
def _small_parts(hasty, monkeypatch) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 10_000)


def once(harm: Callable[[Answer], Answer], aimed: Callable[[str, str], bool]) -> Callable[[str, str, Answer], Answer]:
    """Harm to the first answer that `aimed` (method, path) chooses."""
    harmed: list[str] = []

    def told(method: str, path: str, answer: Answer) -> Answer:
        if harmed or answer.status not in {200, 206} or not aimed(method, path):
            return answer
        harmed.append(path)
        return harm(answer)

    return told


def is_read(method: str, path: str) -> bool:
    return method == "GET" and (path.startswith(("/corpus/a", "/cdn/a")) or "alt=media" in path)


def is_listing(method: str, path: str) -> bool:
    return method == "GET" and ("list-type" in path or "/tree/" in path or path.partition("?")[0].endswith("/o"))


def flipped(answer: Answer) -> Answer:
    return answer._replace(content=bytes([answer.content[0] ^ 1]) + answer.content[1:])


def test_piece_of_an_object_with_one_edited_answer_arrives_right(far: Far, tmp_path) -> None:
    """The store has no checksum of a part of an object: nothing but a second read says which bytes are right."""
    with far.behind(harm=once(flipped, is_read)) as (_, store):
        fetch(store, wanted(store, pieces=PIECES), tmp_path / "file", tmp_path / "partial")
    assert (tmp_path / "file").read_bytes() == PART
    assert (far.traffic.without_checksum, far.traffic.retries) == (1, 1)


def test_piece_of_an_object_that_is_never_the_same_twice_is_refused(far: Far, tmp_path) -> None:
    answers = iter(range(10_000))

    def differs(method: str, path: str, answer: Answer) -> Answer:
        if not is_read(method, path) or answer.status not in {200, 206}:
            return answer
        return answer._replace(content=bytes([next(answers) % 251]) + answer.content[1:])

    with (
        far.behind(harm=differs) as (_, store),
        raises("store.reads_differ"),
    ):
        fetch(store, wanted(store, pieces=PIECES), tmp_path / "file", tmp_path / "partial")
    assert not (tmp_path / "file").exists()


def test_range_that_is_another_one_than_was_asked_for_is_asked_for_again(far: Far) -> None:
    """As a cache does that knows an object's beginning only: Content-Range says so."""

    def beginning(answer: Answer) -> Answer:
        headers = [
            (name, f"bytes 0-999/{len(DATA)}" if name.lower() == "content-range" else value)
            for name, value in answer.headers
        ]
        return answer._replace(headers=headers, content=DATA[:1000])

    with far.behind(harm=once(beginning, is_read)) as (_, store):
        identity = wanted(store).identity
        assert store.read_range("a.jsonl", 50_000, 51_000, identity=identity) == DATA[50_000:51_000]
    assert far.traffic.retries == 1


def test_answer_that_ignores_the_range_is_the_whole_file(far: Far) -> None:
    def whole(answer: Answer) -> Answer:
        return Answer(200, [header for header in answer.headers if header[0].lower() != "content-range"], DATA)

    with far.behind(harm=once(whole, is_read)) as (_, store):
        identity = wanted(store).identity
        assert store.read_range("a.jsonl", 50_000, 51_000, identity=identity) == DATA[50_000:51_000]
    assert far.traffic.retries == 0


@pytest.mark.parametrize("pieces", [None, PIECES], ids=["whole", "part"])
def test_streamed_object_with_one_edited_answer_at_any_read_is_right(far: Far, pieces: Any) -> None:
    content = PART if pieces else DATA
    with far.behind() as (_, store):
        own, digests = digest_windows(store, wanted(store, pieces=pieces))
    assert len(digests) == (7 if pieces else 10)
    with far.behind(harm=once(flipped, is_read)) as (_, store):
        later = wanted(store, pieces=pieces)

        def read(first: int, last: int) -> bytes:
            return store.read_range(later.name, first, last, identity=later.identity)

        file = WindowedFile(read, later.ranges(), digests, where="a.jsonl", traffic=far.traffic)
        assert (file.read(25_000), file.seek(-5, 2), file.read()) == (content[:25_000], len(content) - 5, content[-5:])
        assert (file.seek(9_990), file.read(20)) == (9_990, content[9_990:10_010])
    assert far.traffic.retries == 1
    with far.behind(harm=once(flipped, is_read)) as (_, store):
        again = digest_windows(store, wanted(store, pieces=pieces))
    # Of a whole object the store has a checksum; the wrong first read of a part is noticed by every later one.
    assert (again == (own, digests)) is (pieces is None)


def test_streamed_object_whose_first_read_was_wrong_is_refused_with_what_to_do(far: Far) -> None:
    with far.behind(harm=once(flipped, is_read)) as (_, store):
        _, digests = digest_windows(store, wanted(store, pieces=PIECES))
    with far.behind() as (_, store):
        later = wanted(store, pieces=PIECES)

        def read(first: int, last: int) -> bytes:
            return store.read_range(later.name, first, last, identity=later.identity)

        with raises("store.other_bytes") as caught:
            WindowedFile(read, later.ranges(), digests, where="a.jsonl", traffic=far.traffic).read()
    assert "reprocess CONFIG --stage download" in str(caught.value)


def test_object_read_once_and_not_kept_is_compared_with_the_stores_checksum(far: Far) -> None:
    with far.behind() as (_, store), open_once(store, wanted(store)) as stream:
        assert stream.read() == DATA
    with (
        far.behind(harm=once(flipped, is_read)) as (_, store),
        raises("store.checksum_differs"),
        open_once(store, wanted(store)) as stream,
    ):
        stream.read()
    with far.behind(harm=once(flipped, is_read)) as (_, store), open_once(store, wanted(store)) as stream:
        assert len(stream.read(10)) == 10  # who stops early has read nothing that is kept


def without_entry(answer: Answer) -> Answer:
    """A page of the right form that lacks a file."""
    if answer.content.startswith(b"["):
        return answer._replace(content=json.dumps(json.loads(answer.content)[1:]).encode())
    if answer.content.startswith(b"{"):
        page = json.loads(answer.content)
        return answer._replace(content=json.dumps({**page, "items": page["items"][1:]}).encode())
    page = re.sub(rb"<Contents>.*?</Contents>", b"", answer.content, count=1, flags=re.DOTALL)
    return answer._replace(content=re.sub(rb"<KeyCount>\d+</KeyCount>", b"", page))


PAGES = {
    "empty": lambda answer: answer._replace(content=b""),
    "html": lambda answer: answer._replace(content=b"<html><body>Please sign in</body></html>"),
    "other root": lambda answer: answer._replace(content=b"<ListAllMyBucketsResult/>"),
    "other json": lambda answer: answer._replace(content=b'{"message": "ok"}'),
}


@pytest.mark.parametrize("page", PAGES)
def test_listing_page_that_is_none_is_asked_for_again_and_never_the_end(far: Far, page: str) -> None:
    with far.behind(harm=once(PAGES[page], is_listing)) as (_, store):
        assert [file.name for file in store.list_files()] == sorted(OBJECTS)
    assert far.traffic.retries == 1
    always = PAGES[page]

    def harm(method: str, path: str, answer: Answer) -> Answer:
        return always(answer) if is_listing(method, path) else answer

    with far.behind(harm=harm) as (_, store), pytest.raises(StoreUnavailableError):
        store.list_files()


def renamed(answer: Answer) -> Answer:
    return answer._replace(content=answer.content.replace(b"b.jsonl", b"b.jsonk"))


@pytest.mark.parametrize("harm", [without_entry, renamed])
def test_listing_page_that_lacks_a_file_or_its_name_once_is_refused(far: Far, harm: Callable[[Answer], Answer]) -> None:
    with far.behind(harm=once(harm, is_listing)) as (_, store):
        with raises("store.listings_differ"):
            store.list_files()
        assert [file.name for file in store.list_files()] == sorted(OBJECTS)


def test_upload_lists_its_destination_again_while_it_changes(far: Far) -> None:
    if far.kind == "hub":
        return  # no destination
    with far.behind(harm=once(without_entry, is_listing)) as (_, store):
        _require_same(store, {name: len(data) for name, data in OBJECTS.items()})
    assert far.traffic.retries == 1


@pytest.fixture(params=["s3", "gcs", "hub"])
def paged(request, monkeypatch, aws) -> Iterator[tuple[Far, list[str]]]:
    """A store whose listing has more than one page, and the names that it lists."""
    if request.param == "hub":
        with Hub(dict(OBJECTS)) as hub:
            yield Far("hub", hub.endpoint, monkeypatch, hub), sorted(OBJECTS)
        return
    names = [f"data/part-{number:06d}.{'bin' if number % 10 else 'jsonl'}" for number in range(2500)]
    with (many_objects if request.param == "s3" else many_gcs_objects)(2500) as endpoint:
        yield Far(request.param, endpoint, monkeypatch), names


def is_second_page(method: str, path: str) -> bool:
    second = ("continuation-token=1000", "pageToken=1000", "cursor=2")
    return is_listing(method, path) and any(token in path for token in second)


@pytest.mark.parametrize("page", PAGES)
def test_listing_second_page_that_is_none_is_asked_for_again_and_never_the_end(
    paged: tuple[Far, list[str]], page: str
) -> None:
    far, names = paged
    with far.behind(harm=once(PAGES[page], is_second_page)) as (_, store):
        assert [file.name for file in store.list_files()] == names
    assert far.traffic.retries == 1

    def harm(method: str, path: str, answer: Answer) -> Answer:
        return PAGES[page](answer) if is_second_page(method, path) else answer

    with far.behind(harm=harm) as (_, store), pytest.raises(StoreUnavailableError):
        store.list_files()


UNASKED = {("s3", "POST"), ("gcs", "HEAD"), ("gcs", "POST"), ("hub", "HEAD")}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize(
    "body", quick([b"{}", b"<Error>", b"", b"<html></html>", b"[]", b'{"kind": 1, "size": "x"}'], 2)
)
def test_malformed_answers_to_anything_are_transient_errors_or_refused(far: Far, body: bytes, method: str) -> None:
    """No KeyError, AttributeError or JSONDecodeError of ours or of an SDK reaches the caller."""

    def harm(asked: str, _: str, answer: Answer) -> Answer:
        return Answer(200, [], body) if asked == method else answer

    def answers(store: Store) -> Iterator[object]:
        calls: tuple[Callable[[], object], ...] = (
            store.list_files,
            lambda: store.stat("a.jsonl"),
            lambda: store.checksums("a.jsonl", identity=identity),
            lambda: store.digest("a.jsonl"),
            lambda: store.read_range("a.jsonl", 5, 10, identity=identity),
        )
        for call in calls:
            try:
                yield call()
            except CorpusmillError as error:
                yield error

    with far.behind() as (_, store):
        identity = wanted(store).identity
        right = list(answers(store))
    with far.behind(harm=harm) as (_, store):
        told = list(answers(store))
    # A hub says [] for "no such file", and its SDK takes {} for that; whoever wanted the file then refuses.
    absent = (None, []) if far.kind == "hub" and body in {b"[]", b"{}"} else ()
    for item, well in zip(told, right, strict=True):
        assert isinstance(item, CorpusmillError) or item == well or item in absent
    assert not isinstance(told[0], list) or told[0] == right[0] or body == b"[]"
    assert told != right or (far.kind, method) in UNASKED
