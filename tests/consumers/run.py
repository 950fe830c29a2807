"""Builds a small dataset and lets every consumer read it in an environment of its own; see README.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "consumers"
RECORD, SHOWN_IDS = "--record", 24
NOTHING_SHOWN = 5  # pytest: no test was selected
ALONE = "without-dependencies.lock"
UV = ROOT / ".cache" / "setup-venv" / "bin" / "uv"


def build_datasets(folder: Path) -> None:
    """outputs/all/latest: every format, by all.yaml; outputs/raw/latest: nanoGPT's; outputs/automodel/latest:
    AutoModel's. in_order/: see write_in_order.

    outputs/olmo/latest: OLMo-core's and llm.c's, of two-byte ids with BOS. outputs/ordered/latest:
    in_order/source.jsonl.zst as a whole build in source order, of 600 ids. mixture/<split>/: what corpusmill mix
    writes for outputs/all and outputs/few, a dataset of two Megatron parts.
    """
    sys.path.insert(0, str(ROOT))
    from corpusmill.builds.local import build_dataset
    from corpusmill.config import check_config
    from tests.system.corpus import configuration, write_corpus

    shutil.rmtree(folder, ignore_errors=True)
    write_corpus(folder / "corpus", documents=160)
    everything = configuration(folder)
    exports = everything["exports"]
    assert isinstance(exports, dict)
    exports["webdataset"]["exp_data"] = True
    exports["olmo"] = {}
    exports["parquet_documents"] = {
        "columns": ["input_ids", "labels", "attention_mask", "position_ids", "seq_lengths"],
        "file_bytes": "100KB",
    }
    exports["parquet_contexts"] = {
        "context_tokens": 128,
        "columns": ["input_ids", "seq_lengths"],
        "file_bytes": "100KB",
    }
    exports["parquet_text"] = {"groups_per_file": 4, "rows_per_group": 8}
    exports["numpy"] |= {"test_name": "val", "placeholders": True, "checkpoints": True}
    everything["name"] = "all"
    (folder / "all.yaml").write_text(json.dumps(everything))  # JSON is YAML
    build_dataset(check_config(everything, where="consumers"), workers=1)
    raw = configuration(folder, name="raw", exports={"numpy": {"layout": "bin"}})
    build_dataset(check_config(raw, where="consumers"), workers=1)
    write_in_order(folder / "in_order")
    tokenizer = str(folder / "in_order" / "tokenizer" / "tokenizer.json")
    ordered = configuration(
        folder,
        name="ordered",
        source={"paths": [str(folder / "in_order" / "source.jsonl.zst")]},
        dedup={"mode": "none"},
        tokenizer={"name": tokenizer, "file": tokenizer},
        shuffle={"order": "source"},
        exports={
            "nanoset": {},
            "parquet_documents": {},
            "parquet_contexts": {
                "context_tokens": 128,
                "columns": ["input_ids", "labels", "position_ids", "seq_lengths"],
            },
        },
    )
    build_dataset(check_config(ordered, where="consumers"), workers=1)
    olmo = configuration(
        folder,
        name="olmo",
        tokenizer={"name": tokenizer, "file": tokenizer, "bos": "<|begin|>"},
        framing={"bos": True},
        exports={
            "olmo": {"file_tokens": 20_000, "names": "open_instruct", "offsets": True},
            "numpy": {"layout": "llmc", "tokens_per_shard": 5_000, "file_name": "web_{split}_{number}.bin"},
        },
    )
    build_dataset(check_config(olmo, where="consumers"), workers=1)
    headed = configuration(
        folder,
        name="automodel",
        exports={
            "numpy": {
                "layout": "automodel",
                "tokens_per_shard": 3_000,
                "bos_index": True,
                "file_name": "{split}_{number}.bin",
            }
        },
    )
    build_dataset(check_config(headed, where="consumers"), workers=1)
    write_mixtures(folder)


def build_demo(folder: Path) -> None:
    """outputs/{all,raw,automodel,olmo}/latest: the text of `make demo` by its configuration, in every format; that of
    two-byte ids by the tokenizer of write_in_order.
    """
    sys.path.insert(0, str(ROOT))
    import yaml

    from corpusmill.builds.local import build_dataset
    from corpusmill.config import check_config

    corpus = folder / "corpus"
    if not corpus.is_dir():
        subprocess.run([sys.executable, ROOT / "deploy" / "sample_corpus.py", corpus], check=True)
    demo = yaml.safe_load((ROOT / "dags" / "datasets" / "demo.yaml").read_text())
    demo["source"]["paths"] = [str(corpus)]
    demo |= {"destinations": [{"path": str(folder / "outputs")}], "work_folder": str(folder / "work")}
    every = demo["exports"] | {
        "olmo": {},
        "parquet_documents": {},
        "parquet_contexts": {"columns": ["input_ids", "seq_lengths"]},
        "parquet_text": {},
    }
    narrow = str(CACHE / "datasets" / "in_order" / "tokenizer" / "tokenizer.json")
    headed = {"tokens_per_shard": 2_000_000, "file_name": "web_{split}_{number}.bin"}
    for name, tokenizer, exports in (
        ("all", "cl100k_base", every),
        ("raw", "cl100k_base", {"numpy": {"layout": "bin"}}),
        ("automodel", "cl100k_base", {"numpy": {"layout": "automodel", **headed}}),
        ("olmo", narrow, {"numpy": {"layout": "llmc", **headed}}),
    ):
        file = {"file": tokenizer} if tokenizer == narrow else {}
        values = demo | {"name": name, "tokenizer": {"name": tokenizer, **file}, "exports": exports}
        build_dataset(check_config(values, where="the demo's text"), workers=2)


def write_mixtures(folder: Path) -> None:
    """See build_datasets."""
    from corpusmill.builds.local import build_dataset
    from corpusmill.config import check_config
    from corpusmill.training.mixture.folders import mix_folders
    from tests.system.corpus import configuration, write_corpus

    write_corpus(folder / "few" / "corpus", documents=60, seed=3)
    few = configuration(
        folder,
        name="few",
        source={"paths": [str(folder / "few" / "corpus")]},
        exports={"megatron": {"part_bytes": "100KiB"}, "nanoset": {"file_bytes": "100KiB"}},
    )
    build_dataset(check_config(few, where="consumers"), workers=1)
    for split in ("8,1,1", "7,3,0", "100,0,0"):
        mix_folders(
            [f"{folder}/outputs/all/latest=0.6", f"{folder}/outputs/few/latest=0.4"],
            folder / "mixture" / split,
            budget="200k",
            sequence_tokens=64,
            alpha=None,
            seed=1234,
            split=split,
            say=lambda _: None,
        )


def write_in_order(folder: Path) -> None:
    """source.jsonl.zst, a tokenizer of its own, and what corpusmill megatron and nanoset make of them.

    tokenizer/tokenizer.json   byte-level BPE of 600 tokens, uint16
    nanoset/                   00000_unshuffled.ds ..., its metadata naming tokenizer/tokenizer.json
    auto/                      the same, its metadata naming the folder, which AutoTokenizer loads
    megatron/web_*_document    keys text and title; text may be a list
    """
    import zstandard
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from corpusmill.direct.in_order.exports import write_megatron, write_nanoset
    from corpusmill.direct.in_order.source import Source
    from corpusmill.tokens.tokenizer import load_tokenizer
    from tests.system.corpus import make_documents

    texts = [text for text in make_documents(150, seed=5) if text]
    rows = [{"id": f"d{i}", "text": text, "title": text[:20]} for i, text in enumerate(texts)]
    (folder / "tokenizer").mkdir(parents=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "source.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    lists = [{"text": [text, "", text[:50]], "title": text[:20]} for text in texts[:40]] + [{"text": [], "title": "x"}]
    (folder / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    wanted = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>", "<|begin|>"], initial_alphabet=alphabet
    )
    trained.train_from_iterator(texts, wanted)
    path = folder / "tokenizer" / "tokenizer.json"
    trained.save(str(path))
    printed = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(printed))
    for name, output in ((path, "nanoset"), (path.parent, "auto")):
        tokenizer = load_tokenizer(str(name), file=str(path), engine="gigatoken")
        source = Source([str(folder / "source.jsonl.zst")], ("text",), folder / "rejected.jsonl")
        write_nanoset(source, folder / output, tokenizer)
    source = Source([str(folder / "lists.jsonl")], ("text", "title"), folder / "rejected.jsonl")
    write_megatron(source, folder / "megatron" / "web", tokenizer)


def base_python(lock: Path) -> str:
    """This Python, or the version that a consumer needs."""
    newer = lock.with_name("python-version")
    return newer.read_text().strip() if newer.is_file() else sys.executable


def environment(lock: Path) -> Path:
    """The python of an environment that holds exactly what `lock` says; made anew when the lock changed."""
    name = f"{lock.parent.name}{lock.stem.removeprefix('requirements')}"
    folder = CACHE / name
    stamp, wanted = folder / "installed.lock", lock.read_text()
    if not stamp.is_file() or stamp.read_text() != wanted:
        subprocess.run([UV, "venv", "-q", "--clear", "--python", base_python(lock), folder], check=True)
        sync = [UV, "pip", "sync", "-q", "--python", folder / "bin" / "python", "--require-hashes", lock]
        # uv does not read pip's settings, and a wheel may be where only pip was told to look.
        links = {"UV_FIND_LINKS": os.environ["PIP_FIND_LINKS"]} if "PIP_FIND_LINKS" in os.environ else {}
        subprocess.run(sync, check=True, env={**links, **os.environ})
        if (alone := lock.with_name(ALONE)).is_file():
            add = [UV, "pip", "install", "-q", "--python", folder / "bin" / "python", "--no-deps", "--require-hashes"]
            subprocess.run([*add, "-r", alone], check=True, env={**links, **os.environ})
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def record(shown: Path, outputs: Path) -> None:
    """benchmarks/results/readers.json: what each reader gave first, decoded; rows of readers that did not run stay."""
    sys.path.insert(0, str(ROOT))
    import numpy as np

    from benchmarks.results import HERE as RESULTS
    from benchmarks.results import write_result
    from corpusmill import open_dataset

    before = RESULTS / "results" / "readers.json"
    rows = json.loads(before.read_text())["figures"] if before.is_file() else {}
    for path in shown.glob("*.json"):
        row = json.loads(path.read_text())
        ids, dataset = row.pop("ids")[:SHOWN_IDS], row.pop("dataset")
        if dataset:
            text = open_dataset(outputs / dataset / "latest").tokenizer.decode(np.array(ids))
            row["first_ids"] = ids
        else:
            text = bytes(ids)
        row["decoded"] = text.decode("utf-8", "backslashreplace")
        if seconds := row.pop("cpu_seconds", 0.0):
            row["slots_per_cpu_second"] = round(row["slots"] / seconds)
        rows[path.stem] = row
    claim = (
        "What readers of other projects give first of the demo's text in every format (tests/consumers), equal to a"
        " plain reading of the file, its text, and how many ids (of text: bytes) each reads a CPU second."
    )
    print(write_result("readers", claim, dict(sorted(rows.items()))))


def main() -> int:
    datasets, shown, outputs = CACHE / "datasets", CACHE / "shown", CACHE / "datasets" / "outputs"
    build_datasets(datasets)
    if RECORD in sys.argv:
        build_demo(CACHE / "demo")
        outputs = CACHE / "demo" / "outputs"
    shutil.rmtree(shown, ignore_errors=True)
    shown.mkdir()
    wanted = [word for word in sys.argv[1:] if word != RECORD]
    failed = []
    for lock in sorted(HERE.glob("*/requirements*.lock")):
        if wanted and lock.parent.name not in wanted:
            continue
        print(f"consumer {lock.parent.name} {lock.stem.removeprefix('requirements').removeprefix('-')}", flush=True)
        find = [UV, "python", "find", "-q", "--no-python-downloads", base_python(lock)]
        if subprocess.run(find, stdout=subprocess.DEVNULL, check=False).returncode:
            print(f"skipped: it needs Python {base_python(lock)}, which this machine does not have")
            continue
        command = [
            environment(lock),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            HERE / "pytest.ini",
            "--confcutdir",
            HERE,
            *(("-k", "shown") if RECORD in sys.argv else ()),
        ]
        settings = {
            **os.environ,
            "CORPUSMILL_CONSUMER_DATASET": str(outputs),
            "CORPUSMILL_CONSUMER_IN_ORDER": str(datasets / "in_order"),
            "CORPUSMILL_CONSUMER_CONFIG": str(datasets / "all.yaml"),
            "CORPUSMILL_CONSUMER_PYTHON": sys.executable,
            "CORPUSMILL_CONSUMER_MIXTURE": str(datasets / "mixture"),
            "CORPUSMILL_CONSUMER_SHOWN": str(shown),
        }
        done = subprocess.run([*command, lock.parent], env=settings, check=False).returncode
        if done and not (RECORD in sys.argv and done == NOTHING_SHOWN):
            failed.append(lock)
    if RECORD in sys.argv:
        record(shown, outputs)
    for lock in failed:
        print(f"failed: {lock.relative_to(ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
