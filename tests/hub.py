"""A hub on loopback: the few endpoints that listing and reading a dataset need, as the real hub answers them."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
LARGE_BYTES = 1000  # files of this size or more are "large": stored by sha256


class Hub:
    """One dataset `owner/name` at COMMIT, called main; `files` by path. `refuse_first` answers 503 that often."""

    def __init__(self, files: dict[str, bytes], *, refuse_first: int = 0, token: str | None = None) -> None:
        self.files, self.token = files, token
        self.ranges: list[str] = []
        self.refuse = refuse_first
        hub = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body are two writes; the second would wait for an ACK

            def do_GET(self) -> None:
                hub.get(self)

            def do_POST(self) -> None:
                hub.post(self)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def entry(self, path: str) -> dict[str, object]:
        data = self.files[path]
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        item: dict[str, object] = {"type": "file", "path": path, "size": len(data), "oid": oid}
        if len(data) >= LARGE_BYTES:
            item["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return item

    def get(self, client: BaseHTTPRequestHandler) -> None:
        address = urlsplit(client.path)
        path = unquote(address.path)
        if self.token and client.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(client, 401, b"{}", {"X-Error-Code": "GatedRepo"})
        if path in {"/api/datasets/owner/name", "/api/datasets/owner/name/revision/main"}:
            return self.json(client, {"id": "owner/name", "sha": COMMIT, "siblings": [], "tags": [], "private": False})
        if path.startswith(f"/api/datasets/owner/name/tree/{COMMIT}"):
            below = path.removeprefix(f"/api/datasets/owner/name/tree/{COMMIT}").strip("/")
            names = [name for name in sorted(self.files) if not below or name.startswith(f"{below}/")]
            after = int(parse_qs(address.query).get("cursor", ["0"])[0])
            more = {}
            if after + 2 < len(names):  # pages of two
                more = {"Link": f'<{self.endpoint}{address.path}?recursive=True&cursor={after + 2}>; rel="next"'}
            return self.json(client, [self.entry(name) for name in names[after : after + 2]], more)
        if path.startswith(f"/datasets/owner/name/resolve/{COMMIT}/"):
            name = path.removeprefix(f"/datasets/owner/name/resolve/{COMMIT}/")
            return self.send(client, 302, b"", {"Location": f"{self.endpoint}/cdn/{name}"})
        if path.startswith("/cdn/") and path.removeprefix("/cdn/") in self.files:
            return self.file(client, self.files[path.removeprefix("/cdn/")])
        return self.send(client, 404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def post(self, client: BaseHTTPRequestHandler) -> None:
        body = client.rfile.read(int(client.headers["Content-Length"])).decode()
        wanted = (
            json.loads(body)["paths"]
            if "json" in client.headers.get("Content-Type", "")
            else parse_qs(body).get("paths", [])
        )
        return self.json(client, [self.entry(name) for name in wanted if name in self.files])

    def file(self, client: BaseHTTPRequestHandler, data: bytes) -> None:
        if self.refuse:
            self.refuse -= 1
            return self.send(client, 503, b"")
        wanted = client.headers.get("Range", f"bytes=0-{len(data) - 1}")
        self.ranges.append(wanted)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        piece = data[int(first) : int(last) + 1]
        return self.send(client, 206, piece, {"Content-Range": f"bytes {first}-{last}/{len(data)}"})

    def json(self, client: BaseHTTPRequestHandler, value: object, headers: dict[str, str] | None = None) -> None:
        self.send(client, 200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def send(
        self, client: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        client.send_response_only(status)
        for name, value in (headers or {}).items():
            client.send_header(name, value)
        client.send_header("Content-Length", str(len(body)))
        client.end_headers()
        if client.command != "HEAD":
            client.wfile.write(body)
