"""Sources planned, downloaded and indexed through a proxy that tells lies: right to the byte, or refused.

A `Far` is a store with the same files in every kind of it: whole ones, and ones larger than a shard that are cut at
line ends, frames and row groups. `read_through` reads them as a build does, and says how it ended; a step that is
refused runs again, as a scheduler has it.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from corpusmill.builds import plan as planning
from corpusmill.builds.graph import open_build
from corpusmill.config import check_config
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine import plan
from corpusmill.engine.build import Build
from corpusmill.errors import CorpusmillError
from corpusmill.storage import open_store, retries, transfers
from tests.faults.proxy import LIES, FaultyProxy
from tests.gcs_front import GcsFront
from tests.hub import COMMIT, Hub
from tests.servers import ACCESS_KEY, SECRET_KEY
from tests.system.corpus import configuration, lines_of, make_documents

KINDS = ("s3", "gcs", "hub")
SHARES = (0.25, 0.1, 0.05)
WINDOW_BYTES = 8 << 10
LARGEST_FILE_BYTES = 24 << 10
TRIES = 8  # of a step

Documents = list[str]


def sources() -> tuple[dict[str, bytes], Documents]:
    """Files by name, and all their documents in order."""
    texts = [make_documents(24, seed) for seed in range(8)]
    plain = [lines_of(text) for text in texts]
    table = io.BytesIO()
    pq.write_table(pa.table({"text": texts[6]}), table, row_group_size=4, compression="none")
    files = {
        "a1.jsonl": plain[0],
        "a2.jsonl": plain[1],
        "b.jsonl.gz": gzip.compress(plain[2], mtime=0),
        "c.jsonl.zst": zstandard.compress(plain[3]),
        "deep/d.jsonl.zst": b"".join(zstandard.compress(line, 1) for line in plain[4].splitlines(keepends=True)),
        "deep/e.jsonl": b"",
        "f.jsonl": plain[5],
        "g.parquet": table.getvalue(),
        "h.jsonl": plain[7],
    }
    return files, [text for item in texts for text in item]


@dataclass
class Far:
    """A store of one kind with the files, and what it takes to reach it through a proxy."""

    kind: str
    target: str
    hub: Hub | None = None

    @contextmanager
    def behind(self, **faults: Any) -> Iterator[FaultyProxy]:
        with (GcsFront if self.kind == "gcs" else FaultyProxy)(self.target, **faults) as proxy:
            os.environ["STORAGE_EMULATOR_HOST"] = os.environ["HF_ENDPOINT"] = proxy.endpoint
            if self.hub:
                self.hub.endpoint = proxy.endpoint
            yield proxy

    @property
    def folder(self) -> str:
        return {
            "s3": "s3://corpus/web",
            "gcs": "gs://corpus/web",
            "hub": f"hf://datasets/owner/name@{COMMIT}/web",
        }[self.kind]


@contextmanager
def stores(s3: str, gcs: str) -> Iterator[tuple[dict[str, Far], Documents]]:
    """A store of each kind with the files: the servers of S3, in its bucket `corpus`, and of GCS, and a hub of its own;
    and all their documents.
    """
    files, documents = sources()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with Hub({f"web/{name}": data for name, data in files.items()}) as hub:
        far = {"s3": Far("s3", s3), "gcs": Far("gcs", gcs), "hub": Far("hub", hub.endpoint, hub)}
        for kind in ("s3", "gcs"):
            with far[kind].behind() as proxy:
                if isinstance(proxy, GcsFront):
                    proxy.empty("corpus")
                store = open_store(far[kind].folder, endpoint_url=proxy.endpoint)
                for name, data in files.items():
                    store.receive_bytes(data, name)
        yield far, documents


@contextmanager
def small_sizes() -> Iterator[None]:
    """Windows and parts of a few KiB, no pauses between retries, and no tokenizer: nothing is tokenized here."""
    kept = retries.POLICY, transfers.PART_BYTES, plan.SMALLEST_PART_BYTES, planning.locked
    retries.POLICY = retries.RetryPolicy(attempts=5, first_pause_seconds=0.0)
    transfers.PART_BYTES, plan.SMALLEST_PART_BYTES = WINDOW_BYTES, WINDOW_BYTES
    planning.locked = lambda config: config
    try:
        yield
    finally:
        retries.POLICY, transfers.PART_BYTES, plan.SMALLEST_PART_BYTES, planning.locked = kept


@dataclass(frozen=True)
class Round:
    """What came of one: answers harmed by kind, and "right", "refused" or "wrong".

    `without_checksum`: files and parts whose reads were compared with each other, as the report counts them.
    """

    seed: int
    store: str
    harmed: dict[str, int]
    end: str
    without_checksum: int


def store_of(seed: int) -> str:
    """Rounds go round the kinds of stores."""
    return KINDS[seed % len(KINDS)]


def read_through(far: Far, seed: int, documents: Documents, work: Path) -> Round:
    """Plan, download and index all files through a proxy of this seed."""
    config = check_config(
        configuration(
            work,
            source={"paths": [far.folder], "shard_bytes": LARGEST_FILE_BYTES, "stream": seed // len(KINDS) % 2 == 1},
            dedup={"mode": "none"},
            tokenizer={"name": "r50k_base"},
            destinations=[{"path": str(work / "out")}],
        ),
        where="test",
    )
    share = SHARES[seed // len(KINDS) // 2 % len(SHARES)]
    with far.behind(seed=seed, share=share, faults=1 << 30, kinds=LIES) as proxy:
        if far.kind == "s3":
            config = config.model_copy(
                update={"source": config.source.model_copy(update={"endpoint_url": proxy.endpoint})}
            )
        without_checksum = 0
        try:
            build = open_build(_tried(lambda: planning.plan_dataset(config)))
            end = "right" if _documents(build) == documents else "wrong"
            without_checksum = sum(receipt.traffic["without_checksum"] for receipt in build.receipts("download"))
        except CorpusmillError:
            end = "refused"
    shutil.rmtree(work, ignore_errors=True)
    return Round(seed, far.kind, {kind: proxy.dealt[kind] for kind in LIES}, end, without_checksum)


def _tried(step: Callable[[], Path]) -> Path:
    for _ in range(TRIES - 1):
        try:
            return step()
        except CorpusmillError:
            continue
    return step()


def _documents(build: Build) -> Documents:
    for stage in ("download", "index"):
        for unit in build.units(stage):
            _tried(partial(build.run, stage, unit))
    shards = [open_text_shard(build.folder("index", unit)) for unit in build.units("index")]
    return [shard.document_bytes(number).decode() for shard in shards for number in range(shard.documents)]
