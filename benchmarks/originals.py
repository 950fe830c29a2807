"""Corpusmill's share of the originals' CPU seconds, for the same job; `wanted_share` is a goal, met or not.

The original and ours run in turns on the same files, whole commands, processes and imports counted (cgroup v1
cpuacct), two workers each; shares are medians over the rounds. A peer is measured if its path is given:

    --tokshuf   the folder of tokshuf-rust, built (cargo build --release); its own Llama 3 vocabulary is used by both
    --bsade     the folder of bsade, its engine compiled, rust_indexing in it
    --deduplicate-text-datasets    its folder, built; it starts at one file of text, which is not counted
    --terashuf  the binary
    --datatrove  a tokenizer.json with <|endoftext|>: DocumentTokenizer of the `python` given
    --megatron  a checkout of Megatron-LM, whose tools/preprocess_data.py uses --tokenizer, a tokenizer.json as above
    --python    an interpreter that has bsade's, datatrove's and Megatron's libraries

    python benchmarks/originals.py CORPUS_FOLDER SCRATCH_FOLDER --python peers/bin/python --bsade peers/bsade ...

Outputs are compared where the definition is the same: contexts and lines as multisets, documents, .ds, .bin and .idx
files as they are. deduplicate-text-datasets marks every copy of a repeat, ours all but the first, so bytes that it
marks are only counted.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shlex
import shutil
import statistics
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from memory_group import within
from results import HERE, write_result

from corpusmill.documents.compression import open_decompressed

WANTED = {"tokshuf": 0.12, "bsade": 0.045, "terashuf": 0.5, "datatrove": 0.05, "megatron": 0.03}
CONTEXT, MINIMUM_BYTES = 2049, 500
SHUFFLED_COPIES, SHUFFLE_MEMORY_BYTES = 8, 64_000_000  # 70 MB of lines alone measure the interpreter's start
DATATROVE = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
corpus, tokenizer, folder = sys.argv[1:]
reader = JsonlReader(corpus, glob_pattern="*.jsonl.zst", compression="zstd")
tokens = DocumentTokenizer(
    folder, tokenizer_name_or_path=tokenizer, eos_token="<|endoftext|>", shuffle_documents=False
)
LocalPipelineExecutor([reader, tokens], logging_dir=folder + ".log", tasks=1).run()
"""


@dataclass(frozen=True)
class Pair:
    """Two shell scripts that do one job, each run in the scratch folder, and what their outputs have in common."""

    original: str
    ours: str
    compare: Callable[[Path], dict[str, Any]]


def ours(*words: object) -> str:
    return shlex.join(map(str, [sys.executable, "-m", "corpusmill.cli", *words]))


def lines(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.glob("*.jsonl.zst")):
        with path.open("rb") as raw, open_decompressed(raw, path.name) as stream:
            yield from stream.read().splitlines()


def digests(items: Iterator[bytes]) -> Counter[bytes]:
    """How often each item comes, whatever their order."""
    return Counter(hashlib.sha256(item).digest() for item in items)


