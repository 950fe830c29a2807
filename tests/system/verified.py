"""A small build for the tests of verify, its folders, and damage that is taken back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.engine.stage import PLAN
from corpusmill.inspect.verify import Finding, verify_build
from corpusmill.storage import Store
from corpusmill.storage.s3 import S3Store
from tests.system.corpus import configuration, write_corpus

NOT_BUILT = {
    *("decisions", "join", "copies", "filter", "decided", "benchmarks", "decontaminate", "budget"),
    *("refine", "lost", "quarantine"),
    *("reference", "reference_index", "reference_context", "reference_border", "reference_sign", "reference_sets"),
}
NEAR = {"action": "remove"}
ALL_STAGES = tuple(stage for stage in (PLAN, *GRAPH.names) if stage not in NOT_BUILT)


def build(root: Path, **changes: object) -> Build:
    return open_build(build_dataset(check_config(configuration(root, **changes), where="test"), workers=1))


def findings(built: Build) -> tuple[Finding, ...]:
    return verify_build(built).findings


def folder(built: Build, stage: str, place: int = -1) -> Path:
    return built.plan_folder if stage == PLAN else built.folder(stage, built.units(stage)[place])


def outputs(folder: Path) -> list[Path]:
    names = (load["name"] for load in json.loads((folder / "receipt.json").read_text())["outputs"])
    return [folder / name for name in names]


@contextlib.contextmanager
def replaced(path: Path, content: bytes | None) -> Iterator[None]:
    """Another content, or none, for as long as the block runs."""
    before = path.read_bytes() if path.exists() else None
    try:
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        yield
    finally:
        if before is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(before)


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


def write_sources(root: Path) -> None:
    """Below root/corpus, with rejected lines and near-duplicates among them."""
    write_corpus(root / "corpus", documents=32)
    (root / "corpus" / "c.jsonl").write_bytes(b'{"text": "one two three"}\n{broken\n["no object"]\n')
    words = " ".join(f"word{number}" for number in range(40))
    lines = [json.dumps({"text": f"{words} {last}"}) for last in ("first", "second")]
    (root / "corpus" / "d.jsonl").write_text("\n".join(lines) + "\n")


def build_tiny(root: Path, **changes: object) -> Build:
    """Every export, in several small files, of the sources that `write_sources` wrote."""
    exports = {
        "webdataset": {"context_tokens": 129, "contexts_per_shard": 20},
        "numpy": {"tokens_per_shard": 3000},
        "megatron": {"part_bytes": "20KiB"},
        "nanoset": {"file_bytes": "20KiB"},
    }
    source = {"paths": [str(root / "corpus")], "shard_bytes": "8KiB", "max_rejected_share": 0.1}
    return build(root, **{"source": source, "exports": exports, "near_duplicates": NEAR, **changes})


def damage(store: Store, name: str, content: bytes) -> None:
    """Other bytes under the name, with the sha256 of the right ones noted beside them."""
    printed = store.digest(name)
    if isinstance(store, S3Store):
        store.client.put_object(Bucket=store.bucket, Key=store.key(name), Body=content, Metadata={"sha256": printed})
    else:
        store._upload(name, content, printed)
    assert store.digest(name) == printed
