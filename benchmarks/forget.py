"""What forgetting 100 documents of a dataset costs: which steps run again, CPU time, and that of verify and purge.

The corpus, decompressed, is built in shards of 1 MiB with everything on, then again with a list: 100 documents of one
shard, and 100 spread over all. `python benchmarks/forget.py CORPUS_FOLDER`
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

from results import write_result

from corpusmill.builds.local import build_dataset
from corpusmill.config import DatasetConfig, check_config
from corpusmill.documents.compression import open_decompressed
from corpusmill.documents.text_shard import open_text_shard
from corpusmill.engine.running import RunnableBuild
from corpusmill.forgetting.purge import purge
from corpusmill.stages.graph import open_build
from corpusmill.verify import verify_build

DOCUMENTS = 100


def config_of(corpus: Path, root: Path, listed: Path | None) -> DatasetConfig:
    """The configuration, with a list or without one."""
    return check_config(
        {
            "name": "forget",
            "source": {"paths": [str(corpus)], "shard_bytes": "1MiB"},
            "dedup": {"mode": "remove", "minimum_bytes": 500},
            "tokenizer": {"name": "cl100k_base"},
            "shuffle": {"seed": 7},
            "exports": {
                "webdataset": {"context_tokens": 2049, "contexts_per_shard": 100},
                "numpy": {"tokens_per_shard": 1_000_000},
                "megatron": {"part_bytes": "4MiB"},
                "nanoset": {"file_bytes": "4MiB"},
            },
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


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and its CPU seconds."""
    began = time.process_time()
    return work(), round(time.process_time() - began, 1)


def steps_of(build: RunnableBuild) -> dict[str, str]:
    """Of every stage how many steps ran in the newest run, of how many."""
    counts = {}
    for stage in build.graph.names:
        units = build.units(stage)
        ran = sum(not build.reused(stage, unit) for unit in units)
        if units:
            counts[stage] = f"{ran} of {len(units)}"
    return counts


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
    corpus = parser.parse_args().corpus
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        decompress(corpus, root / "corpus")
        corpus = root / "corpus"
        built, seconds = timed(lambda: open_build(build_dataset(config_of(corpus, root, None), workers=1)))
        figures["first_build"] = {
            "cpu_seconds": seconds,
            "text_bytes": built.total("index", "text_bytes_out"),
            "documents": built.total("index", "documents_out"),
            "shards": len(built.units("index")),
        }
        listed = root / "list.jsonl"
        chosen = {
            name: chosen_ids(built, spread=name != "of_one_shard")
            for name in ("of_one_shard", "spread_over_all_shards")
        }
        for name, ids in chosen.items():
            before = listed.read_text() if listed.exists() else ""
            listed.write_text(before + "".join(json.dumps({"id": one}) + "\n" for one in ids))
            config = config_of(corpus, root, listed)
            again, seconds = timed(lambda config=config: open_build(build_dataset(config, workers=1)))
            verified, verifying = timed(lambda build=again: verify_build(build))
            purged, purging = timed(lambda build=again: purge(build))
            figures[name] = {
                "documents": len(ids),
                "gone": again.total("index", "documents_out") - again.total("tokenize", "documents_out"),
                "cpu_seconds": seconds,
                "steps_that_ran": steps_of(again),
                "verify_cpu_seconds": verifying,
                "findings": len(verified.findings),
                "purge_cpu_seconds": purging,
                "searched_bytes": purged.searched_bytes,
                "not_searchable": purged.unsearchable,
                "remains": len(purged.remains),
            }
    print(json.dumps(figures, indent=1))
    write_result("forget", "forgetting 100 documents runs again what held them, and what follows from it", figures)


if __name__ == "__main__":
    main()