def contexts(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as members:
            for member in members:
                body = members.extractfile(member)
                assert body is not None
                yield json.dumps(json.loads(gzip.decompress(body.read()))).encode()


def tokshuf(peer: Path, corpus: Path, scratch: Path) -> Pair:
    config = {
        "name": "tokshuf",
        "source": {"paths": [str(corpus)]},
        "dedup": {"mode": "none", "writeback": False},
        "tokenizer": {
            "name": "llama3",
            "file": str(peer / "meta-llama-3-8B.tiktoken"),
            "pattern": "llama3",
            "special_ids": "tokshuf",
            "special_tokens": {"<|begin_of_text|>": 128_000},
        },
        "shuffle": {"seed": 1234},
        "packing": {"stream": "file", "tail": "always_pad", "bos": True},
        "exports": {"webdataset": {"context_tokens": CONTEXT}},
        "destinations": [{"path": str(scratch / "ours/outputs")}],
        "work_folder": str(scratch / "ours/work"),
    }
    (scratch / "tokshuf.yaml").write_text(yaml.safe_dump(config))
    command = [peer / "target/release/tokshuf-rust", "--input", corpus, "--local-cell-dir", "original/cells"]
    command += ["--output", "original/tars", "--tokenizer", "meta-llama/Meta-Llama-3-8B", "--use-tiktoken"]
    command += ["--seqlen", CONTEXT, "--threads", 2]

    def compare(scratch: Path) -> dict[str, Any]:
        theirs = digests(contexts(scratch / "original/tars"))
        built = digests(contexts(scratch / "ours/outputs/tokshuf/latest/webdataset"))
        return {"contexts": theirs.total(), "same": (theirs & built).total(), "ours": built.total()}

    return Pair(shlex.join(map(str, command)), ours("build", "tokshuf.yaml", "--workers", 2), compare)


def bsade(peer: Path, corpus: Path, python: Path) -> Pair:
    script = f"""
    top=$PWD; cd {shlex.quote(str(peer))}
    {python} indexing_v6_sharded.py --data-dir {corpus} --save-dir $top/original/index --token-dtype u8 \\
        --cpus 2 --num-batches 1 --add-metadata
    {python} find_remove_ranges.py --index-dir $top/original/index --minlen {MINIMUM_BYTES} --mode parallel_sharded \\
        --num-threads 2 --low-ram
    {python} write_back_to_jsonl_sharded.py --index-dir $top/original/index --minlen {MINIMUM_BYTES} \\
        --output-dir $top/original/clean --num-workers 2 --mode remove
    """
    command = ["dedup", corpus, "--output", "ours/clean", "--work-folder", "ours/work", "--mode", "remove"]

    def compare(scratch: Path) -> dict[str, Any]:
        read = [[json.loads(line) for line in lines(scratch / side / "clean")] for side in ("original", "ours")]
        same = sum(left == right for left, right in zip(*read, strict=True))
        return {"documents": len(read[0]), "same": same}

    return Pair(script, ours(*command, "--minimum-bytes", MINIMUM_BYTES, "--workers", 2), compare)


def deduplicate_text_datasets(peer: Path, corpus: Path, scratch: Path) -> Pair:
    """Its three commands on one file; ours from the JSON lines, files written, since it has no command for ranges."""
    text = scratch / "text"
    text.write_bytes(b"\n".join(json.loads(line)["text"].encode() for line in lines(corpus)))
    program, data = peer / "target/release/dedup_dataset", ["--data-file", "original/text"]
    repeats = ["--length-threshold", str(MINIMUM_BYTES), "--cache-dir", "original/cache"]
    steps = [
        ["ln", str(text), "original/text"],
        ["mkdir", "original/cache"],
        [str(program), "make", *data],
        [str(program), "self-similar", *data, *repeats, "--num-threads", "2"],
        [str(program), "collect", *data, *repeats],
    ]
    script = " && ".join(map(shlex.join, steps)) + " > original/ranges"
    command = ["dedup", corpus, "--output", "ours/clean", "--work-folder", "ours/work"]

    def compare(scratch: Path) -> dict[str, Any]:
        ranges = (scratch / "original/ranges").read_text().rpartition("out\n")[2].split()
        marked = sum(map(int, ranges[1::2])) - sum(map(int, ranges[::2]))
        left = sum(len(json.loads(line)["text"].encode()) for line in lines(scratch / "ours/clean"))
        return {"marked_bytes": marked, "our_removed_bytes": text.stat().st_size - left}

    return Pair(script, ours(*command, "--minimum-bytes", MINIMUM_BYTES, "--workers", 2), compare)


def terashuf(peer: Path, corpus: Path, scratch: Path) -> Pair:
    """Lines of one file, the corpus several times over, both within the same memory for records."""
    source, memory = scratch / "lines.jsonl", SHUFFLE_MEMORY_BYTES
    with source.open("wb") as file:
        for _ in range(SHUFFLED_COPIES):
            file.writelines(line + b"\n" for line in lines(corpus))
    original = f"TMPDIR=$PWD/original MEMORY={memory / 1e9} SEED=1 {peer} < {source} > original/lines"
    command = ["shuffle-text", source, "--output", "ours/lines", "--memory", memory, "--work-folder", "ours/work"]

    def compare(scratch: Path) -> dict[str, Any]:
        theirs, shuffled = (
            digests(iter((scratch / side / "lines").read_bytes().splitlines())) for side in ("original", "ours")
        )
        return {"lines": theirs.total(), "same": (theirs & shuffled).total()}

    return Pair(original, ours(*command, "--seed", 1), compare)


def datatrove(python: Path, corpus: Path, scratch: Path, tokenizer: Path) -> Pair:
    (scratch / "writer.py").write_text(DATATROVE)
    original = shlex.join(map(str, [python, "writer.py", corpus, tokenizer, "original/tokens"]))
    command = ["nanoset", corpus, "--tokenizer", tokenizer, "--output", "ours/tokens", "--empty-documents", "skip"]

    def compare(scratch: Path) -> dict[str, Any]:
        (theirs,), (written,) = (list((scratch / side / "tokens").glob("*.ds")) for side in ("original", "ours"))
        return {"bytes": theirs.stat().st_size, "byte_identical": theirs.read_bytes() == written.read_bytes()}

    return Pair(original, ours(*command, "--workers", 2), compare)


def megatron(peer: Path, python: Path, corpus: Path, scratch: Path, tokenizer: Path) -> Pair:
    """From one file of JSON lines, the only input that preprocess_data.py takes."""
    source, folder = scratch / "corpus.jsonl", scratch / "tokenizer"
    source.write_bytes(b"".join(line + b"\n" for line in lines(corpus)))
    folder.mkdir()
    shutil.copy(tokenizer, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"})
    )
    original = [python, peer / "tools/preprocess_data.py", "--input", source, "--output-prefix", "original/x"]
    original += ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", folder, "--append-eod"]
    command = ["megatron", source, "--tokenizer", tokenizer, "--output", "ours/x", "--as-preprocess-data"]

    def compare(scratch: Path) -> dict[str, Any]:
        files = [
            [(scratch / side / f"x_text_document.{kind}").read_bytes() for kind in ("bin", "idx")]
            for side in ("original", "ours")
        ]
        return {"bytes": [*map(len, files[0])], "byte_identical": files[0] == files[1]}

    return Pair(shlex.join(map(str, [*original, "--workers", 2])), ours(*command, "--workers", 2), compare)


def measure(pair: Pair, scratch: Path, rounds: int) -> dict[str, Any]:
    """Both scripts in turns; CPU and wall seconds of each run, and the medians of the shares."""
    runs: dict[str, list[dict[str, Any]]] = {"original": [], "ours": []}
    for _ in range(rounds):
        for side, script in (("original", pair.original), ("ours", pair.ours)):
            shutil.rmtree(scratch / side, ignore_errors=True)
            (scratch / side).mkdir()
            with (scratch / f"{side}.log").open("wb") as log:
                surroundings = {"cwd": scratch, "stderr": log}
                run = within(0, ["sh", "-ec", script], scratch / f"{side}.out", surroundings)
            runs[side].append({"cpu_seconds": run["cpu_seconds"], "wall_seconds": run["seconds"]})
    shares = {
        f"share_of_{kind}": round(
            statistics.median(
                mine[kind] / theirs[kind] for mine, theirs in zip(runs["ours"], runs["original"], strict=True)
            ),
            3,
        )
        for kind in ("cpu_seconds", "wall_seconds")
    }
    return {**shares, **runs, "compared": pair.compare(scratch)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="*.jsonl.zst with the keys id and text")
    parser.add_argument("scratch", type=Path)
    for peer in ("tokshuf", "bsade", "deduplicate-text-datasets", "terashuf", "megatron", "python", "tokenizer"):
        parser.add_argument(f"--{peer}", type=Path)
    parser.add_argument("--datatrove", type=Path, help="a tokenizer.json with <|endoftext|>: DocumentTokenizer")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    corpus, scratch, python = asked.corpus.absolute(), asked.scratch.absolute(), asked.python
    scratch.mkdir(parents=True)
    pairs: dict[str, Callable[[Path], Pair]] = {
        "tokshuf": lambda peer: tokshuf(peer, corpus, scratch),
        "bsade": lambda peer: bsade(peer, corpus, python.absolute()),
        "deduplicate_text_datasets": lambda peer: deduplicate_text_datasets(peer, corpus, scratch),
        "terashuf": lambda peer: terashuf(peer, corpus, scratch),
        "datatrove": lambda tokenizer: datatrove(python.absolute(), corpus, scratch, tokenizer),
        "megatron": lambda peer: megatron(peer, python.absolute(), corpus, scratch, asked.tokenizer.absolute()),
    }
    figures: dict[str, Any] = {
        "text_bytes": sum(len(json.loads(line)["text"].encode()) for line in lines(corpus)),
        "documents": sum(1 for _ in lines(corpus)),
    }
    earlier = json.loads((HERE / "results" / "originals.json").read_text())["figures"]
    if figures.items() <= earlier.items():  # the same text: peers that are not asked for keep their figures
        figures = earlier
    for name, pair in pairs.items():
        if peer := getattr(asked, name):
            figures[name] = {"wanted_share": WANTED.get(name), **measure(pair(peer.absolute()), scratch, asked.rounds)}
            print(name, json.dumps(figures[name], indent=1), flush=True)
    print(write_result("originals", (__doc__ or "").split("\n\n", maxsplit=1)[0], figures))
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
