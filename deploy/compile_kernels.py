"""Compile numba kernels into NUMBA_CACHE_DIR, by building tiny datasets in a folder that is thrown away.

`compile_kernels.py demo` compiles what the demo's build calls: without it the first three tasks of every stage would
compile the same kernels beside each other, 55 s of a first demo instead of 17 s here, while Airflow starts.
`compile_kernels.py` compiles everything that a build or a command calls, for the image: a minute, so that no container
compiles. tests/sameness/test_kernels.py compares that with all kernels of the code, and with what builds call.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import chdir
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sample_corpus import SampleDocument, collect_documents
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from corpusmill.builds.local import build_dataset
from corpusmill.commands import app
from corpusmill.config import check_config
from corpusmill.storage.crc64 import Crc64Nvme
from corpusmill.tokens.characters import changing_kinds, cut_at_numbers, runs_of_kind
from corpusmill.tokens.rank_merges import pairs_of
from corpusmill.tokens.ranks import Spelling

DATASETS = Path(__file__).resolve().parent.parent / "dags" / "datasets"
DEMO: dict[str, Any] = yaml.safe_load((DATASETS / "demo.yaml").read_text()) | {
    "source": {"paths": ["sample"], "shard_bytes": "100KB"},
    "audit": {"bytes_per_token_band": 1},
}
RULES = ("gopher:Quality", "repetition:Repetition", "c4:Lines")
# Kernels are compiled for the width of an id, and each engine has its own: these have few ids.
BYTE_LEVEL = {"tokenizer": {"name": "byte_level.json", "file": "byte_level.json"}}
SENTENCEPIECE = {"tokenizer": {"name": "sentencepiece.json", "file": "sentencepiece.json"}}
EVERYTHING: list[dict[str, Any]] = [
    DEMO,
    {
        "name": "filtered",
        "dedup": DEMO["dedup"] | {"against": ["reference"]},
        "steps": [{"use": f"corpusmill.steps.{rule}"} for rule in RULES],
        "decontamination": {"benchmarks": [{"name": "items", "path": "items.jsonl"}], "action": "remove"},
        "forget": {"path": "forget.jsonl", "key": "id", "copies": "also"},
        "near_duplicates": {"action": "remove", "within": "source", "most_removed": 1},
    },
    {
        "name": "fuzzy",
        "dedup": DEMO["dedup"] | {"fuzzy_share": 0.5},
        "packing": {"fit": "best_fit"},
        "selection": {"minimum_tokens": 20},
        "budget": {"sample": "2 epochs"},
    },
    {
        "name": "narrow",
        **BYTE_LEVEL,
        "dedup": {"mode": "annotate", "minimum_bytes": 100, "keep": "every_string"},
        "packing": {"overlap_tokens": 1},
    },
    {
        "name": "packed",
        **BYTE_LEVEL,
        "dedup": DEMO["dedup"] | {"keep": "every_string"},
        "packing": {"fit": "best_fit", "stream": "file", "empty_documents": "keep"},
        "exports": DEMO["exports"] | {"parquet_contexts": {}, "parquet_text": {}},
    },
    {"name": "ordered", **SENTENCEPIECE, "dedup": {"mode": "none"}, "shuffle": {"order": "source"}},
    {"name": "ordered-wide", "dedup": {"mode": "none"}, "shuffle": {"order": "source"}},
]
MIX = "mix outputs/demo/latest outputs/fuzzy/latest --budget-tokens 20K --sequence-tokens 16"
COMMANDS = (
    f"{MIX} --output mixed",
    f"{MIX} --alpha 0.5 --output mixed-by-size",
    "shuffle outputs/demo/latest/webdataset --output tars --contexts-per-shard 5 --seed 7",
    "shuffle-text sample/0.jsonl --output lines.jsonl --seed 7",
    *(f"verify {configuration['name']}.json" for configuration in EVERYTHING),
)


def write_inputs() -> None:
    """Text, references, benchmark items, a list to forget and a vocabulary, in the current folder."""
    documents = collect_documents(distributions(), target_bytes=200_000)
    lines = [json.dumps({"id": document.id, "text": document.text}) + "\n" for document in documents]
    lines.append(json.dumps({"id": "periodic", "text": "periodic " * 1000}) + "\n")
    passage = max((document.text for document in documents), key=len)[:500]  # so common that it is a crowded border
    crowd = [f"{number * 7919:09d} {passage} {number * 104729:09d}" for number in range(200)]
    lines += [json.dumps({"id": f"crowd {number}", "text": text}) + "\n" for number, text in enumerate(crowd)]
    items = [{"question": " ".join(document.text.split()[20:60]), "answer": "none"} for document in documents[10:15]]
    for name, text in {
        "sample/0.jsonl": lines[: len(lines) // 2],
        "sample/1.jsonl": lines[len(lines) // 2 :],
        "reference/0.jsonl": lines[::4],
        "items.jsonl": [json.dumps(item) + "\n" for item in items],
        "forget.jsonl": [json.dumps({"id": documents[0].id}) + "\n"],
    }.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("".join(text))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, [], documents, "byte_level.json")
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))  # noqa: S106
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    back = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(back)
    _train(tokenizer, [f"<0x{byte:02X}>" for byte in range(256)], documents, "sentencepiece.json")


def call_what_few_need() -> None:
    """Kernels for buckets that ask for a CRC, for rank files, and for vocabularies that normalize or cut numbers."""
    Crc64Nvme().update(b"of a part")
    pairs_of(Spelling.of(range(256), [bytes([byte]) for byte in range(256)]))
    texts = ["cafe\u0301 12".encode()]
    runs_of_kind(texts, changing_kinds("NFC"), 1)
    for each in (True, False):
        cut_at_numbers(np.frombuffer(texts[0], np.uint8), np.array([len(texts[0])]), each=each)


def _train(tokenizer: Tokenizer, alphabet: list[str], documents: list[SampleDocument], path: str) -> None:
    """`alphabet`: tokens of single bytes, beside the 256 characters that stand for bytes in a byte-level vocabulary."""
    special = ["<unk>", "<|endoftext|>", *alphabet]
    characters = pre_tokenizers.ByteLevel.alphabet()
    wanted = trainers.BpeTrainer(vocab_size=900, special_tokens=special, initial_alphabet=characters)
    tokenizer.train_from_iterator((document.text for document in documents), wanted)
    tokenizer.save(path)


def main(only_demo: bool) -> None:
    """Build every dataset and call every command, or build the demo alone."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder, chdir(folder):
        os.environ["CORPUSMILL_ROOT"] = folder
        write_inputs()
        for changes in EVERYTHING[:1] if only_demo else EVERYTHING:
            Path(f"{changes['name']}.json").write_text(json.dumps(DEMO | changes))
            build_dataset(check_config(DEMO | changes, where=__file__), workers=1)
        if not only_demo:
            call_what_few_need()
        for command in () if only_demo else COMMANDS:
            app(command.split(), standalone_mode=False)


if __name__ == "__main__":
    main("demo" in sys.argv[1:])
