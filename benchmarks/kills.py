"""Claim: after kill -9 at any moment, a second run ends with the bytes of an undisturbed one.

Builds a corpus of about 30 MB once without disturbance. Then, for every kill: start from an empty work folder, wait
until a number of steps drawn uniformly from all of them has ended and for a random part of a step more, kill (every
second time only one worker, else the whole process group), run again until it ends by itself, and compare every output
file. A kill that came too late for its build does not count. `python -m benchmarks.kills --kills 200`
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import yaml

from benchmarks.results import write_result
from corpusmill.engine.ledger.receipt import RECEIPT_NAME
from corpusmill.fingerprint import file_digest
from deploy.sample_corpus import write_sample_corpus


def configuration(root: Path, name: str) -> Path:
    path = root / f"{name}.yaml"
    settings = {
        "name": "kills",
        "source": {"paths": [str(root / "corpus")], "shard_bytes": "1MiB"},
        "dedup": {"mode": "remove", "minimum_bytes": 200},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 1},
        "exports": {
            "webdataset": {"contexts_per_shard": 512},
            "numpy": {"tokens_per_shard": 1_000_000},
            "megatron": {"part_bytes": "8MiB"},
            "nanoset": {"file_bytes": "8MiB"},
        },
        "destinations": [{"path": str(root / name / "outputs")}],
        "work_folder": str(root / name / "work"),
    }
    path.write_text(yaml.safe_dump(settings))
    return path


def start(config: Path) -> subprocess.Popen[bytes]:
    """What it says goes to a file beside its configuration."""
    command = [sys.executable, "-m", "corpusmill.cli", "build", str(config), "--workers", "2"]
    with config.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=subprocess.STDOUT)


def finish(config: Path, what: str) -> None:
    """Run to the end; SystemExit with what it said if it does not end well by itself."""
    if start(config).wait():
        sys.exit(f"{what} failed:\n{config.with_suffix('.log').read_text()}")


def digests(root: Path, name: str) -> dict[str, str]:
    folder = root / name / "outputs" / "kills"
    return {
        path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }


def steps_done(root: Path, name: str) -> int:
    return sum(1 for _ in (root / name / "work").glob(f"*/*/*/{RECEIPT_NAME}"))


def latest_stage(root: Path, name: str) -> str:
    receipts = (root / name / "work").glob(f"*/*/*/{RECEIPT_NAME}")
    latest = max(receipts, key=lambda path: path.stat().st_mtime_ns, default=None)
    return latest.parts[-3] if latest else "none"


def killed(process: subprocess.Popen[bytes], kind: str) -> bool:
    """Kill one worker or everything; False if there was nothing left to kill."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        if kind == "whole process group":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(int(random.choice(children.read_text().split())), signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError, IndexError):
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    root = Path(tempfile.mkdtemp(prefix="kills-"))
    write_sample_corpus(root / "corpus", target_bytes=30_000_000, files=6)
    began = time.monotonic()
    finish(configuration(root, "whole"), "the undisturbed run")
    seconds = time.monotonic() - began
    expected = digests(root, "whole")
    steps = steps_done(root, "whole")
    same, late, hits, stages = 0, 0, dict.fromkeys(("one worker", "whole process group"), 0), Counter[str]()
    while (landed := sum(hits.values())) < arguments.kills:
        shutil.rmtree(root / "killed", ignore_errors=True)
        config = configuration(root, "killed")
        kind = list(hits)[landed % 2]
        target = random.randrange(steps)
        process = start(config)
        while process.poll() is None and steps_done(root, "killed") < target:
            time.sleep(0.005)
        time.sleep(random.uniform(0, 2 * seconds / steps))
        if process.poll() is None and killed(process, kind):
            hits[kind] += 1
            stages[latest_stage(root, "killed")] += 1
        else:
            late += 1
        process.wait()
        finish(config, f"the run after kill {landed + 1} ({kind})")
        same += digests(root, "killed") == expected
        print(f"{sum(hits.values())} kills, {late} too late, {same} identical", flush=True)
    shutil.rmtree(root)
    figures = {
        "kills": arguments.kills,
        "too_late": late,
        "identical": same,
        "hits": hits,
        "last_step_before": dict(sorted(stages.items())),
        "steps": steps,
        "undisturbed_seconds": round(seconds, 1),
    }
    assert same == arguments.kills + late
    print(write_result("kills", "200 kills at random moments, 200 identical results", figures))


if __name__ == "__main__":
    main()
