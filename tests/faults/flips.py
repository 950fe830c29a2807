"""One byte flipped in a file that a build left, and what becomes of it.

A build stands as it was finished; a byte of one of its files is changed, in the work folder, at a destination or in a
store. Then `verify` must find it, and the next build (of the same configuration, or of one of which later steps run
again) must deliver the right bytes or refuse. The steps that ran beyond those of the undamaged case are recorded.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpusmill.builds.local import build_dataset
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.errors import CorpusmillError
from corpusmill.storage import open_store
from tests.faults.damage import findings_of, flipped, ran_since, same_receipt
from tests.faults.planted_builds import REMOVE, dataset, delivered, make_small, write_sources
from tests.faults.planted_runs import forked

WORK, FOLDER, STORE = "work", "folder", "store"
LARGE = {
    "webdataset": {"context_tokens": 65, "contexts_per_shard": 60},
    "numpy": {"tokens_per_shard": 4000},
    "megatron": {"part_bytes": "24KiB"},
    "nanoset": {"file_bytes": "24KiB"},
}
SMALL = {
    "webdataset": {"context_tokens": 65, "contexts_per_shard": 50},
    "numpy": {"tokens_per_shard": 3500},
    "megatron": {"part_bytes": "20KiB"},
    "nanoset": {"file_bytes": "20KiB"},
}
FIRST = {"exports": LARGE, "shuffle": {"seed": 7, "cells": 2}, "source": {"shard_bytes": 24 << 10}}
# What is built on the damaged work folder: the same again, or a change behind which some stages run again.
NEXT: dict[str, dict[str, Any]] = {
    "same": {},
    "exports": {"exports": SMALL},
    "shuffle": {"shuffle": {"seed": 9, "cells": 2}},
    "tokens": {"tokenizer": {"name": "cl100k_base", "batch_bytes": "4KiB", "eot": "<|fim_prefix|>"}},
    "ranges": {"dedup": {**REMOVE, "drop_empty": True, "keep": "every_string"}},
    "anchors": {"dedup": {**REMOVE, "minimum_bytes": 150}},
    "index": {"source": {"shard_bytes": 24 << 10, "id_field": "title"}},
}
PASSED_OVER = re.compile(r"(^|/)\.(?!blocks)|^report/|^announce/|^upload/")  # locks and marks; what no later step reads
ALWAYS_VERIFIED = ("download/", "upload/")  # with --verify sources are read anew, and destinations compared
TOLD_ANEW = ("plan/", "report/")  # what a build observes and tells; no step reads them
Steps = list[str]


@dataclass(frozen=True)
class Flip:
    """What came of one flip.

    `end`   "right", or "refused, then right"; "refused" if a second build is refused, too; "wrong" if wrong bytes were
            delivered; "no meaning" if what the file says is the same as before; or how the process died
    `extra` steps that ran beyond those of the undamaged case until all was well again, and `producer` the file's own
    `seen`  whether `verify` found it; `left` what it still finds in the end
    """

    seed: int
    place: str
    kind: str
    file: str
    after: str
    end: str
    producer: str = ""
    extra: Steps = field(default_factory=list)
    seen: bool = False
    left: str = ""

    @property
    def alone(self) -> bool:
        """Whether no step ran beyond the usual ones but the file's producer."""
        return set(self.extra) <= {self.producer}


