"""What forgetting 100 documents of a dataset costs: which steps run again, CPU time, and that of verify and purge.

The corpus, decompressed, is built in shards of 1 MiB with everything on, then again with a list: 100 documents of one
shard, and 100 spread over all. `python benchmarks/forget.py CORPUS_FOLDER`

With `--gigabytes N` it is built of so much text, copies of the corpus, changed as those of dedup_scale.py: in a
letter every 97 bytes but for every fifth document. Its shards have 16 MiB; verify and purge are left out: they
search every file of a build. `--formats numpy --tokenizer r50k_base` builds one format of two-byte ids: 4 GB need 41 GB
of disk so, and 120 with four formats of four-byte ids. What no build needs any more is removed before the next one.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from results import write_result

from corpusmill.builds.forgetting.purge import purge
from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config, work_of
from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine.garbage import find_garbage, remove_garbage
from corpusmill.engine.running import RunnableBuild
from corpusmill.engine.runs import begun_at
from corpusmill.inspect.verify import verify_build
from corpusmill.upload.stages.retention import find_old_versions, remove_old_version

DOCUMENTS = 100
EXPORTS = {
    "webdataset": {"context_tokens": 2049, "contexts_per_shard": 100},
    "numpy": {"tokens_per_shard": 1_000_000},
    "megatron": {"part_bytes": "4MiB"},
    "nanoset": {"file_bytes": "4MiB"},
}
STEP_BYTES = 97  # from one changed letter to the next


def config_of(asked: argparse.Namespace, corpus: Path, root: Path, listed: Path | None) -> DatasetConfig:
    """The configuration, with a list or without one."""
    return check_config(
        {
            "name": "forget",
            "source": {"paths": [str(corpus)], "shard_bytes": "16MiB" if asked.gigabytes else "1MiB"},
            "dedup": {"mode": "remove", "minimum_bytes": 500},
            "tokenizer": {"name": asked.tokenizer},
            "shuffle": {"seed": 7},
            "exports": {name: EXPORTS[name] for name in asked.formats},
            "destinations": [{"path": str(root / "outputs")}],
            "work_folder": str(root / "work"),
            **({"forget": {"path": str(listed), "copies": "also"}} if listed else {}),
        },
        where="benchmark",
    )


def decompress(corpus: Path, folder: Path) -> None:
    """The corpus as files that can be cut."""
    folder.mkdir()
    for path in sorted(corpus.glob("*.jsonl*")):
        with path.open("rb") as raw, (folder / path.name.partition(".zst")[0]).open("wb") as plain:
            shutil.copyfileobj(open_decompressed(raw, path.name), plain)


def write_copies(corpus: Path, folder: Path, text_bytes: int) -> None:
    """Files of so much text: copies of a decompressed corpus, ids and all but every fifth text changed in each."""
    folder.mkdir()
    number = written = 0
    while written < text_bytes:
        for path in sorted(corpus.iterdir()):
            with path.open("rb") as lines, (folder / f"{number:03d}_{path.name}").open("wb") as out:
                for place, row in enumerate(map(orjson.loads, lines)):
                    text = np.frombuffer(row["text"].encode(), np.uint8).copy()
                    places = np.arange(1 + number * 131 % STEP_BYTES, len(text), STEP_BYTES)
                    places = places[(text[places] >= ord("a")) & (text[places] <= ord("z"))]
                    if number and (place + number) % 5:
                        text[places] = ord("a") + (text[places] - ord("a") + 1 + number % 25) % 26
                    row |= {"id": f"{number}-{row['id']}", "text": text.tobytes().decode()}
                    out.write(orjson.dumps(row) + b"\n")
                    written += len(text)
        number += 1


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and its CPU seconds."""
    began = time.process_time()
    return work(), round(time.process_time() - began, 1)


def steps_of(build: RunnableBuild) -> dict[str, str]:
    """Of every stage how many steps ran in the newest run, of how many."""
    counts = {}
    began = begun_at(build.plan_folder)
    for stage in build.graph.names:
        units = build.units(stage)
        ran = sum(build.finished_at(stage, unit) >= began for unit in units)
        if units:
            counts[stage] = f"{ran} of {len(units)}"
    return counts


