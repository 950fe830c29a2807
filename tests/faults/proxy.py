"""A proxy between a client and a store that does harm by a seeded plan.

Every request draws its fate from (seed, number of the request): most pass, the others are

    refused    answered 503 before the store sees them            reset      cut off before any answer
    lost       done by the store, the answer cut off              truncated  a body that ends half-way
    corrupted  one byte of the body flipped (either direction)    delayed    answered a little late
    reordered  answered behind a later request, if one comes

    edited     200 or 206, with one byte changed in the body or in a header that tells of the content
    cut        200 or 206, whole as HTTP has it, and only the beginning of the body in it
    exchanged  given the answer of another request of this moment, which gets this one's, if one comes
    repeated   given an earlier answer to a request of the same method

until `faults` of them have been dealt out. Bodies are held in memory: parts are small. A test that aims at one answer
gives `harm`, a function of (method, path, answer) whose result the client is given. `drip`, of the path, is called
before every byte of a body until it answers anything but False.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

# One at a time nothing can come out of order, so a plan has "reordered" only if it says so.
KINDS = ("refused", "reset", "lost", "truncated", "corrupted", "delayed")
LIES = ("edited", "cut", "exchanged", "repeated")  # answers that look well
OVERTAKEN_SECONDS = 0.5  # the longest wait of a reordered answer for a later one
EXCHANGE_SECONDS = 0.02  # the longest wait of an answer for another one to be exchanged with
REMEMBERED = 64  # answers that may be repeated
TELLING = ("etag", "content-range", "link", "x-amz-meta-", "x-amz-checksum-", "x-goog-")
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "expect"}


class Answer(NamedTuple):
    """What a store answers."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes


Harm = Callable[[str, str, Answer], Answer]


