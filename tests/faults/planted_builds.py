"""The builds in which planted faults are tried: a few dozen documents, every export, small batches everywhere."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import CorpusmillError
from corpusmill.inspect.verify.verification import verify_build
from tests.servers import ACCESS_KEY, SECRET_KEY, rclone_s3
from tests.system.corpus import configuration, make_documents

DOCUMENTS = 40
BATCH_TOKENS, BLOCK_BYTES = 400, 4 << 10
PAGE = {"MaxKeys": 2}
REMOVE = {"mode": "remove", "minimum_bytes": 100}
EXPORTS = {
    "webdataset": {"context_tokens": 65, "contexts_per_shard": 20},
    "numpy": {"tokens_per_shard": 1500},
    "megatron": {"part_bytes": "12KiB"},
    "nanoset": {"file_bytes": "12KiB"},
}
APART = {**EXPORTS, "nanoset": {"file_bytes": "9KiB"}}

# What a scenario, and then an edit, replaces in the configuration.
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {},
    "parts": {},
    "frames": {},
    "parquet": {},
    "s3": {},
    "s3 parts": {},
    "no dedup": {"dedup": {"mode": "none"}},
    "annotate": {"dedup": {**REMOVE, "mode": "annotate"}},
    "fuzzy": {"dedup": {**REMOVE, "fuzzy_share": 0.2}},
    "every string": {"dedup": {**REMOVE, "keep": "every_string"}},
    "drop empty": {"dedup": {**REMOVE, "drop_empty": True}},
    "selected": {"selection": {"minimum_tokens": 120}},
    "packed": {"packing": {"fit": "best_fit"}},
    "apart": {"exports": APART},
    "grouped": {},
    "source order": {"shuffle": {"order": "source"}},
    "cells": {"shuffle": {"seed": 7, "cells": 12}},
    "budgeted": {},
    "against": {"dedup": {**REMOVE, "against": ["old", "older"]}},
    "annotated against": {"dedup": {**REMOVE, "mode": "annotate", "against": ["old", "older"]}},
    "decontaminated": {"decontamination": {"action": "remove"}},
    "passages cut": {"decontamination": {"action": "cut"}},
    "hits annotated": {"decontamination": {"action": "annotate"}},
}
EDITS: dict[str, dict[str, Any]] = {
    "text field": {"source": {"text_field": "title"}},
    "other cut": {},
    "minimum bytes": {"dedup": {**REMOVE, "minimum_bytes": 600}},
    "keep": {"dedup": {**REMOVE, "keep": "every_string"}},
    "fuzzy share": {"dedup": {**REMOVE, "fuzzy_share": 0.2}},
    "drop empty": {"dedup": {**REMOVE, "drop_empty": True}},
    "no dedup": {"dedup": REMOVE},
    "eot": {"tokenizer": {"eot": "<|fim_prefix|>"}},
    "selection": {"selection": {"minimum_tokens": 60}},
    "seed": {"shuffle": {"seed": 8, "cells": 5}},
    "cells": {"shuffle": {"seed": 7, "cells": 6}},
    "context tokens": {"exports": {**EXPORTS, "webdataset": {"context_tokens": 33, "contexts_per_shard": 20}}},
    "packing": {"packing": {"eot": "around"}},
    "framing": {"framing": {"eod": False}},
    "empty documents": {"framing": {"empty_documents": "eod"}},
    "loss": {"exports": {**EXPORTS, "nanoset": {"file_bytes": "12KiB", "loss": True}}},
    "placeholders": {"exports": {**EXPORTS, "numpy": {"tokens_per_shard": 1500, "placeholders": True}}},
}


def write_sources(root: Path, scenario: str) -> None:
    """The source files of a scenario, below `root`/corpus."""
    corpus = root / "corpus"
    corpus.mkdir()
    texts = documents()
    if scenario == "frames":
        (corpus / "f.jsonl.zst").write_bytes(b"".join(frames()))
    elif scenario == "parquet":
        table = io.BytesIO()
        pq.write_table(pa.table({"text": texts}), table, row_group_size=2, compression="none")
        (corpus / "p.parquet").write_bytes(table.getvalue())
    else:
        write_others(root)
        (corpus / "deep").mkdir()
        lines = titled(texts).splitlines(keepends=True)
        parts = [b"".join(lines[first : first + 7]) for first in range(0, len(lines), 7)]
        (corpus / "a1.jsonl").write_bytes(parts[0] + b"no document\n" + parts[1])
        (corpus / "a2.jsonl.gz").write_bytes(gzip.compress(parts[2], mtime=0) + gzip.compress(parts[3], mtime=0))
        (corpus / "a3.jsonl").write_bytes(b"")
        (corpus / "a10.jsonl.zst").write_bytes(zstandard.compress(parts[4]) + zstandard.compress(parts[5]))
        (corpus / "deep" / "b.jsonl.zstd").write_bytes(zstandard.compress(b"".join(parts[6:])))


def write_others(root: Path) -> None:
    """Two references, of several files, and a benchmark: what some of the documents say."""
    texts = documents()
    for name, own in {"old": texts[:9], "older": texts[12:18]}.items():
        (root / name).mkdir()
        for first in range(0, len(own), 3):
            (root / name / f"r{first}.jsonl").write_bytes(titled(own[first : first + 3]))
    items = [" ".join(text.split()[3:20]) for text in texts[20:26] + texts[-2:]]
    rows = [json.dumps({"id": f"item {number}", "question": item}) + "\n" for number, item in enumerate(items)]
    (root / "items.jsonl").write_text("".join(rows))


def documents() -> list[str]:
    """Texts with repeats: a whole document, two with a little between them, one that ends inside a character."""
    texts = make_documents(DOCUMENTS)
    longest = max(texts[: DOCUMENTS // 3], key=len)
    half = len(longest) // 2
    joined = f"{longest[:half]} and so on, {longest[half:]}"
    return [*texts, longest, joined, f"{longest[:half]}ü, one", f"{longest[:half]}ï, other", "a last one"]


def titled(texts: list[str]) -> bytes:
    """JSON lines with a second field of text."""
    titles = make_documents(len(texts), seed=5)
    rows = [json.dumps({"id": str(i), "text": text, "title": titles[i]}) for i, text in enumerate(texts)]
    return "".join(row + "\n" for row in rows).encode()


def frames() -> list[bytes]:
    """Three frames of lines, cut within lines; the first is larger than the others together."""
    rows = [hashlib.shake_128(b"%d" % number).hexdigest(150 + number) for number in range(DOCUMENTS)]
    data = titled(rows)
    bounds = [0, len(data) * 6 // 10, len(data) * 8 // 10 + 50, len(data)]
    return [zstandard.compress(data[first:last]) for first, last in pairwise(bounds)]


def edit_sources(root: Path, edit: str) -> None:
    """Change the sources as an edit says; one of the configuration changes none."""
    path = root / "corpus" / "a1.jsonl"
    if edit == "append":
        with path.open("ab") as file:
            file.write(titled(["a document that was not there before, and has words: " + "new " * 30]))
    elif edit == "same size":
        path.write_bytes(path.read_bytes().replace(b"water", b"wader"))
    elif edit == "last file":
        last = root / "corpus" / "deep" / "b.jsonl.zstd"
        last.write_bytes(zstandard.compress(titled([text for text in documents()[::3] if len(text) > 300])))


def dataset(
    root: Path, scenario: str, edit: str = "", endpoint: str = "", changes: dict[str, Any] | None = None
) -> DatasetConfig:
    """The configuration of a scenario, edited; `changes` replace sections, or keys of source and tokenizer."""
    source: dict[str, Any] = {"paths": [str(root / "corpus")], "shard_bytes": 20 << 10, "max_rejected_share": 0.04}
    if scenario in {"parts", "parquet", "s3 parts"}:
        source["shard_bytes"] = 6 << 10
    if scenario == "frames":
        sizes = [len(frame) for frame in frames()]
        source["shard_bytes"] = sizes[1] + sizes[2] if edit == "other cut" else sizes[1]
    if scenario.startswith("s3"):
        source |= {"paths": [f"s3://corpus/{root.name}"], "endpoint_url": endpoint}
    changes = {**SCENARIOS[scenario], **EDITS.get(edit, {}), **(changes or {})}
    if against := changes.get("dedup", {}).get("against"):
        places = [{"path": str(root / name), "shard_bytes": "18KiB"} for name in against]
        changes["dedup"] = {**changes["dedup"], "against": places}
    if "decontamination" in changes:
        benchmark = {"name": "items", "path": str(root / "items.jsonl")}
        changes["decontamination"] = {**changes["decontamination"], "benchmarks": [benchmark]}
    if scenario == "budgeted":
        changes["budget"] = {source["paths"][0]: "2.5 epochs"}
    tokenizer = {"name": "cl100k_base", "batch_bytes": "4KiB", **changes.pop("tokenizer", {})}
    source |= changes.pop("source", {})
    settings = configuration(
        root, source=source, tokenizer=tokenizer, **{"exports": EXPORTS, "shuffle": {"seed": 7, "cells": 5}, **changes}
    )
    return check_config(settings, where="test")


def make_small(*, grouped: bool = False) -> None:
    """Batches and blocks of a few KiB, so that no loop goes round once only; `grouped`: few export units of several
    files. No byte depends on them.
    """
    for module in ("shuffle.cells", "export.formats.base", "export.formats.numpy_shards"):
        importlib.import_module(f"corpusmill.{module}").BATCH_TOKENS = BATCH_TOKENS
    importlib.import_module("corpusmill.engine.plan").SMALLEST_PART_BYTES = 1
    if not grouped:
        importlib.import_module("corpusmill.export.stages.layout").UNIT_BYTES = 1
    for module, function in (("documents.jsonl", "read_documents"), ("dedup.writeback", "write_back_file")):
        getattr(importlib.import_module(f"corpusmill.{module}"), function).__kwdefaults__["block_bytes"] = BLOCK_BYTES
    s3 = importlib.import_module("corpusmill.storage.s3")
    made = s3._client

    def paged(endpoint_url: str | None) -> Any:
        client = made(endpoint_url)
        client.meta.events.register("provide-client-params.s3.ListObjectsV2", lambda params, **_: {**params, **PAGE})
        return client

    s3._client = paged


def delivered(root: Path) -> dict[str, str]:
    """sha256 of every file of the version that `latest` names."""
    folder = (root / "outputs" / "tiny" / "latest").resolve()
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def account_or_error(error: BaseException) -> str:
    """What ended a build, without its numbers: an account by stage and name, an error's code, or another error."""
    if not isinstance(error, CorpusmillError):
        return re.sub(r"\d[\d,]*", "n", f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")[:120]
    if error.code != "step.unbalanced":
        return f"error[{error.code}]"
    names = [str(name) for name, value in error.details if " = " in str(value)]
    return f"account: {error.what.split()[0]}, {'; '.join(dict.fromkeys(names))}"


@contextmanager
def own_s3(folder: Path, setenv: Callable[[str, str], None] = os.environ.__setitem__) -> Iterator[str]:
    """The address of an S3 server with an empty bucket `corpus`, its credentials in the environment."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in keys.items():
        setenv(name, value)
    with rclone_s3(folder) as server:
        session = boto3.Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1")
        session.client("s3", endpoint_url=server.endpoint).create_bucket(Bucket="corpus")
        yield server.endpoint


def warm_up(root: Path) -> None:
    """Build and verify once in this process, so that children find kernels and tokenizer loaded."""
    root.mkdir()
    write_sources(root, "plain")
    verify_build(open_build(build_dataset(dataset(root, "plain"), workers=1)))
