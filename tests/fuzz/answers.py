"""Answers of stores, changed: every call ends well or with an error of ours.

Each call is made once through a proxy that keeps the right answers; a drawn input is one of them, changed, and the
place where it is given. Whether what is then delivered is right is the question of tests/faults/wrong_answers.py.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from corpusmill.errors import CorpusmillError
from corpusmill.storage import Store, open_store, retries, s3_multipart
from tests.faults.proxy import Answer
from tests.faults.wrong_answers import Far, stores
from tests.fuzz.target import Target, changed, packed, unpacked
from tests.servers import gcs_emulator, rclone_s3

PART_BYTES = 64 << 10
LARGE = hashlib.shake_128(b"fuzz").digest(2 * PART_BYTES + 1000)
WORDS = (
    *(b"null", b"[]", b"{}", b'""', b"-1", b"1e99", b"true", b"<a/>", b"</Key>", b"&lt;", b"&x;", b"\xff", b"\0"),
    *(b'"size"', b'"name"', b"<Key/>", b"<UploadId/>", b"<ETag></ETag>", b"<IsTruncated>true</IsTruncated>"),
)
HEADERS = ("", "-1", "1e9", "x", "W/", "bytes */0", "bytes 5-4/3", "\x7f", "9" * 30, '"', "<>; rel=next")
STATUSES = (200, 204, 206, 304, 400, 403, 404, 409, 412, 416, 429, 500, 501, 503)


def calls(folder: Path) -> dict[str, Callable[[Store], object]]:
    """By name; `folder` is for files that are sent."""
    small, large = folder / "small", folder / "large"
    small.write_bytes(LARGE[:99])
    large.write_bytes(LARGE)
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (small, large)}

    def identity(store: Store) -> str:
        there = store.stat("a1.jsonl")
        return there.identity if there else "1-gone"

    return {
        "list": lambda store: store.list_files(),
        "stat": lambda store: store.stat("a1.jsonl"),
        "stat of nothing": lambda store: store.stat("nothing"),
        "read": lambda store: store.read_range("a1.jsonl", 5, 500, identity=identity(store)),
        "checksums": lambda store: store.checksums("a1.jsonl", identity=identity(store)),
        "own checksums": lambda store: store.own_checksums("a1.jsonl", identity=identity(store)),
        "digest": lambda store: store.digest("a1.jsonl"),
        "send bytes": lambda store: store.receive_bytes(LARGE[:99], "sent"),
        "send small": lambda store: store.receive(small, "small", digests[small]),
        "send large": lambda store: store.receive(large, "large", digests[large]),
        "holds": lambda store: store.holds("large", large, digests[large]),
        "copy": lambda store: store.copy("a1.jsonl", "copied"),
        "delete": lambda store: store.delete("copied"),
        "remove unfinished": lambda store: store.remove_unfinished(keep="v2/"),
    }


class Answers:
    """The stores of each kind, and what they answer to each call: `right[kind, call]`."""

    def __init__(self, far: dict[str, Far], folder: Path) -> None:
        self._far, self._calls = far, calls(folder)
        self.right: dict[tuple[str, str], list[Answer]] = {}
        for kind in far:
            for name in self._calls:
                self.right[kind, name] = []
                self._made(kind, name, -1, Answer(200, [], b""), self.right[kind, name])

    def draw(self, rng: random.Random) -> bytes:
        kind, name = rng.choice([key for key, answers in self.right.items() if answers])
        number = rng.randrange(len(self.right[kind, name]))
        answer = _changed_answer(rng, self.right[kind, name][number])
        return packed({"store": kind, "call": name, "number": number, "answer": list(answer)})

    def check(self, data: bytes) -> str:
        given: Any = unpacked(data)
        status, headers, content = given["answer"]
        harmed = Answer(status, [(name, value) for name, value in headers], content)
        return self._made(given["store"], given["call"], given["number"], harmed)

    def _made(self, kind: str, name: str, number: int, harmed: Answer, right: list[Answer] | None = None) -> str:
        """Make a call whose request of that number, and every try of it, is answered so; the right answers to `right`.

        Requests that Google's SDK makes beside ours do not count.
        """
        asked: list[tuple[str, str]] = []

        def harm(method: str, path: str, answer: Answer) -> Answer:
            if path.startswith("/storage/v1/b/corpus?"):
                return answer
            asked.append((method, path))
            if right is not None:
                right.append(answer)
            return harmed if 0 <= number < len(asked) and asked[number] == (method, path) else answer

        with self._far[kind].behind(harm=harm) as proxy:
            store = open_store(self._far[kind].folder, endpoint_url=proxy.endpoint if kind == "s3" else None)
            try:
                self._calls[name](store)
            except CorpusmillError:
                return "refused"
        return "read"


def _changed_answer(rng: random.Random, answer: Answer) -> Answer:
    status, headers, content = answer
    match rng.randrange(8):
        case 0:
            status = rng.choice(STATUSES)
        case 1 if headers:
            headers = [*headers]
            del headers[rng.randrange(len(headers))]
        case 2 if headers:
            at = rng.randrange(len(headers))
            name, value = headers[at]
            odd = rng.choice((rng.choice(HEADERS), value[: rng.randrange(len(value) + 1)], value + rng.choice(HEADERS)))
            headers = [*headers[:at], (name, odd), *headers[at + 1 :]]
        case 3:
            content = rng.choice((b"", *WORDS))
        case _:
            content = changed(rng, content, WORDS)
    return Answer(status, [(name, value) for name, value in headers if "\n" not in value], content)


@contextmanager
def small_parts() -> Iterator[None]:
    """Parts of a few KiB, two tries without a pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retries, "POLICY", retries.RetryPolicy(attempts=2, first_pause_seconds=0.0))
        patch.setattr(retries, "sleep", lambda _: None)
        patch.setattr(s3_multipart, "PART_BYTES", PART_BYTES)
        patch.setattr(s3_multipart, "UPLOADS_BEGUN", 2)
        patch.setattr(s3_multipart.time, "sleep", lambda _: None)
        patch.setattr("corpusmill.storage.gcs.PART_BYTES", PART_BYTES)
        yield


@contextmanager
def answers() -> Iterator[Target]:
    """The target, with servers of its own."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        root = Path(name)
        (root / "buckets" / "corpus").mkdir(parents=True)
        with rclone_s3(root) as s3, gcs_emulator(root) as gcs, answers_of(s3.endpoint, gcs.endpoint, root) as target:
            yield target


@contextmanager
def answers_of(s3: str, gcs: str, folder: Path) -> Iterator[Target]:
    """The target on servers that are there."""
    environment = dict(os.environ)
    try:
        with stores(s3, gcs) as (far, _), small_parts():
            made = Answers(far, folder)
            yield Target("answers", made.draw, made.check, aim=5_000)
    finally:
        os.environ.clear()
        os.environ.update(environment)
