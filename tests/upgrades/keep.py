"""Keep what this version builds, so that every later one is tested with it: `python -m tests.upgrades.keep`.

Writes `kept/<version>.tar.xz` below this folder: sources, a vocabulary, a configuration, the work folder and the
destination of a small dataset that was built twice, the second time after a source file had changed and another had
come. A release needs its own (`deploy/release_notes.py` asks for it). Run it in the repository's root; only the
standard library and the command `build` are used, so it keeps what an older checkout builds, too:

    PYTHONPATH=<older checkout> python -P tests/upgrades/keep.py <version>-<commit>
"""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

KEPT = Path(__file__).with_name("kept")
NAME = "small"
DAY = 1_700_000_000  # the sources' time of change, whole seconds: what an archive keeps
FIRST_ID = 256
SPECIAL = {"<|endoftext|>": FIRST_ID, "<|pad|>": FIRST_ID + 1}
CONFIG = {
    "name": NAME,
    "source": {"paths": ["sources"], "shard_bytes": 4096, "max_rejected_share": 0.2},
    "tokenizer": {
        "name": "bytes",
        "file": "bytes.tiktoken",
        "pattern": "cl100k_base",
        "special_tokens": SPECIAL,
        "eot": "<|endoftext|>",
        "pad": "<|pad|>",
    },
    "audit": {"bytes_per_token_band": 1},
    "dedup": {"mode": "remove", "minimum_bytes": 40},
    "shuffle": {"seed": 7},
    "exports": {
        "webdataset": {"context_tokens": 64, "contexts_per_shard": 32},
        "numpy": {"tokens_per_shard": 2000},
        "megatron": {},
        "nanoset": {},
    },
    "destinations": [{"path": "outputs"}],
    "work_folder": "work",
}


def document(rng: random.Random, shared: list[str]) -> str:
    """A few lines, of which a third repeats what other documents have."""
    words = ("water", "stone", "Zürich", "forty-two", "河川", "the", "and", "of", "a", "letter", "harbour")
    lines = [" ".join(rng.choices(words, k=rng.randrange(3, 12))) for _ in range(rng.randrange(1, 6))]
    return "\n".join(rng.choice(shared) if rng.random() < 0.3 else line for line in lines)


def write_source(path: Path, seed: int, documents: int = 20) -> None:
    """A file of JSON lines, one of them malformed."""
    rng, shared = (
        random.Random(seed),
        [f"{number} sheep jumped over {number * 7} fences, one by one" for number in range(9)],
    )
    lines = [json.dumps({"id": place, "text": document(rng, shared)}) for place in range(documents)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*lines[:3], "{", *lines[3:]]) + "\n")
    os.utime(path, (DAY + seed, DAY + seed))


def write_dataset(root: Path) -> None:
    """The sources, the vocabulary (a token per byte) and the configuration."""
    for seed in range(4):
        write_source(root / "sources" / f"{seed}.jsonl", seed)
    ranks = (base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
    (root / "bytes.tiktoken").write_bytes(b"".join(ranks))
    (root / f"{NAME}.yaml").write_text(json.dumps(CONFIG, indent=1) + "\n")  # JSON is YAML


def refresh(root: Path) -> None:
    """What happened between the two builds."""
    write_source(root / "sources" / "1.jsonl", 11)
    write_source(root / "sources" / "4.jsonl", 4)


def build(root: Path) -> None:
    """By a program of its own, which may be of another version."""
    command = [sys.executable, "-P", "-m", "corpusmill.cli", "build", f"{NAME}.yaml", "--workers", "1"]
    subprocess.run(command, cwd=root, check=True, env=os.environ | {"CORPUSMILL_ROOT": str(root)})


def main(name: str) -> None:
    """Build twice and pack."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_dataset(root)
        build(root)
        refresh(root)
        build(root)
        KEPT.mkdir(exist_ok=True)
        with tarfile.open(KEPT / f"{name}.tar.xz", "w:xz", format=tarfile.PAX_FORMAT) as archive:
            archive.add(root, ".", filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        from corpusmill.version import __version__

        main(__version__)
