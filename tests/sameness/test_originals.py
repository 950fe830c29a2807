"""What tokshuf-rust, bsade and Jaxformer's script made of 2.9 MB of text: a build of the same files must give it too.

Their outputs lie in ../shared/data/originals, whose README.md says how each program was run.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.export.companions import read_manifest
from corpusmill.export.webdataset import read_shard
from tests.tokens.vocabularies import FOLDER

ORIGINALS = FOLDER.parent / "originals"
NAMES = ("a.jsonl.zst", "b.jsonl.zst", "c.jsonl.zst", "d.jsonl.zst")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not ORIGINALS.is_dir(),
        reason=f"what the original programs wrote is not here: {ORIGINALS} (set CORPUSMILL_TEST_DATA)",
    ),
]


def built(root: Path, **changes: object) -> Path:
    """The folder of a dataset built of their input."""
    settings = {
        "name": "same",
        "source": {"paths": [str(ORIGINALS / "in")]},
        "dedup": {"mode": "none"},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"order": "source"},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }
    build_dataset(check_config({**settings, **changes}, where="the originals' test"), workers=1)
    return root / "outputs/same/latest"


def decompressed(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()


def documents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for name in NAMES for line in decompressed(folder / name).splitlines()]


@pytest.mark.parametrize("mode", ["remove", "annotate"])
def test_dedup_of_bsades_corpus_gives_bsades_documents(tmp_path, mode: str) -> None:
    dedup = {"mode": mode, "minimum_bytes": 200, "annotate_key": "metadata.sa_remove_ranges"}
    ours = documents(built(tmp_path, dedup=dedup, exports={"nanoset": {}}) / "documents")
    theirs = documents(ORIGINALS / "bsade" / mode)
    assert len(ours) == 478
    assert ours == theirs
    assert ours != documents(ORIGINALS / "in")


def test_webdataset_of_tokshufs_corpus_holds_tokshufs_contexts(tmp_path) -> None:
    """As a multiset: the order is each program's own. Ids of this vocabulary have holes, and its padding is 50256."""
    folder = built(
        tmp_path,
        tokenizer={
            "name": "neox",
            "file": str(ORIGINALS / "tokshuf/neox.tiktoken"),
            "pattern": "r50k_base",
            "engine": "tiktoken",
            "special_ids": "tokshuf",
        },
        shuffle={"seed": 1},
        exports={"webdataset": {"context_tokens": 2049}},
        packing={"stream": "file", "tail": "always_pad"},
    )
    ours = [
        context.tolist()
        for shard, _ in read_manifest(folder / "webdataset" / "manifest.jsonl")
        for _, context in read_shard(folder / f"webdataset/{shard}.tar")
    ]
    theirs = np.load(io.BytesIO(decompressed(ORIGINALS / "tokshuf/contexts_sorted.npy.zst")), allow_pickle=False)
    assert len(ours) == 464
    assert sorted(ours) == theirs.tolist()


def test_numpy_of_jaxformers_corpus_is_jaxformers_files_and_checkpoints(tmp_path) -> None:
    exports = {
        "tokens_per_shard": 50_000,
        "test_shards": 3,
        "test_name": "val",
        "train_name": "test",
        "checkpoints": True,
    }
    folder = built(tmp_path, exports={"numpy": exports}, packing={"eot": "before"}) / "numpy"
    theirs = [line.split("  ") for line in (ORIGINALS / "jaxformer/SHA256SUMS").read_text().splitlines()]
    assert len(theirs) == 17
    assert {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for _, name in theirs} == {
        name: sha256 for sha256, name in theirs
    }
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.npy")} == {name for _, name in theirs}
    ids = [document["id"] for document in documents(ORIGINALS / "in")]
    ours = []
    for line in (folder / "checkpoints/checkpoints.jsonl").read_text().splitlines():
        checkpoint = json.loads(line)
        shard, ordinal = map(int, checkpoint["document"].split("-"))
        assert shard == 0  # the corpus is one shard
        ours.append(f"{checkpoint['shard']}:{checkpoint['documents']} {ids[ordinal]}")
    assert ours == (ORIGINALS / "jaxformer/checkpoints.txt").read_text().splitlines()