def remove_rest(config: DatasetConfig) -> None:
    """Remove step folders and versions that the newest build does not need."""
    work = work_of(config)
    remove_garbage(work, GRAPH, find_garbage(work, GRAPH, config=config))
    for version in find_old_versions(config, 1):
        remove_old_version(version)


def chosen_ids(build: RunnableBuild, *, spread: bool) -> list[str]:
    """The ids of documents: of one shard, or some of every shard."""
    shards = build.units("index") if spread else build.units("index")[:1]
    each = -(-DOCUMENTS // len(shards))
    chosen: list[str] = []
    for shard in shards:
        text = open_text_shard(build.folder("index", shard))
        step = text.documents // each
        ids = text.document_ids()
        chosen += [ids[ordinal * step] for ordinal in range(each)]
    return chosen[:DOCUMENTS]


def main() -> None:
    """Measure, print, and write results/forget.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--gigabytes", type=float, default=0, help="of text; 0: the corpus itself")
    parser.add_argument("--scratch", type=Path, help="where to build (default: where temporary files are)")
    parser.add_argument("--formats", nargs="+", choices=EXPORTS, default=list(EXPORTS))
    parser.add_argument("--tokenizer", default="cl100k_base")
    asked = parser.parse_args()
    corpus = asked.corpus
    figures: dict[str, Any] = {"formats": asked.formats, "tokenizer": asked.tokenizer}
    with tempfile.TemporaryDirectory(dir=asked.scratch) as folder:
        root = Path(folder)
        decompress(corpus, root / "corpus")
        corpus = root / "corpus"
        if asked.gigabytes:
            write_copies(corpus, root / "copies", round(asked.gigabytes * 1e9))
            corpus = root / "copies"
        built, seconds = timed(lambda: open_build(build_dataset(config_of(asked, corpus, root, None), workers=1)))
        figures["first_build"] = {
            "cpu_seconds": seconds,
            "text_bytes": built.total("index", "text_bytes_out"),
            "documents": built.total("index", "documents_out"),
            "shards": len(built.units("index")),
        }
        print(json.dumps(figures), flush=True)
        listed = root / "list.jsonl"
        chosen = {
            name: chosen_ids(built, spread=name != "of_one_shard")
            for name in ("of_one_shard", "spread_over_all_shards")
        }
        for name, ids in chosen.items():
            before = listed.read_text() if listed.exists() else ""
            listed.write_text(before + "".join(json.dumps({"id": token}) + "\n" for token in ids))
            config = config_of(asked, corpus, root, listed)
            again, seconds = timed(lambda config=config: open_build(build_dataset(config, workers=1)))
            figures[name] = {
                "documents": len(ids),
                "gone": again.total("index", "documents_out") - again.total("tokenize", "documents_out"),
                "cpu_seconds": seconds,
                "of_a_build_from_scratch": round(seconds / figures["first_build"]["cpu_seconds"], 3),
                "steps_that_ran": steps_of(again),
            }
            print(json.dumps(figures[name]), flush=True)
            if asked.gigabytes:
                remove_rest(config)
                continue
            verified, verifying = timed(lambda build=again: verify_build(build))
            purged, purging = timed(lambda build=again: purge(build))
            figures[name] |= {
                "verify_cpu_seconds": verifying,
                "findings": len(verified.findings),
                "purge_cpu_seconds": purging,
                "searched_bytes": purged.searched_bytes,
                "not_searchable": purged.unsearchable,
                "remains": len(purged.remains),
            }
    print(json.dumps(figures, indent=1))
    kind = "_of_one_format" if len(asked.formats) == 1 else ""
    name = f"forget_gigabytes{kind}" if asked.gigabytes else "forget"
    write_result(name, "forgetting 100 documents runs again what held them, and what follows from it", figures)


if __name__ == "__main__":
    main()
