"""Claim: every command is linear in files: twice as many tiny files take at most 2.3 times the CPU above its start.

Every file is one document of 240 bytes, one in ten of them a copy. Each command runs with FILES and with twice as many,
CPU seconds of the command and all processes that it waited for; what `corpusmill --version` takes is its start, and a
command that takes less than a second above it shows no ratio. `many shards`: the same with a shard for each of a
hundredth of the files, so that steps and receipts are many.

    python -m benchmarks.many_files [--files 10000] [--only dedup build ...]     # `only` keeps the other rows
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.results import HERE, write_result

FILES, MOST, LEAST_SECONDS = 10_000, 2.3, 1.0
SHARDS_IN_FILES = 10  # of `many shards`: a shard for each so many files


def write_corpus(folder: Path, files: int) -> None:
    """A document in each file; a folder for each thousand."""
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlucmfw", k=draw.randint(2, 9))) for _ in range(5_000)]
    copied = [" ".join(draw.choices(words, k=40)) for _ in range(50)]
    for number in range(files):
        text = draw.choice(copied) if draw.random() < 0.1 else " ".join(draw.choices(words, k=40))
        path = folder / f"{number // 1000:03d}" / f"{number:06d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": str(number), "text": text}) + "\n")


def configuration(root: Path, name: str, **source: object) -> str:
    path = root / f"{name}.yaml"
    values = {
        "name": name,
        "source": {"paths": [str(root / "corpus")], **source},
        "dedup": {"mode": "remove", "minimum_bytes": 100},
        "tokenizer": {"name": "cl100k_base"},
        "shuffle": {"seed": 7},
        "exports": {"webdataset": {}, "numpy": {}, "megatron": {}, "nanoset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }
    path.write_text(yaml.safe_dump(values))
    return str(path)


def commands(root: Path) -> dict[str, list[str]]:
    """By what the result calls it, each command; a later one may read what an earlier one wrote."""
    corpus, few = str(root / "corpus"), configuration(root, "few")
    many = configuration(root, "many", shard_bytes=240 * SHARDS_IN_FILES)
    (root / "items.jsonl").write_text(
        '{"question": "a question that no document of this corpus has in it, at least once"}\n'
    )
    built = {
        f"{command}{of}": [command, *options, path]
        for of, path in (("", few), (", many shards", many))
        for command, *options in (
            ["estimate"],
            ["plan"],
            ["download"],
            ["build", "--workers", "1"],
            ["verify"],
            ["upload"],
            ["gc"],
        )
    }
    least, hits = ["--minimum-bytes", "100"], ["--hits", f"{root}/hits.jsonl"]
    single = {
        "dedup": ["dedup", corpus, "--output", f"{root}/clean", "--work-folder", f"{root}/work-dedup", *least],
        "infini-gram": ["infini-gram", corpus, "--output", f"{root}/ngrams", "--work-folder", f"{root}/work-ngrams"],
        "tokenize": ["tokenize", corpus, "--tokenizer", "cl100k_base", "--output", f"{root}/tokens"],
        "megatron": ["megatron", corpus, "--tokenizer", "cl100k_base", "--output", f"{root}/megatron/x"],
        "nanoset": ["nanoset", corpus, "--tokenizer", "cl100k_base", "--output", f"{root}/nanoset"],
        "decontaminate": ["decontaminate", corpus, "--benchmark", f"own={root}/items.jsonl", *hits],
        "shuffle-text": [
            "shuffle-text",
            corpus,
            "--output",
            f"{root}/shuffled.jsonl",
            "--work-folder",
            f"{root}/lines",
        ],
        "shuffle": ["shuffle", f"{root}/tokens", "--output", f"{root}/reshuffled", "--work-folder", f"{root}/again"],
    }
    return {**built, **single}


def cpu_seconds(command: list[str]) -> float:
    """Of a command and all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "corpusmill.cli", *command], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"corpusmill {' '.join(command)}: {done.stderr.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure and write the result; 1 if a command is not linear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    cpu_seconds(["--version"])
    start = cpu_seconds(["--version"])
    figures: dict[str, dict[str, Any]] = {}
    for files in (asked.files, 2 * asked.files):
        with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
            write_corpus(Path(scratch, "corpus"), files)
            for name, command in commands(Path(scratch)).items():
                if not asked.only or name in asked.only:
                    seconds = round(cpu_seconds(command), 2)
                    figures.setdefault(name, {})[f"cpu_seconds_of_{files}_files"] = seconds
                    print(files, name, seconds, flush=True)
    for name, (once, twice) in ((name, figure.values()) for name, figure in figures.items()):
        if once - start > LEAST_SECONDS:
            figures[name]["ratio"] = round((twice - start) / (once - start), 2)
    path = HERE / "results" / "many_files.json"
    earlier = json.loads(path.read_text())["figures"] if asked.only and path.exists() else {}
    if earlier.get("files") == asked.files:
        figures = earlier["commands"] | figures
    result = {"files": asked.files, "start_cpu_seconds": round(start, 2), "commands": figures}
    print(json.dumps(result, indent=1))
    print(write_result("many_files", (__doc__ or "").split("\n\n", maxsplit=1)[0], result))
    return any(figure.get("ratio", 0) > MOST for figure in figures.values())


if __name__ == "__main__":
    raise SystemExit(main())
