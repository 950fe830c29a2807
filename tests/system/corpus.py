"""A small corpus with all that real ones have: repeats, compressions, languages, empty documents and files."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import zstandard

from corpusmill.engine.build import Build

WORDS = [
    "the",
    "of",
    "and",
    "water",
    "stone",
    "naïve",
    "über",
    "中文",
    "字",
    "日本",
    "слово",
    "λόγος",
    "foo()",
    "\\n",
    '"',
    "</a>",
]


def make_documents(count: int, seed: int = 0) -> list[str]:
    """Texts of 0 to about 4,000 characters; a third of them repeat a passage of about 300 to 900 bytes."""
    rng = random.Random(seed)

    def passage(words: int) -> str:
        return " ".join(rng.choices(WORDS, k=words)) + rng.choice([".\n", "\n\n", " "])

    shared = [passage(rng.randrange(60, 180)) for _ in range(6)]
    texts = []
    for _ in range(count):
        pieces = [passage(rng.randrange(1, 120)) for _ in range(rng.randrange(0, 6))]
        if pieces and rng.random() < 0.35:
            pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(shared))
        texts.append("".join(pieces))
    return texts


def lines_of(texts: list[str], first: int = 0) -> bytes:
    rows = [
        json.dumps({"id": f"doc-{first + i}", "text": text, "score": 1.50}, ensure_ascii=i % 2 == 0)
        for i, text in enumerate(texts)
    ]
    return "".join(row + "\n" for row in rows).encode()


def write_corpus(folder: Path, documents: int = 120, seed: int = 0) -> list[str]:
    """Five files below `folder`: plain, gzip of two members, zstd of two frames, an empty one, one below a subfolder.

    Returns all texts in dataset order (natural order of the file names).
    """
    texts = make_documents(documents, seed)
    quarter = documents // 4
    parts = [texts[:quarter], texts[quarter : 2 * quarter], texts[2 * quarter : 3 * quarter], texts[3 * quarter :]]
    half = quarter // 2
    (folder / "deep").mkdir(parents=True)
    (folder / "a1.jsonl").write_bytes(lines_of(parts[0]))
    (folder / "a2.jsonl.gz").write_bytes(
        gzip.compress(lines_of(parts[1][:half]), mtime=0) + gzip.compress(lines_of(parts[1][half:]), mtime=0)
    )
    (folder / "a3.jsonl").write_bytes(b"")
    frames = [zstandard.compress(lines_of(part)) for part in (parts[2][:half], parts[2][half:])]
    (folder / "a10.jsonl.zst").write_bytes(b"".join(frames))
    (folder / "deep" / "b.jsonl.zstd").write_bytes(zstandard.compress(lines_of(parts[3])))
    return texts


def configuration(root: Path, **changes: object) -> dict[str, object]:
    """A configuration over `root/corpus` with all four exports and small shards; `changes` replace whole sections."""
    return {
        "name": "tiny",
        "source": {"paths": [str(root / "corpus")], "shard_bytes": "8KiB"},
        "dedup": {"mode": "remove", "minimum_bytes": 100},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 7},
        "exports": {
            "webdataset": {"context_tokens": 129, "contexts_per_shard": 50},
            "numpy": {"tokens_per_shard": 5000},
            "megatron": {"part_bytes": "40KiB"},
            "nanoset": {"file_bytes": "40KiB"},
        },
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
        **changes,
    }


def reused(build: Build, stage: str, unit: str) -> bool:
    """Whether a step's receipt was there before the newest run of the build's plan began, by the files' times."""
    receipt, started = build.step_folder(stage, unit) / "receipt.json", build.plan_folder / ".started"
    return receipt.stat().st_mtime < started.stat().st_mtime
