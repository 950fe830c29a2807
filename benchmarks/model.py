"""Claim: what `corpusmill estimate` states of a build with everything on is within 25 % of what the build takes.

Text of 0.5 and of 4 GB (benchmarks/numbered.py makes it), repeats removed, random order, four formats, 32 MB a shard,
`reclaim: eager`. Stated before, from a sample of the default size: seconds on all cores of this machine, peak disk,
memory of the largest step, and tokens. The build is `corpusmill build` in programs of its own. Beside them, without a
limit, 4 GB of text of which a quarter is removed (benchmarks/dedup_memory.py): a sample does not see repeats of what is
outside it, so where they are removed, disk and tokens are stated too high. Run it alone; it takes some ten minutes and
30 GB of disk.

    env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m benchmarks.model
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.dedup_memory import write_corpus
from benchmarks.disk import configured, sampled_disk
from benchmarks.numbered import write_numbered
from benchmarks.results import write_result
from corpusmill.builds.estimate import estimate_dataset
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import worker_count
from corpusmill.builds.room import moments
from deploy.sample_corpus import write_sample_corpus

CLOSE = 0.25


def measure(root: Path) -> dict[str, Any]:
    """Of the build of `root / "corpus"`: each figure as stated by what it is, and the seconds."""
    config = configured(root, "eager", shard_bytes="32MB")
    stated = estimate_dataset(config)
    path = root / "model.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_none=True)))
    began = time.perf_counter()
    with sampled_disk(root / "work", root / "outputs") as seen:
        subprocess.run([sys.executable, "-m", "corpusmill.cli", "build", str(path)], check=True, stdout=2)
    seconds = time.perf_counter() - began
    plan = max((root / "work" / "disk" / "plan").glob("*/receipt.json"), key=lambda file: file.stat().st_mtime)
    build = open_build(plan)
    peaks = [build.receipt(stage, unit).peak_rss_bytes for stage in GRAPH.names for unit in build.units(stage)]
    figures = {
        "text_bytes": build.total("index", "text_bytes_out"),
        "seconds": round(seconds, 1),
        "stated_by_measured": {
            "seconds": round(stated.hours * 3600 * stated.cores / worker_count(None) / seconds, 3),
            "peak_disk": round(max(map(sum, moments(stated.held)["eager"])) / max(seen), 3),
            "memory_of_a_step": round(stated.peak_rss_bytes / max(peaks), 3),
            "text": round(stated.text_bytes / build.total("index", "text_bytes_out"), 3),
            "tokens": round(stated.tokens / build.total("tokenize", "tokens"), 3),
        },
        "tokens": build.total("tokenize", "tokens"),
    }
    shutil.rmtree(root)
    return figures


def main() -> int:
    """Measure and write the result; 1 if a figure is further off than claimed."""
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        for megabytes in (500, 4000):
            (root := Path(scratch, str(megabytes))).mkdir()
            write_numbered(root / "corpus", megabytes, megabytes // 32, compressed=True)
            figures[f"{megabytes / 1000:g} GB"] = measure(root)
        write_sample_corpus(Path(scratch, "sample"))
        write_corpus(Path(scratch, "sample"), Path(scratch, "repeating", "corpus"), 4)
        repeating = measure(Path(scratch, "repeating"))
    claim = f"estimate states seconds, disk and memory of builds of 0.5 and 4 GB with everything on within {CLOSE:.0%}"
    print(write_result("model", claim, figures | {"4 GB that repeat themselves": repeating}).read_text())
    ratios = [ratio for figure in figures.values() for ratio in figure["stated_by_measured"].values()]
    return any(abs(ratio - 1) > CLOSE for ratio in ratios)


if __name__ == "__main__":
    raise SystemExit(main())
