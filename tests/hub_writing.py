"""A hub on loopback that is written to: repositories, LFS objects, commits, branches and tags, as the real hub answers.

Every content is checked against the oid under which it is sent, as the hub does. `faults` are dealt in order: each is
(what is asked for, a status or "cut" or "lost", headers), and hits the next request whose path holds that text. "cut"
ends the connection before the body was read, "lost" after all was done, before it is answered.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.hub import LARGE_BYTES, Hub

Tree = dict[str, Any]
"""Path -> bytes of a small file, or (sha256, size) of an LFS object."""

READ_BYTES = 1 << 20
INITIAL = {".gitattributes": b"*.bin filter=lfs diff=lfs merge=lfs -text\n"}


class WritableHub(Hub):
    """Has no repository until one is created; `log` lists what was asked, `put` the objects that were sent whole.
    `xet`: a folder that hf_xet writes to as if it were the hub's Xet store; what it holds is not checked here."""

    def __enter__(self) -> WritableHub:
        super().__enter__()
        return self

    def __init__(self, folder: Path, *, token: str | None = "hf_let-me-write") -> None:  # noqa: S107
        super().__init__({}, token=token)
        self.folder = folder
        self.commits: dict[str, Tree] = {}
        self.titles: list[str] = []
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.private: bool | None = None
        self.faults: list[tuple[str, Any, dict[str, str]]] = []
        self.log: list[str] = []
        self.put: list[str] = []
        self.xet: Path | None = None
        self.lock = threading.Lock()
        handler: Any = self._server.RequestHandlerClass
        hub = self
        handler.do_PUT = handler.do_POST = handler.do_GET = lambda client: hub.answer(client)  # noqa: PLW0108

    def create(self, files: dict[str, bytes] | None = None) -> None:
        """As if somebody had created the repository on the hub's pages, with these files."""
        self.private = False
        self.branches["main"] = self._committed({**INITIAL, **(files or {})}, "initial commit")

    def tree(self, revision: str) -> Tree | None:
        commit = self.branches.get(revision) or self.tags.get(revision) or revision
        return self.commits.get(commit)

    def content(self, revision: str, path: str) -> bytes:
        item = (self.tree(revision) or {})[path]
        return item if isinstance(item, bytes) else (self.folder / item[0]).read_bytes()

    def answer(self, client: BaseHTTPRequestHandler) -> None:
        """Deal a fault, or answer."""
        asked = f"{client.command} {unquote(urlsplit(client.path).path)}"
        with self.lock:
            self.log.append(asked)
            hit = next((fault for fault in self.faults if fault[0] in asked), None)
            if hit:
                self.faults.remove(hit)
        if hit and hit[1] == "cut":
            client.rfile.read(min(1000, int(client.headers.get("Content-Length", 0))))
            client.close_connection = True
            return
        body = b"" if client.command == "PUT" else client.rfile.read(int(client.headers.get("Content-Length", 0)))
        if hit and hit[1] != "lost":
            client.close_connection = True
            self.send(client, hit[1], b'{"error": "a fault"}', hit[2])
            return
        if hit:
            client.wfile = open("/dev/null", "wb")  # noqa: SIM115, PTH123
            client.close_connection = True
        if self.token and "/lfs/" not in asked and client.headers.get("Authorization") != f"Bearer {self.token}":
            self.send(client, 401, b'{"error": "Invalid credentials"}')
            return
        getattr(self, f"_{client.command.lower()}")(client, asked.partition(" ")[2], body)

    def _put(self, client: BaseHTTPRequestHandler, path: str, _body: bytes) -> None:
        oid, left, digest = path.removeprefix("/lfs/"), int(client.headers["Content-Length"]), hashlib.sha256()
        with (self.folder / f"{oid}.part").open("wb") as file:
            while left and (data := client.rfile.read(min(left, READ_BYTES))):
                file.write(data)
                digest.update(data)
                left -= len(data)
        if left or digest.hexdigest() != oid:
            client.close_connection = True
            return self.send(client, 400, b"not the content of this oid")
        (self.folder / f"{oid}.part").replace(self.folder / oid)
        self.put.append(oid)
        return self.send(client, 200, b"", {"ETag": f'"{oid}"'})

    def _get(self, client: BaseHTTPRequestHandler, path: str, _body: bytes) -> None:  # noqa: PLR0911
        api, _, rest = path.removeprefix("/api/datasets/owner/name").lstrip("/").partition("/")
        if path.startswith("/cdn/"):
            commit, _, name = path.removeprefix("/cdn/").partition("/")
            return self.file(client, self.content(commit, name))
        if self.private is None:
            return self._nothing(client, "RepoNotFound")
        if path.startswith("/datasets/owner/name/resolve/"):
            commit, _, name = path.removeprefix("/datasets/owner/name/resolve/").partition("/")
            if name not in (self.tree(commit) or {}):
                return self._nothing(client, "EntryNotFound")
            return self.send(client, 302, b"", {"Location": f"{self.endpoint}/cdn/{commit}/{name}"})
        if not path.startswith("/api/datasets/owner/name"):
            return self._nothing(client, "RepoNotFound")
        if api == "auth-check":
            return self.json(client, {})
        if api == "xet-write-token" and self.xet:
            return self.json(client, {"casUrl": f"local://{self.xet}", "accessToken": "xet-hush", "exp": 4102444800})
        if api == "refs":
            return self.json(
                client, {"branches": _refs(self.branches, "heads"), "tags": _refs(self.tags, "tags"), "converts": []}
            )
        revision, _, below = rest.partition("/") if api == "tree" else (rest or "main", "", "")
        tree = self.tree(revision)
        if tree is None:
            return self._nothing(client, "RevisionNotFound")
        if api in {"", "revision"}:
            sha = self.branches.get(revision) or self.tags.get(revision) or revision
            return self.json(client, {"id": "owner/name", "sha": sha, "siblings": [], "tags": [], "private": False})
        names = [name for name in sorted(tree) if not below or name.startswith(f"{below}/")]
        after = int(parse_qs(urlsplit(client.path).query).get("cursor", ["0"])[0])
        more = {}
        if after + 5 < len(names):  # pages of five
            more = {
                "Link": f'<{self.endpoint}{urlsplit(client.path).path}?recursive=True&cursor={after + 5}>; rel="next"'
            }
        return self.json(client, [_entry(name, tree[name]) for name in names[after : after + 5]], more)

    def _post(self, client: BaseHTTPRequestHandler, path: str, body: bytes) -> None:  # noqa: PLR0911
        api, _, rest = path.removeprefix("/api/datasets/owner/name").lstrip("/").partition("/")
        if path == "/api/validate-yaml":
            return self.json(client, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            wanted = json.loads(body)
            self.create()
            self.private = wanted.get("visibility") == "private" or wanted.get("private")
            return self.json(client, {"url": f"{self.endpoint}/datasets/owner/name", "name": "owner/name"})
        if path.startswith("/lfs/"):
            return self.json(client, {})
        if path == "/datasets/owner/name.git/info/lfs/objects/batch":
            return self.json(client, {"objects": [self._action(load) for load in json.loads(body)["objects"]]})
        if self.private is None or not path.startswith("/api/datasets/owner/name"):
            return self._nothing(client, "RepoNotFound")
        if api == "tag":
            return self._name(client, self.tags, json.loads(body)["tag"], rest)
        if api == "branch":
            return self._name(client, self.branches, rest, json.loads(body)["startingPoint"])
        tree = self.tree(rest)
        if tree is None:
            return self._nothing(client, "RevisionNotFound")
        if api == "paths-info":
            is_json = "json" in client.headers.get("Content-Type", "")
            wanted = json.loads(body)["paths"] if is_json else parse_qs(body.decode()).get("paths", [])
            return self.json(client, [_entry(name, tree[name]) for name in wanted if name in tree])
        if api == "preupload":
            files = json.loads(body)["files"]
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["size"] >= LARGE_BYTES else "regular",
                    "shouldIgnore": False,
                    **({"oid": _oid(tree[file["path"]])} if file["path"] in tree else {}),
                }
                for file in files
            ]
            return self.json(client, {"files": modes})
        return self._commit(client, rest, [json.loads(line) for line in body.splitlines()])

    def _name(self, client: BaseHTTPRequestHandler, names: dict[str, str], name: str, start: str) -> None:
        if name in names:
            return self.send(client, 409, b'{"error": "Reference already exists"}')
        names[name] = self.branches.get(start) or start
        return self.json(client, {})

    def _commit(self, client: BaseHTTPRequestHandler, branch: str, lines: list[Any]) -> None:
        if branch not in self.branches:
            return self._nothing(client, "RevisionNotFound")
        with self.lock:
            head = lines[0]["value"]
            if head.get("parentCommit") not in {None, self.branches[branch]}:
                return self.send(
                    client, 412, b'{"error": "A commit has happened since. Please refresh and try again."}'
                )
            tree = dict(self.commits[self.branches[branch]])
            for line in lines[1:]:
                value = line["value"]
                if line["key"] == "deletedFile":
                    del tree[value["path"]]
                elif line["key"] == "file":
                    tree[value["path"]] = base64.b64decode(value["content"])
                elif not self.xet and not (self.folder / value["oid"]).exists():
                    return self.send(client, 400, b'{"error": "an LFS pointer to an object that does not exist"}')
                else:
                    tree[value["path"]] = (value["oid"], value["size"])
            commit = self.branches[branch] = self._committed(tree, head["summary"])
        address = f"{self.endpoint}/datasets/owner/name/commit/{commit}"
        return self.json(client, {"commitUrl": address, "commitOid": commit})

    def _committed(self, tree: Tree, title: str) -> str:
        commit = hashlib.sha1(
            repr((sorted(tree.items()), len(self.titles))).encode(), usedforsecurity=False
        ).hexdigest()
        self.commits[commit] = tree
        self.titles.append(title)
        return commit

    def _action(self, wanted: Any) -> dict[str, Any]:
        if (self.folder / wanted["oid"]).exists():
            return {"oid": wanted["oid"], "size": wanted["size"]}
        upload = {"href": f"{self.endpoint}/lfs/{wanted['oid']}?X-Amz-Signature=hush"}
        return {**wanted, "actions": {"upload": upload, "verify": {"href": f"{self.endpoint}/lfs/verify"}}}

    def _nothing(self, client: BaseHTTPRequestHandler, code: str) -> None:
        self.send(client, 404, b'{"error": "not found"}', {"X-Error-Code": code})


def _refs(names: dict[str, str], kind: str) -> list[dict[str, str]]:
    return [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit} for name, commit in names.items()]


def _oid(item: Any) -> str:
    """Under which the hub knows a content: sha256 of an LFS object, git's sha1 of a small file."""
    if isinstance(item, bytes):
        return hashlib.sha1(b"blob %d\0" % len(item) + item, usedforsecurity=False).hexdigest()
    return str(item[0])


def _entry(path: str, item: Any) -> dict[str, Any]:
    if isinstance(item, bytes):
        return {"type": "file", "path": path, "size": len(item), "oid": _oid(item)}
    sha256, size = item
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
    large = {"oid": sha256, "size": size, "pointerSize": len(pointer)}
    return {"type": "file", "path": path, "size": size, "oid": _oid(pointer), "lfs": large}


@pytest.fixture
def writable_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WritableHub]:
    """A hub without a repository, named by the environment; LFS, because a Xet store is no part of it."""
    (tmp_path / "lfs-objects").mkdir()
    with WritableHub(tmp_path / "lfs-objects") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", str(hub.token))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        yield hub
