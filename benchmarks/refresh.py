"""What a first build and a refresh read and write per byte of text, by the receipts of the steps that ran.

The corpus is that of deploy/sample_corpus.py in 8 shards, the configuration that of disk.py (everything enabled).
Then a file with SHARE of the text is added, which extends the last shard: documents of the first file, reworded. The
dataset is built again. One process. What `upload` copies to the destination counts as read only: there equal files are
links, and copies may share blocks.

    .venv/bin/python -m benchmarks.refresh
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zstandard

from benchmarks.disk import configured
from benchmarks.results import write_result
from corpusmill.builds.graph import open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig
from deploy.sample_corpus import write_sample_corpus

SHARE = 0.007  # of the text, appended
MOST_WRITTEN_SHARE = 0.6  # of what the first build writes


def append(corpus: Path) -> None:
    """Write a last file of SHARE of the text: the first documents of the first file, reworded."""
    files = sorted(corpus.glob("*.jsonl.zst"))
    with zstandard.open(files[0], "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    wanted = SHARE * sum(len(document["text"].encode()) for document in documents) * len(files)
    with zstandard.open(files[-1].with_name("zz_appended.jsonl.zst"), "wt", encoding="utf-8") as out:
        for number, document in enumerate(documents):
            if wanted < 0:
                return
            document["text"] = _reworded(document["text"], number)
            wanted -= len(document["text"].encode())
            out.write(json.dumps(document) + "\n")


def _reworded(text: str, number: int) -> str:
    """A text with a number before every line, so that few of its stretches are repeats."""
    return "".join(f"{number}.{place} {line}" for place, line in enumerate(io.StringIO(text)))


def measure(config: DatasetConfig, before: set[str]) -> tuple[dict[str, Any], set[str]]:
    """(build once; figures of the steps that ran), (the folders of all its steps)."""
    began = time.perf_counter()
    build = open_build(build_dataset(config, workers=1))
    seconds = time.perf_counter() - began
    steps = ((stage.name, unit) for stage in build.graph for unit in build.units(stage.name))
    places = {build.place(stage, unit): (stage, unit) for stage, unit in steps if build.find(stage, unit)}
    by_stage: dict[str, list[int]] = {}
    for place, (stage, unit) in places.items():
        if place in before and build.graph[stage].reuse:
            continue
        receipt = build.receipt(stage, unit)
        moved = by_stage.setdefault(stage, [0, 0])
        moved[0] += receipt.counts.get("bytes_read", 0)
        # Outputs of equal content are names of one file.
        moved[1] += sum({output.digest: output.size_bytes for output in receipt.outputs}.values())
    text_bytes = build.total("index", "text_bytes_out")
    read, written = (sum(moved[place] for moved in by_stage.values()) for place in (0, 1))
    figures = {
        "text_bytes": text_bytes,
        "seconds": round(seconds, 1),
        "read_per_text_byte": round(read / text_bytes, 1),
        "written_per_text_byte": round(written / text_bytes, 1),
        "by_stage": {stage: [round(count / text_bytes, 2) for count in moved] for stage, moved in by_stage.items()},
    }
    return figures, set(places)


def main() -> int:
    """Build, append, build; 1 if the refresh writes more than it should."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_sample_corpus(root / "corpus")
        config = configured(root, "keep")
        first, places = measure(config, set())
        append(root / "corpus")
        again, _ = measure(config, places)
    claim = f"a refresh with {SHARE:.1%} more text writes at most {MOST_WRITTEN_SHARE:.0%} of the first build's bytes"
    print(write_result("refresh", claim, {"first_build": first, "refresh": again}).read_text())
    return 0 if again["written_per_text_byte"] <= MOST_WRITTEN_SHARE * first["written_per_text_byte"] else 1


if __name__ == "__main__":
    sys.exit(main())
