"""Every setting that can change a byte, with values that are apart at the size of the search's sources."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import ConfigError
from tests.search import beside
from tests.search.vocabularies import special_tokens

sys.path.append(str(Path(__file__).parent / "own"))  # where steps find own_steps


def _steps(place: str) -> list[list[dict[str, Any]]]:
    wanted = [
        ("without", {"word": "e", "most": 1}),
        ("cut", {"first": 1, "last": 4}),
        ("replaced", {"word": "e", "by": "\u00fc!"}),
        ("replaced", {"word": " ", "by": ""}),
        ("without", {"word": "x", "most": 0}),
        ("cut", {"first": 0, "last": 9}),
    ]
    steps = [
        {"use": f"own_steps:{use}", "with": settings, "name": f"s{number}", "before": place}
        for number, (use, settings) in enumerate(wanted)
    ]
    return [steps[:1], steps[1:2], steps[2:4], [steps[5], steps[0]], steps[::-1]]


Settings = dict[str, Any]
Change = tuple[str, Any]
"""A key such as `dedup.mode`, and its value; None takes the key away."""

VALUES: dict[str, list[Any]] = {
    "source.shard_bytes": [300, 700, 2000, 3000, 6000, "1MiB"],
    "source.text_field": ["text", "body"],
    "source.id_field": ["id", "score"],
    "source.max_rejected_share": [1, 0],
    "dedup.mode": ["remove", "annotate", "none"],
    "dedup.minimum_bytes": [7, 12, 20, 45],
    "dedup.keep": ["first_window", "every_string"],
    "dedup.fuzzy_share": [None, 0.5, 0.9],
    "dedup.annotate_key": ["sa_remove_ranges", "meta.ranges", "score"],
    "dedup.replace_existing": [True, False],
    "dedup.drop_empty": [True, False],
    "dedup.writeback": [True, False],
    "dedup.memory": ["1GiB", "64MiB"],
    "tokenizer.engine": ["gigatoken", "tiktoken"],
    "tokenizer.pattern": ["cl100k_base", "r50k_base", r"[a-z]+|[^a-z]+"],
    "tokenizer.batch_bytes": [64, "2MiB"],
    "tokenizer.eot": ["<|endoftext|>", "<|bos|>"],
    "tokenizer.bos": ["<|bos|>", None],
    "tokenizer.pad": ["<|pad|>", None],
    "tokenizer.parse_special": [True, False],
    "tokenizer.special_ids": ["tokenizer", "tokshuf"],
    "audit.share": [0.5, 0.005],
    "audit.minimum_documents": [0, 5],
    "packing.stream": ["shard", "file"],
    "packing.eot": ["after", "before", "around"],
    "packing.bos": [True, False],
    "packing.fit": ["cut", "best_fit"],
    "packing.overlap_tokens": [0, 1],
    "packing.tail": ["pad", "always_pad"],
    "packing.empty_documents": ["skip", "keep"],
    "framing.eod": [True, False],
    "framing.bos": [True, False],
    "framing.empty_documents": ["skip", "boundary", "eod"],
    "selection.minimum_bytes": [None, 30],
    "selection.minimum_tokens": [None, 12],
    "shuffle.order": ["random", "source"],
    "shuffle.seed": [1, 2, (1 << 64) - 1],
    "shuffle.memory": ["256MiB", "4KiB"],
    "shuffle.cells": [None, 1, 3, 12],
    "exports.webdataset": [None, {}],
    "exports.webdataset.context_tokens": [5, 17, 40],
    "exports.webdataset.contexts_per_shard": [4, 9, 50],
    "exports.webdataset.exp_data": [True, False],
    "exports.numpy": [None, {}],
    "exports.numpy.tokens_per_shard": [70, 400, 5000],
    "exports.numpy.layout": ["npy", "bin"],
    "exports.numpy.test_share": [0, 0.1, 0.5],
    "exports.numpy.test_shards": [None, 1, 3],
    "exports.numpy.test_name": [None, "held"],
    "exports.numpy.train_name": ["train", "most"],
    "exports.numpy.file_name": ["{split}/{split}_{number}.npy", "{split}-{number}.npy"],
    "exports.numpy.number_digits": [1, 4],
    "exports.numpy.placeholders": [True, False],
    "exports.numpy.checkpoints": [True, False],
    "exports.megatron": [None, {}],
    "exports.megatron.part_bytes": [150, 900, "1GB"],
    "exports.nanoset": [None, {}],
    "exports.nanoset.file_bytes": [150, 900, "1GB"],
    "exports.nanoset.loss": [True, False],
    "exports.nanoset.sequence_tokens": [8, 2048],
    "exports.sample_documents": [None, 1, 4],
}
PATHS = {
    "folder": ["corpus"],
    "patterns": ["corpus/**/*.jsonl*", "corpus/*.parquet"],
    "lines": ["corpus/**/*.jsonl"],
    "two": ["corpus/deep", "corpus/[a-c]*"],
}
paths = [("source.paths", path) for path in PATHS.values()]
CHANGES = [*paths, *((key, value) for key, values in VALUES.items() for value in values)]
STEPS = [*_steps("index"), *_steps("writeback"), _steps("index")[1] + _steps("writeback")[3]]
# The recorded family of tests/sameness has none: steps are code, which digests of outputs would have to name.
_ALL = [*CHANGES, *(("steps", steps) for steps in [None, *STEPS])]
changes = st.integers(0, len(_ALL) - 1).map(_ALL.__getitem__)
with_files_beside = st.one_of(changes, changes, st.sampled_from(beside.CHANGES))


def first_settings(name: str) -> Settings:
    """Everything small, all formats on; about a shard a file, few records a cell: an edit leaves some as they are."""
    return {
        "name": name,
        "source": {"paths": PATHS["folder"], "shard_bytes": 3000, "max_rejected_share": 1},
        "dedup": {"mode": "remove", "minimum_bytes": 12},
        "tokenizer": {
            "name": "tiny",
            "pattern": "cl100k_base",
            "special_tokens": special_tokens(),
            "eot": "<|endoftext|>",
            "pad": "<|pad|>",
        },
        "audit": {"minimum_documents": 5, "bytes_per_token_band": 1},
        "shuffle": {"seed": 1, "cells": 12},
        "exports": {
            "webdataset": {"context_tokens": 17, "contexts_per_shard": 4},
            "numpy": {"tokens_per_shard": 150},
            "megatron": {"part_bytes": 400},
            "nanoset": {"file_bytes": 900},
        },
    }


def changed(settings: Settings, wanted: list[Change]) -> Settings:
    """The settings with changes; each that does not go with the others is left out."""
    for key, value in wanted:
        tried = copy.deepcopy(settings)
        *sections, last = key.split(".")
        inner = tried
        for section in sections:
            if inner.get(section) is None:
                inner[section] = {}
            inner = inner[section]
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = copy.deepcopy(value)
        try:
            configuration(tried, Path("/sources"), Path("/vocabulary"))
        except ConfigError:
            continue
        settings = tried
    return settings


def configuration(settings: Settings, sources: Path, vocabulary: Path) -> DatasetConfig:
    """A configuration whose sources are absolute, and whose work folder and destination lie below CORPUSMILL_ROOT.

    So two builds that lie at two places have equal settings, down to the destination's address in exp_data.json.
    """
    whole = copy.deepcopy(settings)
    whole["source"]["paths"] = [str(sources / path) for path in whole["source"]["paths"]]
    whole["tokenizer"]["file"] = str(vocabulary)
    whole = beside.placed(whole, sources)
    if "budget" in whole:
        whole["budget"] = {str(sources / path): amount for path, amount in whole["budget"].items()}
    whole |= {"destinations": [{"path": "outputs"}], "work_folder": "work"}
    return check_config(whole, where="the search")
