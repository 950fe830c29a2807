"""Claims: jsonl.zst to .ds at 30 times datatrove's DocumentTokenizer, jsonl to .bin/.idx at 20 times the tokenization
loop of Megatron's preprocess_data.py, both from the same file with the same tokenizer, byte-identical output.

CPU seconds of one process each, tokenizer loaded and libraries imported before; the peers run in the consumers'
environments (`make test-consumers` makes them). `python benchmarks/in_order.py FILE.jsonl.zst TOKENIZER.json`
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSUMERS = ROOT / ".cache" / "consumers"
EOS_TEXT = "<|endoftext|>"
DOCUMENTS = 4_000


def cpu_seconds() -> float:
    """Of this process and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def ours_nanoset(source: Path, tokenizer: Path, folder: Path) -> float:
    from corpusmill.direct.in_order.exports import write_nanoset
    from corpusmill.direct.in_order.source import Source

    loaded = _tokenizer(tokenizer)
    began = cpu_seconds()
    # datatrove's readers drop empty documents
    write_nanoset(Source([str(source)], ("text",), folder / "rejected.jsonl"), folder, loaded, empty_documents="skip")
    return cpu_seconds() - began


def ours_megatron(source: Path, tokenizer: Path, folder: Path) -> float:
    from corpusmill.direct.in_order.exports import write_megatron
    from corpusmill.direct.in_order.source import Source

    loaded = _tokenizer(tokenizer)
    began = cpu_seconds()
    write_megatron(Source([str(source)], ("text",), folder / "rejected.jsonl"), folder / "x", loaded)
    return cpu_seconds() - began


def _tokenizer(path: Path) -> object:
    from corpusmill.tokens.tokenizer import load_tokenizer

    loaded = load_tokenizer(str(path), file=str(path), engine="gigatoken")
    loaded.encode([b"libraries and tables are loaded by a first text"])
    return loaded


def datatrove(source: Path, tokenizer: Path, folder: Path) -> float:
    """DocumentTokenizer, no shuffle, one task in this process, everything else as it is by default."""
    from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]
    from datatrove.pipeline.readers import JsonlReader  # type: ignore[import-not-found]
    from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found]

    steps = [
        JsonlReader(str(source.parent), glob_pattern=source.name, compression="zstd"),
        DocumentTokenizer(
            str(folder), tokenizer_name_or_path=str(tokenizer), eos_token=EOS_TEXT, shuffle_documents=False
        ),
    ]
    steps[1].tokenizer  # noqa: B018 (loads it)
    began = cpu_seconds()
    LocalPipelineExecutor(steps, logging_dir=f"{folder}.log", workers=1, tasks=1).run()
    return cpu_seconds() - began


def preprocess_data(source: Path, tokenizer: Path, folder: Path) -> float:
    """The loop of tools/preprocess_data.py with --append-eod: parse a line, encode it, add_document of the builder."""
    import numpy as np
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder  # type: ignore[import-not-found]
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(tokenizer))
    eod = loaded.token_to_id(EOS_TEXT)
    loaded.encode("loaded by a first text")
    began = cpu_seconds()
    builder = IndexedDatasetBuilder(str(folder / "x_text_document.bin"), dtype=np.uint16)
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            text = json.loads(line)["text"]
            ids = loaded.encode(text, add_special_tokens=False).ids
            lengths = [len(ids)] if ids else []
            if ids:
                ids.append(eod)
                lengths[-1] += 1
            builder.add_document(ids, lengths)
    builder.finalize(str(folder / "x_text_document.idx"))
    return cpu_seconds() - began


RUNS = {"ours_nanoset": ours_nanoset, "ours_megatron": ours_megatron}
PEERS = {"datatrove": datatrove, "preprocess_data": preprocess_data}
PYTHON = {"datatrove": "datatrove", "preprocess_data": "megatron"}
WANTED = {"datatrove": ("ours_nanoset", 30), "preprocess_data": ("ours_megatron", 20)}


def run(name: str, source: Path, tokenizer: Path, folder: Path) -> float:
    """CPU seconds of one subject in a process of its own."""
    folder.mkdir()
    python = CONSUMERS / PYTHON[name] / "bin" / "python" if name in PYTHON else sys.executable
    command = [str(python), __file__, str(source), str(tokenizer), "--run", name, "--folder", str(folder)]
    settings = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout
    return float(printed.splitlines()[-1])


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.suffix in {".ds", ".index", ".metadata", ".bin", ".idx"}
    }


def inputs(source: Path, folder: Path) -> tuple[Path, Path, int]:
    """(jsonl.zst, the same as plain jsonl, bytes of text) of the first DOCUMENTS documents."""
    import zstandard

    data = zstandard.ZstdDecompressor().stream_reader(source.read_bytes(), read_across_frames=True).read()
    lines = [line for line in data.split(b"\n") if line][:DOCUMENTS]
    plain, packed = folder / "plain" / "a.jsonl", folder / "packed" / "a.jsonl.zst"
    for path in (plain, packed):
        path.parent.mkdir()
    plain.write_bytes(b"".join(line + b"\n" for line in lines))
    packed.write_bytes(zstandard.compress(plain.read_bytes()))
    return packed, plain, sum(len(json.loads(line)["text"].encode()) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--run", choices=[*RUNS, *PEERS])
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.run:
        print({**RUNS, **PEERS}[given.run](given.source, given.tokenizer, given.folder))
        return
    from results import write_result

    root = Path(tempfile.mkdtemp(prefix="in-order-"))
    packed, plain, text_bytes = inputs(given.source, root)
    figures: dict[str, object] = {"text_bytes": text_bytes}
    for peer, (name, wanted) in WANTED.items():
        source = packed if peer == "datatrove" else plain
        ours = min(run(name, source, given.tokenizer, root / f"{name}{number}") for number in range(3))
        theirs = run(peer, source, given.tokenizer, root / peer)
        same = digests(root / f"{name}0") == digests(root / peer)
        figures[peer] = {
            "our_cpu_seconds": round(ours, 3),
            "peer_cpu_seconds": round(theirs, 3),
            "our_mb_per_cpu_second": round(text_bytes / 1e6 / ours, 1),
            "peer_mb_per_cpu_second": round(text_bytes / 1e6 / theirs, 2),
            "times": round(theirs / ours, 1),
            "wanted": wanted,
            "byte_identical": same,
            "files": sorted(digests(root / peer)),
        }
    shutil.rmtree(root)
    print(json.dumps(figures, indent=1))
    claim = "30 times datatrove's DocumentTokenizer to .ds, 20 times Megatron's loop to .bin/.idx, the same bytes"
    print(write_result("in_order", claim, figures))


if __name__ == "__main__":
    main()
