"""Text that makes tokenizers slow, large or wrong, through a whole build: right ids, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import check_config
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.inspect.lineage import verify_records
from tests.oracles.cl100k import cl100k
from tests.system.corpus import configuration, lines_of, make_documents

MOST_RSS_BYTES = 3 << 29  # 1.5 GiB a worker
TEXTS = {
    "one letter": "a" * 300_000,
    "spaces": " " * 1_000_000,
    "NUL": "\0" * 50_000 + "a\0b",
    "all planes": "".join(chr(plane << 16 | low) for plane in range(17) for low in range(0, 0xD800, 997)),
    "special": "<|endoftext|>" * 1000,
    "empty": "",
}


def documents_of(exported: Path) -> list[np.ndarray]:
    """The ids of the documents of .ds files, without their EOT."""
    rows = []
    for path in sorted(exported.glob("*.ds")):
        tokens, ends = np.fromfile(path, "<u4"), np.fromfile(f"{path}.index", "<u8")
        rows += [row[:-1] for row in np.split(tokens, ends[:-1].astype(np.int64))]
    return rows


def test_build_hard_texts_have_tiktokens_ids_and_lone_surrogates_are_rejected(tmp_path) -> None:
    (tmp_path / "corpus").mkdir()
    lines = lines_of(list(TEXTS.values())) + b'{"text": "lone \\ud800"}\n{"text": "pair \\ud83d\\ude80"}\n'
    (tmp_path / "corpus" / "a.jsonl").write_bytes(lines)
    source = {"paths": [str(tmp_path / "corpus")], "max_rejected_share": 0.2}
    values = configuration(tmp_path, dedup={"mode": "none"}, source=source, exports={"nanoset": {}})
    built = open_build(build_dataset(check_config(values, where="test"), workers=1))
    encoding = cl100k()
    expected = [encoding.encode_ordinary(text) for text in [*TEXTS.values(), "pair 🚀"] if text]
    actual = [ids.tolist() for ids in documents_of(tmp_path / "outputs/tiny/latest/nanoset")]
    assert sorted(actual) == sorted(expected)
    assert built.receipt("index", "00000").counts["rejected_lone_surrogate"] == 1
    assert built.receipt("audit", "00000").counts["documents"] == len(TEXTS) + 1
    assert verify_records(built, sample=10**6, seed=0).records == {"nanoset": len(expected)}


@pytest.mark.slow
def test_build_documents_of_100_mb_and_10_mb_of_one_letter_stay_under_1_5_gib(tmp_path) -> None:
    """A build of its own process; every receipt states the largest memory its worker had until then."""
    (tmp_path / "corpus").mkdir()
    words = " ".join(make_documents(400, seed=1))
    long = (words * (100_000_000 // len(words) + 1))[:78_000_000]  # some letters have 2 or 3 bytes
    assert 100_000_000 < len(long.encode()) < 110_000_000
    (tmp_path / "corpus" / "a.jsonl").write_bytes(lines_of([long, "a" * 10_000_000, "short"]))
    values = configuration(
        tmp_path,
        dedup={"mode": "none"},
        source={"paths": [str(tmp_path / "corpus")], "shard_bytes": "1GB"},
        exports={"nanoset": {}},
    )
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "corpusmill.cli", "build", str(tmp_path / "tiny.yaml"), "--workers", "1"]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    receipts = [json.loads(path.read_bytes()) for path in (tmp_path / "work/tiny").glob(f"*/*/{RECEIPT_NAME}")]
    peaks = {receipt["stage"]: receipt["peak_rss_bytes"] for receipt in receipts}
    assert max(peaks[stage] for stage in ("index", "tokenize", "audit")) < MOST_RSS_BYTES, peaks
    encoding = cl100k()
    parts = documents_of(tmp_path / "outputs/tiny/latest/nanoset")
    ids = max(parts, key=len)
    pieces = (encoding.decode_bytes(piece.tolist()) for piece in np.array_split(ids, 100))
    assert b"".join(pieces) == long.encode()