@dataclass
class FinishedBuild:
    """A build below `root`, kept as it was finished; `endpoint` is that of an S3 server with a bucket `corpus`."""

    root: Path
    endpoint: str
    known: dict[str, tuple[dict[str, str], Steps]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir()
        write_sources(self.root, "plain")
        (self.root / "corpus" / "a10.jsonl.zst").unlink()
        self._must(lambda: self._build("same"))
        for name in ("work", "outputs"):
            (self.root / name).rename(self.root / f"kept-{name}")

    def undamaged(self, after: str) -> tuple[dict[str, str], Steps]:
        """(what is delivered, the steps that run) when `after` is built on the undamaged work folder."""
        if after not in self.known:
            self._restore()
            ended = self._must(lambda: self._built(after))
            self.known[after] = ended["files"], ended["ran"]
        return self.known[after]

    def flip(self, seed: int) -> Flip:
        """Flip one byte, drawn by `seed`: first the kind of file, then the file, then the byte."""
        rng = random.Random(seed)
        place = rng.choices([WORK, FOLDER, STORE], [8, 1, 1])[0]
        kind = rng.choice([kind for where, kind in self.kinds() if where == place])
        return self.flip_of(place, kind, seed, after=rng.choice(list(NEXT)) if place == WORK else "same")

    def flip_of(self, place: str, kind: str, seed: int, *, after: str = "same") -> Flip:
        """Flip a byte of a file of one kind, and build `after` (see NEXT)."""
        usual = self.undamaged(after)[1]
        self.undamaged("same")
        self._restore()
        rng = random.Random(seed)
        name = rng.choice(self.kinds()[place, kind])
        about = (seed, place, kind, name, after)
        if place == STORE:
            before, changed = self._flip_object(name, rng)
        else:
            before, changed = self._flip_file(self.root / name, rng)
        if name.endswith(RECEIPT_NAME) and same_receipt(self.root / f"kept-{name}", self.root / name):
            return Flip(*about, end="no meaning", seen=True)
        producer = "/".join(Path(name).parts[2:4]) if place == WORK else ""
        ended = forked(self.root, lambda: self._followed(after, place, name, before, changed))
        if "error" in ended:
            self._heal(place, name, before)
            return Flip(*about, end=ended["error"], producer=producer)
        if ended["end"] != "right":
            self._heal(place, name, before)
        extra = [step for step in ended["ran"] if step not in usual and not step.startswith(TOLD_ANEW)]
        return Flip(*about, ended["end"], producer, extra, ended["seen"], ended["left"])

    def _heal(self, place: str, name: str, before: bytes) -> None:
        """Put an object back that a build may have left damaged; files are restored before every flip."""
        if place == STORE:
            store = self._store()
            about = {"Bucket": store.bucket, "Key": store.key(name)}
            store.client.put_object(**about, Body=before, Metadata=store.client.head_object(**about)["Metadata"])

    def kinds(self) -> dict[tuple[str, str], list[str]]:
        """(place, kind of file) -> files, relative to `root`; of a store the names of objects."""
        actual: dict[tuple[str, str], list[str]] = {}
        for path in sorted((self.root / "kept-work" / "tiny").rglob("*")):
            name = path.relative_to(self.root / "kept-work" / "tiny").as_posix()
            if path.is_file() and path.stat().st_size and not PASSED_OVER.search(name):
                stage, _, rest = name.split("/", 2)
                kind = f"{stage}/{re.sub(r'[0-9]+', 'n', rest)}"
                actual.setdefault((WORK, kind), []).append(f"work/tiny/{name}")
        version = (self.root / "kept-outputs" / "tiny" / "latest").resolve()
        for path in sorted(version.rglob("*")):
            if path.is_file() and path.stat().st_size:
                name = path.relative_to(version).as_posix()
                kind = re.sub(r"[0-9]+", "n", name)
                actual.setdefault((FOLDER, kind), []).append(f"outputs/tiny/{version.name}/{name}")
                actual.setdefault((STORE, kind), []).append(f"tiny/{version.name}/{name}")
        return actual

    def _followed(self, after: str, place: str, name: str, before: bytes, changed: bytes) -> dict[str, Any]:
        """Verify, build, build again if it is refused, and then with --verify if the file is still damaged."""
        plan = next((self.root / "work" / "tiny" / "plan").glob(f"*/{RECEIPT_NAME}"))
        seen = bool(findings_of(plan))
        ran: Steps = []
        end = "right"
        for tried in range(3):
            began = time.time_ns()
            try:
                ended = self._built(after)
            except CorpusmillError:
                end = "refused" if tried else "refused, then right"
                ran += ran_since(self.root, began)
                continue
            ran, plan = [*ran, *ended["ran"]], Path(ended["plan"])
            if ended["files"] != self.undamaged(after)[0]:
                return {"end": "wrong", "ran": ran, "seen": seen, "left": ""}
            break
        if place == WORK and (path := self.root / name).exists() and path.read_bytes() == changed:
            ended = self._built("same", verify=True)
            plan = Path(ended["plan"])
            ran += [step for step in ended["ran"] if not step.startswith(ALWAYS_VERIFIED)]
            if ended["files"] != self.undamaged("same")[0]:
                end = "wrong"
        if place == STORE and self._store().open(name).read() != before:
            end = "wrong"
        return {"end": end, "ran": sorted(set(ran)), "seen": seen, "left": findings_of(plan)}

    def _built(self, after: str, *, verify: bool = False) -> dict[str, Any]:
        began = time.time_ns()
        plan = self._build(after, verify=verify)
        return {"files": delivered(self.root), "ran": ran_since(self.root, began), "plan": str(plan)}

    def _build(self, after: str, *, verify: bool = False) -> Path:
        make_small()
        config = dataset(self.root, "plain", changes={**FIRST, **NEXT[after]})
        if after == "same":
            there = config.destinations[0].model_copy(
                update={"path": f"s3://corpus/{self.root.name}", "endpoint_url": self.endpoint}
            )
            config = config.model_copy(update={"destinations": [*config.destinations, there]})
        return build_dataset(config, workers=1, verify=verify)

    def _store(self) -> Any:
        return open_store(f"s3://corpus/{self.root.name}", endpoint_url=self.endpoint)

    def _must(self, body: Callable[[], Any]) -> dict[str, Any]:
        """What `body` returns in a child process; AssertionError if it ends with an error."""
        ended = forked(self.root, lambda: {"plan": str(printed)} if isinstance(printed := body(), Path) else printed)
        if "error" in ended:
            raise AssertionError(ended["error"])
        return ended

    def _restore(self) -> None:
        """The files as they were: links to those that are kept, since whoever writes one gives it a new inode."""
        for name in ("work", "outputs"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            shutil.copytree(self.root / f"kept-{name}", self.root / name, symlinks=True, copy_function=os.link)
        for path in (self.root / "work").rglob(".*"):
            if path.is_file():  # locks are written in place
                content = path.read_bytes()
                path.unlink()
                path.write_bytes(content)

    def _flip_file(self, path: Path, rng: random.Random) -> tuple[bytes, bytes]:
        """Flip a byte under all names that the file has beside `path`, as a disk would."""
        area = self.root / path.relative_to(self.root).parts[0]
        names = [other for other in area.rglob("*") if other.is_file() and other.samefile(path)]
        before, changed = flipped(path.read_bytes(), rng)
        kept = path.stat()
        path.unlink()
        path.write_bytes(changed)
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
        for other in names:
            if other != path and not other.is_symlink() and "latest" not in other.relative_to(area).parts:
                other.unlink()
                other.hardlink_to(path)
        return before, changed

    def _flip_object(self, name: str, rng: random.Random) -> tuple[bytes, bytes]:
        """Flip a byte of an object, which keeps its size and metadata."""
        store = self._store()
        about = {"Bucket": store.bucket, "Key": store.key(name)}
        answer = store.client.get_object(**about)
        before, changed = flipped(answer["Body"].read(), rng)
        store.client.put_object(**about, Body=changed, Metadata=answer["Metadata"])
        return before, changed