class FaultyProxy:
    """`endpoint` is what the client is given; `dealt` counts the faults by kind, `left` are still to come.

    `overtaken` counts the reordered answers that a later one came before.
    """

    def __init__(
        self,
        target: str,
        *,
        seed: int = 0,
        share: float = 0.0,
        faults: int = 0,
        kinds: tuple[str, ...] = KINDS,
        harm: Harm | None = None,
    ) -> None:
        self.target = urlsplit(target)
        self._harm = harm
        self.drip: Callable[[str], bool | None] = lambda _: None
        self._earlier = {method: deque[Answer](maxlen=REMEMBERED) for method in ("GET", "HEAD", "POST")}
        self._exchange = _Exchange()
        self.dealt: Counter[str] = Counter()
        self._seed, self._share, self.left, self._kinds = seed, share, faults, kinds
        self._requests = self._newest_answered = self.overtaken = 0
        self._lock = threading.Lock()
        self._answered = threading.Condition(self._lock)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or a small body waits 40 ms for the headers' acknowledgement

            def _any(self) -> None:
                proxy.answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _any  # noqa: N815

            def handle_expect_100(self) -> bool:
                self.send_response_only(100)
                self.end_headers()
                return True

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultyProxy:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _fate(self, client: BaseHTTPRequestHandler, body: bytes) -> tuple[str, int, int]:
        """(kind or "", a number to draw places from, its number) of the next request.

        Only bytes that somebody has a checksum of are corrupted: objects, not listings.
        """
        reads = client.command in self._earlier
        able = {"truncated": client.command == "GET", "corrupted": bool(body) or "Range" in client.headers}
        able |= {"edited": reads, "cut": reads and client.command != "HEAD", "exchanged": reads}
        able |= {"repeated": reads and bool(self._earlier[client.command])}
        with self._lock:
            self._requests += 1
            drawn = hashlib.sha256(f"{self._seed} {self._requests}".encode()).digest()
            place = int.from_bytes(drawn[8:16], "little")
            if not self.left or int.from_bytes(drawn[:4], "little") / 2**32 >= self._share:
                return "", place, self._requests
            kind = self._kinds[drawn[4] % len(self._kinds)]
            if not able.get(kind, True):
                return "", place, self._requests
            self.left -= 1
            self.dealt[kind] += 1
            return kind, place, self._requests

    def answer(self, client: BaseHTTPRequestHandler) -> None:
        """Pass one request on, or harm it."""
        body = client.rfile.read(int(client.headers.get("Content-Length") or 0))
        kind, place, number = self._fate(client, body)
        try:
            self._answer(client, body, kind, place, number)
        finally:
            with self._answered:
                self._newest_answered = max(self._newest_answered, number)
                self._answered.notify_all()

    def _answer(self, client: BaseHTTPRequestHandler, body: bytes, kind: str, place: int, number: int) -> None:
        if kind == "refused":
            client.send_response(503)
            client.send_header("Content-Length", "0")
            client.end_headers()
            return
        if kind == "reset":
            self._cut(client)
            return
        if kind == "delayed":
            time.sleep(0.01 + place % 40 / 1000)
        flipped = kind == "corrupted"
        if flipped and body:
            body, flipped = _flip(body, place), False
        answer = self._told(client, Answer(*self._passed_on(client, body)), kind, place)
        if kind == "lost":
            self._cut(client)
            return
        self._wait_for_a_later_one(kind == "reordered", number)
        status, headers, content = answer
        if flipped and content:
            content = _flip(content, place)
        client.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP:
                client.send_header(name, value)
        if client.command == "HEAD":
            sizes = {key.lower(): value for key, value in headers}
            client.send_header("Content-Length", sizes.get("content-length", "0"))
        elif status not in {204, 304}:
            client.send_header("Content-Length", str(len(content)))
        client.end_headers()
        if client.command == "HEAD":
            return
        if kind == "truncated":
            self._truncate(client, content, place)
            return
        client.wfile.write(content[self._dripped(client, content) :])

    def _truncate(self, client: BaseHTTPRequestHandler, content: bytes, place: int) -> None:
        if content:
            client.wfile.write(content[: place % len(content)])
            self._cut(client)
            return
        with self._lock:  # of a redirect, say, nobody can tell
            self.left += 1
            self.dealt["truncated"] -= 1

    def _dripped(self, client: BaseHTTPRequestHandler, content: bytes) -> int:
        """How many bytes of a body have been written one by one."""
        for written in range(len(content)):
            if self.drip(client.path) is not False:
                return written
            client.wfile.write(content[written : written + 1])
        return len(content)

    def _told(self, client: BaseHTTPRequestHandler, answer: Answer, kind: str, place: int) -> Answer:
        """What the client is told instead of `answer`: the same, unless this is one of LIES."""
        if self._harm:
            return self._harm(client.command, client.path, answer)
        told = answer
        if client.command in self._earlier:
            earlier = self._earlier[client.command]
            with self._lock:
                if kind == "repeated":
                    told = earlier[place % len(earlier)]
                earlier.append(answer)
            told = self._exchange.swapped(client.command, answer, wanted=kind == "exchanged") or told
        if kind == "edited" and answer.status in {200, 206}:
            told = _edited(answer, place)
        if kind == "cut" and answer.status in {200, 206}:
            told = answer._replace(content=answer.content[: place % max(1, len(answer.content))])
        if kind in LIES and told == answer:
            with self._lock:  # nothing has been harmed
                self.dealt[kind] -= 1
                self.left += 1
        return told

    def _wait_for_a_later_one(self, wanted: bool, number: int) -> None:
        with self._answered:
            later = wanted and self._answered.wait_for(lambda: self._newest_answered > number, OVERTAKEN_SECONDS)
            self.overtaken += later

    def _passed_on(self, client: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        store = http.client.HTTPConnection(self.target.hostname or "", self.target.port, timeout=60)
        try:
            store.putrequest(client.command, client.path, skip_host=True, skip_accept_encoding=True)
            for name, value in client.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    store.putheader(name, value)
            if body or client.command in {"PUT", "POST"}:
                store.putheader("Content-Length", str(len(body)))
            store.endheaders(body or None)
            answer = store.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            store.close()

    @staticmethod
    def _cut(client: BaseHTTPRequestHandler) -> None:
        client.close_connection = True
        client.wfile.flush()
        client.connection.shutdown(socket.SHUT_RDWR)


class _Exchange:
    """Where answers of one moment change hands: one that waits gets the next one's, and the next one gets its."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, Answer, list[Answer]]] = []

    def swapped(self, method: str, answer: Answer, *, wanted: bool) -> Answer | None:
        """The answer to a request of the same method that waits here, or comes soon if this one is `wanted` to wait."""
        with self._changed:
            for other in self._waiting:
                if other[0] == method:
                    self._waiting.remove(other)
                    other[2].append(answer)
                    self._changed.notify_all()
                    return other[1]
            if not wanted:
                return None
            mine: tuple[str, Answer, list[Answer]] = (method, answer, [])
            self._waiting.append(mine)
            self._changed.wait_for(lambda: mine[2], EXCHANGE_SECONDS)
            if not mine[2]:
                self._waiting.remove(mine)
                return None
            return mine[2][0]


def _edited(answer: Answer, place: int) -> Answer:
    """One byte of it changed: of the body, where there is one and the draw does not say otherwise, or of a header."""
    headers = [at for at, (name, value) in enumerate(answer.headers) if value and name.lower().startswith(TELLING)]
    if answer.content and (place % 4 or not headers):
        return answer._replace(content=_flip(answer.content, place // 4))
    if not headers:
        return answer
    at = headers[place // 4 % len(headers)]
    name, value = answer.headers[at]
    letter = place // 64 % len(value)
    other = "0" if value[letter] != "0" else "1"
    changed = [*answer.headers]
    changed[at] = (name, value[:letter] + other + value[letter + 1 :])
    return answer._replace(headers=changed)


def _flip(data: bytes, place: int) -> bytes:
    at = place % len(data)
    return data[:at] + bytes([data[at] ^ 1 << place % 8]) + data[at + 1 :]
