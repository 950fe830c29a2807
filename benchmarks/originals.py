"""Claims: a tenth of tokshuf's CPU for its job, a thirtieth of bsade's for its own, and 209 MB of jsonl to Megatron's
files in 2.4 s of wall time on 2 cores, imports included.

Whole commands, processes and imports counted (cgroup v1 cpuacct), 2 workers, compiled modules, the best of several
runs. The originals are not run here: they were measured by hand beside Corpusmill in November 2026 (README, "The same
as the originals"). Their seconds are scaled by the rate of what they spend them on, in this run, to the rate of the
result file nearest to that day: tiktoken as tokshuf calls it, infini-gram's make-part, and the loop of
preprocess_data.py (here without its builder). Llama 3's vocabulary cannot be had by everyone: cl100k_base stands in.

    python benchmarks/originals.py CORPUS_FOLDER SCRATCH_FOLDER --gpt2 tokenizer.json --peer FOLDER_OF_INFINI_GRAM
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from dedup_memory import within, write_corpus
from dedup_speed import PEER_BYTES, make_part, text_shards
from in_order import EOS_TEXT
from results import write_result
from tokenizing import as_tokshuf
from tokshuf_job import as_tokshuf as configuration_as_tokshuf

GIGABYTES, JSONL_BYTES, RUNS = 0.27, 209_000_000, 3
TOKSHUF = {"text_bytes": 279_000_000, "cpu_seconds": 79.0, "tiktoken_mb_per_cpu_second": 7.78}
BSADE = {"text_bytes": 279_000_000, "cpu_seconds": 138.0, "make_part_mb_per_cpu_second": 5.98}
MEGATRON = {"wall_seconds_wanted": 2.4, "preprocess_data_mb_per_cpu_second": 1.3}
WANTED = {"tokshuf": 1 / 10, "bsade": 1 / 30}


def best(command: list[str], written: list[Path]) -> dict[str, float]:
    """Wall and CPU seconds of the run that took least CPU; `written` goes before each."""
    runs = []
    for _ in range(RUNS):
        for path in written:
            shutil.rmtree(path, ignore_errors=True)
        runs.append(within(0, [sys.executable, "-m", "corpusmill.cli", *command]))
    return {
        "wall_seconds": min(run["seconds"] for run in runs),
        "cpu_seconds": min(run["cpu_seconds"] for run in runs),
    }


def beside(ours: dict[str, float], text_bytes: int, then: dict[str, float], rate: str, now: float) -> dict[str, Any]:
    """Our CPU as a share of an original's: as it was measured for as much text, and scaled to this run's rate."""
    measured = then["cpu_seconds"] * text_bytes / then["text_bytes"]
    scaled = measured * then[rate] / now
    return {
        **ours,
        "text_bytes": text_bytes,
        f"{rate}_now": round(now, 2),
        f"{rate}_then": then[rate],
        "original_cpu_seconds_scaled": round(scaled, 1),
        "share_of_the_original": round(ours["cpu_seconds"] / measured, 3),
        "share_of_the_original_scaled": round(ours["cpu_seconds"] / scaled, 3),
    }


def tokshuf(corpus: Path, scratch: Path, text_bytes: int) -> dict[str, Any]:
    root = scratch / "tokshuf"
    root.mkdir()
    config = root / "tokshuf.yaml"
    config.write_text(yaml.safe_dump(configuration_as_tokshuf(str(corpus), root).model_dump(exclude_defaults=True)))
    ours = best(["build", str(config), "--workers", "2"], [root / "work", root / "outputs"])
    peer = as_tokshuf([str(path) for path in sorted(corpus.iterdir())[:4]])
    rate = peer["text_bytes"] / 1e6 / peer["cpu_seconds"]
    return beside(ours, text_bytes, TOKSHUF, "tiktoken_mb_per_cpu_second", rate)


def bsade(corpus: Path, scratch: Path, text_bytes: int, peer: Path) -> dict[str, Any]:
    clean, work = scratch / "clean", scratch / "dedup"
    command = ["dedup", str(corpus), "--output", str(clean), "--minimum-bytes", "500", "--mode", "remove"]
    ours = best([*command, "--work-folder", str(work), "--workers", "2"], [clean, work])
    shard = text_shards(corpus, scratch / "texts")[0]
    text = shard.text[:PEER_BYTES].copy()
    rates = [make_part(peer, text, scratch / f"peer{number}", b"")["megabytes_per_cpu_second"] for number in range(2)]
    return beside(ours, text_bytes, BSADE, "make_part_mb_per_cpu_second", max(rates))


def megatron(corpus: Path, scratch: Path, gpt2: Path) -> dict[str, Any]:
    """One pair of files of JSONL_BYTES of lines, with each number of workers; the bytes must be the same."""
    from tokenizers import Tokenizer

    from corpusmill.documents.compression import open_decompressed

    lines = bytearray()
    for path in sorted(corpus.iterdir()):
        with path.open("rb") as raw, open_decompressed(raw, path.name) as stream:
            lines += stream.read()
    lines = lines[: lines.rfind(b"\n", 0, JSONL_BYTES) + 1]
    (scratch / "a.jsonl").write_bytes(lines)
    figures: dict[str, Any] = {"jsonl_bytes": len(lines)}
    for name in ("megatron", "nanoset"):
        written = []
        for workers in (1, 2):
            folder = scratch / f"{name}{workers}"
            output = folder / "x" if name == "megatron" else folder
            command = [name, str(scratch / "a.jsonl"), "--tokenizer", str(gpt2), "--output", str(output)]
            figures[f"{name}, {workers} workers"] = best([*command, "--workers", str(workers)], [folder])
            written.append({path.name: path.read_bytes() for path in folder.iterdir()})
        assert written[0] == written[1]
    tokenizer = Tokenizer.from_file(str(gpt2))
    eod, tokens, loop_bytes = tokenizer.token_to_id(EOS_TEXT), 0, 0
    began = time.process_time()
    for line in lines[:4_000_000].splitlines()[:-1]:
        tokens += len([*tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids, eod])
        loop_bytes += len(line) + 1
    rate = loop_bytes / 1e6 / (time.process_time() - began)
    scale = MEGATRON["preprocess_data_mb_per_cpu_second"] / rate
    return {
        **figures,
        "preprocess_data_mb_per_cpu_second_now": round(rate, 2),
        "preprocess_data_mb_per_cpu_second_then": MEGATRON["preprocess_data_mb_per_cpu_second"],
        "wall_seconds_wanted": MEGATRON["wall_seconds_wanted"],
        "wall_seconds_wanted_scaled": round(MEGATRON["wall_seconds_wanted"] * scale, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--gpt2", type=Path, required=True, help="GPT-2's tokenizer.json")
    parser.add_argument("--peer", type=Path, required=True, help="the package infini_gram, for its rust_indexing")
    arguments = parser.parse_args()
    scratch = arguments.scratch.absolute()
    scratch.mkdir(parents=True)
    corpus = scratch / "corpus"
    text_bytes = write_corpus(arguments.corpus, corpus, GIGABYTES)
    figures: dict[str, Any] = {
        "wanted_share": {name: round(share, 3) for name, share in WANTED.items()},
        "megatron": megatron(corpus, scratch, arguments.gpt2.absolute()),
        "bsade": bsade(corpus, scratch, text_bytes, arguments.peer),
        "tokshuf": tokshuf(corpus, scratch, text_bytes),
    }
    print(json.dumps(figures, indent=1))
    claim = "a tenth of tokshuf's CPU, a thirtieth of bsade's, 209 MB of jsonl to Megatron's files in 2.4 s on 2 cores"
    print(write_result("originals", claim, figures))
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
